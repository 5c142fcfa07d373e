"""Replicas of the link database answer lookups, and never at the cost of what has just changed."""
import pytest

from engines import Engines
from harness import until

LINKS_ASKED_FOR = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%FROM link l WHERE l.key = ANY%' AND pid <> pg_backend_pid()"


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

    def start(replicas=replica.url(name)):
        return nursery("--workers", "1", "--cache-life", "1ms", "--cache-negative-time", "1ms",
                       env={"CURT_STORE_URL": url, "CURT_STORE_REPLICAS": replicas})

    start.name = name
    return start


def created(server, primary, replica, target="https://example.com/"):
    """A link that the replica has, too."""
    key = server.create(target)["key"]
    until(lambda: primary.replayed(replica), "the replica has the link")
    return key


def lookups_at(engine, name):
    return int(engine.sql(LINKS_ASKED_FOR, name)[0][0])


def test_lookups_go_to_the_replica(cluster, pair):
    maker, server = cluster(replicas=""), cluster()
    key = created(maker, *pair)

    def the_replica_was_asked():
        assert server.target(key) == "https://example.com/"
        return lookups_at(pair[1], cluster.name) > 0

    until(the_replica_was_asked, "the replica is known to be fresh")


def test_a_replica_answers_while_the_primary_is_away(cluster, pair):
    primary, replica = pair
    maker, server = cluster(replicas=""), cluster()
    keys = [created(maker, primary, replica, f"https://example.com/{i}") for i in range(3)]
    primary.kill()
    for i, key in enumerate(keys):
        assert server.target(key) == f"https://example.com/{i}"
        assert maker.get(f"/{key}", key=None).status_code == 503, "who has no replica cannot tell"
    assert server.get("/no-such-link", key=None).status_code == 503, "the replica may not know it yet"


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


def test_a_database_that_follows_another_one_is_never_asked(cluster, module_engines, pair):
    primary, replica = pair
    stranger = module_engines.postgres(durable=False)
    other = stranger.database("other")
    server = cluster(replicas=other)
    key = created(server, primary, replica)
    primary.kill()
    answer = server.get(f"/{key}", key=None)
    assert answer.status_code in (302, 503), "302: it was still in memory"
    assert lookups_at(stranger, "other") == 0
