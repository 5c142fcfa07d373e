"""What events cost beyond one machine. Parts of bench/run, which starts the engines."""
import contextlib
import os
import pathlib
import statistics
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
for folder in ("cluster", "integration", "support"):
    sys.path.insert(0, str(ROOT / "tests" / folder))

import prometheus  # noqa: E402
from engine import descendants  # noqa: E402
from harness import hammer, until  # noqa: E402
from nursery import Nursery  # noqa: E402
from ways import Backends, Way  # noqa: E402

CONNECTIONS = 64
BATCH = 1000
TICKS_S = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def nursery_in(folder):
    folder.mkdir(exist_ok=True)
    nursery = Nursery(folder)
    try:
        yield nursery
    finally:
        nursery.finish()


def threads_cpu(pid, name=""):
    """Seconds on a core, over all threads whose name begins so."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # one that has just ended
            if (task / "comm").read_text().startswith(name):
                total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def process_cpu(pid):
    """Seconds on a core since it began, with threads that have ended."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_S


def drained(server):
    return prometheus.metric(server, "curt_events_spool_bytes") == 0


def event_round(way, folder, count, number):
    """CPU of one POST /event: of the threads that answer, and of the whole server until the event has left it."""
    pid, server = way.server.process.pid, way.server
    before = threads_cpu(pid, "worker"), threads_cpu(pid)
    report = hammer("events", port=server.port, ledger=folder / f"{way.name}-{number}", prefix=f"r{number}",
                    connections=CONNECTIONS, count=count)
    assert report["answered"] == count, report
    until(lambda: drained(server), "all events have left the log", 120)
    after = threads_cpu(pid, "worker"), threads_cpu(pid)
    return [(a - b) / count * 1e6 for a, b in zip(after, before)]


def bench_event(engines, folder, options):
    rounds, count = 2 * options.rounds, options.count // 4
    with nursery_in(folder) as nursery:
        backends = Backends(engines)
        ways = {"own log, SQLite": Way(nursery, backends, "log", "sqlite"),
                "Kafka behind it": Way(nursery, backends, "kafka", "clickhouse", workers=0)}
        seen = {name: [] for name in ways}
        for number in range(rounds):
            for name in ways if number % 2 == 0 else reversed(ways):
                seen[name].append(event_round(ways[name], folder, count, number))
            print(f"event: round {number + 1} of {rounds}", file=sys.stderr)
    print(f"\nPOST /event, one event each. {CONNECTIONS} connections; {rounds} rounds of {count} requests; CPU µs a request; medians")
    print(f"{'':20}{'threads that answer':>22}{'whole server':>16}")
    figures = {name: [statistics.median(column) for column in zip(*rows)] for name, rows in seen.items()}
    for name, (answering, whole) in figures.items():
        print(f"{name:20}{answering:22.2f}{whole:16.2f}")
    ratios = [statistics.median(b[k] / a[k] for a, b in zip(*seen.values())) for k in (0, 1)]
    print(f"ratio: {ratios[0]:.3f} of the threads that answer, {ratios[1]:.3f} of the whole server (the bar is 1.10); medians "
          "of the rounds' ratios")
    return {**figures, "ratio": ratios[0], "ratio_whole": ratios[1]}


def counted(worker):
    with urllib.request.urlopen(f"{worker.url}/metrics", timeout=10) as answer:
        return sum(int(line.rsplit(" ", 1)[1]) for line in answer.read().decode().splitlines()
                   if line.startswith('curt_stats_events_total{kind="impression"}'))


def bench_worker(engines, folder, options):
    """From a topic that is full: so the servers that fill it are not measured."""
    figures, count = {}, options.queued // BATCH * BATCH
    print(f"\ncurt worker. {count} impressions wait in Kafka; broker, sink, Redis and worker share {os.cpu_count()} cores")
    print(f"{'':12}{'events/s':>12}{'CPU s: worker':>16}{'Kafka':>8}{'sink':>8}{'Redis':>8}")
    for sink in ("clickhouse", "postgres"):
        with nursery_in(folder / sink) as nursery:
            backends = Backends(engines)
            way = Way(nursery, backends, "kafka", sink, workers=0, env={"CURT_EVENTS_SPOOL_BYTES": "8g"})
            hammer("events", port=way.server.port, ledger=folder / f"{sink}-ledger", prefix="x", connections=8, batch=BATCH,
                   count=count // BATCH)
            until(lambda way=way: drained(way.server), "all events are in Kafka", 600)
            pids = [backends.get(kind).pid for kind in
                    ("kafka", "clickhouse" if sink == "clickhouse" else "postgres_of_stats", "redis")]
            figures[sink] = drain(way, pids, count)
        rate, *cpu = figures[sink]
        print(f"{sink:12}{rate:12,.0f}{cpu[0]:16.1f}{cpu[1]:8.1f}{cpu[2]:8.1f}{cpu[3]:8.1f}", flush=True)
    return figures


def drain(way, pids, count):
    def used():
        return [sum(process_cpu(each) for each in (pid, *descendants(pid))) for pid in pids]
    before, begun = used(), time.monotonic()
    worker = way.worker()
    way.workers = [worker]
    until(lambda: counted(worker) >= count, "the worker has counted it all", 1200)
    seconds = time.monotonic() - begun
    cpu = [process_cpu(worker.pid), *(a - b for a, b in zip(used(), before))]
    way.end()
    return [count / seconds, *cpu]
