"""A server that only answers questions, from what others have counted."""
import http.client
import time
import urllib.error
import urllib.request

import pytest

import harness
import prometheus
from reconciliation import link_stats, window
from harness import assert_problem, until
from test_docs import documented_metrics
from ways import Backends, Way


@pytest.fixture(scope="module")
def backends(engines):
    return Backends(engines)


@pytest.fixture
def pair(nursery, backends):
    """A way, and a server beside it that only answers."""
    way = Way(nursery, backends, "kafka", "clickhouse")
    yield way, nursery.server("--workers", "1", "--role", "stats", env=way.env).start()
    way.end()


def test_it_answers_what_others_have_counted(pair):
    way, answers = pair
    key = way.server.create()["key"]
    for number in range(5):
        assert way.server.target(key)
        event = {"id": f"i{number % 4}", "ts": int(time.time() * 1000), "userId": "u", "adId": "a"}
        assert way.server.post("/event", json=event, key=None).status_code == 204
    way.settled()
    assert link_stats(answers, key)["clicks"] == 5
    assert window(answers) == {"a": 4}
    assert answers.get("/api/v1/links").json()["links"][0]["key"] == key
    assert answers.get("/readyz", key=None).json()["status"] == "ready"
    assert answers.get("/metrics", key=None).status_code == 200


def test_it_takes_nothing(pair):
    way, answers = pair
    key = way.server.create()["key"]
    event = {"id": "1", "ts": int(time.time()), "userId": "u", "adId": "a"}
    for ask in (lambda: answers.get(f"/{key}", key=None), lambda: answers.get("/", key=None),
                lambda: answers.post("/event", json=event, key=None),
                lambda: answers.post("/api/v1/links", json={"original_url": "https://example.com/"}),
                lambda: answers.delete(f"/api/v1/links/{key}"), lambda: answers.get("/api/v1/live"),
                lambda: answers.get("/api/v1/reconcile")):
        assert_problem(ask(), 421, "only answers queries")
    assert way.server.link(key)
    way.server.target(key)
    until(lambda: link_stats(answers, key)["clicks"] == 1, "the click of the other server is counted, and no other")


def test_live_clicks_are_shown_before_they_are_stored(pair):
    way, _ = pair
    key = way.server.create()["key"]
    for _ in range(3):
        way.server.target(key)
    way.settled()
    until(lambda: way.server.link(key)["clicks"] == 3, "the link shows its clicks")


def test_a_worker_tells_how_it_is_and_nothing_else(pair):
    worker = pair[0].workers[0]

    def ask(path, method="GET"):
        try:
            with urllib.request.urlopen(urllib.request.Request(worker.url + path, method=method), timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()
    assert ask("/healthz") == (200, "ok\n")
    assert ask("/readyz", "HEAD") == (200, "")
    until(lambda: "curt_queue_lag_messages{" in ask("/metrics")[1], "it has its share of the partitions")
    sections = documented_metrics()
    assert set(prometheus.parse(ask("/metrics")[1]).types.items()) == sections["Every process"] | sections["curt worker"]
    assert ask("/api/v1/links") == (404, "not found; there are /healthz, /readyz and /metrics\n")
    assert ask("/healthz", "POST") == (405, "only GET and HEAD are allowed here\n")
    for method, target in (("POST", "/healthz"), ("CONNECT", "curt.test:443")):
        connection = http.client.HTTPConnection(worker.url.removeprefix("http://"), timeout=10)
        connection.request(method, target)
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("Allow")) == (405, "GET, HEAD, OPTIONS")


def test_a_sink_of_its_own_is_no_use_to_it(nursery):
    server = nursery.server("--role", "stats")
    with pytest.raises(AssertionError, match="serve.role = stats needs a shared sink"):
        server.start()
    assert not server.data.exists()


def test_a_worker_says_what_it_lacks(engines, tmp_path):
    def run(*flags, env=None):
        done = harness.curt("worker", "--data", tmp_path / "data", *flags, env=env)
        assert done.returncode == 1 and done.stdout == "", done
        return done.stderr
    assert "queue.url is not set" in run()
    store = engines.postgres(durable=False).database("lacks")
    kafka = ("--queue-url", "kafka://127.0.0.1:1", "--store-url", store)
    assert "store.url" in run("--queue-url", "kafka://127.0.0.1:1")
    assert "sink.url" in run(*kafka) and "shared" in run(*kafka)
    assert "sink.url names no known sink" in run(*kafka, "--sink-url", "oracle://x")
    assert "sink.url" in run(*kafka, "--sink-url", "clickhouse://127.0.0.1:1/curt")
    assert "secret" not in run(*kafka, "--sink-url", "clickhouse://u:secret@127.0.0.1:1/curt")
    sink = ("--sink-url", engines.clickhouse().url("lacks"))
    assert "queue.url" in run("--queue-url", "rabbit://x", "--store-url", store, *sink)
