"""A link with max_clicks tells its target exactly so often: to a thousand at once, and across crashes."""
import collections
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from reconciliation import Stuck, link_stats, overview, reconcile, settled
from harness import assert_problem, hammer, scaled, until
from people import Crowd, make_person
from prometheus import metric
from wire import request

URL = "https://example.com/limited"
LATE = "https://example.com/too-late"
CLIENTS = 1000
LIMIT = 100


def limited(server, limit=LIMIT, **fields):
    return server.create(URL, max_clicks=limit, **fields)["key"]


def tally(answers):
    """How many were sent to the target, and how many were told that there is nothing. There is no third kind."""
    statuses = collections.Counter((answer.status, answer["Location"]) for answer in answers)
    through, refused = statuses.pop((302, URL), 0), statuses.pop((404, None), 0)
    assert not statuses, statuses
    return through, refused


def counted(server, key):
    """Once all that was logged is in the statistics."""
    settled(server, deep=False)
    return link_stats(server, key)["clicks"]


def follow(client, key, times):
    return [client.get(f"/{key}", key=None).status_code for _ in range(times)]


# At once

def test_a_thousand_clients_at_once_get_exactly_a_hundred_targets_every_time(counting):
    for _ in range(scaled(20)):
        key = limited(counting)
        with Crowd(counting, CLIENTS) as crowd:
            assert tally(crowd.ask(f"/{key}")) == (LIMIT, CLIENTS - LIMIT)
        assert counted(counting, key) == LIMIT
        assert counting.target(key) is None


def test_a_thousand_clients_at_once_are_counted_exactly_when_the_link_was_followed_before(counting):
    key = limited(counting)
    assert follow(counting, key, 7) == [302] * 7
    with Crowd(counting, CLIENTS) as crowd:
        assert tally(crowd.ask(f"/{key}")) == (LIMIT - 7, CLIENTS - LIMIT + 7)
    assert counted(counting, key) == LIMIT


def test_limits_of_different_links_do_not_mix(counting):
    keys = [limited(counting, limit) for limit in (1, 10, 50)]
    with Crowd(counting, 300) as crowd:
        for number, wire in enumerate(crowd.wires):
            wire.send(request("GET", f"/{keys[number % 3]}"))
        answers = [wire.read() for wire in crowd.wires]
    assert [tally(answers[i::3])[0] for i in range(3)] == [1, 10, 50]


def test_one_click_is_for_one_of_many(counting):
    for _ in range(scaled(20)):
        key = limited(counting, 1)
        with Crowd(counting, 50) as crowd:
            assert tally(crowd.ask(f"/{key}")) == (1, 49)


# Crashes

def die_while_asking(server, crowd, key, chance):
    """Some ask, and the server dies meanwhile. Who was answered, and who will never know."""
    asked = chance.randrange(20, 3 * LIMIT)
    if chance.random() < 0.5:
        for wire in crowd.wires[:asked]:
            wire.send(request("GET", f"/{key}"))
        server.kill()
    else:  # all of them wait when it begins to work, so it is in the middle of much when it ends
        server.freeze()
        for wire in crowd.wires[:asked]:
            wire.send(request("GET", f"/{key}"))
        server.thaw()
        time.sleep(chance.uniform(0, 0.01))  # the moment of the crash
        server.kill()
    answers, vain = crowd.hear(crowd.wires[:asked])
    return *tally(answers), vain


def crash_in_the_middle(server, chance, crashes=1):
    """(answered before and after, asked in vain); the limit is met in the end, and it is exact."""
    key = limited(server)
    seen = vain = asked = 0
    for _ in range(crashes):
        with Crowd(server, 3 * LIMIT) as crowd:
            through, refused, lost = die_while_asking(server, crowd, key, chance)
        seen, vain, asked = seen + through, vain + lost, asked + through + refused + lost
        assert refused == 0 or seen + vain >= LIMIT
        server.start()
    with Crowd(server, CLIENTS - asked if asked < CLIENTS - LIMIT else LIMIT) as crowd:
        through, _ = tally(crowd.ask(f"/{key}"))
    seen += through
    assert seen <= LIMIT <= seen + vain, "nobody too many, and nobody too few"
    assert counted(server, key) == LIMIT
    assert server.target(key) is None, "and that is the end of it"
    return seen, vain


