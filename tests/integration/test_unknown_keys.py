"""Clients that request too many unknown keys get 429, also for keys that exist."""
import itertools
import random
import time

import pytest

from harness import assert_problem, scaled, until
from people import Crowd
from prometheus import metric
from wire import request

URL = "https://example.com/there"
BOUND = 30
_names = itertools.count()


@pytest.fixture(scope="module")
def street(serve_all):
    """Behind a proxy, so that there are many addresses."""
    server = serve_all("--workers", "2", "--limits-misses", BOUND, "--trusted-proxies", "loopback")
    server.create(URL, alias="there")
    server.create(URL, alias="locked", password="x")
    server.create(URL, alias="off", enabled=False)
    server.create(URL, alias="later", not_before="2099-01-01", expires_at=None)
    server.create(URL, alias="spent", max_clicks=1)
    assert server.target("spent")
    return server


@pytest.fixture
def address():
    """One that nobody has used before."""
    number = next(_names)
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def ask(server, path, address, method="GET", **kwargs):
    return server.request(method, path, key=None, headers={"X-Forwarded-For": address, **kwargs.pop("headers", {})}, **kwargs)


def wear_out(server, address, number=BOUND):
    statuses = {ask(server, f"/missing-{next(_names)}", address).status_code for _ in range(number)}
    assert statuses == {404}


def test_the_bound_is_exact_and_then_everything_is_refused(street, address):
    ask(street, "/there", address)
    wear_out(street, address)
    limited = metric(street, "curt_http_requests_limited_total")
    for method, path in (("GET", "/there"), ("HEAD", "/there"), ("GET", "/missing-again"), ("GET", "/locked"), ("GET", "/off"),
                         ("GET", "/there+"), ("GET", "/no/such"[:3]), ("POST", "/locked"), ("POST", "/missing"),
                         ("GET", "/%00"), ("GET", "/there?x=1")):
        refusal = ask(street, path, address, method, **({"json": {"password": "x"}} if method == "POST" else {}))
        assert refusal.status_code == 429, f"{method} {path}"
        assert "Location" not in refusal.headers and 1 <= int(refusal.headers["Retry-After"]) <= 60
        if method != "HEAD":
            assert_problem(refusal, 429, "address")
    assert metric(street, "curt_http_requests_limited_total") == limited + 11


def test_refusals_of_good_and_of_missing_links_are_the_same(street, address):
    wear_out(street, address)
    answers = [ask(street, path, address) for path in ("/there", "/missing-one", "/locked", "/off", "/spent")]
    assert {answer.status_code for answer in answers} == {429}
    told = {(answer.text.split(" Try again")[0], tuple(name for name in answer.headers)) for answer in answers}
    assert len(told) == 1
    page = ask(street, "/there", address, headers={"Accept": "text/html"})
    assert page.status_code == 429 and page.headers["Content-Type"].startswith("text/html") and URL not in page.text


def test_following_links_that_have_ended_is_no_guessing(street, address):
    """An office behind one address may follow a link that is over as often as it likes, also one that is gone."""
    for path in ("/off", "/later", "/spent", "/off+"):
        assert {ask(street, path, address).status_code for _ in range(2 * BOUND)} == {404}
    assert ask(street, "/gone-for-good", address).status_code == 404
    assert {ask(street, "/gone-for-good", address).status_code for _ in range(2 * BOUND)} == {404}, "the cache knows it"
    assert ask(street, "/there", address).status_code == 302
    wear_out(street, address, BOUND - 1)
    assert ask(street, "/there", address).status_code == 429


def test_another_address_is_not_concerned(street, address):
    wear_out(street, address)
    assert ask(street, "/there", address).status_code == 429
    assert ask(street, "/there", "192.0.2.1").status_code == 302
    assert ask(street, "/there", f"{address}, 192.0.2.1").status_code == 302, "what a client says of itself does not count"
    assert ask(street, "/there", f"192.0.2.1, {address}").status_code == 429
    assert street.get("/there", key=None).status_code == 302


