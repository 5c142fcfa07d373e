"""When a link begins, when it ends, where the late go; and that nobody can tell why there is no link."""
from datetime import datetime, timedelta

import pytest

from reconciliation import link_stats, settled, visits
from harness import assert_problem, is_over, scaled, soon, unchanged, until
from people import Crowd
from wire import request

URL = "https://example.com/in-time"
LATE = "https://example.com/late"


@pytest.fixture(scope="module")
def ticking(serve_all):
    return serve_all("--workers", "2", "--worker-interval-ms", "5", "--limits-passwords-address", "100000",
                     "--limits-passwords-link", "100000")


def follow(server, key, **headers):
    response = server.get(f"/{key}", key=None, headers=headers)
    return response.status_code, response.headers.get("Location")


def wait_for_the_end(link):
    until(lambda: is_over(link["expires_at"]), "its time is over")


# One answer for all that is not there

@pytest.fixture(scope="module")
def gone(ticking):
    """Keys of links that are not there, by the reason."""
    made = {
        "disabled": ticking.create(URL, alias="gone-disabled", enabled=False),
        "not yet": ticking.create(URL, alias="gone-not-yet", not_before="2099-01-01", expires_at=None),
        "ended": ticking.create_ending(400, URL, alias="gone-ended"),
        "ended and limited": ticking.create_ending(400, URL, alias="gone-limited", max_clicks=5),
        "spent": ticking.create(URL, alias="gone-spent", max_clicks=1),
        "deleted": ticking.create(URL, alias="gone-deleted"),
        "private and disabled": ticking.create(URL, alias="gone-private", enabled=False, visibility="private"),
        "locked and disabled": ticking.create(URL, alias="gone-locked", enabled=False, password="x"),
        "disabled with another place": ticking.create(URL, alias="gone-placed", enabled=False, expired_url=LATE),
        "not yet with another place": ticking.create(URL, alias="gone-early", not_before="2099-01-01", expired_url=LATE,
                                                      expires_at="2099-02-01"),
        "generated": ticking.create(URL, enabled=False),
    }
    assert ticking.target("gone-spent") == URL
    ticking.remove("gone-deleted")
    wait_for_the_end(made["ended"])
    wait_for_the_end(made["ended and limited"])
    return {why: link["key"] for why, link in made.items()}


@pytest.mark.parametrize("method, fields, body", [
    ("GET", (), None), ("HEAD", (), None), ("GET", ("Accept: text/html",), None), ("HEAD", ("Accept: text/html",), None),
    ("GET", ("Accept: application/json",), None), ("GET", ("Sec-Purpose: prefetch",), None),
    ("POST", (), '{"password": "x"}'), ("POST", ("Accept: text/html",), '{"password": "x"}'),
    ("POST", ("Accept: text/html", "Content-Type: application/x-www-form-urlencoded"), "password=x"),
    ("GET", ("Cookie: curt_session=nonsense",), None),
], ids=lambda v: str(v)[:40])
def test_unknown_disabled_early_ended_and_spent_are_the_same_byte_for_byte(ticking, gone, method, fields, body):
    wire = ticking.connect()
    for _ in range(2):  # from the store, and from what is remembered of it
        unknown = wire.ask(request(method, "/gone-unknown", *fields, body=body), method)
        assert unknown.status == 404
        for why, key in gone.items():
            answer = wire.ask(request(method, f"/{key}", *fields, body=body), method)
            assert answer.verdict == unknown.verdict, why


def test_a_preview_of_what_is_not_there_is_the_same_too(ticking, gone):
    wire = ticking.connect()
    unknown = wire.get("/gone-unknown+")
    assert unknown.status == 404
    for why, key in gone.items():
        if why != "spent":
            assert wire.get(f"/{key}+").verdict == unknown.verdict, why


# The beginning

@pytest.mark.parametrize("asked_before", [True, False])
def test_a_link_begins_at_its_time(ticking, asked_before):
    """Nobody sees it before, and that it was not there is forgotten at once."""
    link = ticking.create(URL, not_before=soon(800))
    if asked_before:
        assert ticking.target(link["key"]) is None or is_over(link["not_before"])
    until(lambda: ticking.target(link["key"]), "it has begun")
    assert is_over(link["not_before"])


