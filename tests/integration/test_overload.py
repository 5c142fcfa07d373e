"""Overload: what is lost is reported, what was acknowledged is kept, and the server recovers by itself."""
import contextlib
import os
import resource
import subprocess
import time

import pytest

import prometheus
from reconciliation import Clicks, Impressions, Stuck, link_stats, reconcile, settled, window
from harness import assert_problem, hammer, scaled, until

SPOOL = 1 << 20
SMALL = ("--workers", "2", "--events-spool-bytes", "1m", "--events-segment-bytes", "64k", "--events-keep-time", "0ms",
         "--worker-interval-ms", "5")


def event(number):
    return {"id": f"single-{number}", "ts": int(time.time() * 1000), "userId": "u", "adId": "single"}


@pytest.fixture
def keys(tmp_path):
    """keys(server): a file with the keys of some fresh links, and the keys."""
    def make(server, count=20):
        made = [server.create(f"https://example.com/{i}")["key"] for i in range(count)]
        path = tmp_path / "keys"
        path.write_text("".join(f"{key}\n" for key in made))
        return path, made
    return make


def fill(server, path, ledger):
    """Redirects until the spool is full, and some more."""
    reports = []
    while True:
        reports.append(hammer("redirect", port=server.port, keys=path, ledger=ledger, connections=8, pipeline=4,
                              browsers=1, count=5000))
        assert reports[-1]["wrong"] == reports[-1]["broken"] == 0, "redirects go on"
        if prometheus.metric(server, 'curt_events_dropped_total{kind="click"}') > 1000:
            return sum(report["answered"] for report in reports)


def until_the_spool_is_empty(server):
    """A moment after the sink has it all: what it has taken leaves the spool then."""
    until(lambda: prometheus.metric(server, "curt_events_spool_bytes") == 0, "nothing waits")


def test_a_sink_that_cannot_keep_up_costs_clicks_that_are_counted_as_dropped_and_nothing_else(serve, keys, tmp_path):
    server = serve(*SMALL)
    path, made = keys(server)
    clicks, impressions = Clicks(), Impressions()
    assert server.post("/event", json=event(0), key=None).status_code == 204
    settled(server)
    with Stuck(server):
        answered = fill(server, path, tmp_path / "clicks")
        refusal = server.post("/event", json=event(1), key=None)
        assert_problem(refusal, 503, "Too many events wait")
        assert refusal.headers["Retry-After"] == "5"
        report = hammer("events", port=server.port, ledger=tmp_path / "events", prefix="late", connections=4, count=200)
        assert report["5xx"] == 200 and report["wrong"] == 0
        ready = server.get("/readyz", key=None)
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded"), "links are served all the same"
        assert ready.json()["checks"]["store"] == "ok"
        assert any("wait" in why or "spool" in why for why in ready.json()["checks"].values()), ready.json()
        families = prometheus.read(server)
        assert 0.9 * SPOOL < families["curt_events_spool_bytes"] < 1.1 * SPOOL
        assert families["curt_events_requests_refused_total"] == 201
        assert families["curt_redirects_total"] == answered
        assert server.target(made[0]) is not None
        assert sum(file.stat().st_size for file in (server.data / "events").glob("*.log")) < 1.5 * SPOOL
    clicks.read(tmp_path / "clicks")
    impressions.read(tmp_path / "events")
    now = settled(server)
    counted = {key: link_stats(server, key)["clicks"] for key in made}
    assert now["redirects_served"] == answered + 1
    assert now["dropped"] == answered + 1 - sum(counted.values()) > 1000
    assert all(counted[key] <= clicks.answered[key] + 1 for key in made)
    assert not impressions.taken and window(server) == {"single": 1}
    until(lambda: server.get("/readyz", key=None).json()["status"] == "ready", "it is well again")
    assert server.post("/event", json=event(1), key=None).status_code == 204
    server.target(made[0])
    after = settled(server)
    assert after["clicks_in_rollups"] == now["clicks_in_rollups"] + 1 and after["dropped"] == now["dropped"]
    assert window(server) == {"single": 2}
    until_the_spool_is_empty(server)


def test_what_was_dropped_is_still_told_after_a_restart(serve, keys, tmp_path):
    server = serve(*SMALL)
    path, made = keys(server)
    with Stuck(server):
        answered = fill(server, path, tmp_path / "clicks")
    settled(server)
    until_the_spool_is_empty(server)
    server.target(made[0])  # a tally goes out with what is written next
    before = settled(server)
    server.restart()
    after = settled(server)
    assert after["redirects_served"] == answered + 1 == after["clicks_logged"] + after["dropped"]
    assert after["dropped"] == before["dropped"]


def test_a_spool_that_is_full_at_the_start_drains(serve, keys, tmp_path):
    server = serve(*SMALL)
    path, made = keys(server)
    with Stuck(server):
        fill(server, path, tmp_path / "clicks")
        before = reconcile(server)
        server.kill()
    server.start()
    after = settled(server)
    assert after["clicks_in_rollups"] == before["clicks_logged"]
    until_the_spool_is_empty(server)
    assert server.post("/event", json=event(0), key=None).status_code == 204


