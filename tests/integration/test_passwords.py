"""Links that ask for a password: what they show before, what they take, and how often one may guess."""
import re

import pytest
import requests

from reconciliation import link_stats, settled
from harness import PATIENCE_S, assert_problem, folder_bytes, until
from people import Crowd, Person, make_person
from wire import request

TARGET = "https://example.com/behind-the-door"
SECRET = "Sesam, öffne dich! +%&="
PAGE = {"Accept": "text/html"}
FORM = "application/x-www-form-urlencoded"
ROOMY = ("--workers", "2", "--worker-interval-ms", "5", "--limits-passwords-link", "10000", "--limits-passwords-address",
         "10000", "--trusted-proxies", "loopback")


@pytest.fixture(scope="module")
def doors(serve_all):
    return serve_all(*ROOMY)


@pytest.fixture(scope="module")
def door(doors):
    """A link that asks for SECRET."""
    return doors.create(TARGET, password=SECRET, title="What is behind it", redirect_status=301)["key"]


def locked(server, password=SECRET, **fields):
    return server.create(TARGET, password=password, **fields)["key"]


def knock(server, key, password=SECRET, headers=None, as_form=False, method="POST"):
    headers = dict(headers or {})
    body = {"data": {"password": password}} if as_form else {"json": {"password": password}}
    return server.request(method, f"/{key}", key=None, headers=headers, **body)


def test_the_password_is_written_and_never_read(doors, door):
    link = doors.link(door)
    assert link["has_password"] is True and "password" not in link
    assert SECRET not in doors.get("/api/v1/links").text
    plain = doors.create(TARGET)["key"]
    assert doors.link(plain)["has_password"] is False


def test_no_file_holds_a_links_password(server):
    locked(server, "a-password-that-is-easy-to-find")
    for state in ("running", "stopped"):
        if state == "stopped":
            server.stop()
        for name, content in folder_bytes(server.data).items():
            assert b"a-password-that-is-easy-to-find" not in content, f"{name} of the {state} server"


# The door

@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_locked_link_asks_and_tells_nothing(doors, door, method):
    for headers in (None, PAGE):
        response = doors.request(method, f"/{door}", key=None, headers=headers)
        assert response.status_code == 401 and "Location" not in response.headers
        assert response.headers["Cache-Control"] == "private, no-store"
        assert response.headers["WWW-Authenticate"] == 'Password realm="link"'
        assert "behind" not in response.text + str(response.headers)
    assert assert_problem(doors.get(f"/{door}", key=None), 401, "password")["type"] == "urn:curt:password-required"


def test_the_page_is_a_form_that_works_without_scripts(doors, door):
    page = doors.get(f"/{door}", key=None, headers=PAGE)
    assert page.headers["Content-Type"].startswith("text/html")
    form, = re.findall(r"<form\b[^>]*>", page.text)
    assert 'method="post"' in form and "action=" not in form.replace('action=""', ""), "it posts to where it stands"
    field, = re.findall(r"<input\b[^>]*>", page.text)
    assert 'type="password"' in field and 'name="password"' in field
    assert "<script" not in page.text and " on" + "click" not in page.text and "javascript:" not in page.text
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src" not in policy and "frame-ancestors 'none'" in policy


def test_the_preview_shows_nothing(doors, door):
    for headers in (None, PAGE):
        look = doors.get(f"/{door}+", key=None, headers=headers)
        assert look.status_code == 200 and "behind" not in look.text and "password" in look.text


def test_the_right_password_leads_on_by_get(doors, door):
    """303, whatever the link's own status: the browser must not post the password to the target."""
    for as_form in (False, True):
        response = knock(doors, door, as_form=as_form)
        assert (response.status_code, response.headers["Location"]) == (303, TARGET)
        assert response.headers["Cache-Control"] == "private, no-store"
        assert "Set-Cookie" not in response.headers
    assert doors.get(f"/{door}", key=None).status_code == 401, "the next visitor is asked again"


def test_a_wrong_password_is_reported_and_leads_nowhere(doors, door):
    for wrong in (SECRET + " ", SECRET.lower(), SECRET[:-1], "x", " ", "x" * 1000):
        response = knock(doors, door, wrong)
        assert assert_problem(response, 401)["type"] == "urn:curt:wrong-password"
        assert "Location" not in response.headers and "behind" not in response.text
    page = knock(doors, door, "wrong", headers=PAGE, as_form=True)
    assert page.status_code == 401 and "<form" in page.text and "behind" not in page.text


