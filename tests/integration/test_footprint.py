"""How little an idle server holds, and how soon a large one is ready."""
import time

import pytest

from harness import ADMIN_KEY, hammer
from lives import CREATES

pytestmark = [pytest.mark.slow, pytest.mark.release_only, pytest.mark.embedded("it measures the embedded store")]

MEMORY_MAX_KIB = 25_000_000 // 1024
READY_MAX_S = 0.2
STARTS, STARTS_MAX = 5, 25  # other work on the machine may take part of the time: the best of many counts


def seconds_until_healthy(server):
    begun = time.perf_counter()
    server.start()
    assert server.get("/healthz", key=None).status_code == 200
    return time.perf_counter() - begun


def test_an_idle_server_holds_less_than_25_mb(server):
    server.get("/healthz")
    assert server.status_field("VmRSS") < MEMORY_MAX_KIB


def test_an_idle_server_with_a_million_links_holds_less_than_25_mb(many_lives):
    server = many_lives.stopped().start()
    server.get("/healthz")
    assert server.status_field("VmRSS") < MEMORY_MAX_KIB


def test_a_server_with_a_million_links_is_ready_in_200_ms_after_a_clean_stop(many_lives):
    server = many_lives.stopped()
    assert CREATES == 1_000_000
    times = []
    while len(times) < STARTS or min(times) >= READY_MAX_S and len(times) < STARTS_MAX:
        times.append(seconds_until_healthy(server))
        assert server.get("/api/v1/links?limit=1").json()["links"]
        server.stop()
    assert min(times) < READY_MAX_S, times


def test_a_server_with_a_million_links_is_ready_in_200_ms_after_a_crash(many_lives, tmp_path):
    server = many_lives.running()
    times = []
    while len(times) < STARTS or min(times) >= READY_MAX_S and len(times) < STARTS_MAX:
        hammer("create", port=server.port, token=ADMIN_KEY, ledger=tmp_path / "ledger", prefix=f"late{len(times)}", count=5000)
        server.kill()
        assert (server.data / "links.db-wal").stat().st_size > 0, "there is a log to recover"
        times.append(seconds_until_healthy(server))
    assert min(times) < READY_MAX_S, times
