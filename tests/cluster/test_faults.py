"""Under steady creates and redirects, one part of the cluster after another is killed and comes back."""
import collections

import pytest

from cluster import Cluster
from harness import Client
from load import Load

from engines import until

HOT = 40
LOW, HIGH = 200, 400
STOCK_LOW, STOCK_HIGH = 2000, 3000
SETTINGS = {
    "CURT_LIMITS_MISSES": 0,
    "CURT_KEYS_LOW": LOW,
    "CURT_KEYS_HIGH": HIGH,
    "CURT_KEYS_DB_LOW": STOCK_LOW,
    "CURT_KEYS_DB_HIGH": STOCK_HIGH,
    "CURT_KEYS_BATCH": 16,
    "CURT_KEYS_LEASE_TIME": "2s",
    "CURT_WORKERS": 1,
}


@pytest.fixture
def cluster(engines):
    with Cluster(engines, settings=SETTINGS) as cluster:
        yield cluster


# What comes back, and how one knows

def drain(cluster):
    """Takes keys from the Redis servers, so that somebody must bring new ones. What is left is enough meanwhile."""
    for shard in cluster.key_shards:
        shard.ask("LTRIM", "curt:keys:available", 0, LOW * 3 // 4)


def is_refilled(cluster):
    return all(count >= LOW for count in cluster.stock())


def until_keys_flow(cluster):
    """Until keygen has put new keys into both databases since now, and keysync has refilled every Redis server."""
    begun = [shard.sql("SELECT txid_current()", "keys")[0][0] for shard in cluster.shards]

    def flows():
        new = [shard.sql(f"SELECT 1 FROM key_stock WHERE xmin::text::bigint > {since} LIMIT 1", "keys")
               for shard, since in zip(cluster.shards, begun)]
        full = is_refilled(cluster)
        if full and not all(new):
            drain(cluster)
        return full and all(new)
    until(flows, "keys flow from keygen to Redis")


def until_ready(cluster):
    until(lambda: all(cluster.is_ready(server.url) for server in cluster.servers) and cluster.is_ready(cluster.url),
          "all servers are ready")


def until_made(load, count):
    """So many links were made since the phase began, or since now."""
    goal = load.phase.creates + count
    until(lambda: load.phase.creates >= goal or load.trouble, f"{count} links are made")


# Each kills something, and returns when all is well again

def kill_redis_primary(cluster, load):
    old = cluster.leader.primary()
    old.kill()
    until(lambda: cluster.leader.primary() not in (None, old), "Sentinel has promoted another")
    until_made(load, 20)
    cluster.leader.rejoin(old)
    until(cluster.leader.is_whole, "it is a replica of the new one")


def kill_keysync(cluster, load):
    for keysync in cluster.keysyncs:  # one after the other: the other one takes over
        keysync.kill()
        drain(cluster)
        until(lambda: is_refilled(cluster), "the other keysync has refilled every Redis server")
        keysync.start()


def kill_keygen(cluster, load):
    for keygen in cluster.keygens:
        keygen.kill()
        until_keys_flow(cluster)
        keygen.start()


def kill_zookeeper(cluster, load):
    cluster.zookeeper.kill()
    until_made(load, 20)
    cluster.zookeeper.start()
    until_keys_flow(cluster)


def follow_cold(cluster, load, count=100):
    """Follows links that nobody has followed yet, so no server has them in its memory; what came of it."""
    fresh = [key for key in list(load.made) if key not in load.followed][:count]
    load.followed.update(fresh)
    client = Client(cluster.url, None)
    statuses = collections.Counter(client.get(f"/{key}").status_code for key in fresh)
    client.close()
    return statuses


def kill_shard(number, answers):
    """What links that no server has in its memory answer meanwhile is one of `answers`."""
    def kill(cluster, load):
        shard = cluster.shards[number]
        until(lambda: number != 0 or shard.replayed(cluster.replica), "the replica has what was made until now")
        shard.kill()
        until(lambda: load.phase.failures or load.trouble, "creates feel it")
        goal = load.phase.redirects + 500
        until(lambda: load.phase.redirects >= goal or load.trouble, "redirects go on")
        cold = follow_cold(cluster, load)
        print(f"\n{shard.name} is down: links that nobody had followed answered {dict(cold)}", end="")
        assert set(cold) <= answers and cold[302] > 0
        shard.start()
        until_ready(cluster)
    return kill


def kill_server(cluster, load):
    cluster.servers[0].kill()
    until_made(load, 50)
    cluster.servers[0].start()
    until_ready(cluster)


FAULTS = {
    "Redis primary": kill_redis_primary,
    "keysync": kill_keysync,
    "keygen": kill_keygen,
    "ZooKeeper": kill_zookeeper,
    "shard a (has a replica)": kill_shard(0, {302}),
    "shard b": kill_shard(1, {302, 503}),
    "server": kill_server,
}


def test_whatever_is_killed_no_key_comes_twice_no_link_is_lost_and_hot_links_never_fail(cluster):
    client = Client(cluster.url, cluster.admin_key)
    hot = {client.create(f"https://example.com/hot/{i}")["key"]: f"https://example.com/hot/{i}" for i in range(HOT)}
    for server in cluster.servers:  # each has them in its memory
        warm = Client(server.url, cluster.admin_key)
        assert all(warm.target(key) == target for key, target in hot.items())
        warm.close()
    load = Load(cluster.front.port, cluster.admin_key, hot).start()
    try:
        until_made(load, 100)
        for name, fault in FAULTS.items():
            load.next_phase(name)
            fault(cluster, load)
            until_made(load, 50)
    finally:
        load.stop()
        print("\n" + load.table())
    assert not load.trouble, load.trouble
    assert not load.twice, "a key was issued twice"
    assert not set(load.made) & set(hot)
    assert [phase.redirect_errors for phase in load.phases if phase.redirect_errors] == []

    kept = {link["key"]: link["original_url"] for link in client.links()}
    assert {key: target for key, target in load.made.items() if kept.get(key) != target} == {}, "acknowledged links were lost"
    assert len(kept) == len(load.made) + len(hot), "an order that was repeated has one link"
    for key, target in load.made.items():
        assert client.target(key) == target
    print(f"{len(load.made)} links were acknowledged: each has a key of its own, is there, and leads where it should")
    client.close()
