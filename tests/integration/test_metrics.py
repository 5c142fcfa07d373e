"""/metrics, /healthz and /readyz."""
import collections
import contextlib
import os
import re
import time

import pytest

import prometheus
from reconciliation import settled
from harness import ADMIN_KEY, ROOT, WELL, hammer, scaled, until
from wire import request

URL = "https://example.com/"
HIT, NEGATIVE, MISS = (f'curt_cache_lookups_total{{result="{kind}"}}' for kind in ("hit", "negative", "miss"))
# They move when the server finds the time.
RESTLESS = ("curt_loop_turns_total", "curt_connections_closed_total", "process_cpu_seconds_total")
# What the stats worker does, it does later; a shared cache is not there for everybody.
OTHERS = ("curt_stats_", "curt_events_segments_", "curt_shared_cache_")
LOGGED = {kind: f'curt_events_logged_total{{kind="{kind}"}}' for kind in ("click", "orphan", "impression")}
CLASS = {kind: f'curt_http_responses_total{{class="{kind}"}}' for kind in ("2xx", "3xx", "4xx", "5xx")}


def test_the_metrics_are_prometheus_text(server):
    server.create(alias="here")
    server.target("here")
    response = server.get("/metrics", key=None)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = prometheus.parse(response.text)
    assert all(name.startswith(("curt_", "process_")) for name in families.types)
    assert families.types["curt_store_commit_duration_seconds"] == "histogram"
    assert families["curt_store_commit_duration_seconds_count"] >= 1


def test_a_fresh_server_has_every_counter_at_zero(server):
    families = prometheus.read(server)
    for name, kind in families.types.items():
        if kind == "counter" and name not in ("curt_connections_accepted_total", *RESTLESS):
            assert all(value == 0 for sample, value in families.items() if sample.split("{")[0] == name), name


def test_every_counter_of_the_source_is_there(server):
    source = (ROOT / "src" / "obs" / "metrics.h").read_text()
    families = prometheus.read(server)
    counters = re.findall(r'X\(\w+, "(\w+_total)", "((?:\\"|[^"])*)",', source)
    assert len(counters) > 40
    for name, labels in counters:
        assert name + ("{%s}" % labels.replace('\\"', '"') if labels else "") in families


def test_the_process_and_its_build_are_described(server):
    families = prometheus.read(server)
    build = [re.fullmatch(r'curt_build_info\{version="(.*)",commit="[0-9a-z-]*"\}', name) for name in families]
    assert [found[1] for found in build if found] == [(ROOT / "VERSION").read_text().strip()]
    pid = server.process.pid
    assert abs(families["process_start_time_seconds"] - os.stat(f"/proc/{pid}").st_ctime) < 2
    assert families["process_open_fds"] >= 3 and families["process_threads"] > 3
    assert families["process_open_fds"] == len(os.listdir(f"/proc/{pid}/fd")) <= families["process_max_fds"]
    assert 1 << 20 < families["process_resident_memory_bytes"] < families["process_virtual_memory_bytes"]
    assert 0 < families["process_cpu_seconds_total"] < 600
    assert prometheus.read(server)["process_start_time_seconds"] == families["process_start_time_seconds"]


def durations(server):
    """route -> requests whose duration was counted."""
    return {found[1]: count for name, count in prometheus.read(server).items()
            if (found := re.fullmatch(r'curt_http_request_duration_seconds_count\{route="(.*)"\}', name))}


def test_the_duration_of_each_request_is_counted_by_its_route(warm):
    before = durations(warm)
    warm.get("/one", key=None)
    warm.get("/one", key=None)
    assert warm.get("/nothing", key=None).status_code == 404
    assert warm.get("/one+", key=None).status_code == 200
    warm.change("one", title="x")
    warm.link("one")
    warm.links()
    warm.create()
    assert warm.get("/api/v1/nothing").status_code == 404
    assert warm.get("/event").status_code == 405
    wire = warm.connect()
    wire.send(b"nonsense\r\n\r\n")
    assert wire.read().status == 400
    after = durations(warm)
    assert {route: after[route] - before.get(route, 0) for route in after if after[route] != before.get(route)} == {
        "/{key}": 4, "/api/v1/links/{key}": 2, "/api/v1/links": 2, "other": 3, "/metrics": 1}


