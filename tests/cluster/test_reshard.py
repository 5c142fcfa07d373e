"""Links move to other databases while two servers redirect and create: `curt reshard`."""
import contextlib
import re
import signal
import subprocess
import time

import pytest

import harness
from harness import ADMIN_KEY, PATIENCE_S, hammer, until
from load import Load

LINKS = 5000
HOT = 300
REDIRECTS = 3000
# Entries of the cache are old at once and most find no room: redirects really go to the store.
SETTINGS = {"CURT_CACHE_LIFE": "1ms", "CURT_CACHE_MEMORY": "1m", "CURT_WORKERS": 1}


class Shards:
    """Three databases, links spread over two of them, and two servers on them."""

    def __init__(self, postgres, nursery, tmp_path):
        self.postgres = postgres
        self.names = ["a", "b", "c"]
        self.urls = [self.postgres.database(name) for name in self.names]
        self.ledger = tmp_path / "ledger"
        first = nursery(env={"CURT_STORE_URL": ",".join(self.urls[:2]), **SETTINGS})
        hammer("create", port=first.port, token=ADMIN_KEY, ledger=self.ledger, prefix="link", count=LINKS)
        first.stop()
        self.servers = [nursery(env=self.settings()) for _ in range(2)]

    def settings(self):
        return {"CURT_STORE_URL": ",".join(self.urls), **SETTINGS}

    def count(self, name):
        return int(self.postgres.sql("SELECT count(*) FROM link", name)[0][0])

    def links(self):
        """The keys that were acknowledged at first, and where they lead."""
        return dict(line.split() for line in self.ledger.read_text().splitlines())

    def address(self, name):
        return f"{self.postgres.address}/{name}"

    def reshard(self, *flags):
        done = harness.curt("reshard", *flags, env=self.settings())
        assert done.returncode == 0, done.stderr
        return done.stdout

    def reshard_start(self, *flags, **env):
        return harness.spawn([harness.CURT, "reshard", *flags], env=harness.clean_env(**self.settings(), **env), stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)

    def reshard_end(self, process):
        stdout, stderr = process.communicate(timeout=4 * PATIENCE_S)
        harness.kill_group(process.pid)
        return process.returncode, stdout.decode(), stderr.decode()

    def killed_at(self, step, *flags):
        """`curt reshard` is killed (as kill -9 does) when it has done the step."""
        status, stdout, stderr = self.reshard_end(self.reshard_start(*flags, CURT_FAILPOINT=step))
        assert status == -signal.SIGKILL, (step, status, stdout, stderr)


@contextlib.contextmanager
def loaded(server, hot):
    load = Load(server.port, ADMIN_KEY, hot).start()
    try:
        yield load
    finally:
        load.stop()


def follow_until(shards, condition):
    """Redirects by the other server than the one that creates, of links of which most are not in its cache, once and then
    until the condition holds; how many."""
    asked, end = 0, time.monotonic() + 4 * PATIENCE_S
    while asked == 0 or not condition():
        assert time.monotonic() < end, "it does not come to an end"
        report = hammer("redirect", port=shards.servers[1].port, keys=shards.ledger, connections=16, count=REDIRECTS)
        assert report["3xx"] == REDIRECTS and (report["wrong"], report["broken"]) == (0, 0), report
        asked += REDIRECTS
    return asked


def would_move(text):
    """(keys that would move, keys in all)"""
    return tuple(int(number) for number in re.search(r"^would move (\d+) of (\d+) keys", text, re.MULTILINE).groups())


# In the order in which a run that was not killed before comes to them.
STEPS = ["reshard-enrolled", "reshard-planned", "reshard-begun", "reshard-expected", "reshard-copying@2", "reshard-catching-up",
         "reshard-frozen", "reshard-copied", "reshard-given", "reshard-taken", "reshard-cleaning@2", "reshard-moved"]


