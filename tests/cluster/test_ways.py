"""The same events by every way: the same answers, to the last digit."""
import collections
import itertools
import random
import time

import pytest

from reconciliation import link_stats, overview, post_events, visits, window
from harness import until
from ways import ALL, Backends, Way, full, say

EVENTS = 1_000_000 if full() else 20_000
BATCH = 1000
AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Mobile/15E148 "
    "Safari/604.1",
    "Googlebot/2.1 (+http://www.google.com/bot.html)",
    None,
)
REFERRERS = ("https://example.org/a", "https://news.example.com/", None)
LANGUAGES = ("en-GB,en;q=0.9", "de", None)


@pytest.fixture(scope="module")
def backends(engines):
    return Backends(engines)


@pytest.fixture(scope="module")
def answers():
    """Of the ways before: all must be the same."""
    return {}


class Input:
    """The same for every way: impressions with a tenth of duplicates, half of them in the same batch and half much later,
    and clicks with everything that is counted apart."""

    def __init__(self):
        chance = random.Random(4)
        start_ms = (int(time.time()) - 3000) * 1000
        self.impressions, fresh = [], []
        for number in range(EVENTS):
            if fresh and chance.random() < 0.1:
                source = fresh[-1 - chance.randrange(min(len(fresh), 5))] if chance.random() < 0.5 else chance.choice(fresh)
                self.impressions.append(source)
                continue
            event = {"id": f"event {number} ü", "ts": start_ms + chance.randrange(2_900_000), "userId": f"u{number % 997}",
                     "adId": f"ad {chance.randrange(50)}"}
            fresh.append(event)
            self.impressions.append(event)
        self.expected = collections.Counter(event["adId"] for event in fresh)
        self.duplicates = len(self.impressions) - len(fresh)
        self.clicks = [(chance.randrange(10), chance.choice(AGENTS), chance.choice(REFERRERS), chance.choice(LANGUAGES))
                       for _ in range(600)]


@pytest.fixture(scope="module")
def given():
    return Input()


def click(client, key, agent, referrer, language):
    headers = {"User-Agent": agent, "Referer": referrer, "Accept-Language": language}
    response = client.get(f"/{key}", key=None, headers=headers)
    assert response.status_code == 302


def told(way, keys):
    """All that can be asked, without what differs from server to server: keys and times of clicks."""
    server = way.server
    links = []
    for key in keys:
        stats = link_stats(server, key)
        links.append({name: stats[name] for name in ("clicks", "unique_visitors", "bots", "by")})
        assert sum(point["clicks"] for point in stats["series"]) == stats["clicks"]
        links[-1]["visits"] = collections.Counter(
            tuple(sorted((name, str(value)) for name, value in visit.items() if name not in ("time", "key", "t")))
            for visit in visits(server, key))
    everything = overview(server)
    return {"links": links, "windows": [window(server, minutes) for minutes in (5, 17, 1440)],
            "clicks": everything["clicks"], "by": everything["by"]}


@pytest.mark.parametrize(("queue", "sink"), ALL)
def test_answers_are_the_same_whichever_way_events_took(nursery, backends, given, answers, tmp_path, queue, sink):
    way = Way(nursery, backends, queue, sink)
    server, started = way.server, time.monotonic()
    keys = [server.create(f"https://example.com/{number}")["key"] for number in range(10)]
    clicks = iter(given.clicks)
    for at in range(0, EVENTS, BATCH):
        post_events(server, given.impressions[at:at + BATCH])
        for number, *headers in itertools.islice(clicks, max(len(given.clicks) * BATCH // EVENTS, 1)):
            click(server, keys[number], *headers)
    for number, *headers in clicks:
        click(server, keys[number], *headers)
    now = way.settled(seconds=600)
    assert now["clicks_in_rollups"] == len(given.clicks)
    assert (now["impressions_counted"], now["duplicates"]) == (EVENTS - given.duplicates, given.duplicates)
    assert window(server, 1440) == given.expected
    answer = told(way, keys)
    say(tmp_path, queue=queue, sink=sink, impressions=EVENTS, duplicates=given.duplicates,
        seconds=round(time.monotonic() - started, 1))
    first = answers.setdefault("first", answer)
    for name, value in answer.items():
        if name != "windows":  # short ones that end at another moment have other edges
            assert value == first[name], name
    assert answer["windows"][-1] == first["windows"][-1]
    # A restart changes nothing.
    server.restart()
    until(lambda: told(way, keys)["links"] == answer["links"], "the same after a restart")
    way.end()


@pytest.mark.parametrize("sink", ["sqlite", "postgres"])
def test_a_folder_that_leaves_the_queue_and_comes_back_counts_each_click_once(nursery, backends, sink):
    """The log still has what was counted before, and another reads it now."""
    way = Way(nursery, backends, "kafka", sink)
    server, key = way.server, way.server.create()["key"]
    queue = {name: str(value) for name, value in way.env.items() if name.startswith("CURT_QUEUE")}
    for turn, more in enumerate([{}, queue, {}, queue], 1):
        server.stop()
        server.env = {name: value for name, value in server.env.items() if name not in queue} | more
        server.start()
        for _ in range(5):
            server.target(key)
        assert way.settled()["redirects_served"] == 5 * turn
        assert link_stats(server, key)["clicks"] == 5 * turn
    way.end()
