"""Replicas of the link database answer lookups, and never at the cost of what has just changed."""
import contextlib
import socket
import threading

import pytest

from engines import Engines
from harness import until

# A lookup ends with the version of the slots.
LINKS_ASKED_FOR = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT version FROM slot_state%' AND pid <> pg_backend_pid()"


@pytest.fixture(scope="module")
def module_engines():
    with Engines() as engines:
        yield engines


@pytest.fixture(scope="module")
def the_pair(module_engines):
    primary = module_engines.postgres(durable=False)
    return primary, primary.replica()


@pytest.fixture
def pair(the_pair):
    """A primary and its replica, both well."""
    primary, replica = the_pair
    for engine in the_pair:
        if not engine.is_ready():
            engine.start()
    yield primary, replica
    if not primary.is_ready():
        primary.start()
    replica.sql("SELECT pg_wal_replay_resume()")


@pytest.fixture
def cluster(nursery, pair, request):
    """Starts servers that keep nothing in memory for long, on a database of the test's own."""
    primary, replica = pair
    name = request.node.name[:60]
    url = primary.database(name)
    until(lambda: primary.replayed(replica), "the replica has the database")

    def start(replicas=replica.url(name), **env):
        return nursery("--workers", "1", "--cache-life", "1ms", "--cache-negative-time", "1ms",
                       env={"CURT_STORE_URL": url, "CURT_STORE_REPLICAS": replicas, **env})

    start.name = name
    return start


def created(server, primary, replica, target="https://example.com/"):
    """A link that the replica has, too."""
    key = server.create(target)["key"]
    until(lambda: primary.replayed(replica), "the replica has the link")
    return key


def lookups_at(engine, name):
    return int(engine.sql(LINKS_ASKED_FOR, name)[0][0])


def until_the_replica_answers(server, replica, database):
    """What the log calls it."""
    name = f"127.0.0.1:{replica.port}/{database}"
    until(lambda: f"replica in use replica={name}" in server.stderr, "the replica is known to be fresh")
    return name


def test_lookups_go_to_the_replica(cluster, pair):
    maker, server = cluster(replicas=""), cluster()
    key = created(maker, *pair)

    def the_replica_was_asked():
        assert server.target(key) == "https://example.com/"
        return lookups_at(pair[1], cluster.name) > 0

    until(the_replica_was_asked, "the replica is known to be fresh")


def test_a_replica_answers_while_the_primary_is_down(cluster, pair):
    primary, replica = pair
    maker, server = cluster(replicas=""), cluster()
    until_the_replica_answers(server, replica, cluster.name)
    keys = [created(maker, primary, replica, f"https://example.com/{i}") for i in range(3)]
    primary.kill()
    for i, key in enumerate(keys):
        assert server.target(key) == f"https://example.com/{i}"
        assert maker.get(f"/{key}", key=None).status_code == 503, "who has no replica cannot tell"
    assert server.get("/no-such-link", key=None).status_code == 503, "the replica may not know it yet"


def test_a_replica_answers_for_links_that_were_made_the_moment_before_the_primary_went(cluster, pair):
    primary, replica = pair
    server = cluster()
    until_the_replica_answers(server, replica, cluster.name)
    links = {server.create(f"https://example.com/{i}")["key"]: f"https://example.com/{i}" for i in range(5)}
    until(lambda: primary.replayed(replica), "the replica has them")
    primary.kill()
    assert {key: server.target(key) for key in links} == links


def test_a_link_that_the_replica_does_not_have_yet_is_found(cluster, pair):
    primary, replica = pair
    maker, server = cluster(replicas=""), cluster()
    warm = created(maker, primary, replica)
    assert server.target(warm) == "https://example.com/"
    replica.sql("SELECT pg_wal_replay_pause()")
    for i in range(20):
        key = maker.create(f"https://example.com/{i}")["key"]
        assert server.target(key) == f"https://example.com/{i}"


def test_who_changes_a_link_sees_the_change_at_once(cluster, pair):
    primary, replica = pair
    server = cluster()
    key = created(server, primary, replica)
    replica.sql("SELECT pg_wal_replay_pause()")
    for i in range(20):
        server.change(key, original_url=f"https://example.com/{i}")
        assert server.target(key) == f"https://example.com/{i}"


