"""One of two databases is down: links are made in the other, wherever keys come from."""
import collections
import concurrent.futures
import threading

import pytest

from cluster import Curt
from harness import until
from prometheus import metric

CREATES = 600
MAKERS = 4
UNLUCKY_MAX = 2 + MAKERS  # those that were under way, and hardly ever one all of whose keys lie in the database that is down


@pytest.fixture(scope="module")
def other(engines):
    return engines.postgres(durable=False)


@pytest.fixture
def env(postgres, other, request):
    name = request.node.name[:60]
    yield {"CURT_STORE_URL": f"{postgres.database(name)},{other.database(name)}"}
    if not other.process:
        other.start()


def create(server):
    """201 or the problem; who finds no keys in stock waits for those who bring them."""
    def try_it():
        answer = server.post("/api/v1/links", json={"original_url": "https://example.com/"})
        return None if "urn:curt:no-keys" in answer.text else 201 if answer.status_code == 201 else answer.text
    return until(try_it, "there are keys")


def create_many(server):
    with concurrent.futures.ThreadPoolExecutor(MAKERS) as pool:
        return collections.Counter(pool.map(lambda _: create(server), range(CREATES)))


@pytest.mark.parametrize("source", ["cipher", "claim"])
def test_links_are_made_with_new_keys(nursery, env, other, source):
    server = nursery("--workers", "1", "--keys-source", source, env=env)
    other.kill()
    answers = create_many(server)
    assert answers[201] >= CREATES - UNLUCKY_MAX, answers


def test_a_database_that_hangs_delays_only_its_own_creates(nursery, env, other):
    """Some clients wait for it. No batch of the other database does."""
    server = nursery("--workers", "1", env=env)
    made = []
    stop = threading.Event()

    def make():
        client = server.client()
        while not stop.is_set():
            if client.post("/api/v1/links", json={"original_url": "https://example.com/"}).status_code == 201:
                made.append(1)

    makers = [threading.Thread(target=make) for _ in range(4 * MAKERS)]
    other.pause()
    try:
        for maker in makers:
            maker.start()
        until(lambda: len(made) >= CREATES, "creates go on in the other database")
        assert "did not answer in time" not in server.stderr, "they went on before anybody had given up"
    finally:
        stop.set()
        other.resume()
        for maker in makers:
            maker.join()


def test_links_are_made_with_keys_from_the_pool_and_no_key_is_lost(nursery, engines, env, other, redis, postgres):
    """More links than there are keys on the shard: those that would lie in the other database do not keep it from being
    filled again."""
    env |= {"CURT_KEYS_URL": redis.url(), "CURT_KEYS_LOW": 200, "CURT_KEYS_HIGH": 300,
            "CURT_KEYS_DB_URL": postgres.database("away-keys"), "CURT_KEYS_DB_LOW": 4000, "CURT_KEYS_DB_HIGH": 5000}
    server = nursery("--workers", "1", "--keys-source", "pool", env=env)
    for service in ("keygen", "keysync"):
        engines.add(Curt(engines, f"{service}-away", service, env)).start()
    until(lambda: metric(server, "curt_keys_available") >= 300, "there are keys")
    other.kill()
    until(lambda: create(server) == 201, "the server knows")
    answers = create_many(server)
    assert answers[201] >= CREATES - UNLUCKY_MAX, answers
    assert metric(server, "curt_keys_lost_total") == 0
    until(lambda: metric(server, "curt_keys_set_aside") > CREATES / 2, "keys of the other database wait")
    other.start()

    def they_are_used():
        create_many(server)
        return metric(server, "curt_keys_set_aside") < CREATES / 4

    until(they_are_used, "they are used when it is back")