def test_from_two_databases_to_three_while_serving(postgres, nursery, tmp_path):
    shards = Shards(postgres, nursery, tmp_path)
    assert shards.count("a") + shards.count("b") == LINKS
    assert "idle" in shards.reshard("--status")
    assert shards.count("c") == 0
    hot = dict(list(shards.links().items())[:HOT])
    with loaded(shards.servers[0], hot) as load:
        keys, of = would_move(shards.reshard("--dry-run"))
        assert shards.count("c") == 0 and of >= LINKS
        print(f"\nwould move {keys} of {of} keys")

        # Killed after each of its steps, servers go on, and it goes on.
        asked = 0
        for step in STEPS:
            shards.killed_at(step)
            asked += follow_until(shards, lambda: True)
            load.next_phase(step)
        assert "slots are moving" in shards.reshard("--status")

        process = shards.reshard_start()
        asked += follow_until(shards, lambda: process.poll() is not None)
        status, stdout, stderr = shards.reshard_end(process)
        assert status == 0, stderr
        load.next_phase("afterwards")
        print(stdout.strip())
        assert "nothing to do" in shards.reshard()
        until(lambda: load.phase.creates > 20, "links are made in the new database")
    print(load.table())

    # Nothing failed, nothing is lost, and about a third is in the new one.
    assert not load.trouble and not load.twice
    assert not any(phase.redirect_errors for phase in load.phases)
    assert not any(phase.failures for phase in load.phases)
    report = hammer("verify", port=shards.servers[1].port, ledger=shards.ledger)
    assert report["wrong"] == 0 and report["answered"] == LINKS, report
    for server in shards.servers:
        for key, target in load.made.items():
            assert server.target(key) == target
    counts = {name: shards.count(name) for name in shards.names}
    total = LINKS + len(load.made)
    print(f"links by database: {counts}; {100 * counts['c'] / total:.1f} % moved; {asked} redirects "
          f"meanwhile and {len(load.made)} links made, none failed")
    assert sum(counts.values()) == total
    assert total * 25 // 100 < counts["c"] < total * 42 // 100
    assert len(shards.servers[0].links()) == total

    # And one leaves.
    print(shards.reshard("--leave", shards.address("b")).strip())
    assert shards.count("b") == 0 and shards.count("a") + shards.count("c") == total
    for key, target in hot.items():
        assert shards.servers[1].target(key) == target
    refused = harness.curt("reshard", "--leave", shards.address("a"), env=shards.settings())
    assert refused.returncode == 1 and "registry" in refused.stderr


def test_a_server_starts_without_a_database_and_serves_what_is_not_there(engines, postgres, nursery):
    databases = [postgres, engines.postgres("other", durable=False)]
    server = nursery(env={"CURT_STORE_URL": ",".join(database.database("links") for database in databases), **SETTINGS})
    links = [server.create(f"https://example.com/{number}", alias=f"link-{number}")["key"] for number in range(40)]
    there = [[bytes.fromhex(key[2:]).decode() for [key] in database.sql("SELECT key FROM link", "links")]
             for database in databases]
    assert sorted(there[0] + there[1]) == sorted(links) and all(there)
    server.stop()
    databases[1].kill()
    server.start()
    for key in there[0]:
        assert server.target(key) == "https://example.com/" + key.removeprefix("link-")
    assert server.get(f"/{there[1][0]}", key=None).status_code == 503
    ready = server.get("/readyz")
    assert ready.status_code == 503 and f"{databases[1].address}/links" in ready.text
    server.change(there[0][0], title="it works")
    assert server.patch(f"/api/v1/links/{there[1][0]}", json={"title": "it does not"}).status_code == 503
    databases[1].start()
    until(lambda: server.get("/readyz").status_code == 200, "the server is whole again")
    for key in links:
        assert server.target(key) == "https://example.com/" + key.removeprefix("link-")


def test_one_database_of_several_is_not_taken_for_the_whole(postgres, nursery):
    urls = [postgres.database(name) for name in ("one", "two")]
    nursery(env={"CURT_STORE_URL": ",".join(urls)}).stop()
    with pytest.raises(AssertionError, match=f"{postgres.address}/two"):
        nursery.server(env={"CURT_STORE_URL": urls[0]}).start()


def test_a_database_that_is_lost_is_given_up(postgres, nursery):
    urls = [postgres.database(name) for name in ("kept", "lost")]
    env = {"CURT_STORE_URL": ",".join(urls), **SETTINGS}
    server = nursery(env=env)
    links = [server.create(f"https://example.com/{number}")["key"] for number in range(40)]
    there = {bytes.fromhex(key[2:]).decode() for [key] in postgres.sql("SELECT key FROM link", "kept")}
    assert 0 < len(there) < len(links)
    server.stop()
    postgres.drop("lost")
    postgres.database("lost")  # an empty one in its place
    address = f"{postgres.address}/lost"
    server.start()
    assert {server.get(f"/{key}", key=None).status_code for key in links} == {302, 503}
    assert f"{address} is not the one" in server.get("/readyz").text
    assert "another database" in harness.curt("reshard", "--status", env=env).stdout
    asked = harness.curt("reshard", "--forget", address, env=env)
    assert asked.returncode == 1 and "--yes" in asked.stderr
    given_up = harness.curt("reshard", "--forget", address, "--yes", env=env)
    assert given_up.returncode == 0, given_up.stderr
    joined = harness.curt("reshard", env=env)
    assert joined.returncode == 0, joined.stderr
    for key in links:
        until(lambda: server.get(f"/{key}", key=None).status_code == (302 if key in there else 404), "all databases are there")
    until(lambda: server.get("/readyz").status_code == 200, "the server is whole again")


def make_links(server, count=60):
    return {f"link-{number}": server.create(f"https://example.com/{number}", alias=f"link-{number}")["original_url"]
            for number in range(count)}


