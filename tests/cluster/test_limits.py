"""The limits of an API key hold over all servers that share a store and a Redis."""
import threading

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


def limited_link(servers, **limits):
    """A link made with a key that has limits, which all servers know; and the key."""
    key = servers[0].make_key("limited", limit_period_s=PERIOD_S, **limits)["key"]
    for server in servers:
        until(lambda: server.get("/api/v1/links", key=key).status_code == 200, "the key is known")
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


def test_without_redis_each_server_goes_on_with_its_part(pair, redis):
    _, link = limited_link(pair, redirects_limit=LIMIT)
    redis.kill()
    passed = hammer([(server, LIMIT) for server in pair], link)
    tell("Redis is away", passed)
    assert LIMIT * 0.95 <= sum(passed) <= LIMIT * 1.05
    for server in pair:
        assert metric(server, "curt_limits_settle_failures_total") > 0
        assert server.get("/readyz").json()["status"] == "degraded"
