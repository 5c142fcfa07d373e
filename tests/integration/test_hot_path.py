"""The redirect of a cached link allocates nothing, frees nothing and takes no lock.

The server runs with a library in front of libc that counts what its workers do (tests/support/probe.c).
"""
import struct

import pytest

from reconciliation import settled
from harness import PROBE, until
from prometheus import metric
from wire import request

pytestmark = pytest.mark.release_only

ROUNDS = 20_000


class Probed:
    def __init__(self, server, path):
        self.server = server
        self.path = path

    def counts(self):
        """Allocations, frees, locks."""
        return struct.unpack("=QQQ", self.path.read_bytes())


@pytest.fixture
def probed(serve, tmp_path):
    path = tmp_path / "probe"
    # Where a store is shared, links are asked for again after a while; that is not what is counted here.
    server = serve("--workers", "2", "--limits-idle-time", "10m", "--cache-life", "1h",
                   wrapper=["env", f"LD_PRELOAD={PROBE}", f"CURT_PROBE_FILE={path}"])
    for i in range(20):
        server.create(f"https://example.com/{i}", alias=f"link-{i}")
    server.restart()  # no word of these changes is under way any more
    for i in range(20):
        assert server.target(f"link-{i}") == f"https://example.com/{i}"
    server.session.close()
    return Probed(server, path)


def warm_up(server, wires, data, answers):
    """Everything that is ever needed at the same time is needed at the same time once: the server stands still while
    all connections speak, and then finds all of it in one turn."""
    for _ in range(3):
        server.freeze()
        for wire in wires:
            wire.send(data)
        server.thaw()
        for wire in wires:
            for _ in range(answers):
                assert wire.read().status == 302


def test_the_probe_sees_what_a_worker_allocates_and_locks(probed):
    before = probed.counts()
    probed.server.create("https://example.com/new")
    probed.server.get("/not-there-yet")
    after = probed.counts()
    assert all(later > earlier for earlier, later in zip(before, after)), (before, after)


def test_redirects_over_warm_connections_neither_allocate_nor_free_nor_lock(probed):
    server = probed.server
    wires = [server.connect() for _ in range(16)]
    data = [request("GET", f"/link-{i}", "User-Agent: a browser", "Accept: text/html,*/*") for i in range(20)]
    warm_up(server, wires, data[0], 1)
    before = probed.counts()
    for i in range(ROUNDS):
        answer = wires[i % 16].ask(data[i % 20])
        assert answer.status == 302 and answer["Location"] == f"https://example.com/{i % 20}"
    assert probed.counts() == before
    assert metric(server, 'curt_cache_lookups_total{result="hit"}') >= ROUNDS


def visitor(number):
    """Header fields as a browser sends them, of one of many visitors."""
    return (f"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:{number}.0) Gecko/20100101 Firefox/{number}.0",
            f"Referer: https://www.example.org/page/{number}", f"Accept-Language: x{number}, en;q=0.8",
            "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "Accept-Encoding: gzip, deflate, br", "Sec-Fetch-Mode: navigate", f"X-Forwarded-For: 203.0.113.{number % 250}",
            "Cookie: consent=yes; session=0123456789abcdef", "Upgrade-Insecure-Requests: 1")


@pytest.mark.parametrize("visitors", [20, ROUNDS], ids=["some visitors", "every visitor a new one"])
def test_recording_who_comes_neither_allocates_nor_frees_nor_locks(probed, visitors):
    server = probed.server
    wires = [server.connect() for _ in range(16)]
    warm_up(server, wires, request("GET", "/link-0?source=qr", *visitor(0)), 1)
    before = probed.counts()
    for i in range(ROUNDS):
        assert wires[i % 16].ask(request("GET", f"/link-{i % 20}?source=qr", *visitor(i % visitors))).status == 302
    assert probed.counts() == before
    now = settled(server)
    assert now["clicks_in_rollups"] == ROUNDS + 3 * 16 + 20


def test_pipelined_redirects_on_many_connections_neither_allocate_nor_free_nor_lock(probed):
    server = probed.server
    wires = [server.connect() for _ in range(32)]
    data = b"".join(request("GET", f"/link-{i}") for i in range(16))
    warm_up(server, wires, data, 16)
    before = probed.counts()
    for _ in range(ROUNDS // (32 * 16) + 1):
        for wire in wires:
            wire.send(data)
        for wire in wires:
            for _ in range(16):
                assert wire.read().status == 302
    assert probed.counts() == before


def test_head_requests_are_as_free_and_remembered_misses_take_no_lock(probed):
    """A remembered miss may allocate, as it is rendered; it takes no lock."""
    server = probed.server
    wire = server.connect()
    for _ in range(50):
        assert wire.get("/remembered-miss").status == 404
    locks = probed.counts()[2]
    for _ in range(500):
        assert wire.get("/remembered-miss").status == 404
    assert probed.counts()[2] == locks
    wire.ask(request("HEAD", "/link-1"), method="HEAD")
    before = probed.counts()
    for _ in range(500):
        assert wire.ask(request("HEAD", "/link-1"), method="HEAD").status == 302
    assert probed.counts() == before


def test_redirects_of_a_limited_key_neither_allocate_nor_lock(probed):
    server = probed.server
    limited = server.client(server.make_key(redirects_limit=1_000_000, limit_period_s=3600)["key"])
    limited.create("https://example.com/limited", alias="limited")
    wire = server.connect()
    for _ in range(50):
        assert wire.get("/limited").status == 302
    before = probed.counts()
    for _ in range(2000):
        assert wire.get("/limited").status == 302
    assert probed.counts() == before


def test_a_cached_api_key_is_recognised_without_a_lock(probed):
    server = probed.server
    viewer = server.make_key(scopes=["read"])["key"]
    wire = server.connect()
    # The right is missing: so the answer is made on the worker, and nothing but the key is looked at.
    data = request("GET", "/api/v1/reconcile", key=viewer)
    for _ in range(50):
        assert wire.ask(data).status == 403
    locks = probed.counts()[2]
    for _ in range(500):
        assert wire.ask(data).status == 403
    assert probed.counts()[2] == locks


def test_the_hot_path_is_still_free_after_creates_have_disturbed_it(probed):
    server = probed.server
    wire = server.connect()
    for i in range(50):
        server.create("https://example.com/disturbing")
        assert wire.get("/link-3").status == 302
    server.session.close()
    until(lambda: len(set(probed.counts() for _ in range(20))) == 1, "the closed connection is cleaned up")
    before = probed.counts()
    for _ in range(1000):
        assert wire.get("/link-3").status == 302
    assert probed.counts() == before