def test_every_unknown_key_is_a_miss(street, address):
    """However it is asked for."""
    misses = [("GET", "/missing-{}"), ("HEAD", "/missing-{}"), ("GET", "/missing-{}+"), ("GET", "/%zz{}"),
              ("GET", "/not.a.key.{}"), ("POST", "/missing-{}")]
    for number in range(BOUND):
        method, path = misses[number % len(misses)]
        path = path.format(next(_names))
        body = {"json": {"password": "x"}} if method == "POST" else {}
        assert ask(street, path, address, method, **body).status_code == 404, f"{method} {path}"
    assert ask(street, "/there", address).status_code == 429


def test_what_is_there_is_no_miss(street, address):
    for _ in range(BOUND):
        assert ask(street, "/there", address).status_code == 302
        assert ask(street, "/locked", address).status_code == 401
        assert ask(street, "/there+", address).status_code == 200
        assert ask(street, "/healthz", address).status_code == 200
    wear_out(street, address, BOUND - 1)
    assert ask(street, "/there", address).status_code == 302


def test_the_api_goes_on(street, address):
    wear_out(street, address)
    assert ask(street, "/there", address).status_code == 429
    for path in ("/api/v1/links", "/api/v1/links/there", "/metrics", "/healthz"):
        assert street.get(path, headers={"X-Forwarded-For": address}).status_code == 200
    assert street.get("/api/v1/links/not-there", headers={"X-Forwarded-For": address}).status_code == 404
    assert street.post("/event", json={"id": address, "ts": int(time.time()), "userId": "u", "adId": "a"}, key=None,
                       headers={"X-Forwarded-For": address}).status_code == 204


def test_many_at_once_get_exactly_the_bound(street, address):
    for _ in range(scaled(5)):
        address = f"10.200.{next(_names) % 256}.{next(_names) % 256}"
        with Crowd(street, 2 * BOUND) as crowd:
            for wire in crowd.wires:
                wire.send(request("GET", f"/missing-{next(_names)}", f"X-Forwarded-For: {address}"))
            statuses = sorted(wire.read().status for wire in crowd.wires)
        assert statuses == [404] * BOUND + [429] * BOUND


def test_pipelined_misses_count_one_by_one(street, address):
    wire = street.connect()
    wire.send(b"".join(request("GET", f"/missing-{next(_names)}", f"X-Forwarded-For: {address}") for _ in range(BOUND + 5)))
    assert [wire.read().status for _ in range(BOUND + 5)] == [404] * BOUND + [429] * 5


def test_retry_after_names_one_moment(street, address):
    """It counts down to the end of the minute that began with the first miss."""
    wear_out(street, address)
    seconds, earliest, latest = [], [], []

    def sooner():
        asked = time.monotonic()
        named = int(ask(street, "/there", address).headers["Retry-After"])
        seconds.append(named)
        earliest.append(asked + named - 1)  # it is rounded up
        latest.append(time.monotonic() + named)
        return named < seconds[0]
    until(sooner, "it counts down")
    assert 1 <= seconds[-1] < seconds[0] <= 60
    assert max(earliest) <= min(latest), "a second later it is a second less"


def test_a_flood_of_addresses_does_not_wash_out_those_who_were_wrong_most(street, address):
    wear_out(street, address)
    chance, wire = random.Random(1), street.connect()
    for _ in range(scaled(40)):
        many = [f"{chance.randrange(11, 223)}.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(256)}"
                for _ in range(200)]
        wire.send(b"".join(request("GET", "/missing", f"X-Forwarded-For: {one}") for one in many))
        assert {wire.read().status for _ in many} == {404}
    assert ask(street, "/there", address).status_code == 429


def test_it_is_five_hundred_a_minute_by_default(nursery):
    server = nursery.server("--workers", "2", env={"CURT_LIMITS_MISSES": None}).start()
    server.create(URL, alias="there")
    wire = server.connect()
    for _ in range(5):
        wire.send(b"".join(request("GET", f"/missing-{next(_names)}") for _ in range(100)))
        assert {wire.read().status for _ in range(100)} == {404}
    assert wire.get("/there").status == 429
