"""Much at once: everything is answered, everything is counted, nothing grows without bound."""
import os

import pytest

from reconciliation import Clicks, link_stats, overview, reconcile, settled
from harness import ADMIN_KEY, hammer, hammer_end, hammer_start, until
from nursery import Nursery
from prometheus import metric

pytestmark = [pytest.mark.slow, pytest.mark.release_only]

LINKS = 20_000
RATE = int(os.environ.get("CURT_LOAD_RATE", 12_000))
SECONDS = int(os.environ.get("CURT_LOAD_SECONDS", 10))
BURST_SECONDS = int(os.environ.get("CURT_BURST_SECONDS", 3))
MEMORY_MAX_KIB = 512 * 1024
DRAIN_S = 120


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """A server with many links, all of them in its cache, and the file of their keys."""
    nursery = Nursery(tmp_path_factory.mktemp("loaded"))
    server = nursery("--workers", "2")
    keys = nursery.folder / "keys"
    hammer("create", port=server.port, token=ADMIN_KEY, ledger=keys, prefix="load", count=LINKS)
    yield server, keys
    nursery.finish()


def test_twelve_thousand_redirects_a_second_are_all_answered_and_all_counted(loaded, tmp_path):
    server, keys = loaded
    before = settled(server)
    report = hammer("redirect", port=server.port, keys=keys, ledger=tmp_path / "ledger", connections=64, rate=RATE,
                    skew=80, browsers=1, seconds=SECONDS)
    print(f"\n{report['answered']} answered at {report['per_second']}/s for {report['seconds']} s; from the moment they "
          f"were due: p50 {report['p50_us']} us, p99 {report['p99_us']} us, max {report['max_us']} us")
    assert report["answered"] == report["3xx"] == RATE * SECONDS
    assert (report["wrong"], report["broken"]) == (0, 0), report["first_wrong"]
    after = settled(server, seconds=DRAIN_S)
    for name in ("redirects_served", "clicks_logged", "clicks_consumed", "clicks_in_rollups", "visit_rows"):
        assert after[name] - before[name] == report["answered"], name
    clicks = Clicks()
    clicks.read(tmp_path / "ledger")
    hot = [key for key, _ in clicks.answered.most_common(100)]
    clicks_of = {key: link_stats(server, key)["clicks"] for key in hot}
    assert clicks_of == {key: clicks.answered[key] for key in hot}
    assert sum(clicks.answered.values()) == overview(server)["clicks"] - before["clicks_in_rollups"]


def test_a_burst_is_counted_to_the_last_and_its_backlog_drains_by_itself(loaded):
    server, keys = loaded
    before = settled(server)
    calm = hammer_start("redirect", port=server.port, keys=keys, connections=4, rate=100, browsers=1,
                        seconds=BURST_SECONDS + 2)
    until(lambda: reconcile(server)["redirects_served"] - before["redirects_served"] > 100, "the calm has begun")
    burst = hammer("redirect", port=server.port, keys=keys, connections=2 * (os.cpu_count() or 1), pipeline=16, skew=80,
                   browsers=1, seconds=BURST_SECONDS)
    backlog, memory = reconcile(server)["clicks_pending"], server.status_field("VmHWM")
    after_burst = hammer_end(calm)
    for report in (burst, after_burst):
        assert (report["wrong"], report["broken"]) == (0, 0), report["first_wrong"]
    after = settled(server, seconds=DRAIN_S)
    print(f"\nburst of {burst['answered']} at {burst['per_second']}/s; {backlog} waited then; VmHWM {memory} KiB then, "
          f"{server.status_field('VmHWM')} KiB when it had drained; the calm ones' p99 {after_burst['p99_us']} us")
    assert after["clicks_in_rollups"] - before["clicks_in_rollups"] == burst["answered"] + after_burst["answered"]
    assert after["dropped"] == 0
    until(lambda: metric(server, "curt_events_spool_bytes") == 0, "nothing waits")
    assert server.status_field("VmHWM") < MEMORY_MAX_KIB