@contextlib.contextmanager
def moved(server, counts):
    """What happens inside moves the counters by exactly so much. The scrape before it is itself a request."""
    expected = collections.Counter({"curt_http_requests_total": 1, CLASS["2xx"]: 1})
    expected.update(counts)
    before = prometheus.read(server)
    yield
    after = prometheus.read(server)
    difference = {name: after[name] - before[name] for name in after if after[name] != before.get(name)
                  and after.types.get(name.split("{")[0]) == "counter" and name not in RESTLESS
                  and not name.startswith(OTHERS)}
    assert difference == expected


@pytest.fixture
def warm(server):
    """A server that keeps one connection to us, and has the links `one` and `two`, neither cached."""
    server.create("https://example.com/one", alias="one")
    server.create("https://example.com/two", alias="two")
    return server


def test_creates_move_the_counters_by_what_was_done(warm):
    with moved(warm, {"curt_http_requests_total": 5, CLASS["2xx"]: 3, CLASS["4xx"]: 2, "curt_links_created_total": 3,
                      "curt_store_writes_total": 4, "curt_store_commits_total": 4}):
        for _ in range(3):
            warm.create()
        assert warm.post("/api/v1/links", json={"original_url": URL, "alias": "one"}).status_code == 409
        assert warm.post("/api/v1/links", json={"original_url": "nonsense"}).status_code == 400


def test_redirects_move_the_counters_by_what_was_done(warm):
    with moved(warm, {"curt_http_requests_total": 15, CLASS["3xx"]: 15, "curt_redirects_total": 15, HIT: 13, MISS: 2,
                      LOGGED["click"]: 15, "curt_store_lookups_total": 2, "curt_store_lookup_batches_total": 2}):
        for _ in range(10):
            assert warm.get("/one", key=None).status_code == 302
        for _ in range(5):
            assert warm.head("/two", key=None).status_code == 302


def test_misses_move_the_counters_by_what_was_done(warm):
    with moved(warm, {"curt_http_requests_total": 5, CLASS["4xx"]: 5, MISS: 1, NEGATIVE: 3,
                      LOGGED["orphan"]: 5, "curt_store_lookups_total": 1, "curt_store_lookup_batches_total": 1}):
        for _ in range(4):
            assert warm.get("/nothing", key=None).status_code == 404
        assert warm.get("/no.key", key=None).status_code == 404


def test_changes_and_deletes_move_the_counters_by_what_was_done(warm):
    with moved(warm, {"curt_http_requests_total": 6, CLASS["2xx"]: 4, CLASS["4xx"]: 2, "curt_links_deleted_total": 1,
                      "curt_store_writes_total": 3, "curt_store_commits_total": 3, "curt_store_lookups_total": 2,
                      "curt_store_lookup_batches_total": 2}):
        warm.change("one", title="x")
        warm.remove("two")
        assert warm.delete("/api/v1/links/two").status_code == 404
        assert warm.link("one") and not warm.link("two")
        warm.links()


def test_events_move_the_counters_by_what_was_done(warm):
    event = {"id": "e-1", "ts": int(time.time()), "userId": "u-1", "adId": "a-1"}
    with moved(warm, {"curt_http_requests_total": 3, CLASS["2xx"]: 2, CLASS["4xx"]: 1, LOGGED["impression"]: 3,
                      "curt_events_invalid_total": 2}):
        assert warm.post("/event", json=event, key=None).status_code == 204
        assert warm.post("/event", json=[event, event, {}], key=None).json()["accepted"] == 2
        assert warm.post("/event", json={}, key=None).status_code == 400


def test_what_the_stats_worker_has_done_shows_in_its_counters(warm):
    event = {"id": "e-1", "ts": int(time.time()), "userId": "u-1", "adId": "a-1"}
    warm.post("/event", json=[event, event], key=None)
    warm.target("one")
    settled(warm)

    def once_they_have_been_told():  # a moment after the sink has it all
        families = prometheus.read(warm)
        told = families['curt_stats_events_total{kind="visit"}'] + families['curt_stats_events_total{kind="impression"}'] + \
            families["curt_stats_duplicates_total"]
        return families if told >= 3 else None
    families = until(once_they_have_been_told, "the counters tell of it")
    assert families['curt_stats_events_total{kind="visit"}'] == 1
    assert families['curt_stats_events_total{kind="impression"}'] == 1
    assert families["curt_stats_duplicates_total"] == 1
    assert families["curt_stats_batches_total"] == families["curt_stats_commit_duration_seconds_count"] >= 1
    assert families["curt_stats_commit_failures_total"] == families["curt_stats_dead_letters_total"] == 0
    assert families["curt_events_spool_bytes"] == 0


