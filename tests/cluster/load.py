"""Steady creates and redirects against a cluster, with a ledger of what was acknowledged and of what went wrong."""
import collections
import http.client
import itertools
import json
import math
import threading
import time

PATIENCE_S = 60


class Phase:
    """What happened between two moments, as clients saw it."""

    def __init__(self, name):
        self.name = name
        self.begun = time.monotonic()
        self.ended = None
        self.redirects = self.creates = 0
        self.redirect_errors = []
        self.failures = collections.Counter()  # of creates, by status
        self.failed_first = self.failed_last = None
        self.slowest_s = {"redirect": 0.0, "create": 0.0}

    def create_failed(self, status):
        self.failures[status] += 1
        self.failed_last = time.monotonic()
        self.failed_first = self.failed_first or self.failed_last

    def row(self):
        failed = ", ".join(f"{count} x {status}" for status, count in sorted(self.failures.items(), key=str)) or "none"
        failing = f"{self.failed_last - self.failed_first:.1f} s" if self.failures else "-"
        return (self.name, f"{(self.ended or time.monotonic()) - self.begun:.1f} s", str(self.redirects),
                str(len(self.redirect_errors)), f"{self.slowest_s['redirect'] * 1000:.0f} ms", str(self.creates),
                f"{self.slowest_s['create'] * 1000:.0f} ms", failed, failing)


HEADINGS = ("what was killed", "took", "redirects", "errors", "slowest", "creates", "slowest", "creates that failed",
            "failing for")


class Load:
    """A few threads that follow hot links, and a few that make links. A create that fails is repeated under the same
    Idempotency-Key until it is acknowledged, so in the end each order has exactly one link."""

    def __init__(self, port, key, hot, followers=3, creators=2, pause_s=0.003):
        self.port, self.key, self.hot, self.pause_s = port, key, hot, pause_s
        self.lock = threading.Lock()
        self.stopping = False
        self.deadline = math.inf
        self.orders = itertools.count()
        self.made = {}  # key: target, of each 201
        self.followed = set()  # of those, for the test's own use
        self.twice = []
        self.trouble = []
        self.phases = [Phase("(before)")]
        self.threads = [threading.Thread(target=self.guarded, args=(work, number))
                        for work, count in ((self.follow, followers), (self.create, creators)) for number in range(count)]

    @property
    def phase(self):
        return self.phases[-1]

    def next_phase(self, name):
        with self.lock:
            self.phase.ended = time.monotonic()
            self.phases.append(Phase(name))

    def start(self):
        for thread in self.threads:
            thread.start()
        return self

    def stop(self):
        """Orders under way are repeated until they are acknowledged, for as long as one can hope."""
        self.stopping = True
        self.deadline = time.monotonic() + PATIENCE_S
        for thread in self.threads:
            thread.join()
        self.phase.ended = time.monotonic()

    def guarded(self, work, number):
        try:
            work(number)
        except Exception as problem:  # told by the test, in its own thread
            self.trouble.append(problem)
            raise

    def ask(self, connection, method, path, body=None, headers=None):
        """Status, header and body; a connection that broke is the status "broken"."""
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            return "broken", {}, b""

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)

    def follow(self, number):
        connection = self.connect()
        for name, target in itertools.islice(itertools.cycle(self.hot.items()), number * 7, None):
            if self.stopping:
                break
            begun = time.monotonic()
            status, headers, _ = self.ask(connection, "GET", f"/{name}")
            with self.lock:
                self.phase.redirects += 1
                self.phase.slowest_s["redirect"] = max(self.phase.slowest_s["redirect"], time.monotonic() - begun)
                if (status, headers.get("Location")) != (302, target):
                    self.phase.redirect_errors.append((name, status, headers.get("Location")))
            time.sleep(self.pause_s)  # the rate of the load

    def create(self, _):
        connection = self.connect()
        while not self.stopping:
            order = next(self.orders)
            target = f"https://example.com/order/{order}"
            headers = {"Authorization": f"Bearer {self.key}", "Idempotency-Key": f"order-{order}"}
            while not self.create_once(connection, target, headers):
                assert time.monotonic() < self.deadline, f"{target} was never acknowledged"
                time.sleep(0.02)  # before the next attempt
            time.sleep(self.pause_s)  # the rate of the load

    def create_once(self, connection, target, headers):
        begun = time.monotonic()
        status, _, body = self.ask(connection, "POST", "/api/v1/links", json.dumps({"original_url": target}), headers)
        with self.lock:
            self.phase.slowest_s["create"] = max(self.phase.slowest_s["create"], time.monotonic() - begun)
            if status != 201:
                self.phase.create_failed(status)
                return False
            key = json.loads(body)["key"]
            if key in self.made:
                self.twice.append((key, self.made[key], target))
            self.made[key] = target
            self.phase.creates += 1
        return True

    def table(self):
        rows = [HEADINGS, *(phase.row() for phase in self.phases)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)