@pytest.mark.parametrize("body, kind", [
    ("", None), ("{}", None), ('{"password": null}', None), ('{"password": 5}', None), ('{"password": ["x"]}', None),
    ('{"password": "x", "more": 1}', None), ("[]", None), ("nonsense", None), ('{"password": "' + "x" * 1025 + '"}', None),
    ("", FORM), ("pass=x", FORM), ("password", FORM), ("password=%zz", FORM), ("password=" + "x" * 1025, FORM),
    ("&&&===;", FORM), ("password=%00", FORM),
])
def test_what_is_no_password_opens_nothing(doors, door, body, kind):
    headers = {"Content-Type": kind} if kind else {}
    response = doors.request("POST", f"/{door}", key=None, data=body, headers=headers)
    assert response.status_code in (400, 401), response.text
    assert "Location" not in response.headers and "behind" not in response.text


def test_a_body_that_is_too_large_is_refused(doors, door):
    assert doors.request("POST", f"/{door}", key=None, data="x" * 20000).status_code == 413


def test_a_link_without_a_password_takes_no_post(doors):
    key = doors.create(TARGET)["key"]
    response = knock(doors, key)
    assert_problem(response, 405)
    assert response.headers["Allow"] == "GET, HEAD, OPTIONS" and "behind" not in response.text


def test_a_link_that_is_not_there_is_not_found_by_post_either(doors):
    off = locked(doors, enabled=False)
    later = locked(doors, not_before="2099-01-01", expires_at=None)
    ended = doors.create_ending(500, TARGET, password=SECRET)["key"]
    until(lambda: doors.get(f"/{ended}", key=None).status_code == 404, "it has ended")
    answers = [knock(doors, key) for key in ("unknown-here", off, later, ended)]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.text for answer in answers}) == 1
    assert {doors.get(f"/{key}", key=None).status_code for key in (off, later, ended)} == {404}


# With the rest of what a link can have

def test_a_password_and_a_limit_go_together(doors):
    key = locked(doors, max_clicks=2)
    assert doors.get(f"/{key}", key=None).status_code == 401
    assert knock(doors, key, "wrong").status_code == 401
    assert [knock(doors, key).status_code for _ in range(3)] == [303, 303, 404]
    assert doors.get(f"/{key}", key=None).status_code in (401, 404)
    settled(doors, deep=False)
    assert link_stats(doors, key)["clicks"] == 2


def test_a_limit_behind_a_password_is_exact_for_many_at_once(doors):
    key = locked(doors, max_clicks=5)
    with Crowd(doors, 20) as crowd:
        for wire in crowd.wires:
            wire.send(request("POST", f"/{key}", "Content-Type: application/json",
                              body=('{"password": "%s"}' % SECRET).encode()))
        statuses = sorted(wire.read().status for wire in crowd.wires)
    assert statuses == [303] * 5 + [404] * 15


def test_a_private_link_asks_who_it_is_before_it_asks_for_the_password(doors):
    owner, stranger = make_person(doors), make_person(doors)
    key = locked(owner, visibility="private")
    assert_problem(knock(doors, key), 401)
    assert knock(doors, key).json()["type"] == "urn:curt:sign-in-required"
    assert_problem(stranger.post(f"/{key}", json={"password": SECRET}), 403)
    assert stranger.post(f"/{key}", json={"password": "wrong"}).status_code == 403
    assert owner.get(f"/{key}").status_code == 401, "the owner knows the password"
    assert owner.post(f"/{key}", json={"password": SECRET}, csrf=None).headers["Location"] == TARGET
    assert doors.post(f"/{key}", json={"password": "wrong"}).status_code == 401, "an admin too"
    assert doors.post(f"/{key}", json={"password": SECRET}).status_code == 303


def test_visits_count_when_the_password_was_right(doors):
    key = locked(doors)
    for _ in range(3):
        doors.get(f"/{key}", key=None)
        knock(doors, key, "wrong")
        knock(doors, key)
    settled(doors, deep=False)
    stats = link_stats(doors, key)
    assert (stats["clicks"], stats["heads"]) == (3, 0)


# Changing it

def statuses(wires, path):
    for wire in wires:
        wire.send(request("GET", path))
    return {wire.read().status for wire in wires}


def test_a_password_that_is_set_holds_at_once_on_every_connection(doors):
    key = doors.create(TARGET)["key"]
    with Crowd(doors, 24) as crowd:
        for _ in range(3):
            assert statuses(crowd.wires, f"/{key}") == {302}
            assert doors.change(key, password="new one")["has_password"] is True
            assert statuses(crowd.wires, f"/{key}") == {401}
            assert doors.change(key, password=None)["has_password"] is False