@pytest.mark.slow
@pytest.mark.parametrize("flags, rounds", [
    ((), 20), (("--events-visits", "false"), 4), (("--events-durability", "sync"), 4),
    (("--worker-interval-ms", "1500"), 3),
], ids=["as usual", "without visits", "with sync", "with a slow stats worker"])
def test_a_limit_is_exact_though_the_server_is_killed_in_the_middle(serve, flags, rounds):
    server = serve("--workers", "2", *flags)
    chance = random.Random(len(flags) + rounds)
    outcomes = [crash_in_the_middle(server, chance) for _ in range(scaled(rounds))]
    print("answered, in vain:", outcomes)
    if scaled(rounds) == 20:
        assert sum(vain for _, vain in outcomes) > 0, "some crashes came in the middle"


@pytest.mark.slow
def test_a_limit_is_exact_through_several_crashes(serve):
    server = serve("--workers", "2")
    crash_in_the_middle(server, random.Random(11), crashes=3)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_restart_keeps_the_count(server, end):
    key = limited(server, 10)
    assert follow(server, key, 4) == [302] * 4
    getattr(server, end)()
    server.start()
    assert follow(server, key, 8) == [302] * 6 + [404] * 2
    getattr(server, end)()
    server.start()
    assert follow(server, key, 1) == [404]
    assert counted(server, key) == 10


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_limit_that_is_set_after_a_restart_counts_what_was_before(server, end):
    key = server.create(URL)["key"]
    assert follow(server, key, 30) == [302] * 30
    getattr(server, end)()
    server.start()
    server.change(key, max_clicks=50)
    with Crowd(server, 100) as crowd:
        assert tally(crowd.ask(f"/{key}")) == (20, 80)


# Changing the limit

class Followers:
    """Threads that follow a link all the time, and note what they got: before and after a change was acknowledged."""

    def __init__(self, server, key, count=4):
        self.server, self.key = server, key
        self.acknowledged, self.enough = threading.Event(), threading.Event()
        self.tallies = [collections.Counter() for _ in range(count)]
        self.pool = ThreadPoolExecutor(count)
        self.done = [self.pool.submit(self.follow, tally) for tally in self.tallies]

    def follow(self, tally):
        wire = self.server.connect()
        while not self.enough.is_set():
            after = self.acknowledged.is_set()
            tally[after, wire.get(f"/{self.key}").status] += 1

    def got(self, after, status):
        return sum(tally[after, status] for tally in self.tallies)

    def end(self):
        self.enough.set()
        for done in self.done:
            done.result()
        self.pool.shutdown()


def test_a_limit_below_what_a_busy_link_has_had_ends_it_at_once(counting):
    for _ in range(scaled(10)):
        key = counting.create(URL)["key"]
        followers = Followers(counting, key)
        until(lambda: followers.got(False, 302) >= 50, "the link is busy")
        counting.change(key, max_clicks=20)
        followers.acknowledged.set()
        until(lambda: followers.got(True, 404) >= 50, "they have noticed")
        followers.end()
        assert followers.got(True, 302) == 0, "no request after the change gets through"
        assert followers.got(False, 302) == counted(counting, key)


def test_a_limit_above_what_a_busy_link_has_had_is_met_exactly(counting):
    for _ in range(scaled(5)):
        key = counting.create(URL)["key"]
        followers = Followers(counting, key)
        until(lambda: followers.got(False, 302) >= 50, "the link is busy")
        limit = followers.got(False, 302) + 500
        counting.change(key, max_clicks=limit)
        followers.acknowledged.set()
        until(lambda: followers.got(True, 404) >= 20, "the limit is met")
        followers.end()
        before, after = followers.got(False, 302), followers.got(True, 302)
        assert before + after == counted(counting, key)
        assert before + after == limit if before <= limit else after == 0


