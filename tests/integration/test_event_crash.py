"""Every acknowledged redirect and 204 is counted once, although the server is killed again and again."""
import random
import time

import pytest

from reconciliation import Clicks, Impressions, link_stats, overview, post_events, reconcile, settled, visits, window
from harness import hammer_end, hammer_start, scaled, until
from prometheus import metric

pytestmark = pytest.mark.slow

LINKS = 40
LOADS = (
    ("redirect", dict(connections=16, pipeline=4, browsers=1, skew=80)),
    ("events", dict(connections=8, rate=4000, ads=7)),
    ("events", dict(connections=2, rate=50, ads=7, batch=20)),
)
CONNECTIONS = sum(options["connections"] for _, options in LOADS)
RESEND = 5000


class Siege:
    """A server that is killed at random moments under load, and what its clients have seen."""

    def __init__(self, server, folder, seed):
        self.server = server
        self.folder = folder
        self.chance = random.Random(seed)
        self.clicks = Clicks()
        self.impressions = Impressions()
        self.lives = 0
        self.keys = [server.create(f"https://example.com/{i}")["key"] for i in range(LINKS)]
        self.keys_path = folder / "keys"
        self.keys_path.write_text("".join(f"{key}\n" for key in self.keys))

    def load_start(self, mode, number, options):
        ledger = self.folder / f"{self.lives}-{number}"
        more = {"keys": self.keys_path} if mode == "redirect" else {"prefix": f"life{self.lives}-{number}"}
        return mode, ledger, hammer_start(mode, port=self.server.port, ledger=ledger, seconds=600, **more, **options)

    def load_end(self, mode, ledger, process):
        report = hammer_end(process)
        assert report["wrong"] == 0, report["first_wrong"]
        assert report["connections_left"] == 0, "the crash cut all connections"
        (self.clicks if mode == "redirect" else self.impressions).read(ledger)

    def live_and_die(self):
        server = self.server
        loads = [self.load_start(mode, number, options) for number, (mode, options) in enumerate(LOADS)]
        until(lambda: metric(server, "curt_connections_accepted_total") >= CONNECTIONS, "all clients are connected")
        until(lambda: metric(server, "curt_redirects_total") > 500 and metric(
            server, 'curt_events_logged_total{kind="impression"}') > 100, "there is a load")
        time.sleep(self.chance.uniform(0, 0.8))  # the moment of the crash
        if self.lives == 0:  # when they have heard all that was answered, they ask in vain
            server.freeze()
            until(server.is_heard, "all answers are heard")
        server.kill()
        for load in loads:
            self.load_end(*load)
        self.lives += 1

    def die_young(self):
        """Killed while it is still getting up."""
        self.server.launch()
        time.sleep(self.chance.uniform(0, 0.05))  # the moment of the crash
        self.server.kill()

    def besiege(self, lives):
        for life in range(lives):
            self.live_and_die()
            if life % 5 == 4:
                self.die_young()
            self.server.start()


def assert_every_answer_counts(siege):
    """An answered redirect counts once, and an acknowledged impression does; what was never answered may."""
    server = siege.server
    now = settled(server)
    counted = {key: link_stats(server, key)["clicks"] for key in siege.keys}
    siege.clicks.assert_counted(counted)
    siege.impressions.assert_counted(window(server))
    everything = overview(server)
    assert (everything["heads"], everything["prefetches"]) == (0, 0)
    assert sum(counted.values()) == everything["clicks"] == now["clicks_in_rollups"] == now["clicks_consumed"]
    assert now["redirects_served"] == now["clicks_logged"] == now["visit_rows"]
    assert now["impressions_counted"] == now["impression_rows"] == sum(window(server).values())
    assert (now["dropped"], now["dead_letters"], now["rejected"]) == (0, 0, 0)


def assert_nothing_counts_again(siege):
    """All that was acknowledged is sent once more: it is known."""
    server = siege.server
    before, ads = reconcile(server), window(server)
    ids = list(siege.impressions.taken.items())
    now_ms = int(time.time() * 1000)
    for at in range(0, len(ids), RESEND):
        post_events(server, [{"id": name, "ts": now_ms, "userId": "again", "adId": ad} for name, ad in
                             ids[at:at + RESEND]])
    after = settled(server)
    assert after["duplicates"] - before["duplicates"] == len(ids)
    assert after["impressions_counted"] == before["impressions_counted"]
    assert window(server) == ads


def assert_totals_reach_the_links(siege):
    server = siege.server
    counted = {key: link_stats(server, key)["clicks"] for key in siege.keys}
    until(lambda: {link["key"]: link["clicks"] for link in server.links()} == counted, "the links tell their clicks")


def assert_sound(server):
    server.stop()
    done = server.curt("verify")
    assert done.returncode == 0 and done.stdout.endswith("no damage found\n"), done.stdout


def judge(siege):
    print(f"{siege.lives} crashes; redirects: {sum(siege.clicks.answered.values())} answered, "
          f"{sum(siege.clicks.doubtful.values())} doubtful; impressions: "
          + ", ".join(f"{len(ids)} {what}" for what, ids in siege.impressions.ads.items()))
    assert sum(siege.clicks.answered.values()) > siege.lives * 100, "there was a load"
    assert len(siege.impressions.taken) > siege.lives * 20
    assert sum(siege.clicks.doubtful.values()) > 0, "and it was cut off in the middle"
    assert_every_answer_counts(siege)
    print(reconcile(siege.server))
    assert_nothing_counts_again(siege)
    assert_totals_reach_the_links(siege)
    assert_sound(siege.server)


def test_fifty_crashes_under_load_lose_nothing_and_count_nothing_twice(serve, tmp_path):
    server = serve("--workers", "2", "--worker-totals-time", "200ms", "--worker-interval-ms", "20")
    siege = Siege(server, tmp_path, seed=3)
    siege.besiege(scaled(50))
    judge(siege)


def test_crashes_lose_nothing_while_segments_come_and_go(serve, tmp_path):
    server = serve("--workers", "2", "--worker-totals-time", "200ms", "--events-segment-bytes", "64k",
                   "--events-keep-time", "0ms", "--worker-interval-ms", "5")
    siege = Siege(server, tmp_path, seed=4)
    siege.besiege(scaled(15))
    settled(server)
    until(lambda: len(list((server.data / "events").glob("*.log"))) <= 2 * 2, "segments that are done with are removed")
    judge(siege)


def test_crashes_lose_nothing_when_answers_wait_for_the_disk(serve, tmp_path):
    server = serve("--workers", "2", "--worker-totals-time", "200ms", "--events-durability", "sync")
    siege = Siege(server, tmp_path, seed=5)
    siege.besiege(scaled(10))
    judge(siege)


def test_heads_and_prefetches_survive_a_crash_apart_from_clicks(server):
    server.create(alias="here")
    for _ in range(5):
        assert server.head("/here", key=None).status_code == 302
        assert server.get("/here", key=None, headers={"Sec-Purpose": "prefetch;prerender"}).status_code == 302
        assert server.get("/here", key=None).status_code == 302
        assert server.get("/nowhere", key=None).status_code == 404
    server.kill()
    server.start()
    now = settled(server)
    stats = link_stats(server, "here")
    assert (stats["clicks"], stats["heads"], stats["prefetches"]) == (5, 5, 5)
    assert now["clicks_in_rollups"] == now["redirects_served"] == 15
    assert now["orphans_in_rollups"] == 5 and now["visit_rows"] == 20
    assert len(visits(server, "here")) == 15 and len(visits(server, None)) == 5