def test_a_sink_that_is_stuck_for_a_moment_loses_nothing(server, keys, tmp_path):
    path, made = keys(server)
    with Stuck(server):
        report = hammer("redirect", port=server.port, keys=path, connections=8, count=scaled(20_000))
        until(lambda: server.get("/readyz", key=None).json()["status"] == "degraded", "it says that it does not get on")
        assert reconcile(server)["clicks_pending"] > 0
        assert server.get("/stats?timeWindowMinutes=5", key=None).status_code == 200, "questions are answered"
    now = settled(server)
    assert now["clicks_in_rollups"] == report["answered"] and now["dropped"] == 0
    until(lambda: server.get("/readyz", key=None).json()["status"] == "ready", "it is well again")


@pytest.mark.release_only
def test_limited_links_do_not_wait_for_a_sink_that_is_down_nor_hold_up_the_end(serve):
    """Their clicks cannot be counted then. 200 are more than the counter takes on at once."""
    server = serve("--workers", "2", "--drain-time", "100ms")
    made = [server.create(max_clicks=5)["key"] for _ in range(200)]
    for key in made:
        server.change(key, max_clicks=6)  # a limit that was changed is counted again
    plain = server.create()["key"]
    with Stuck(server):
        assert server.target(plain), "something for the sink to take"
        until(lambda: server.get("/readyz", key=None).json()["status"] == "degraded", "it says that it does not get on")
        for key in made:
            assert_problem(server.get("/" + key, key=None), 503, "cannot be counted")
        assert server.target(server.create(max_clicks=1)["key"]), "a new one has had no click"
        server.close()
        server.stop()


# No room for the log

def limit_file_size(server, size):
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def write_one_event(server, number):
    return server.post("/event", json=event(number), key=None)


def test_a_log_that_cannot_grow_costs_what_comes_then_and_nothing_else(serve, keys, tmp_path):
    """The system refuses the server any write beyond a size of file: as a full disk does, but for any user."""
    server = serve("--workers", "1", "--worker-interval-ms", "5")
    path, made = keys(server)
    for number in range(10):
        assert write_one_event(server, number).status_code == 204
        assert server.target(made[0])
    settled(server)
    log, = (server.data / "events").glob("*.log")
    limit_file_size(server, log.stat().st_size + 100)
    refused = [number for number in range(10, 30) if write_one_event(server, number).status_code != 204]
    assert refused, "there was no room for all"
    assert_problem(write_one_event(server, 29), 503, "event log cannot be written")
    report = hammer("redirect", port=server.port, keys=path, connections=4, pipeline=8, count=1000)
    assert report["wrong"] == report["broken"] == 0, "redirects go on"
    ready = server.get("/readyz", key=None).json()
    assert ready["status"] == "degraded" and ready["checks"]["event_log"] != "ok", ready
    limit_file_size(server, resource.RLIM_INFINITY)
    for number in range(30):
        until(lambda: write_one_event(server, number).status_code == 204, "the log is written again")
    until(lambda: server.get("/readyz", key=None).json()["status"] == "ready", "it is well again")
    now = settled(server)
    assert window(server) == {"single": 30}
    assert now["redirects_served"] == 10 + 1000 == now["clicks_in_rollups"] + now["dropped"]
    assert now["dropped"] >= 990
    server.stop()
    assert server.curt("verify").returncode == 0


def mount(path, size):
    path.mkdir()
    return subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], capture_output=True).returncode == 0


@pytest.fixture
def tiny_disk(tmp_path):
    place = tmp_path / "disk"
    if os.geteuid() != 0 or not mount(place, "12m"):
        pytest.skip("a small disk of one's own needs root")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def fill_up(ballast):
    with contextlib.suppress(OSError), open(ballast, "ab", buffering=0) as file:
        while True:
            file.write(b"x" * 65536)


def test_a_full_disk_is_reported_and_over_when_there_is_room(nursery, tiny_disk, tmp_path):
    server = nursery.server("--workers", "1", "--worker-interval-ms", "5", data=tiny_disk / "data").start()
    made = [server.create()["key"] for _ in range(3)]
    path = tmp_path / "keys"
    path.write_text("".join(f"{key}\n" for key in made))
    hammer("redirect", port=server.port, keys=path, connections=4, count=500)
    settled(server)
    ballast = tiny_disk / "ballast"
    answered = 500

    def is_told():
        """The sink, on the same disk, may have made room again at any moment."""
        refusal, ready = write_one_event(server, 1), server.get("/readyz", key=None).json()
        if refusal.status_code == 204 or ready["checks"]["event_log"] == "ok":
            return False
        assert_problem(refusal, 503)
        assert ready["status"] == "degraded", ready
        return True

    while reconcile(server)["dropped"] == 0 or not is_told():
        fill_up(ballast)
        report = hammer("redirect", port=server.port, keys=path, connections=4, count=2000)
        assert report["wrong"] == report["broken"] == 0, "redirects go on"
        answered += report["answered"]
    ballast.unlink()
    until(lambda: write_one_event(server, 1).status_code == 204, "the log is written again")
    now = settled(server)
    assert now["redirects_served"] == answered == now["clicks_in_rollups"] + now["dropped"]
    assert window(server)["single"] == 1
    until(lambda: server.get("/readyz", key=None).json()["status"] == "ready", "it is well again")
    server.stop()
    assert server.curt("verify").returncode == 0