def test_raising_a_limit_lets_exactly_the_difference_through(counting):
    key = limited(counting, 10)
    with Crowd(counting, 100) as crowd:
        assert tally(crowd.ask(f"/{key}")) == (10, 90)
        counting.change(key, max_clicks=35)
        assert tally(crowd.ask(f"/{key}")) == (25, 75)
        counting.change(key, max_clicks=5)
        assert tally(crowd.ask(f"/{key}")) == (0, 100)
        counting.change(key, max_clicks=36)
        assert tally(crowd.ask(f"/{key}")) == (1, 99)
    assert counted(counting, key) == 36


def test_what_a_link_had_while_it_had_no_limit_counts_when_it_has_one_again(counting):
    key = limited(counting, 10)
    with Crowd(counting, 100) as crowd:
        assert tally(crowd.ask(f"/{key}")) == (10, 90)
        counting.change(key, max_clicks=None)
        assert tally(crowd.ask(f"/{key}")) == (100, 0)
        counting.change(key, max_clicks=150)
        assert tally(crowd.ask(f"/{key}")) == (40, 60)
        counting.change(key, max_clicks=None)
        assert tally(crowd.ask(f"/{key}")) == (100, 0)
        counting.change(key, max_clicks=200)
        assert tally(crowd.ask(f"/{key}")) == (0, 100)
    assert counted(counting, key) == 250


def test_a_change_of_something_else_leaves_the_count_alone(counting):
    key = limited(counting, 10)
    for number in range(10):
        assert counting.change(key, title=str(number), redirect_status=307 if number % 2 else 302)["max_clicks"] == 10
        assert counting.get(f"/{key}", key=None).status_code in (302, 307)
    assert follow(counting, key, 1) == [404]


def test_an_alias_that_is_made_anew_begins_at_nothing(counting):
    for _ in range(3):
        key = limited(counting, 2, alias="again-and-again")
        assert follow(counting, key, 4) == [302, 302, 404, 404]
        counting.remove(key)


# What counts

def test_every_answer_that_tells_the_target_counts(counting):
    key = limited(counting, 6)
    wire = counting.connect()
    for _ in range(2):
        assert wire.ask(request("HEAD", f"/{key}"), "HEAD")["Location"] == URL
        assert wire.get(f"/{key}", "Sec-Purpose: prefetch;prerender")["Location"] == URL
        assert wire.get(f"/{key}", "User-Agent: Googlebot/2.1")["Location"] == URL
    for method in ("GET", "HEAD"):
        assert wire.ask(request(method, f"/{key}"), method).status == 404
    assert counted(counting, key) == 6, "a limited link's answers are clicks, whatever their method"


def test_the_owner_and_the_admin_count_too(counting):
    owner = make_person(counting)
    key = limited(owner, 3)
    assert [owner.get(f"/{key}").status_code, counting.get(f"/{key}").status_code,
            counting.get(f"/{key}", key=None).status_code, owner.get(f"/{key}").status_code] == [302, 302, 302, 404]


def test_a_look_costs_nothing_and_tells_nothing(counting):
    key = limited(counting, 1)
    for _ in range(5):
        look = counting.get(f"/{key}+", key=None)
        assert look.status_code == 200 and URL not in look.text and "click limit" in look.text
    assert follow(counting, key, 2) == [302, 404]


def test_a_refusal_by_the_keys_limit_takes_nothing(counting):
    maker = counting.client(counting.make_key(redirects_limit=3, limit_period_s=3600)["key"])
    key = limited(maker, 10)
    assert follow(counting, key, 6) == [302] * 3 + [429] * 3
    assert counted(counting, key) == 3


