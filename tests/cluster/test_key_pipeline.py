"""The key pipeline as a whole: keygen, keys databases, keysync, Redis shards, and who takes keys from them.

CURT_FULL=1 drains the settings' own marks instead of small ones: 1.2 million keys.
"""
import collections
import contextlib
import os
import re
import signal
import threading
import time

import pytest

from cluster import Curt
from harness import Client, curt

from engines import RedisConnection, until

FULL = os.environ.get("CURT_FULL") == "1"
LOW, HIGH = (1000, 5000) if FULL else (200, 500)
STOCK_LOW, STOCK_HIGH = (10000, 50000) if FULL else (1000, 2000)
SHARDS, STOCKS, SERVICES, TAKERS = 4, 2, 4, 4
STEADY = SHARDS * HIGH + STOCKS * STOCK_HIGH
AMOUNT = 10 * STEADY
LIST = "curt:keys:available"
NEWS = re.compile(r"keys: lease (acquired|released) (?:database|shard)=(\S+)")


class Pipeline:
    """Two keys databases, four Redis shards, and four of each service."""

    def __init__(self, engines):
        self.engines = engines
        self.databases = [engines.postgres(f"pg-{name}", durable=False) for name in "ab"]
        self.shards = [engines.redis(f"keys-{number}") for number in range(SHARDS)]
        zookeeper = engines.zookeeper()
        self.settings = {
            "CURT_STORE_URL": self.databases[0].database("links"),
            "CURT_KEYS_DB_URL": ",".join(database.database("keys") for database in self.databases),
            "CURT_KEYS_URL": ",".join(shard.url() for shard in self.shards),
            "CURT_KEYS_LOW": LOW,
            "CURT_KEYS_HIGH": HIGH,
            "CURT_KEYS_DB_LOW": STOCK_LOW,
            "CURT_KEYS_DB_HIGH": STOCK_HIGH,
            "CURT_KEYS_LEASE_TIME": "1s",
        }
        self.keygens = [self.service("keygen", number, CURT_LEASE_URL=zookeeper.url("/pipeline")) for number in range(SERVICES)]
        self.keysyncs = [self.service("keysync", number) for number in range(SERVICES)]
        for service in self.keygens + self.keysyncs:
            service.wait_ready()

    def service(self, kind, number, **more):
        return self.engines.add(Curt(self.engines, f"{kind}-{number}", kind, {**self.settings, **more})).launch()

    def on_shards(self):
        return [shard.ask("LLEN", LIST) for shard in self.shards]

    def in_stocks(self):
        return [int(database.sql("SELECT sum(keys) FROM key_count", "keys")[0][0]) for database in self.databases]

    def is_full(self):
        return all(count >= LOW for count in self.on_shards()) and all(count >= STOCK_LOW for count in self.in_stocks())


def places(service):
    """What it looks after, as its log says."""
    held = {}
    for what, place in NEWS.findall(service.log.read_text(errors="replace")):
        held[place] = what == "acquired"
    return {place for place, is_held in held.items() if is_held}


def a_holder(services):
    return until(lambda: next((service for service in services if service.process and places(service)), None),
                 "one of them looks after something")


def text_of(element):
    return element.removesuffix("!")


class Takers:
    """Threads that take keys from all shards in turn, as fast as they can."""

    def __init__(self, pipeline):
        self.pipeline = pipeline
        self.stopping = False
        self.taken = [[] for _ in range(TAKERS)]
        self.dry = 0
        self.threads = [threading.Thread(target=self.take, args=(number,)) for number in range(TAKERS)]
        self.begun = time.monotonic()
        for thread in self.threads:
            thread.start()

    def take(self, number):
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(contextlib.closing(RedisConnection(shard.port))) for shard in self.pipeline.shards]
            while not self.stopping:
                got = [connection.ask("LPOP", LIST, 64) or [] for connection in connections]
                for keys in got:
                    self.taken[number] += keys
                if not any(got):
                    self.dry += 1
                    time.sleep(0.002)  # between two looks

    def count(self):
        return sum(len(keys) for keys in self.taken)

    def until_taken(self, share):
        def enough():
            assert all(thread.is_alive() for thread in self.threads), "a taker has failed"
            return self.count() >= AMOUNT * share
        until(enough, f"{share:.0%} of the keys are taken", 600)

    def finish(self):
        self.stopping = True
        for thread in self.threads:
            thread.join()
        return [key for keys in self.taken for key in keys]


def kill_one(services):
    victim = a_holder(services)
    victim.kill()
    return victim.name


