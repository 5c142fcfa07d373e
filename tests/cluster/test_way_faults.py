"""What fails on the way costs nothing: at the end, what the clients were told was taken is what is counted, once."""
import random
import threading
import time

import pytest

from reconciliation import Clicks, Impressions, link_stats, window
from harness import hammer_end, hammer_start, until
from ways import ALL, Backends, Way, full, say

ROUNDS = 20 if full() else 1
# Between any two steps of a batch, in the order in which they come.
STEPS = ("queue-gathered", "worker-filtered", "worker-committed", "worker-recorded", "queue-delivered", "queue-committed")
SMALL = ("--worker-interval-ms", "20")


@pytest.fixture(scope="module")
def backends(engines):
    return Backends(engines)


class Load:
    """Clients that ask for redirects and send impressions until they must stop, and keep ledgers. Two of them
    send the same impressions at the same time, the second one only the first few."""

    def __init__(self, way, folder):
        self.way, self.folder, self.number = way, folder, 0
        self.keys = [way.server.create(f"https://example.com/{number}")["key"] for number in range(20)]
        self.key_file = folder / "keys"
        self.key_file.write_text("".join(f"{key}\n" for key in self.keys))
        self.clicks, self.impressions = Clicks(), Impressions()
        self.last = int(time.time() * 1000)

    def run(self, seconds, repeats=50):
        """Starts the clients; call what comes back to have them end and to read what they have seen."""
        self.number += 1
        ledgers = [self.folder / f"{what}{self.number}" for what in ("clicks", "events", "again")]
        port = self.way.server.port
        processes = (hammer_start("redirect", port=port, keys=self.key_file, ledger=ledgers[0], connections=4,
                                  seconds=seconds, rate=500, browsers=1),
                     hammer_start("events", port=port, ledger=ledgers[1], prefix=f"r{self.number}", connections=4,
                                  seconds=seconds, rate=500),
                     hammer_start("events", port=port, ledger=ledgers[2], prefix=f"r{self.number}", connections=4,
                                  seconds=seconds, rate=repeats))

        def end():
            for process in processes:
                hammer_end(process)
            self.clicks.read(ledgers[0])
            self.impressions.read(ledgers[1])
            self.impressions.read_again(ledgers[2])
        return end

    def check(self, seconds=120):
        """Distinct = counted = the ledgers."""
        now = self.way.settled(seconds)
        counted = {key: link_stats(self.way.server, key)["clicks"] for key in self.keys}
        self.clicks.assert_counted(counted)
        self.impressions.assert_counted(window(self.way.server, 1440))
        assert sum(counted.values()) == now["clicks_in_rollups"]
        assert now["impressions_counted"] == sum(window(self.way.server, 1440).values())
        return now


@pytest.mark.parametrize(("queue", "sink"), [way for way in ALL if way[0] == "kafka" and way[1] != "sqlite"])
def test_a_worker_that_dies_between_any_two_steps_counts_nothing_twice(nursery, backends, tmp_path, queue, sink):
    way = Way(nursery, backends, queue, sink, SMALL, env={"CURT_WORKER_INTERVAL_MS": 20})
    load, chance, deaths = Load(way, tmp_path), random.Random(7), 0
    worker = way.workers[0]
    for number in range(ROUNDS):
        for step in STEPS:
            way.restart_worker(worker, CURT_FAILPOINT=f"{step}@{chance.randrange(1, 4)}")

            def dies():  # with as many batches as it takes
                load.run(seconds=1)()
                return worker.process.poll() is not None
            until(dies, f"the worker dies at {step}", 120)
            worker.kill()
            deaths += 1
        way.restart_worker(worker)
        now = load.check()
    say(tmp_path, sink=sink, deaths=deaths, clicks=now["clicks_in_rollups"], impressions=now["impressions_counted"])
    way.end()


def test_a_server_that_dies_between_any_two_steps_of_counting_counts_nothing_twice(nursery, backends, tmp_path):
    """The log has two writers, and which of them is read first is another one each time."""
    way = Way(nursery, backends, "log", "clickhouse", SMALL)
    load, chance, server = Load(way, tmp_path), random.Random(7), way.server
    steps = STEPS * ROUNDS if full() else ("worker-committed", "queue-delivered", "worker-filtered")
    for step in steps:
        server.stop()
        server.env["CURT_FAILPOINT"] = f"{step}@{chance.randrange(10, 20)}"
        server.start()
        end = load.run(seconds=60, repeats=500)
        until(lambda: server.process.poll() is not None, f"the server dies at {step}", 60)
        end()
        server.kill()
        del server.env["CURT_FAILPOINT"]
        server.start()
        now = load.check()
    assert now["duplicates"] > 0
    say(tmp_path, deaths=len(steps), impressions=now["impressions_counted"], duplicates=now["duplicates"])
    way.end()


