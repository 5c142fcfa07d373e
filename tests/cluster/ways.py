"""The ways that events can take: each queue with each sink, with real servers behind them."""
import dataclasses
import json
import os
import pathlib
import urllib.request

from reconciliation import reconcile
from cluster import Curt
from harness import until

QUEUES = ("log", "kafka")
SINKS = ("sqlite", "postgres", "clickhouse")
ALL = [(queue, sink) for queue in QUEUES for sink in SINKS]


@dataclasses.dataclass
class Backends:
    """What all ways of a test file share; each way has a database, a topic and a Redis database of its own."""
    engines: object
    kafka: object = None
    clickhouse: object = None
    postgres: object = None
    postgres_of_stats: object = None  # one that can be killed without the link store; it keeps what it said that it has
    redis: object = None
    used: int = 0

    def get(self, kind):
        if getattr(self, kind) is None:
            setattr(self, kind, self.make(kind))
        return getattr(self, kind)

    def make(self, kind):
        if kind.startswith("postgres"):
            return self.engines.postgres(durable=kind == "postgres_of_stats")
        return getattr(self.engines, kind)()


class Way:
    """A server, and `workers` processes of curt worker when the way needs them."""

    def __init__(self, nursery, backends, queue, sink, flags=(), workers=1, env=None):
        backends.used += 1
        self.name = f"way{backends.used}"
        self.backends, self.queue, self.sink = backends, queue, sink
        self.env = {**self.settings(), **(env or {})}
        self.has_workers = queue == "kafka" and sink != "sqlite"
        self.server = nursery.server("--workers", "2", *flags, env=self.env).start()
        self.workers = [self.worker() for _ in range(workers)] if self.has_workers else []

    def settings(self):
        env = {}
        if self.queue == "kafka":
            env |= {"CURT_QUEUE_URL": self.backends.get("kafka").url(), "CURT_QUEUE_PREFIX": self.name + ".",
                    "CURT_QUEUE_GROUP": self.name, "CURT_QUEUE_PARTITIONS": 4,
                    # The broker misses a worker that was killed after this time, and gives its share to the next.
                    "CURT_QUEUE_OPTIONS": "session.timeout.ms=1000,heartbeat.interval.ms=300"}
        if self.queue == "kafka" or self.sink != "sqlite":
            env["CURT_STORE_URL"] = self.backends.get("postgres").database(f"{self.name}_links")
        if self.sink == "postgres":
            env["CURT_SINK_URL"] = self.backends.get("postgres_of_stats").database(f"{self.name}_stats")
        if self.sink == "clickhouse":
            env["CURT_SINK_URL"] = self.backends.get("clickhouse").url(self.name)
        if self.sink == "clickhouse" or self.queue == "kafka":
            env["CURT_SEEN_URL"] = f"redis://{self.backends.get('redis').address}/{self.backends.used % 64}"
        return env

    def worker(self, **env):
        """Another one, and waits until it is ready."""
        engines = self.backends.engines
        worker = Curt(engines, engines.name("worker", None), "worker", {**self.env, "CURT_DATA": "data", **env})
        worker.settings["CURT_WORKER_LISTEN"] = worker.address
        engines.add(worker).start()
        return worker

    def restart_worker(self, worker, **env):
        """In its place, also when it has died by itself. One that is to die may do so before it is ready."""
        if worker.process:
            worker.kill()
        worker.settings = {name: value for name, value in worker.settings.items() if name != "CURT_FAILPOINT"} | env
        return worker.launch() if "CURT_FAILPOINT" in env else worker.start()

    def settled(self, seconds=120):
        """The counts once everything that was logged is counted."""
        def look():
            now = reconcile(self.server, deep=False)
            return now if now["clicks_pending"] == now["impressions_pending"] == 0 and \
                now["orphans_logged"] == now["orphans_in_rollups"] else None
        now = until(look, f"{self.queue} and {self.sink} have counted it all", seconds)
        assert now["difference"] == 0, now
        return now

    def lag(self):
        """Messages that wait, as the workers tell."""
        total = 0
        for worker in self.workers:
            with urllib.request.urlopen(f"{worker.url}/metrics", timeout=10) as answer:
                total += sum(int(line.rsplit(" ", 1)[1]) for line in answer.read().decode().splitlines()
                             if line.startswith("curt_queue_lag_messages{"))
        return total

    def end(self):
        for worker in self.workers:
            if worker.process:
                worker.stop()


def full():
    """The whole size, which takes minutes."""
    return bool(os.environ.get("CURT_FULL"))


def say(folder, **figures):
    line = json.dumps(figures)
    print(line)
    (pathlib.Path(folder) / "figures").write_text(line)