def pause_one_until_succeeded(services):
    """Stops one in the middle of whatever it does, until others have taken all its places over; then it goes on."""
    sleeper = a_holder(services)
    sleeper.pause()
    left = places(sleeper)
    others = [service for service in services if service is not sleeper and service.process]
    until(lambda: left <= set().union(*(places(other) for other in others)), f"the places of {sleeper.name} are taken over")
    sleeper.resume()
    until(lambda: not places(sleeper) & left or not left <= set().union(*(places(other) for other in others)),
          f"{sleeper.name} has given up what it had")
    return sleeper.name


def test_no_key_is_handed_out_twice_whatever_dies_or_sleeps(engines):
    pipeline = Pipeline(engines)
    until(pipeline.is_full, "everything is filled")

    takers = Takers(pipeline)
    try:
        takers.until_taken(0.2)
        killed = [kill_one(pipeline.keysyncs), kill_one(pipeline.keygens)]
        takers.until_taken(0.4)
        paused = [pause_one_until_succeeded(pipeline.keysyncs), pause_one_until_succeeded(pipeline.keygens)]
        takers.until_taken(1)
    finally:
        seconds = time.monotonic() - takers.begun
        taken = takers.finish()
    drained = time.monotonic()
    until(pipeline.is_full, "everything is filled again")
    refilled_s = time.monotonic() - drained

    sums = []
    for service in pipeline.keygens + pipeline.keysyncs:
        if service.process:
            service.process.send_signal(signal.SIGTERM)
            assert service.process.wait(60) == 0, service.tail()
            sums.append(service.tail(1))

    on_shards = [shard.ask("LRANGE", LIST, 0, -1) for shard in pipeline.shards]
    in_stocks = [[row[0] for row in database.sql("SELECT key FROM key_stock", "keys")] for database in pipeline.databases]
    everywhere = collections.Counter(text_of(key) for keys in [taken, *on_shards, *in_stocks] for key in keys)
    print(f"\n{len(taken)} keys taken in {seconds:.1f} s, {len(taken) / seconds:.0f} a second; a steady stock is {STEADY}")
    print(f"killed: {', '.join(killed)}; slept through the end of their leases: {', '.join(paused)}")
    print(f"refilled {refilled_s:.1f} s after the last was taken: shards {[len(keys) for keys in on_shards]}, "
          f"databases {[len(keys) for keys in in_stocks]}")
    print(*sums, sep="\n")
    twice = [key for key, count in everywhere.items() if count > 1]
    print(f"{len(everywhere)} different keys, {len(twice)} of them in two places")
    assert not twice, twice[:10]
    assert len(taken) >= AMOUNT
    for database, keys in zip(pipeline.databases, in_stocks):
        assert database.sql("SELECT sum(keys) FROM key_count", "keys") == [[str(len(keys))]]


# What a server makes of its keys

ADMIN_KEY = "ck_the-admin-key-of-the-pool"


@pytest.fixture
def settings(postgres, database, redis, request):
    return {
        "CURT_STORE_URL": database,
        "CURT_KEYS_DB_URL": postgres.database(f"{request.node.name[:40]}-keys"),
        "CURT_KEYS_URL": redis.url(),
        "CURT_ADMIN_KEY": ADMIN_KEY,
    }


def serve(engines, settings, **more):
    server = engines.add(Curt(engines, f"server-{len(engines.all)}", "serve", {**settings, **more})).start()
    return server, Client(server.url, ADMIN_KEY)


def try_to_create(client, target="https://example.com/"):
    return client.post("/api/v1/links", json={"original_url": target})


def created(client, target="https://example.com/"):
    """A link's key, as soon as there is a key for it."""
    return until(lambda: try_to_create(client, target), "there is a key").json()["key"]


def test_a_server_without_keys_says_so_and_goes_on_with_the_next_key(engines, redis, settings):
    server, client = serve(engines, settings, CURT_KEYS_SOURCE="pool")
    dry = try_to_create(client)
    assert dry.status_code == 503
    assert "Retry-After" in dry.headers
    assert "key pool is empty" in dry.json()["detail"]
    assert client.create(alias="by-name")["key"] == "by-name"

    redis.ask("RPUSH", LIST, "fromPol")
    assert created(client, "https://example.com/pool") == "fromPol"
    assert try_to_create(client).status_code == 503
    assert client.target("fromPol") == "https://example.com/pool"
    assert client.target("by-name") == "https://example.com/"

    # What is taken and not used goes back when the server ends.
    redis.ask("RPUSH", LIST, *(f"spare{number:02}" for number in range(20)))
    created(client)
    server.stop()
    assert redis.ask("LLEN", LIST) == 19