def test_a_beginning_can_be_changed_and_taken_away(ticking):
    key = ticking.create(URL, not_before="2099-01-01", expires_at=None)["key"]
    assert ticking.link(key)["not_before"] == "2099-01-01T00:00:00Z"
    with Crowd(ticking, 16) as crowd:
        for _ in range(scaled(5)):
            assert {a.status for a in crowd.ask(f"/{key}")} == {404}
            assert ticking.change(key, not_before=None)["not_before"] is None
            assert {a.status for a in crowd.ask(f"/{key}")} == {302}
            ticking.change(key, not_before="2099-01-01")
        assert {a.status for a in crowd.ask(f"/{key}")} == {404}
    ticking.change(key, not_before="2001-01-01")
    assert ticking.target(key) == URL


def test_the_default_end_counts_from_the_beginning(ticking):
    """Two years after the link begins, also when the beginning changes; a chosen end stays."""
    link = ticking.create(URL, not_before="2099-01-01")
    assert link["expires_at"] == "2101-01-01T00:00:00Z"
    assert ticking.change(link["key"], not_before="2097-01-01")["expires_at"] == "2099-01-01T00:00:00Z"
    ended, made = (datetime.fromisoformat(ticking.change(link["key"], not_before=None)[at]) for at in ("expires_at", "created_at"))
    assert ended - made == timedelta(days=730)
    assert ticking.create(URL, not_before="9999-06-01")["expires_at"] == "9999-12-31T23:59:59.999Z"
    chosen = ticking.create(URL, expires_at="2095-01-01")["key"]
    assert ticking.change(chosen, not_before="2094-01-01")["expires_at"] == "2095-01-01T00:00:00Z"
    endless = ticking.create(URL, expires_at=None)["key"]
    assert ticking.change(endless, not_before="2094-01-01")["expires_at"] is None


def test_a_link_that_would_never_open_is_refused(ticking):
    """Whichever of the two times comes with the request, and whichever is there already."""
    early = ticking.create(URL, not_before="2080-01-01", expires_at="2081-01-01")["key"]
    with unchanged(ticking):
        for times in ({"not_before": "2081-01-01"}, {"expires_at": "2080-01-01"},
                      {"not_before": "2090-01-01", "expires_at": "2089-01-01"}):
            assert_problem(ticking.patch(f"/api/v1/links/{early}", json=times), 400, "expire before it begins")
        both = {"original_url": URL, "not_before": "2080-01-02", "expires_at": "2080-01-01"}
        assert_problem(ticking.post("/api/v1/links", json=both), 400, "expire before it begins")
    assert ticking.change(early, not_before="2090-01-01", expires_at="2091-01-01")["not_before"] == "2090-01-01T00:00:00Z"


# The end

def test_a_link_ends_at_its_time_on_every_connection(ticking):
    link = ticking.create_ending(900, URL)
    with Crowd(ticking, 16) as crowd:
        assert {a.status for a in crowd.ask(f"/{link['key']}")} == {302} or is_over(link["expires_at"])
        until(lambda: ticking.target(link["key"]) is None, "it has ended")
        assert is_over(link["expires_at"])
        assert {a.status for a in crowd.ask(f"/{link['key']}")} == {404}


def test_the_late_are_sent_elsewhere(ticking):
    link = ticking.create_ending(700, URL, alias="has-a-late-place", expired_url=LATE, redirect_status=301)
    assert follow(ticking, "has-a-late-place") == (301, URL) or is_over(link["expires_at"])
    until(lambda: follow(ticking, "has-a-late-place")[1] == LATE, "it has ended")
    assert is_over(link["expires_at"])
    settled(ticking)
    before = link_stats(ticking, "has-a-late-place")["clicks"]
    orphans = len([v for v in visits(ticking, None) if v["path"] == "has-a-late-place"])
    with Crowd(ticking, 20) as crowd:
        assert {(a.status, a["Location"], a["Cache-Control"]) for a in crowd.ask("/has-a-late-place")} == \
            {(302, LATE, "private, no-store")}, "not for ever, whatever the link's own status is"
    settled(ticking)
    assert link_stats(ticking, "has-a-late-place")["clicks"] == before, "they are no clicks"
    assert len([v for v in visits(ticking, None) if v["path"] == "has-a-late-place"]) == orphans + 20
    assert ticking.link("has-a-late-place")["expired_url"] == LATE, "the link is still there"


