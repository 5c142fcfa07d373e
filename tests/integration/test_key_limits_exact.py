"""Fifty creations and five hundred redirections a minute are exactly that, over any number of connections."""
import time

import pytest

from harness import VARIANT, scaled, until, until_status, wait_out
from people import Crowd
from wire import request

CREATES, REDIRECTS = 50, 500
PERIOD_S = 60 if VARIANT == "release" else 600  # a minute may be over before a slow build is through
BODY = '{"original_url": "https://example.com/"}'


def together(crowd, datas):
    """Requests spread over all connections, all of them sent before the first answer is read. The answers."""
    wires = crowd.wires
    for at, wire in enumerate(wires):
        wire.send(b"".join(datas[at::len(wires)]))
    return [wire.read() for at, wire in enumerate(wires) for _ in datas[at::len(wires)]]


def count(answers, good):
    statuses = [answer.status for answer in answers]
    assert set(statuses) <= {good, 429}
    return statuses.count(good), statuses.count(429)


@pytest.fixture(scope="module")
def busy(serve_all):
    return serve_all("--workers", "2", "--worker-interval-ms", "5")


def limited_key(server, **fields):
    return server.make_key("limited", **{"creates_limit": CREATES, "redirects_limit": REDIRECTS, "limit_period_s": PERIOD_S,
                                         **fields})["key"]


def test_a_key_makes_exactly_fifty_links_a_minute(busy):
    for _ in range(scaled(5)):
        key = limited_key(busy)
        with Crowd(busy, 20) as crowd:
            answers = together(crowd, [request("POST", "/api/v1/links", key=key, body=BODY)] * 200)
        assert count(answers, 201) == (CREATES, 150)
        refused = [answer for answer in answers if answer.status == 429]
        assert all(1 <= int(answer["Retry-After"]) <= PERIOD_S for answer in refused)
        assert len(busy.client(key).links()) == CREATES
        remaining = sorted(int(answer["RateLimit-Remaining"]) for answer in answers if answer.status == 201)
        assert remaining == list(range(CREATES)), "each knows how many are left"


def test_a_keys_links_are_followed_exactly_five_hundred_times_a_minute(busy):
    for _ in range(scaled(5)):
        maker = busy.client(limited_key(busy))
        links = [maker.create()["key"] for _ in range(7)]
        with Crowd(busy, 40) as crowd:
            answers = together(crowd, [request("GET", f"/{links[i % 7]}") for i in range(2000)])
        assert count(answers, 302) == (REDIRECTS, 1500)
        assert all(answer["Location"] is None for answer in answers if answer.status == 429)


def test_the_two_limits_do_not_touch_each_other(busy):
    key = limited_key(busy, creates_limit=5, redirects_limit=10)
    maker = busy.client(key)
    link = maker.create()["key"]
    with Crowd(busy, 10) as crowd:
        assert count(together(crowd, [request("GET", f"/{link}")] * 50), 302) == (10, 40)
        assert count(together(crowd, [request("POST", "/api/v1/links", key=key, body=BODY)] * 50), 201) == (4, 46)


def test_two_keys_of_one_user_have_a_limit_each(busy):
    user = busy.post("/api/v1/users", json={"email": "two-keys@example.com"}).json()["id"]
    keys = [limited_key(busy, user=str(user), creates_limit=7) for _ in range(2)]
    with Crowd(busy, 10) as crowd:
        for key in keys:
            assert count(together(crowd, [request("POST", "/api/v1/links", key=key, body=BODY)] * 30), 201) == (7, 23)


@pytest.mark.parametrize("what", ["creations", "redirections"])
def test_retry_after_is_true(busy, what):
    """Not refused any more when it has passed, and not much sooner: it is rounded up to a second."""
    key = limited_key(busy, creates_limit=3, redirects_limit=3, limit_period_s=3)
    link = busy.client(key).create()["key"]

    def ask():
        if what == "creations":
            return busy.post("/api/v1/links", json={"original_url": "https://example.com/"}, key=key)
        return busy.get(f"/{link}", key=None)

    refused = until_status(ask, 429)
    named = int(refused.headers["Retry-After"])
    assert 1 <= named <= 3
    begun = time.monotonic()
    until(lambda: ask().status_code in (201, 302), "there is room again")
    assert time.monotonic() - begun > named - 1.2, "not long before"
    refused = until_status(ask, 429)
    wait_out(refused.headers, 3)
    assert ask().status_code in (201, 302), "after that many seconds there is room"


def test_a_restart_begins_a_new_period(server):
    """Limits of keys are kept in memory: that is the deal, and it is never less than the limit."""
    key = limited_key(server, creates_limit=2)
    client = server.client(key)
    assert [client.post("/api/v1/links", json={"original_url": "https://example.com/"}).status_code for _ in range(3)] == \
        [201, 201, 429]
    server.restart()
    assert server.post("/api/v1/links", json={"original_url": "https://example.com/"}, key=key).status_code == 201