def test_a_key_that_comes_back_to_the_keys_db_by_mistake_names_no_second_link(engines, redis, settings):
    _, client = serve(engines, settings, CURT_KEYS_SOURCE="pool")
    redis.ask("RPUSH", LIST, "theOne1", "theOne2")
    assert {created(client, "https://example.com/first") for _ in range(2)} == {"theOne1", "theOne2"}
    client.remove("theOne2")
    # As after a failover to a replica that was behind.
    redis.ask("RPUSH", LIST, "theOne1", "theOne2", "theNext")
    assert created(client, "https://example.com/second") == "theNext"
    assert client.target("theOne1") == "https://example.com/first"
    assert client.target("theOne2") is None


def test_the_key_of_a_link_that_is_over_comes_back_through_the_pipeline(engines, redis, settings):
    settings = {**settings, "CURT_KEYS_QUARANTINE": "0ms", "CURT_CACHE_NEGATIVE_TIME": "0ms", "CURT_KEYS_LOW": 1,
                "CURT_KEYS_HIGH": 10, "CURT_KEYS_DB_LOW": 10, "CURT_KEYS_DB_HIGH": 10}
    _, client = serve(engines, settings)
    old = client.create_ending(300, "https://example.com/old")["key"]
    until(lambda: client.target(old) is None, "the link is over")
    keygen = engines.add(Curt(engines, "keygen-again", "keygen", settings)).start()
    keysync = engines.add(Curt(engines, "keysync-again", "keysync", settings)).start()
    until(lambda: f"{old}!" in redis.ask("LRANGE", LIST, 0, -1), "the key waits for another link")
    keygen.stop()
    keysync.stop()

    _, other = serve(engines, settings, CURT_KEYS_SOURCE="pool")
    assert try_to_create_as(other, old).status_code == 409, "nobody may have it by name"
    keys = [created(other, "https://example.com/new") for _ in range(10)]
    assert old in keys
    assert other.target(old) == "https://example.com/new"
    assert other.link(old)["clicks"] == 0


def test_a_shard_that_fails_over_costs_no_link_its_key(engines, settings):
    """Sentinel promotes a replica while links are made; keys that it brings back name nothing twice."""
    shard = engines.redis_set("shard")
    settings = {**settings, "CURT_KEYS_URL": shard.url(), "CURT_LEASE_URL": f"file:{engines.folder}/leases", "CURT_KEYS_LOW": 200,
                "CURT_KEYS_HIGH": 300, "CURT_KEYS_DB_LOW": 500, "CURT_KEYS_DB_HIGH": 1000, "CURT_KEYS_BATCH": 8}
    for service in ("keygen", "keysync"):
        engines.add(Curt(engines, f"{service}-over", service, settings)).start()
    _, client = serve(engines, settings, CURT_KEYS_SOURCE="pool")
    made = [created(client) for _ in range(100)]
    old = shard.primary()
    old.kill()
    refused = 0

    def another_leads():
        nonlocal refused
        answer = try_to_create(client)
        if answer.status_code == 201:
            made.append(answer.json()["key"])
        else:
            assert answer.status_code == 503, answer.text
            refused += 1
        return shard.primary() not in (None, old)

    until(another_leads, "Sentinel has promoted another")
    # As if the replica had missed what was taken last.
    until(shard.primary, "all agree on it").ask("LPUSH", LIST, *made[-20:])
    made += [created(client) for _ in range(400)]
    print(f"\n{len(made)} links made, {refused} refused while there was no primary")
    assert len(set(made)) == len(made)
    until(lambda: (primary := shard.primary()) and primary.ask("LLEN", LIST) >= 200, "the new primary is refilled")


def try_to_create_as(client, alias):
    return client.post("/api/v1/links", json={"original_url": "https://example.com/", "alias": alias})


@pytest.mark.parametrize("service, missing, named", [
    ("keygen", "CURT_KEYS_DB_URL", "keys.db_url"),
    ("keygen", "CURT_STORE_URL", "store.url"),
    ("keygen", "CURT_KEYS_URL", "lease.url"),
    ("keysync", "CURT_KEYS_DB_URL", "keys.db_url"),
    ("keysync", "CURT_KEYS_URL", "keys.url"),
])
def test_a_service_that_lacks_a_setting_names_it(service, missing, named):
    settings = {
        "CURT_STORE_URL": "postgres://curt:hidden@127.0.0.1:1/links",
        "CURT_KEYS_DB_URL": "postgres://curt:hidden@127.0.0.1:1/keys",
        "CURT_KEYS_URL": "redis://:hidden@127.0.0.1:1",
    }
    del settings[missing]
    done = curt(service, env=settings)
    assert done.returncode == 1
    assert f"{named} " in done.stderr
    assert "hidden" not in done.stderr
