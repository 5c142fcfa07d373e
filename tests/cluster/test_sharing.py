"""Servers on one store: they start together, know the same people, and take keys from the source that is set."""
import pytest

from reconciliation import link_stats
from harness import assert_problem, is_over, until
from people import Person, key_of, make_user, still_let_in
from prometheus import metric, read
from test_docs import documented_metrics
from test_live import Feed


@pytest.fixture
def env(database):
    """A store that no server has seen before."""
    return {"CURT_STORE_URL": database}


def test_servers_that_start_at_once_on_an_empty_store_all_come_up(together, env):
    servers = together(4, env)
    key = servers[0].create("https://example.com/shared")["key"]
    for server in servers:
        assert server.target(key) == "https://example.com/shared"
    assert len(servers[0].keys()) == 1, "the preset key was made once"


def test_keys_that_servers_make_at_once_are_all_different(together, env):
    one, other = together(2, env)
    made = [server.create()["key"] for _ in range(50) for server in (one, other)]
    assert len(set(made)) == 100
    assert {link["key"] for link in one.links()} == set(made)


@pytest.mark.parametrize("told", [True, False], ids=["told", "not-told"])
def test_what_happens_to_people_holds_on_every_server(together, env, redis, told):
    if told:
        env["CURT_CACHE_URL"] = redis.url()
    one, other = together(2, env)
    user = make_user(one)
    until(lambda: any(known["id"] == user["id"] for known in other.users()), "the other knows the user")
    there = Person(other, user)
    assert still_let_in(there)
    here = Person(one, user)
    assert here.delete("/api/v1/session").status_code in (200, 204)
    assert still_let_in(there), "signing out ends one session, not the other's"
    assert one.patch(f"/api/v1/users/{user['id']}", json={"enabled": False}).status_code in (200, 204)
    until(lambda: not still_let_in(there), "the other knows that the user is disabled")


@pytest.mark.parametrize("told", [True, False], ids=["told", "not-told"])
def test_a_link_given_away_elsewhere_is_watched_no_more(together, env, redis, told):
    if told:
        env["CURT_CACHE_URL"] = redis.url()
    one, other = together(2, env)
    giver, taker = make_user(one), make_user(one)
    key = key_of(one, giver)["key"]
    until(lambda: other.get("/api/v1/links", key=key).status_code == 200, "the other knows the key")
    other.client(key).create(alias="given")
    feed, admins = Feed(other, "?key=given", key=key), Feed(other, "?key=given")
    other.target("given")
    assert feed.wait_for("click")["key"] == admins.wait_for("click")["key"] == "given"
    one.change("given", owner=taker["email"])
    feed.wire.sock.settimeout(0.05)

    def has_ended():
        other.target("given")
        try:
            feed.next()
        except TimeoutError:
            pass
        except EOFError:
            return True
        return False

    until(has_ended, "the feed ends")
    other.target("given")
    assert admins.wait_for("click")["key"] == "given", "an admin need not own it"


def test_clicks_without_a_limit_count_when_another_server_sets_one_again(together, env, redis):
    env["CURT_CACHE_URL"] = redis.url()
    one, other = together(2, env)
    link = one.create("https://example.com/", max_clicks=5)["key"]
    last_told = one.create("https://example.com/before")["key"]
    until(lambda: other.target(last_told), "the other has it")
    for _ in range(3):
        assert other.target(link)
    one.change(link, max_clicks=None)
    until(lambda: all(other.target(link) for _ in range(60)), "the other knows that there is no limit")
    one.change(link, max_clicks=60)
    one.change(last_told, original_url="https://example.com/after")
    until(lambda: other.target(last_told) == "https://example.com/after", "the other has seen it")
    before_it_knew = []
    until(lambda: before_it_knew.append(other.target(link)) or not before_it_knew[-1], "the other knows that there is one again")
    assert len(before_it_knew) < 57, "so many would be left of sixty if only the first three counted"


def test_a_new_limit_of_a_key_holds_on_every_server(together, env, redis):
    env["CURT_CACHE_URL"] = redis.url()
    one, other = together(2, env)
    key = one.make_key("limited", creates_limit=1, limit_period_s=600)["key"]
    until(lambda: other.get("/api/v1/links", key=key).status_code == 200, "the other knows the key")
    client = other.client(key)
    client.create()
    assert client.post("/api/v1/links", json={"original_url": "https://example.com/"}).status_code == 429


def test_without_keys_in_the_pool_links_are_followed_and_aliases_given(nursery, env, redis):
    link = nursery("--workers", "1", env=env).create("https://example.com/before")["key"]
    server = nursery("--workers", "1", env={**env, "CURT_KEYS_SOURCE": "pool", "CURT_KEYS_URL": redis.url()})
    for _ in range(3):
        refused = server.post("/api/v1/links", json={"original_url": "https://example.com/"})
        assert_problem(refused, 503, "keys")
        assert refused.json()["type"] == "urn:curt:no-keys" and int(refused.headers["Retry-After"]) > 0
    assert server.create("https://example.com/mine", alias="mine")["key"] == "mine"
    assert server.target("mine") == "https://example.com/mine"
    assert server.target(link) == "https://example.com/before"
    assert metric(server, "curt_keys_exhausted_total") >= 3 and metric(server, "curt_keys_available") == 0
    ready = server.get("/readyz")
    assert ready.status_code == 200 and ready.json()["status"] == "degraded"
    assert "no keys" in ready.json()["checks"]["keys"]


def test_claimed_keys_come_from_links_that_are_over_and_lead_to_the_new_target(nursery, env):
    server = nursery("--workers", "1", "--keys-source", "claim", "--keys-quarantine", "0ms", env=env)
    link = server.create_ending(500, "https://example.com/old")
    old, kept = link["key"], server.create("https://example.com/kept")["key"]
    assert server.target(old) == "https://example.com/old" or is_over(link["expires_at"])
    until(lambda: server.target(old) is None, "its time is over")
    made = {}

    def the_old_key_is_given_again():
        key = server.create(f"https://example.com/new/{len(made)}")["key"]
        made[key] = f"https://example.com/new/{len(made)}"
        return key == old

    until(the_old_key_is_given_again, "the key of the ended link is claimed")
    assert kept not in made and server.target(kept) == "https://example.com/kept"
    for key, target in made.items():
        assert server.target(key) == target
    assert metric(server, "curt_keys_taken_total") >= len(made)


def test_a_server_that_shares_everything_has_exactly_the_documented_metrics(nursery, env, redis):
    url = redis.url()
    server = nursery("--workers", "1", env={**env, "CURT_CACHE_URL": url, "CURT_LIMITS_URL": url, "CURT_KEYS_SOURCE": "pool",
                                            "CURT_KEYS_URL": url})
    sections = documented_metrics()
    del sections["curt worker"]
    assert set(read(server).types.items()) == set().union(*sections.values())


def test_a_server_that_shares_nothing_publishes_nothing(nursery):
    server = nursery("--workers", "1")
    assert set(server.get("/readyz").json()["checks"]) == {"store", "event_log", "stats_worker", "sink"}


def test_a_visitor_of_two_servers_is_one_visitor(together, env, postgres):
    """What distinguishes visitors is the same on both, and is kept no longer than its day."""
    env["CURT_SINK_URL"] = postgres.database("one_visitor_stats")
    one, other = together(2, env)
    key = one.create()["key"]
    for server in (one, other, one, other):
        server.target(key)
    until(lambda: link_stats(one, key)["clicks"] == 4, "both have counted")
    assert link_stats(one, key)["unique_visitors"] == 1
    assert not (one.data / "events" / "salt").exists()
