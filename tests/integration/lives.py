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
        self.lost_between = []

    @property
    def acknowledged(self):
        return sum(report.get("acknowledged", 0) for report in self.reports)

    def entries(self):
        for ledger in self.ledgers:
            with open(ledger) as lines:
                for line in lines:
                    yield line.split()


def live_once(lives, count, crash_at):
    """Creates links until `count` are made, or until the server dies when it has made `crash_at` of them."""
    server = lives.server
    ledger = pathlib.Path(f"{server.data}.ledger{len(lives.ledgers)}")
    load = harness.hammer_start("create", port=server.port, token=ADMIN_KEY, ledger=ledger,
                                prefix=f"life{len(lives.ledgers)}", connections=CONNECTIONS, count=count)
    if crash_at is not None:
        harness.until(lambda: metric(server, "curt_links_created_total") >= crash_at, f"{crash_at} links are made")
        server.kill()
    report = harness.hammer_end(load)
    ledger.touch()
    lives.ledgers.append(ledger)
    lives.reports.append(report)


def verify(lives, ledger):
    """Follows every link of the ledger; None when all is as acknowledged."""
    if ledger.stat().st_size == 0:
        return None
    report = harness.hammer("verify", port=lives.server.port, ledger=ledger, connections=CONNECTIONS)
    fine = report["wrong"] == 0 and report["broken"] == 0 and report["answered"] == report["sent"]
    return None if fine else report


def live_many_lives(nursery):
    chance = random.Random(2)
    lives = Lives(nursery("--workers", "2"))
    for _ in range(CRASHES):
        live_once(lives, CREATES, chance.randrange(1, 2 * CREATES // (CRASHES + 2)))
        lives.server.start()
        lives.lost_between.append(verify(lives, lives.ledgers[-1]))
    live_once(lives, max(CREATES - lives.acknowledged, 0), None)
    return lives