def test_a_new_password_ends_the_old_one(doors):
    key = locked(doors, "the first")
    doors.change(key, password="the second")
    assert knock(doors, key, "the first").status_code == 401
    assert knock(doors, key, "the second").status_code == 303
    doors.change(key, title="something else")
    assert knock(doors, key, "the second").status_code == 303


@pytest.mark.parametrize("bad", ["", 5, True, [], {}, "x" * 1025, "a\0b"])
def test_a_password_that_cannot_be_is_refused_and_the_link_stays_as_it_is(doors, bad):
    key = locked(doors)
    before = doors.link(key)
    assert_problem(doors.post("/api/v1/links", json={"original_url": TARGET, "password": bad}), 400, "password")
    assert_problem(doors.patch(f"/api/v1/links/{key}", json={"password": bad, "title": "x"}), 400, "password")
    assert doors.link(key) == before and knock(doors, key).status_code == 303


@pytest.mark.parametrize("good", ["x", "x" * 1024, "\u0001", " ", "ünï", "a\nb"])
def test_any_text_may_be_a_password(doors, good):
    key = doors.create(TARGET, password=good)["key"]
    assert knock(doors, key, good).status_code == 303
    assert knock(doors, key, good + "x" if len(good) < 1024 else "x").status_code == 401


# Guessing

def guess(server, key, address, password="wrong"):
    return knock(server, key, password, headers={"X-Forwarded-For": address})


def test_one_address_may_guess_so_often_and_no_more(serve):
    server = serve("--workers", "2", "--limits-passwords-address", "5", "--limits-throttle-period", "1h", "--trusted-proxies",
                   "loopback")
    one, other = locked(server), locked(server)
    assert [guess(server, one, "192.0.2.1").status_code for _ in range(3)] == [401] * 3
    assert [guess(server, other, "192.0.2.1").status_code for _ in range(2)] == [401] * 2
    refusal = guess(server, one, "192.0.2.1")
    assert_problem(refusal, 429, "wrong passwords")
    assert 0 < int(refusal.headers["Retry-After"]) <= 3600
    assert_problem(guess(server, one, "192.0.2.1", SECRET), 429)
    assert guess(server, one, "192.0.2.2", SECRET).status_code == 303, "another address is not concerned"
    assert guess(server, one, "192.0.2.2").status_code == 401
    page = knock(server, one, headers={"X-Forwarded-For": "192.0.2.1", **PAGE}, as_form=True)
    assert page.status_code == 429 and page.headers["Content-Type"].startswith("text/html")


def test_one_link_is_guessed_at_so_often_from_everywhere_and_no_more(serve):
    server = serve("--workers", "2", "--limits-passwords-link", "6", "--limits-throttle-period", "1h", "--trusted-proxies",
                   "loopback")
    key, other = locked(server), locked(server)
    assert [guess(server, key, f"192.0.2.{i}").status_code for i in range(8)] == [401] * 6 + [429] * 2
    assert_problem(guess(server, key, "192.0.2.99", SECRET), 429)
    assert guess(server, other, "192.0.2.1", SECRET).status_code == 303, "another link is not concerned"


def test_the_right_password_is_no_guess(serve):
    server = serve("--limits-passwords-address", "3", "--limits-passwords-link", "3", "--limits-throttle-period", "1h")
    key = locked(server)
    assert [knock(server, key).status_code for _ in range(8)] == [303] * 8
    assert [knock(server, key, "wrong").status_code for _ in range(4)] == [401] * 3 + [429]


def test_an_open_connection_does_not_wait_for_somebody_elses_guess(doors, door):
    """Passwords are looked at on a thread of their own: links go on meanwhile."""
    plain = doors.create(TARGET)["key"]
    guesses = [doors.connect() for _ in range(10)]
    for wire in guesses:
        wire.send(request("POST", f"/{door}", body='{"password": "wrong"}'))
    wire = doors.connect()
    assert [wire.get(f"/{plain}").status for _ in range(50)] == [302] * 50
    assert {wire.read().status for wire in guesses} == {401}


def test_a_session_is_no_password(doors, door):
    person = make_person(doors, "admin")
    assert Person(doors, person.user).get(f"/{door}").status_code == 401
    assert requests.get(f"{doors.url}/{door}?password={SECRET}", timeout=PATIENCE_S,
                        allow_redirects=False).status_code == 401