def test_disabling_and_enabling_leaves_the_count_alone(counting):
    key = limited(counting, 4)
    assert follow(counting, key, 2) == [302, 302]
    counting.change(key, enabled=False)
    assert follow(counting, key, 5) == [404] * 5
    counting.change(key, enabled=True)
    assert follow(counting, key, 3) == [302, 302, 404]


def test_pipelined_requests_are_counted_one_by_one(counting):
    key = limited(counting, 10)
    wire = counting.connect()
    wire.send(request("GET", f"/{key}") * 30)
    assert [wire.read().status for _ in range(30)] == [302] * 10 + [404] * 20


# After the last click

def test_after_the_last_click_there_may_be_another_place(counting):
    key = limited(counting, 2, expired_url=LATE)
    settled(counting)
    orphans = overview(counting)["orphans"]["unknown"]
    answers = [counting.get(f"/{key}", key=None) for _ in range(5)]
    assert [(a.status_code, a.headers["Location"]) for a in answers] == [(302, URL)] * 2 + [(302, LATE)] * 3
    assert counted(counting, key) == 2, "the late are no clicks"
    assert overview(counting)["orphans"]["unknown"] == orphans + 3, "they are distinguished"
    with Crowd(counting, 100) as crowd:
        assert {(a.status, a["Location"]) for a in crowd.ask(f"/{key}")} == {(302, LATE)}
    counting.change(key, max_clicks=3)
    assert counting.target(key) == URL and counting.target(key) == LATE


def test_a_crowd_at_the_last_click_gets_one_place_or_the_other(counting):
    for _ in range(scaled(10)):
        key = limited(counting, 30, expired_url=LATE)
        with Crowd(counting, 200) as crowd:
            places = collections.Counter(answer["Location"] for answer in crowd.ask(f"/{key}"))
        assert places == {URL: 30, LATE: 170}


# A log that takes nothing more

def test_a_full_log_refuses_and_costs_nothing_of_the_limit(serve, tmp_path):
    server = serve("--workers", "2", "--events-spool-bytes", "1m", "--events-segment-bytes", "64k", "--events-keep-time",
                   "0ms", "--worker-interval-ms", "5")
    keys = tmp_path / "keys"
    keys.write_text(server.create()["key"] + "\n")
    key, fresh = limited(server, 20), limited(server, 20)
    assert follow(server, key, 5) == [302] * 5
    settled(server)
    with Stuck(server):
        while metric(server, 'curt_events_dropped_total{kind="click"}') == 0:
            hammer("redirect", port=server.port, keys=keys, connections=8, pipeline=4, browsers=1, count=5000)
        for _ in range(10):
            refusal = server.get(f"/{key}", key=None)
            assert_problem(refusal, 503, "event log is full")
            assert int(refusal.headers["Retry-After"]) > 0 and "Location" not in refusal.headers
        waiting = server.connect()
        waiting.send(request("GET", f"/{fresh}"))  # nobody knows yet how often it was followed
    assert waiting.read().status in (302, 503)
    now = settled(server)
    assert now["difference"] == 0
    until(lambda: server.get("/readyz", key=None).json()["status"] == "ready", "it is well again")
    assert follow(server, key, 20) == [302] * 15 + [404] * 5
    assert counted(server, key) == 20
    through = follow(server, fresh, 25).count(302)
    assert through in (19, 20) and counted(server, fresh) == 20
    assert reconcile(server)["difference"] == 0


@pytest.mark.parametrize("bad", [0, -1, 1.5, "10", True, [], 2 ** 53 + 1, 2 ** 64])
def test_an_invalid_limit_is_refused(counting, bad):
    key = limited(counting, 7)
    for response in (counting.post("/api/v1/links", json={"original_url": URL, "max_clicks": bad}),
                     counting.patch(f"/api/v1/links/{key}", json={"max_clicks": bad})):
        assert_problem(response, 400, "max_clicks" if bad != 2 ** 64 else "")
    assert counting.link(key)["max_clicks"] == 7
