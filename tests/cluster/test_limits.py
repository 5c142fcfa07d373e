"""The limits of an API key hold over all servers that share a store and a Redis."""
import threading
import time

import pytest

from engines import Engines
from harness import until
from prometheus import metric

LIMIT = 500
PERIOD_S = 600  # far longer than a test: all that follows is one period


@pytest.fixture(scope="module")
def engines():
    with Engines() as engines:
        yield engines


@pytest.fixture(scope="module")
def postgres(engines):
    return engines.postgres(durable=False)


@pytest.fixture
def redis(engines):
    return engines.redis()


@pytest.fixture
def pair(nursery, postgres, redis, request):
    database = postgres.database(request.node.name[:60])
    env = {"CURT_STORE_URL": database, "CURT_CACHE_URL": redis.url(), "CURT_LIMITS_URL": redis.url()}
    servers = [nursery("--workers", "1", env=env) for _ in range(2)]
    for server in servers:
        until(lambda: metric(server, "curt_limits_servers") == 2, "each server knows of the other")
    return servers


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


def test_two_servers_that_are_hammered_together_keep_one_limit(pair):
    _, link = limited_link(pair, redirects_limit=LIMIT)
    passed = hammer([(server, LIMIT // 2) for server in pair for _ in range(2)], link)
    tell("both hammered", passed)
    assert LIMIT * 0.95 <= sum(passed) <= LIMIT * 1.05


def test_a_server_that_has_all_the_visitors_gets_nearly_all_of_the_limit(pair):
    _, link = limited_link(pair, redirects_limit=LIMIT)
    passed = hammer([(pair[1], 10)], link) + hammer([(pair[0], LIMIT)] * 2, link)
    tell("one is busy", passed)
    assert LIMIT * 0.95 <= sum(passed) <= LIMIT * 1.05


def test_a_server_that_joins_late_learns_that_nothing_is_left(pair):
    _, link = limited_link(pair, redirects_limit=LIMIT)
    first = hammer([(pair[0], LIMIT)] * 2, link)
    late = hammer([(pair[1], LIMIT // 2)] * 2, link)
    tell("one after the other", first + late)
    assert LIMIT * 0.95 <= sum(first + late) <= LIMIT * 1.05


def test_creations_are_limited_together_too(pair):
    key, _ = limited_link(pair, creates_limit=101)  # one is used already
    clients = [server.client(key) for server in pair]
    made = [0, 0]
    for turn in range(200):
        answer = clients[turn % 2].post("/api/v1/links", json={"original_url": "https://example.com/"})
        assert answer.status_code in (201, 429), answer.text
        made[turn % 2] += answer.status_code == 201
    tell("creations", made, 100)
    assert 95 <= sum(made) <= 105


def drain(servers, link, before=()):
    """All that can be had now, after what was had before: nearly all of it has to come, and then no more."""
    passed, end = [0] * len(servers), time.monotonic() + 20
    after = 10
    while after > 0 and time.monotonic() < end:
        after -= sum(before) + sum(passed) >= LIMIT * 0.95
        passed = [sum(both) for both in zip(passed, hammer([(server, 50) for server in servers], link))]
    return passed


def test_without_redis_each_server_goes_on_with_its_part(pair, redis):
    _, link = limited_link(pair, redirects_limit=LIMIT)
    redis.kill()
    passed = drain(pair, link)
    tell("Redis is away", passed)
    assert LIMIT * 0.95 <= sum(passed) <= LIMIT * 1.05
    for server in pair:
        assert metric(server, "curt_limits_settle_failures_total") > 0
        assert server.get("/readyz").json()["status"] == "degraded"


def let_settle(server, rounds=3):
    before = metric(server, "curt_limits_settles_total")
    until(lambda: metric(server, "curt_limits_settles_total") >= before + rounds, "it settles")


def test_refunds_of_all_that_was_used_leave_the_whole_limit(pair):
    pair[0].create(alias="taken-alias")
    client = pair[0].client(known_key(pair, creates_limit=100))
    wish = {"original_url": "https://example.com/"}
    for _ in range(3):
        assert client.post("/api/v1/links", json={**wish, "alias": "taken-alias"}).status_code == 409
        let_settle(pair[0])
    made = [client.post("/api/v1/links", json=wish).status_code for _ in range(110)].count(201)
    tell("creations after refunds", [made], 100)
    assert 95 <= made <= 105


def stall(redis, meanwhile=lambda: []):
    """Longer than a server waits for an answer; what it told is read all the same, later."""
    redis.pause()
    passed = meanwhile()
    time.sleep(0.8)
    redis.resume()
    return passed


def test_what_was_told_to_a_redis_that_stalls_counts_once(pair, redis):
    _, link = limited_link(pair, redirects_limit=LIMIT)
    passed = stall(redis, lambda: hammer([(pair[0], 1)], link))
    passed += drain(pair, link, passed)
    tell("told to a Redis that stalls", passed)
    assert LIMIT * 0.95 <= sum(passed) <= LIMIT * 1.05


def test_what_was_given_back_to_a_redis_that_stalls_is_not_used_twice(pair, redis):
    _, link = limited_link(pair, redirects_limit=LIMIT)
    passed = hammer([(pair[1], LIMIT * 4 // 10)], link) + hammer([(pair[0], LIMIT // 10)], link)
    stall(redis)
    passed += drain(pair, link, passed)
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


def test_a_redis_that_comes_back_empty_is_told_what_was_used(pair, redis):
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
        return set(node.ask("KEYS", "curt:b:r:*"))

    for _ in range(20):
        before = kept()
        _, link = limited_link(servers, redirects_limit=LIMIT)
        hammer([(servers[0], 1)], link)
        let_settle(servers[0])
        if kept() - before:
            return link
    raise AssertionError("no limit of twenty is kept there")


def test_a_redis_that_is_stopped_does_not_hold_up_the_limits_of_another(nursery, postgres, engines):
    nodes = [engines.redis() for _ in range(2)]
    env = {"CURT_STORE_URL": postgres.database("two_nodes"), "CURT_LIMITS_URL": ",".join(node.url() for node in nodes)}
    servers = [nursery("--workers", "1", env=env) for _ in range(2)]
    for server in servers:
        until(lambda: metric(server, "curt_limits_servers") == 2, "each server knows of the other")
    link = link_on(nodes[0], servers)
    nodes[1].pause()
    passed = hammer([(servers[0], 2 * LIMIT)], link)
    nodes[1].resume()
    tell("a node is stopped", passed)
    assert LIMIT * 0.95 <= sum(passed) <= LIMIT * 1.05