def lie_in(database, name="links"):
    return {bytes.fromhex(key[2:]).decode() for [key] in database.sql("SELECT key FROM link", name)}


def test_a_server_with_an_old_map_reads_and_writes_what_has_moved(postgres, nursery):
    urls = [postgres.database(f"stale-{name}") for name in "abc"]
    env = {"CURT_STORE_URL": ",".join(urls), **SETTINGS}
    nursery(env={**env, "CURT_STORE_URL": ",".join(urls[:2])}).stop()
    servers = [nursery(env=env) for _ in range(2)]
    links = make_links(servers[0])
    with servers[1].frozen():
        done = harness.curt("reshard", env=env)
        assert done.returncode == 0, done.stderr
        servers[0].change("link-1", original_url="https://example.com/changed")
        links["link-1"] = "https://example.com/changed"
    for key, target in links.items():
        assert servers[1].target(key) == target
        servers[1].change(key, title="by an old map")
    assert len(servers[0].links()) == len(links)
    assert lie_in(postgres, "stale-c")


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_database_that_dies_in_the_middle_of_a_move_holds_it_up(engines, nursery, which):
    databases = [engines.postgres(f"dies-{which}-{number}", durable=False) for number in range(3)]
    urls = [database.database("links") for database in databases]
    env = {"CURT_STORE_URL": ",".join(urls), **SETTINGS}
    nursery(env={**env, "CURT_STORE_URL": ",".join(urls[:2])}).stop()
    server = nursery(env=env)
    links = make_links(server)
    for step in ("reshard-begun", "reshard-frozen", "reshard-given"):
        process = harness.spawn([harness.CURT, "reshard"], env=harness.clean_env(**env, CURT_FAILPOINT=step),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.communicate(timeout=PATIENCE_S)
        harness.kill_group(process.pid)
        databases[which].kill()
        process = harness.spawn([harness.CURT, "reshard"], env=harness.clean_env(**env), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)
        time.sleep(0.5)  # how long the database is down; wherever that meets the move, the end must be right
        databases[which].start()
        _, stderr = process.communicate(timeout=2 * PATIENCE_S)
        harness.kill_group(process.pid)
        if process.returncode != 0:  # it did not even open the registry
            done = harness.curt("reshard", env=env)
            assert done.returncode == 0, (stderr, done.stderr)
        until(lambda: server.get("/readyz").status_code == 200, "the server is whole again")
        for key, target in links.items():
            assert server.target(key) == target
        done = harness.curt("reshard", "--leave", f"{databases[2].address}/links", env=env)
        assert done.returncode == 0, done.stderr
    assert len(server.links()) == len(links)
    for database in databases:
        database.kill()


def test_a_replica_that_has_not_replayed_a_switch_is_not_asked(engines, nursery):
    primary = engines.postgres("switched", durable=False)
    replica = primary.replica()
    urls = [primary.database(name) for name in "abc"]
    until(lambda: primary.replayed(replica), "the replica has the databases")
    env = {"CURT_STORE_URL": ",".join(urls), **SETTINGS, "CURT_CACHE_NEGATIVE_TIME": "1ms"}
    nursery(env={**env, "CURT_STORE_URL": ",".join(urls[:2])}).stop()
    writer = nursery(env=env)
    reader = nursery(env={**env, "CURT_STORE_REPLICAS": ",".join(replica.url(name) for name in "abc")})
    links = make_links(writer, 30)
    until(lambda: primary.replayed(replica), "the replica has the links")
    until(lambda: f"replica in use replica=127.0.0.1:{replica.port}/b" in reader.stderr, "the replica is asked")
    replica.sql("SELECT pg_wal_replay_pause()")
    done = harness.curt("reshard", env=env)
    assert done.returncode == 0, done.stderr
    there = lie_in(primary, "c")
    assert there
    reader.change(min(there), title="it has heard of the switch")
    for key in there:  # at once, before the replica is found to lag
        writer.change(key, original_url="https://example.com/moved")
        assert reader.target(key) == "https://example.com/moved"
    assert all(reader.target(key) == links[key] for key in links.keys() - there)
    replica.sql("SELECT pg_wal_replay_resume()")
    for engine in (replica, primary):
        engine.kill()


def test_a_database_that_hangs_delays_no_create_in_another(engines, postgres, nursery):
    other = engines.postgres("hangs", durable=False)
    databases = [postgres, other]
    server = nursery(env={"CURT_STORE_URL": ",".join(database.database("hanging") for database in databases), **SETTINGS})
    make_links(server)
    before = lie_in(postgres, "hanging")
    other.pause()
    try:
        times = []
        for key in sorted(before):
            start = time.monotonic()
            server.change(key, title="still here")
            times.append(time.monotonic() - start)
        assert max(times) < 2, times
    finally:
        other.resume()
    until(lambda: server.get("/readyz").status_code == 200, "the server is whole again")