@pytest.mark.parametrize(("queue", "sink"), ALL)
def test_a_server_that_is_killed_loses_nothing_that_it_took(nursery, backends, tmp_path, queue, sink):
    way = Way(nursery, backends, queue, sink, SMALL)
    load = Load(way, tmp_path)
    for number in range(ROUNDS):
        end = load.run(seconds=1.5)
        threading.Event().wait(random.Random(number).uniform(0.2, 1.2))
        way.server.kill()
        end()
        way.server.start()
        now = load.check()
    say(tmp_path, queue=queue, sink=sink, kills=ROUNDS, clicks=now["clicks_in_rollups"],
        impressions=now["impressions_counted"])
    way.end()


@pytest.mark.parametrize(("queue", "sink"), [("kafka", "clickhouse"), ("log", "clickhouse"), ("kafka", "postgres"),
                                             ("log", "postgres")])
def test_a_sink_that_is_killed_in_the_middle_of_an_insert_counts_nothing_twice(nursery, backends, tmp_path, queue, sink):
    way = Way(nursery, backends, queue, sink, SMALL)
    load = Load(way, tmp_path)
    engine = backends.get("clickhouse" if sink == "clickhouse" else "postgres_of_stats")
    for number in range(ROUNDS):
        end = load.run(seconds=3)
        threading.Event().wait(random.Random(number).uniform(0.3, 1.5))
        engine.kill()
        threading.Event().wait(0.5)
        engine.start()
        end()
        now = load.check()
    say(tmp_path, queue=queue, sink=sink, kills=ROUNDS, clicks=now["clicks_in_rollups"],
        impressions=now["impressions_counted"])
    way.end()


@pytest.mark.parametrize(("queue", "sink"), [("kafka", "clickhouse"), ("log", "clickhouse")])
def test_a_filter_that_forgets_everything_lets_no_duplicate_through(nursery, backends, tmp_path, queue, sink):
    way = Way(nursery, backends, queue, sink, SMALL)
    server, redis = way.server, backends.get("redis")
    for number in range(ROUNDS):
        events = [{"id": f"f{number}-{i}", "ts": int(time.time() * 1000), "userId": "u", "adId": "a"} for i in range(500)]
        for event in (*events, *events[:250]):
            assert server.post("/event", json=event, key=None).status_code == 204
        way.settled()
        redis.ask("FLUSHALL")
        for event in events:
            assert server.post("/event", json=event, key=None).status_code == 204
        now = way.settled()
        assert now["impressions_counted"] == 500 * (number + 1) and window(server) == {"a": 500 * (number + 1)}
    say(tmp_path, queue=queue, flushes=ROUNDS, counted=now["impressions_counted"], duplicates=now["duplicates"])
    way.end()


@pytest.mark.parametrize("sink", ["clickhouse", "postgres", "sqlite"] if full() else ["clickhouse"])
def test_a_broker_that_is_down_grows_the_spool_which_drains_when_it_is_back(nursery, backends, tmp_path, sink):
    if not backends.get("kafka").is_real:
        pytest.skip("the mock of a broker cannot be started again")
    way = Way(nursery, backends, "kafka", sink, SMALL)
    load, broker = Load(way, tmp_path), backends.get("kafka")
    away_s = 30 if full() else 3
    for number in range(ROUNDS):
        end = load.run(seconds=away_s + 2)
        threading.Event().wait(0.5)
        broker.kill()
        threading.Event().wait(away_s)  # how long it is down is the point
        waits = way.server.get("/readyz", key=None).json()
        broker.start()
        end()
        now = load.check(seconds=240)
        assert waits["status"] == "degraded" and "forwarder" in waits["checks"], waits
    say(tmp_path, sink=sink, away_s=away_s, clicks=now["clicks_in_rollups"], impressions=now["impressions_counted"])
    way.end()