def test_a_preview_is_no_redirect(warm):
    with moved(warm, {"curt_http_requests_total": 1, CLASS["2xx"]: 1, "curt_store_lookups_total": 1,
                      "curt_store_lookup_batches_total": 1}):
        assert warm.get("/one+", key=None).status_code == 200


def test_a_refusal_by_a_limit_moves_its_counter(warm):
    client = warm.client(warm.make_key(creates_limit=1, limit_period_s=3600)["key"])
    client.create()
    with moved(warm, {"curt_http_requests_total": 2, CLASS["4xx"]: 2, "curt_http_requests_limited_total": 2}):
        for _ in range(2):
            assert client.post("/api/v1/links", json={"original_url": URL}).status_code == 429


def test_a_request_that_cannot_be_read_is_counted_as_well(warm):
    wire = warm.connect()
    assert wire.get("/healthz").status == 200
    with moved(warm, {"curt_http_requests_total": 1, CLASS["4xx"]: 1}):
        wire.send(b"nonsense\r\n\r\n")
        answer = wire.read()
        assert answer.status == 400


def test_connections_are_counted(server):
    with moved(server, {"curt_http_requests_total": 10, CLASS["2xx"]: 10, "curt_connections_accepted_total": 10}):
        for _ in range(10):
            assert server.connect().get("/healthz").status == 200


def test_the_counters_of_all_workers_add_up_under_load(server, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("".join(server.create(f"https://example.com/{i}")["key"] + "\n" for i in range(50)))
    before = prometheus.read(server)
    count = scaled(200_000)
    report = hammer("redirect", port=server.port, keys=keys, connections=32, pipeline=4, count=count)
    assert report["wrong"] == report["broken"] == 0
    after = prometheus.read(server)
    answered = report["answered"]
    assert answered >= count
    assert after["curt_redirects_total"] - before["curt_redirects_total"] == answered
    assert after[CLASS["3xx"]] - before[CLASS["3xx"]] == answered
    assert after[HIT] + after[MISS] - before[HIT] - before[MISS] == answered
    assert after["curt_cache_entries"] == 50


def test_pool_threads_count_under_load_too(server, tmp_path):
    before = prometheus.read(server)
    report = hammer("create", port=server.port, token=ADMIN_KEY, ledger=tmp_path / "ledger", prefix="x", connections=32,
                    count=scaled(20_000))
    after = prometheus.read(server)
    made = report["acknowledged"]
    assert after["curt_links_created_total"] - before["curt_links_created_total"] == made
    assert after["curt_store_writes_total"] - before["curt_store_writes_total"] == made
    commits = after["curt_store_commits_total"] - before["curt_store_commits_total"]
    assert after["curt_store_commit_duration_seconds_count"] - before["curt_store_commit_duration_seconds_count"] == commits
    assert commits < made, "creates of many connections share commits"


def test_the_cache_stays_within_its_bound_and_counts_what_it_drops(serve, tmp_path):
    server = serve("--workers", "2", "--cache-memory", "1m")
    ledger, count = tmp_path / "ledger", scaled(20_000) + 10_000
    hammer("create", port=server.port, token=ADMIN_KEY, ledger=ledger, prefix="x", connections=32, count=count)
    report = hammer("verify", port=server.port, ledger=ledger, connections=32, pipeline=8)
    assert (report["wrong"], report["broken"]) == (0, 0)
    families = prometheus.read(server)
    assert families["curt_cache_max_bytes"] == 1 << 20
    assert 0 < families["curt_cache_bytes"] <= 1 << 20
    dropped = families['curt_cache_evictions_total{queue="main"}'] + families['curt_cache_evictions_total{queue="small"}']
    assert families["curt_cache_entries"] + dropped == count


# Health

def test_health_and_readiness_are_told_to_everybody(server):
    answers = {"/healthz": {"status": "alive"}, "/readyz": {"status": "ready", "checks": WELL}}
    for path, answer in answers.items():
        response = server.get(path, key=None)
        assert (response.status_code, response.json()) == (200, answer)
        assert response.headers["Content-Type"] == "application/json"


def test_health_is_answered_pipelined_with_all_else(server):
    wire = server.connect()
    wire.send(request("GET", "/readyz") + request("GET", "/healthz") + request("GET", "/metrics"))
    assert [wire.read().status for _ in range(3)] == [200, 200, 200]
