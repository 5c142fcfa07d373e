"""The counts agree at every moment, not only when all is quiet."""
import time

import pytest

from reconciliation import reconcile, settled
from harness import assert_problem, hammer_end, hammer_start, scaled

GROWING = ("redirects_served", "clicks_logged", "clicks_consumed", "clicks_in_rollups", "impressions_accepted",
           "impressions_consumed", "impressions_counted", "orphans_logged", "orphans_in_rollups", "duplicates", "rejected",
           "dropped")


def watch(server, loads):
    """Reconciles for as long as the loads go on; how often it did."""
    before, looks = reconcile(server), 0
    while any(load.poll() is None for load in loads):
        now = reconcile(server, deep=looks % 10 == 9)
        assert now["difference"] == 0, now
        assert all(now[name] >= before[name] for name in GROWING), (before, now)
        assert now["clicks_consumed"] <= now["clicks_logged"] == now["redirects_served"]
        assert now["clicks_pending"] == now["clicks_logged"] - now["clicks_consumed"]
        assert now["impressions_counted"] + now["duplicates"] == now["impressions_consumed"] <= now["impressions_accepted"]
        before, looks = now, looks + 1
    return looks


def test_the_reconciliation_balances_at_every_moment_of_a_load(serve, tmp_path):
    server = serve("--workers", "2", "--worker-interval-ms", "5")
    keys = tmp_path / "keys"
    keys.write_text("".join(server.create(f"https://example.com/{n}")["key"] + "\n" for n in range(20)))
    looks = answered = accepted = duplicates = 0
    while looks <= scaled(100):  # a slow machine looks less often meanwhile
        same = f"same-{looks}"
        loads = [hammer_start("redirect", port=server.port, keys=keys, connections=8, pipeline=4, browsers=1, seconds=2),
                 hammer_start("events", port=server.port, ledger=tmp_path / "one", prefix=same, connections=4, seconds=2),
                 hammer_start("events", port=server.port, ledger=tmp_path / "two", prefix=same, connections=2, seconds=2)]
        looks += watch(server, loads)
        redirects, one, two = [hammer_end(load) for load in loads]
        answered += redirects["answered"]
        accepted += one["acknowledged"] + two["acknowledged"]
        duplicates += min(one["acknowledged"], two["acknowledged"])  # both sent the same ids
    now = settled(server)
    assert now["clicks_in_rollups"] == answered
    assert now["impressions_accepted"] == accepted
    assert now["duplicates"] == duplicates


def test_the_reconciliation_goes_on_where_it_was_after_a_stop(server):
    server.create(alias="here")
    for _ in range(7):
        server.target("here")
        server.target("nowhere")
    event = {"id": "e", "ts": int(time.time()), "userId": "u", "adId": "a"}
    assert server.post("/event", json=[event, event, {}], key=None).status_code == 200
    before = settled(server)
    assert (before["redirects_served"], before["orphans_logged"], before["rejected"]) == (7, 7, 1)
    for _ in range(2):
        server.restart()
        assert settled(server) == before
    server.target("here")
    assert settled(server)["redirects_served"] == 8


def test_a_log_that_was_down_for_a_start_is_not_counted_again(server, tmp_path):
    server.create(alias="here")
    for _ in range(9):
        server.target("here")
    before = settled(server)
    server.stop()
    (server.data / "events").rename(tmp_path / "away")
    server.start()
    settled(server)
    server.stop()
    for path in (tmp_path / "away").glob("*.log"):
        path.rename(server.data / "events" / path.name)
    server.start()
    after = settled(server)
    assert (after["clicks_in_rollups"], after["visit_rows"]) == (before["clicks_in_rollups"], before["visit_rows"]) == (9, 9)


@pytest.mark.parametrize("deep", ["", "?", "?&", "?deep=false"])
def test_rows_are_counted_on_request_only(server, deep):
    response = server.get(f"/api/v1/reconcile{deep}")
    assert response.status_code == 200 and "visit_rows" not in response.json()


@pytest.mark.parametrize("query, words", [
    ("deep=maybe", ["'deep' is 'maybe'", "true or false"]), ("deep=", ["'deep' is ''", "true or false"]), ("deep", ["true or false"]),
    ("dep=true", ["'dep' is unknown", "did you mean deep?"]), ("deep=true&deep=true", ["'deep' appears twice"]),
    ("=true", ["'' is unknown"]), ("Deep=true", ["did you mean deep?"])])
def test_a_wrong_parameter_is_not_ignored(server, query, words):
    assert_problem(server.get(f"/api/v1/reconcile?{query}"), 400, *words)


def test_the_reconciliation_is_for_admins(server):
    assert_problem(server.client(server.make_key()["key"]).get("/api/v1/reconcile"), 403)
    assert_problem(server.get("/api/v1/reconcile", key=None), 401)
    assert_problem(server.post("/api/v1/reconcile"), 405)
