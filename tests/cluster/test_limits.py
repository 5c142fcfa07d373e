"""The limits of an API key hold over all servers that share a store and a Redis."""
import threading
import time

import pytest

from fleet import launch_together
from harness import PATIENCE_S, until
from nursery import Nursery
from prometheus import metric

LIMIT = 500
PERIOD_S = 600  # far longer than a test: all that follows is one period


def settling(servers):
    for server in servers:
        until(lambda: metric(server, "curt_limits_servers") == 2, "each server knows of the other")
    return servers


def env_of(database, redis):
    return {"CURT_STORE_URL": database, "CURT_CACHE_URL": redis.url(), "CURT_LIMITS_URL": redis.url()}


@pytest.fixture
def pair(together, database, redis):
    """Two servers and a Redis for the test to kill."""
    return settling(together(2, env_of(database, redis)))


@pytest.fixture(scope="module")
def lasting(tmp_path_factory, engines, postgres):
    """Two servers and a Redis for all tests that let them live: each has a key, and so limits, of its own."""
    nursery, redis = Nursery(tmp_path_factory.mktemp("lasting")), engines.redis()
    yield launch_together(nursery, 2, env_of(postgres.database("lasting"), redis)), redis
    nursery.finish()


@pytest.fixture
def calm(lasting):
    return settling(lasting[0])


def known_key(servers, **limits):
    """A key that has limits, which all servers know."""
    key = servers[0].make_key("limited", limit_period_s=PERIOD_S, **limits)["key"]
    for server in servers:
        until(lambda: server.get("/api/v1/links", key=key).status_code == 200, "the key is known")
    return key


def limited_link(servers, **limits):
    """A link made with such a key; and the key."""
    key = known_key(servers, **limits)
    return key, servers[0].client(key).create()["key"]


def follow(server, link, count, statuses):
    client = server.client(None)
    for _ in range(count):
        statuses.append(client.get(f"/{link}", key=None).status_code)