def test_a_replica_that_stands_still_is_left_alone(cluster, pair):
    primary, replica = pair
    maker, server = cluster(replicas=""), cluster()
    key = created(maker, primary, replica)
    replica.sql("SELECT pg_wal_replay_pause()")
    maker.change(key, original_url="https://example.com/new")
    until(lambda: server.target(key) == "https://example.com/new", "the replica is found to lag")


class Hung:
    """A server that accepts every connection and never answers."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.guests = []
        self.thread = threading.Thread(target=self.welcome)
        self.thread.start()

    def welcome(self):
        with contextlib.suppress(OSError):
            while True:
                self.guests.append(self.listener.accept()[0])

    def url(self):
        return f"postgres://nobody@127.0.0.1:{self.listener.getsockname()[1]}/nothing?connect_timeout=2"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        for guest in self.guests:
            guest.close()


def test_a_replica_that_hangs_does_not_disturb_the_others(cluster, pair):
    replica = pair[1]
    with Hung() as hung:
        server = cluster(replicas=f"{hung.url()},{replica.url(cluster.name)}")
        name = until_the_replica_answers(server, replica, cluster.name)
        seen = len(hung.guests)
        until(lambda: len(hung.guests) >= seen + 2, "the other one was tried again and again")
        since = server.stderr.split(f"replica in use replica={name}", 1)[1]
        assert f"replica not used replica={name}" not in since


def test_a_database_that_follows_another_one_is_never_asked(cluster, nursery, module_engines, pair):
    primary, _ = pair
    stranger = module_engines.postgres(durable=False)
    other = stranger.database("other")
    maker, server = cluster(replicas=""), cluster(replicas=other)
    deceiver = nursery("--workers", "1", env={"CURT_STORE_URL": other})
    maker.create("https://example.com/right", alias="the-same-name")
    deceiver.create("https://example.com/wrong", alias="the-same-name")
    assert deceiver.target("the-same-name") == "https://example.com/wrong"
    primary.kill()
    answer = server.get("/the-same-name", key=None)
    assert answer.status_code == 503, "the stranger knows that name, but not that link"


def status_of(server, key):
    return server.get(f"/{key}", key=None).status_code


def test_what_an_old_replica_said_while_the_primary_was_down_is_not_kept(cluster, engines, pair):
    primary, replica = pair
    redis = engines.redis()
    one, other = (cluster(CURT_CACHE_URL=redis.url()) for _ in range(2))
    key = created(one, primary, replica, "https://example.com/old")
    replica.sql("SELECT pg_wal_replay_pause()")
    one.remove(key)
    until(lambda: not redis.ask("KEYS", f"curt:l:*:{key}"), "the mark of the change has gone")
    primary.kill()
    until(lambda: status_of(other, key) == 302, "the replica answers: it knows no better")
    assert not redis.ask("KEYS", f"curt:l:*:{key}"), "nobody knows how old that is"
    primary.start()
    replica.sql("SELECT pg_wal_replay_resume()")
    for server in (one, other):
        until(lambda: status_of(server, key) == 404, "the link is gone again")


def test_what_another_server_changed_is_never_asked_of_a_replica_that_lags(cluster, engines, pair):
    primary, replica = pair
    redis = engines.redis()
    one, other = (cluster(CURT_CACHE_URL=redis.url()) for _ in range(2))
    key = created(one, primary, replica, "https://example.com/old")
    locked = one.create("https://example.com/locked", password="old-password-1")["key"]
    until(lambda: primary.replayed(replica), "the replica has the link")

    def unlock(password):
        return other.request("POST", f"/{locked}", key=None, json={"password": password}).status_code

    def the_replica_was_asked():
        redis.ask("FLUSHDB")  # or the shared cache would answer
        assert other.target(key) == "https://example.com/old"
        return lookups_at(replica, cluster.name) > 0

    until(the_replica_was_asked, "the replica is known to be fresh")
    assert unlock("old-password-1") == 303
    replica.sql("SELECT pg_wal_replay_pause()")
    one.change(locked, password="new-password-2")
    one.change(key, original_url="https://example.com/new")
    assert unlock("old-password-1") == 401
    assert unlock("new-password-2") == 303
    assert other.link(key)["original_url"] == "https://example.com/new"
    one.remove(key)
    assert other.link(key) is None
    assert other.get(f"/{key}+", key=None).status_code == 404