def test_an_ended_link_with_a_password_sends_the_late_elsewhere_without_it(ticking):
    link = ticking.create_ending(600, URL, expired_url=LATE, password="x")
    assert follow(ticking, link["key"])[0] == 401 or is_over(link["expires_at"])
    wait_for_the_end(link)
    assert follow(ticking, link["key"]) == (302, LATE)


def test_an_ended_link_can_be_brought_back_while_it_is_there(ticking):
    link = ticking.create_ending(500, URL, expired_url=LATE)
    wait_for_the_end(link)
    with Crowd(ticking, 16) as crowd:
        assert {a["Location"] for a in crowd.ask(f"/{link['key']}")} == {LATE}
        ticking.change(link["key"], expires_at="2099-01-01")
        assert {a["Location"] for a in crowd.ask(f"/{link['key']}")} == {URL}
        ticking.change(link["key"], expired_url=None)
        assert ticking.link(link["key"])["expired_url"] is None


def test_a_place_for_the_late_can_be_changed(ticking):
    link = ticking.create_ending(500, URL, expired_url=LATE)
    wait_for_the_end(link)
    assert follow(ticking, link["key"]) == (302, LATE)
    ticking.change(link["key"], expired_url="https://example.com/later-still")
    assert follow(ticking, link["key"]) == (302, "https://example.com/later-still")
    ticking.change(link["key"], enabled=False)
    assert follow(ticking, link["key"]) == (404, None)


def test_times_survive_a_crash(server):
    early = server.create(URL, not_before="2099-01-01", expires_at=None)
    ended = server.create_ending(500, URL, expired_url=LATE)
    plain = server.create_ending(500, URL)
    server.kill()
    server.start()
    wait_for_the_end(ended)
    wait_for_the_end(plain)
    assert follow(server, early["key"]) == (404, None)
    assert follow(server, ended["key"]) == (302, LATE)
    assert follow(server, plain["key"]) == (404, None)


# What cannot be

@pytest.fixture(scope="module")
def kept(shared):
    return shared.create(URL, alias="kept", not_before="2026-01-01", expires_at="2099-01-01", expired_url=LATE)["key"]


@pytest.mark.parametrize("fields, word", [
    *[({"not_before": bad}, "not_before") for bad in (5, True, [], {}, "", "soon", "2027-02-30", "2027-01-31 12:00")],
    *[({"expired_url": bad}, "") for bad in (5, True, [], {}, "", "nonsense", "ftp://example.com/", "javascript:alert(1)",
                                             "https://example.com/a\x1bb", "https://example.com/" + "x" * 8192)],
    ({"not_before": "2099-01-02", "expires_at": "2099-01-01"}, "begins"),
    ({"not_before": "2099-01-01", "expires_at": "2099-01-01"}, "begins"),
    ({"expires_at": "2001-01-01"}, "past"),
], ids=lambda v: str(v)[:40])
def test_a_time_or_a_place_that_cannot_be_is_refused_and_nothing_changes(shared, kept, fields, word):
    with unchanged(shared):
        assert_problem(shared.post("/api/v1/links", json={"original_url": URL, **fields}), 400, word)
        assert_problem(shared.patch(f"/api/v1/links/{kept}", json={"title": "changed", **fields}), 400, word)


def test_a_link_takes_times_in_every_form(shared):
    for form in (2000000000, 2000000000000, "2000000000", "2000000000000", "2033-05-18T03:33:20Z", "2033-05-18T05:33:20+02:00"):
        made = shared.create(URL, not_before=form, expires_at="2099-01-01")
        assert made["not_before"] == "2033-05-18T03:33:20Z", form
        changed = shared.patch(f"/api/v1/links/{made['key']}", json={"expires_at": 4000000000}).json()
        assert changed["expires_at"] == "2096-10-02T07:06:40Z"


def test_the_place_for_the_late_is_not_this_server(shared, kept):
    with unchanged(shared):
        for url in (f"{shared.url}/kept", f"http://localhost:{shared.port}/x"):
            assert_problem(shared.patch(f"/api/v1/links/{kept}", json={"expired_url": url}), 400, "points back")


def test_the_place_for_the_late_is_canonical(shared):
    assert shared.create(URL, expired_url="HTTPS://Example.COM/ü")["expired_url"] == "https://example.com/%C3%BC"