def hammer(plan, link):
    """[(server, requests), ...], all at once; the answers' statuses for each."""
    answers = [[] for _ in plan]
    threads = [threading.Thread(target=follow, args=(server, link, count, statuses))
               for (server, count), statuses in zip(plan, answers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set().union(*answers) <= {302, 429}
    return [statuses.count(302) for statuses in answers]


def tell(how, passed, limit=LIMIT):
    print(f"\n{how}: {' + '.join(map(str, passed))} = {sum(passed)} of {limit} ({sum(passed) / limit - 1:+.1%})")


def test_two_servers_that_are_hammered_together_keep_one_limit(calm):
    _, link = limited_link(calm, redirects_limit=LIMIT)
    passed = hammer([(server, LIMIT // 2) for server in calm for _ in range(2)], link)
    passed += drain(calm, link, passed)
    tell("both hammered", passed)
    assert LIMIT * 0.95 <= sum(passed) <= LIMIT * 1.05


def test_a_server_that_has_all_the_visitors_gets_nearly_all_of_the_limit(calm):
    _, link = limited_link(calm, redirects_limit=LIMIT)
    passed = hammer([(calm[1], 10)], link) + hammer([(calm[0], LIMIT)] * 2, link)
    passed += drain(calm[:1], link, passed)
    tell("one is busy", passed)
    assert LIMIT * 0.95 <= sum(passed) <= LIMIT * 1.05


def test_a_server_that_joins_late_learns_that_nothing_is_left(calm):
    _, link = limited_link(calm, redirects_limit=LIMIT)
    first = hammer([(calm[0], LIMIT)] * 2, link)
    first += drain(calm[:1], link, first)
    late = hammer([(calm[1], LIMIT // 2)] * 2, link)
    tell("one after the other", first + late)
    assert LIMIT * 0.95 <= sum(first + late) <= LIMIT * 1.05


def create_in_turn(clients, limit):
    """All that can be made now: nearly all of the limit has to come, and then no more."""
    made, end = [0] * len(clients), time.monotonic() + 2 * PATIENCE_S
    after = 50
    while after > 0 and time.monotonic() < end:
        after -= sum(made) >= limit * 0.95
        for at, client in enumerate(clients):
            answer = client.post("/api/v1/links", json={"original_url": "https://example.com/"})
            assert answer.status_code in (201, 429), answer.text
            made[at] += answer.status_code == 201
    return made


def test_creations_are_limited_together_too(calm):
    key, _ = limited_link(calm, creates_limit=101)  # one is used already
    clients = [server.client(key) for server in calm]
    made = create_in_turn(clients, 100)
    tell("creations", made, 100)
    assert 95 <= sum(made) <= 105


def test_a_small_limit_is_kept_exactly_and_nobody_is_refused_before_it_is_reached(calm):
    key, link = limited_link(calm, redirects_limit=5, creates_limit=5)  # one creation is used already
    assert [hammer([(server, 1)], link) for server in calm] == [[1], [1]], "the first visitor of a server is let through"
    passed, made = 2, 1

    def reached():
        nonlocal passed, made
        passed += sum(hammer([(server, 2) for server in calm], link))
        made += sum(server.client(key).post("/api/v1/links", json={"original_url": "https://example.com/"}).status_code == 201
                    for server in calm)
        return passed >= 5 and made >= 5
    until(reached, "both limits are reached")
    for _ in range(20):
        reached()
    assert (passed, made) == (5, 5)


def drain(servers, link, before=()):
    """All that can be had now, after what was had before: nearly all of it has to come, and then no more."""
    passed, end = [0] * len(servers), time.monotonic() + 2 * PATIENCE_S
    after = 10
    while after > 0 and time.monotonic() < end:
        after -= sum(before) + sum(passed) >= LIMIT * 0.95
        passed = [sum(both) for both in zip(passed, hammer([(server, 50) for server in servers], link))]
    return passed


def test_without_redis_each_server_goes_on_with_its_part(pair, redis):
    _, link = limited_link(pair, redirects_limit=LIMIT)
    redis.kill()
    passed = drain(pair, link)
    tell("Redis is down", passed)
    assert LIMIT * 0.95 <= sum(passed) <= LIMIT * 1.05
    for server in pair:
        until(lambda: metric(server, "curt_limits_sync_failures_total") > 0, "it has tried in vain")
        until(lambda: server.get("/readyz").json()["status"] == "degraded", "it says so")


def let_settle(server, rounds=3):
    before = metric(server, "curt_limits_syncs_total")
    until(lambda: metric(server, "curt_limits_syncs_total") >= before + rounds, "it settles")


def test_refunds_of_all_that_was_used_leave_the_whole_limit(calm):
    calm[0].create(alias="taken-alias")
    client = calm[0].client(known_key(calm, creates_limit=100))
    wish = {"original_url": "https://example.com/"}
    for _ in range(3):
        assert client.post("/api/v1/links", json={**wish, "alias": "taken-alias"}).status_code == 409
        let_settle(calm[0])
    made = create_in_turn([client], 100)
    tell("creations after refunds", made, 100)
    assert 95 <= sum(made) <= 105


def stall(redis, servers, meanwhile=lambda: []):
    """Until every server has waited in vain for an answer; what it told is read all the same, later."""
    def failures():
        return [metric(server, "curt_limits_sync_failures_total") for server in servers]

    before = failures()
    redis.pause()
    try:
        passed = meanwhile()
        until(lambda: all(now > then for now, then in zip(failures(), before)), "their syncs have failed")
    finally:
        redis.resume()
    return passed


def test_what_was_told_to_a_redis_that_stalls_counts_once(calm, lasting):
    _, link = limited_link(calm, redirects_limit=LIMIT)
    passed = stall(lasting[1], calm, lambda: hammer([(calm[0], 1)], link))
    passed += drain(calm, link, passed)
    tell("told to a Redis that stalls", passed)
    assert LIMIT * 0.95 <= sum(passed) <= LIMIT * 1.05


def test_what_was_given_back_to_a_redis_that_stalls_is_not_used_twice(calm, lasting):
    _, link = limited_link(calm, redirects_limit=LIMIT)
    passed = hammer([(calm[1], LIMIT * 4 // 10)], link) + hammer([(calm[0], LIMIT // 10)], link)
    stall(lasting[1], calm)
    passed += drain(calm, link, passed)
    tell("given back to a Redis that stalls", passed)
    assert LIMIT * 0.95 <= sum(passed) <= LIMIT * 1.05


def test_a_server_that_was_killed_leaves_what_it_did_not_use(pair):
    _, link = limited_link(pair, redirects_limit=LIMIT)
    passed = hammer([(pair[0], LIMIT // 5)], link)
    pair[0].kill()
    pair[0].start()
    passed += hammer([(pair[0], LIMIT // 5)], link)
    assert passed[1] >= LIMIT // 5 * 0.95
    passed += drain(pair, link, passed)
    tell("one is killed", passed)
    assert LIMIT * 0.95 <= sum(passed) <= LIMIT * 1.05


def test_a_redis_that_comes_back_empty_learns_what_was_used(pair, redis):
    _, link = limited_link(pair, redirects_limit=LIMIT)
    passed = hammer([(server, LIMIT * 3 // 10) for server in pair], link)
    redis.kill()
    redis.start()
    passed += drain(pair, link, passed)
    tell("Redis has forgotten", passed)
    assert LIMIT * 0.95 <= sum(passed) <= LIMIT * 1.05


def test_servers_that_start_without_redis_take_half_each(pair, redis):
    _, link = limited_link(pair, redirects_limit=LIMIT)
    for server in pair:
        server.stop()
    redis.kill()
    for server in pair:
        server.start()
    passed = drain(pair, link)
    tell("started without Redis", passed)
    assert LIMIT * 0.95 <= sum(passed) <= LIMIT * 1.05


def link_on(node, servers):
    """A link whose limit is kept by that Redis, of several."""
    def kept():
        return set(node.ask("KEYS", "curt:b:*:r:*"))

    for _ in range(20):
        before = kept()
        _, link = limited_link(servers, redirects_limit=LIMIT)
        hammer([(servers[0], 1)], link)
        let_settle(servers[0])
        if kept() - before:
            return link
    raise AssertionError("no limit of twenty is kept there")


def test_a_redis_that_is_stopped_does_not_hold_up_the_limits_of_another(together, database, engines):
    nodes = [engines.redis() for _ in range(2)]
    servers = settling(together(2, {"CURT_STORE_URL": database,
                                    "CURT_LIMITS_URL": ",".join(node.url() for node in nodes)}))
    link = link_on(nodes[0], servers)
    nodes[1].pause()
    try:
        passed = hammer([(servers[0], LIMIT)], link)
        passed += drain(servers[:1], link, passed)
    finally:
        nodes[1].resume()
    tell("a node is stopped", passed)
    assert LIMIT * 0.95 <= sum(passed) <= LIMIT * 1.05
