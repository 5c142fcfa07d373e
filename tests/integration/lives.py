"""A store that grows to its full size through crashes: made once, judged by test_crash.py, measured by
test_footprint.py.
"""
import pathlib
import random

import harness
from harness import ADMIN_KEY, scaled
from prometheus import metric

CREATES = scaled(1_000_000)
CRASHES = 20
CONNECTIONS = 64


class Lives:
    """What came of it. The ledgers hold a line "key url" for each create that was acknowledged, life by life."""

    def __init__(self, server):
        self.server = server
        self.ledgers = []
        self.reports = []

    @property
    def acknowledged(self):
        return sum(report["acknowledged"] for report in self.reports)

    def entries(self):
        for ledger in self.ledgers:
            with open(ledger) as lines:
                for line in lines:
                    yield line.split()

    def running(self):
        return self.server if self.server.process else self.server.start()

    def stopped(self):
        if self.server.process:
            self.server.stop()
        return self.server


def live_once(lives, count, crash_at):
    """Creates links until `count` are made, or until the server dies when it has made `crash_at` of them."""
    server = lives.server
    ledger = pathlib.Path(f"{server.data}.ledger{len(lives.ledgers)}")
    load = harness.hammer_start("create", port=server.port, token=ADMIN_KEY, ledger=ledger,
                                prefix=f"life{len(lives.ledgers)}", connections=CONNECTIONS, count=count)
    if crash_at is not None:
        harness.until(lambda: metric(server, "curt_links_created_total") >= crash_at, f"{crash_at} links are made")
        server.kill()
    lives.ledgers.append(ledger)
    lives.reports.append(harness.hammer_end(load))


def live_many_lives(nursery):
    """The crashes come at random within the first seven tenths; what a load has under way adds a little to each."""
    chance = random.Random(2)
    lives = Lives(nursery("--workers", "2"))
    shares = [chance.random() for _ in range(CRASHES)]
    for share in shares:
        live_once(lives, CREATES, max(1, int(0.7 * CREATES * share / sum(shares))))
        lives.server.start()
    live_once(lives, max(CREATES - lives.acknowledged, CONNECTIONS), None)
    return lives
