"""Signing in and out: the cookie, the form, what ends a session, and how often one may be wrong."""
import json
import urllib.parse

import pytest

from harness import assert_problem, folder_bytes, is_over, moment, soon, until, wait_out
from people import COOKIE, PASSWORD, Crowd, Person, cookie_of, key_of, make_person, make_user, sign_in, still_let_in
from wire import request

SESSION = "/api/v1/session"
ROOMY = ("--workers", "2", "--limits-sign-ins", "10000", "--limits-sign-ins-account", "10000", "--limits-sign-ins-address",
         "10000")


@pytest.fixture(scope="module")
def desk(serve_all):
    return serve_all(*ROOMY)


@pytest.fixture(scope="module")
def ada(desk):
    return make_user(desk, "editor", "ada@example.com", first_name="Ada", last_name="Lovelace")


def by_form(server, email, password=PASSWORD, next=None, headers=None, **more):
    fields = {"email": email, "password": password, **({"next": next} if next is not None else {}), **more}
    return server.request("POST", SESSION, key=None, data=urllib.parse.urlencode(fields),
                          headers={"Content-Type": "application/x-www-form-urlencoded", **(headers or {})})


# In

def test_signing_in_tells_who_one_is(desk, ada):
    response = sign_in(desk, "ada@example.com")
    assert response.status_code == 200
    told = response.json()
    assert set(told) == {"user", "csrf_token", "expires_at"} and told["user"] == ada
    token, _ = cookie_of(response)
    assert len(token) > 40 and token != told["csrf_token"] and token not in response.text
    assert response.headers["Cache-Control"] == "private, no-store"
    me = desk.get(SESSION, key=None, headers={"Cookie": f"{COOKIE}={token}"}).json()
    assert me == {"user": ada, "rights": ["read", "stats", "create", "delete"], "csrf_token": told["csrf_token"],
                  "expires_at": told["expires_at"]}


def test_an_email_address_is_the_same_in_any_case(desk, ada):
    for spelling in ("ADA@example.com", "Ada@Example.COM"):
        assert sign_in(desk, spelling).json()["user"] == ada


def test_every_session_is_another(desk, ada):
    people = [Person(desk, ada) for _ in range(4)]
    assert len({person.cookie for person in people}) == len({person.csrf for person in people}) == 4


def test_a_key_learns_who_it_is(desk, ada):
    key = key_of(desk, ada, scopes=["read", "stats"], expires_at="2099-01-01")["key"]
    assert desk.get(SESSION, key=key).json() == {"user": ada, "rights": ["read", "stats"], "csrf_token": None,
                                                 "expires_at": "2099-01-01T00:00:00Z"}
    assert desk.get(SESSION).json()["rights"] == ["read", "stats", "create", "delete", "admin"]


def test_an_anonymous_caller_is_told_so(desk):
    refusal = desk.get(SESSION, key=None)
    assert_problem(refusal, 401)
    assert "WWW-Authenticate" in refusal.headers
    assert_problem(desk.delete(SESSION, key=None), 401)
    assert_problem(desk.delete(SESSION), 401)


def test_a_failed_sign_in_reveals_nothing(desk, ada):
    off = make_user(desk, "editor")
    assert desk.patch(f"/api/v1/users/{off['id']}", json={"enabled": False}).status_code == 200
    without = make_user(desk, "editor", password=None)
    answers = [sign_in(desk, email, password) for email, password in (
        ("ada@example.com", "wrong password"), ("unknown@example.com", PASSWORD), (off["email"], PASSWORD),
        (without["email"], PASSWORD), (without["email"], "x"), ("no address", PASSWORD), ("ada@example.com", "x" * 1024),
        ("ada@example.com", PASSWORD + " "), ("ada@example.com", PASSWORD.upper()), ("ada@example.com", PASSWORD[:-1]))]
    for answer in answers:
        assert assert_problem(answer, 401)["type"] == "urn:curt:sign-in-failed"
        assert "Set-Cookie" not in answer.headers
    told = {(a.text, tuple(sorted((k, v) for k, v in a.headers.items() if k != "Date"))) for a in answers}
    assert len(told) == 1


@pytest.mark.parametrize("body", [
    "", "{}", "[]", "nonsense", '{"email": "ada@example.com"}', '{"password": "x"}', '{"email": 5, "password": "x"}',
    '{"email": "ada@example.com", "password": null}', '{"email": "ada@example.com", "password": ["x"]}',
    '{"email": "ada@example.com", "password": "x", "more": 1}',
    '{"email": "ada@example.com", "password": "%s"}' % ("x" * 1025),
    '{"email": "%s@example.com", "password": "x"}' % ("x" * 300),
])
def test_a_malformed_request_is_refused(desk, body):
    response = desk.request("POST", SESSION, key=None, data=body)
    assert_problem(response, 400)
    assert "Set-Cookie" not in response.headers


def test_a_request_that_is_too_large_is_refused(desk):
    assert desk.request("POST", SESSION, key=None, data="x" * 20000).status_code == 413


# The cookie

def test_the_cookie_is_for_this_server_and_no_script(desk, ada):
    _, attributes = cookie_of(sign_in(desk, ada["email"]))
    assert set(attributes) == {"path", "httponly", "samesite", "max-age"}
    assert (attributes["path"], attributes["samesite"], attributes["httponly"]) == ("/", "Lax", "")
    assert int(attributes["max-age"]) == 7 * 24 * 3600


@pytest.mark.parametrize("flags, headers, secure", [
    (("--base-url", "https://s.example"), None, True),
    (("--base-url", "https://s.example"), {"X-Forwarded-Proto": "http"}, True),
    (("--base-url", "http://s.example"), None, False),
    (("--trusted-proxies", "loopback"), {"X-Forwarded-Proto": "https"}, True),
    (("--trusted-proxies", "loopback"), {"X-Forwarded-Proto": "http"}, False),
    (("--trusted-proxies", "loopback"), None, False),
    (("--trusted-proxies", "192.0.2.0/24"), {"X-Forwarded-Proto": "https"}, False),
    ((), {"X-Forwarded-Proto": "https"}, False),
], ids=["https", "https whatever anybody says", "http", "a proxy says https", "a proxy says http", "a proxy says nothing",
        "a stranger says https", "nobody trusted says https"])
def test_the_cookie_is_secure_where_the_way_is(serve, flags, headers, secure):
    server = serve("--workers", "1", *flags)
    user = make_user(server)
    _, attributes = cookie_of(sign_in(server, user["email"], headers=headers))
    assert ("secure" in attributes) == secure


def test_the_session_lasts_as_long_as_the_setting_says(serve):
    server = serve("--session-time", "2s")
    least = soon(2000)
    person = make_person(server)
    response = sign_in(server, person.user["email"])
    assert cookie_of(response)[1]["max-age"] == "2"
    assert moment(response.json()["expires_at"]) <= moment(soon(2000))
    assert still_let_in(person) or is_over(least)
    until(lambda: not still_let_in(person), "the session has ended")
    assert_problem(person.post("/api/v1/links", json={"original_url": "https://example.com/"}), 401, "session has ended")


def test_no_file_and_no_log_holds_a_token_or_a_password(serve):
    server = serve("--workers", "2", "--log-level", "debug")
    person = make_person(server, password="an unlikely password")
    person.create()
    sign_in(server, person.user["email"], "another unlikely password")
    person.delete(SESSION)
    server.stop()
    texts = [*folder_bytes(server.data).items(), ("stderr", server.stderr.encode()), ("stdout", server.stdout.encode())]
    for name, content in texts:
        for secret in (person.cookie, person.csrf, "an unlikely password", "another unlikely password"):
            assert secret.encode() not in content, f"{name} holds {secret}"


# The form

def test_a_form_signs_in_and_leads_on(desk, ada):
    done = by_form(desk, ada["email"], next="/somewhere?x=1&y=%2F")
    assert (done.status_code, done.headers["Location"]) == (303, "/somewhere?x=1&y=%2F")
    token, attributes = cookie_of(done)
    assert "httponly" in attributes
    assert desk.get(SESSION, key=None, headers={"Cookie": f"{COOKIE}={token}"}).status_code == 200
    assert by_form(desk, ada["email"]).headers["Location"] == "/"


@pytest.mark.parametrize("next", [
    "//evil.example", "//evil.example/x", "/\\evil.example", "\\/evil.example", "https://evil.example/", "http:evil.example",
    "javascript:alert(1)", "evil.example", "", " /x", "/\t/evil.example", "/\n/evil.example", "/x\r\nSet-Cookie: a=b", "/\x00",
    "\x00//evil.example", "/ /evil", "///evil.example", "/\x7f", "?x", "#x", "data:text/html,x", "/" + "x" * 5000,
])
def test_a_form_leads_nowhere_else(desk, ada, next):
    done = by_form(desk, ada["email"], next=next)
    assert (done.status_code, done.headers["Location"]) == (303, "/")
    wrong = by_form(desk, ada["email"], "wrong", next=next)
    assert wrong.status_code == 401 and "evil" not in wrong.text and "javascript:" not in wrong.text


def test_a_form_that_was_wrong_is_shown_again(desk, ada):
    page = by_form(desk, ada["email"], "wrong password", next="/there")
    assert page.status_code == 401 and page.headers["Content-Type"].startswith("text/html")
    assert 'action="/api/v1/session"' in page.text and 'value="/there"' in page.text and "wrong" in page.text
    assert "<script" not in page.text and "wrong password" not in page.text
    assert "Set-Cookie" not in page.headers and page.headers["Cache-Control"] == "private, no-store"
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    unknown = by_form(desk, "unknown@example.com", "wrong password", next="/there")
    assert unknown.text == page.text


def test_what_comes_back_in_the_form_is_escaped(desk, ada):
    page = by_form(desk, ada["email"], "wrong", next='/"><b>bold</b>')
    assert "<b>bold" not in page.text and "&lt;b&gt;" in page.text or 'value="/"' in page.text


@pytest.mark.parametrize("body", ["", "email=ada%40example.com", "password=x", "email=&password=", "email=%zz&password=x",
                                  "email=ada%40example.com&password=" + "x" * 1025, "&=&=&", "email"])
def test_a_form_that_is_not_filled_in_is_shown_again(desk, body):
    response = desk.request("POST", SESSION, key=None, data=body,
                            headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert response.status_code in (400, 401) and "<form" in response.text and "Set-Cookie" not in response.headers


@pytest.mark.parametrize("origin", ["https://evil.example", "http://evil.example", "null", "http://127.0.0.1",
                                    "http://127.0.0.1.evil.example", "", "http://", "evil.example"])
def test_a_form_of_another_site_signs_nobody_in(desk, ada, origin):
    response = by_form(desk, ada["email"], headers={"Origin": origin})
    assert response.status_code == 403 and "Set-Cookie" not in response.headers


def test_a_form_of_our_own_is_taken(serve):
    server = serve("--base-url", "https://s.example")
    user = make_user(server)
    for origin in (server.url, "https://s.example"):
        assert by_form(server, user["email"], headers={"Origin": origin}).status_code == 303


# Out

def test_signing_out_ends_the_session_on_every_connection(desk, ada):
    with Crowd(desk, 24) as crowd:
        for _ in range(3):
            person, other = Person(desk, ada), Person(desk, ada)
            assert {a.status for a in crowd.ask(SESSION, "GET", *person.fields)} == {200}
            response = person.delete(SESSION)
            assert response.status_code == 204
            token, attributes = cookie_of(response)
            assert token == "" and attributes["max-age"] == "0" and attributes["path"] == "/"
            assert {a.status for a in crowd.ask(SESSION, "GET", *person.fields)} == {401}
            assert {a.status for a in crowd.ask(SESSION, "GET", *other.fields)} == {200}
    assert_problem(person.delete(SESSION), 401)


def test_sessions_survive_a_restart_and_ended_ones_stay_ended(server):
    user = make_user(server)
    person, gone = Person(server, user), Person(server, user)
    assert gone.delete(SESSION).status_code == 204
    for end in (server.kill, server.stop):
        end()
        server.start()
        for someone, let_in in ((person, True), (gone, False)):
            someone.url = server.url
            assert still_let_in(someone) == let_in
    assert person.post("/api/v1/links", json={"original_url": "https://example.com/"}).status_code == 201


def test_a_token_of_another_server_is_worth_nothing(serve):
    one, other = serve("--workers", "1"), serve("--workers", "1")
    person = make_person(one, email="same@example.com")
    make_person(other, email="same@example.com")
    person.url, person.server = other.url, other
    assert not still_let_in(person)


# What ends all of them

def all_of(server, user):
    people = [Person(server, user) for _ in range(2)]
    return people, server.client(key_of(server, user)["key"])


def test_an_admins_new_password_ends_all_sessions_at_once(desk):
    user = make_user(desk)
    people, key = all_of(desk, user)
    with Crowd(desk, 16) as crowd:
        assert desk.patch(f"/api/v1/users/{user['id']}", json={"password": "a new password"}).status_code == 200
        for person in people:
            assert {a.status for a in crowd.ask(SESSION, "GET", *person.fields)} == {401}
    assert still_let_in(key), "keys are not sessions"
    assert_problem(sign_in(desk, user["email"]), 401)
    assert sign_in(desk, user["email"], "a new password").status_code == 200


def test_disabling_ends_all_sessions_and_keys_at_once(desk):
    user = make_user(desk)
    people, key = all_of(desk, user)
    with Crowd(desk, 16) as crowd:
        assert desk.patch(f"/api/v1/users/{user['id']}", json={"enabled": False}).status_code == 200
        for person in people:
            assert {a.status for a in crowd.ask(SESSION, "GET", *person.fields)} == {401}
        assert {a.status for a in crowd.ask(SESSION, "GET", f"X-Api-Key: {key.key}")} == {401}
    assert_problem(sign_in(desk, user["email"]), 401)
    assert desk.patch(f"/api/v1/users/{user['id']}", json={"enabled": True}).status_code == 200
    assert not any(still_let_in(person) for person in people), "what has ended does not come back"
    assert still_let_in(key)
    assert sign_in(desk, user["email"]).status_code == 200


def test_all_sessions_of_a_user_can_be_ended(desk):
    user, bystander = make_user(desk), make_person(desk)
    people, key = all_of(desk, user)
    response = people[0].delete("/api/v1/users/me/sessions")
    assert response.status_code == 204
    assert not any(still_let_in(person) for person in people) and still_let_in(bystander) and still_let_in(key)
    people, _ = all_of(desk, user)
    assert desk.delete(f"/api/v1/users/{user['email']}/sessions").status_code == 204
    assert not any(still_let_in(person) for person in people) and still_let_in(bystander)


def test_ones_own_new_password_ends_all_other_sessions_and_renews_this_one(desk):
    user = make_user(desk)
    people, key = all_of(desk, user)
    response = people[0].patch("/api/v1/users/me", json={"password": "a new password", "current_password": PASSWORD})
    assert response.status_code == 200 and response.json()["id"] == user["id"]
    assert not any(still_let_in(person) for person in people)
    people[0].cookie, attributes = cookie_of(response)
    people[0].csrf = response.headers["X-CSRF-Token"]
    assert "httponly" in attributes and still_let_in(people[0])
    assert people[0].get(SESSION).json()["csrf_token"] == people[0].csrf
    assert people[0].post("/api/v1/links", json={"original_url": "https://example.com/"}).status_code == 201
    assert sign_in(desk, user["email"], "a new password").status_code == 200
    assert_problem(sign_in(desk, user["email"]), 401)


def test_a_live_feed_ends_with_the_session(desk):
    person = make_person(desk, "admin")
    wire = desk.connect()
    wire.send(request("GET", "/api/v1/live", *person.fields))
    head = wire.sock.recv(65536)
    assert head.startswith(b"HTTP/1.1 200"), head
    assert person.delete(SESSION).status_code == 204

    def has_ended():
        desk.get("/anything", key=None)  # the feed looks when there is something to tell
        wire.sock.settimeout(0.05)
        try:
            return wire.sock.recv(65536) == b""
        except TimeoutError:
            return False
    until(has_ended, "the feed has ended")


# Wrong too often

def test_one_account_may_be_tried_so_often_and_no_more(serve):
    server = serve("--workers", "2", "--limits-sign-ins-account", "4", "--limits-throttle-period", "1h", "--trusted-proxies",
                   "loopback")
    user, other = make_user(server), make_user(server)

    def attempt(email, password, number):
        return sign_in(server, email, password, headers={"X-Forwarded-For": f"192.0.2.{number}"})

    assert [attempt(user["email"], "wrong", i).status_code for i in range(6)] == [401] * 4 + [429] * 2
    refusal = attempt(user["email"].upper(), PASSWORD, 50)
    assert_problem(refusal, 429)
    assert 0 < int(refusal.headers["Retry-After"]) <= 3600 and "Set-Cookie" not in refusal.headers
    assert attempt(other["email"], PASSWORD, 1).status_code == 200, "another account is not concerned"
    unknown = [attempt("unknown@example.com", "wrong", i).status_code for i in range(6)]
    assert unknown == [401] * 4 + [429] * 2, "an unknown account is limited as a known one is"
    page = by_form(server, user["email"], headers={"X-Forwarded-For": "192.0.2.51"})
    assert page.status_code == 429 and page.headers["Content-Type"].startswith("text/html")


def test_one_account_may_be_tried_so_often_from_one_address_and_its_owner_is_not_kept_out(serve):
    server = serve("--workers", "2", "--limits-sign-ins", "3", "--limits-throttle-period", "1h", "--trusted-proxies", "loopback")
    user, other = make_user(server), make_user(server)

    def attempt(address, email, password="wrong"):
        return sign_in(server, email, password, headers={"X-Forwarded-For": address})

    assert [attempt("192.0.2.1", user["email"]).status_code for _ in range(5)] == [401] * 3 + [429] * 2
    assert_problem(attempt("192.0.2.1", user["email"], PASSWORD), 429)
    assert attempt("192.0.2.2", user["email"], PASSWORD).status_code == 200, "the owner is elsewhere"
    assert attempt("192.0.2.1", other["email"], PASSWORD).status_code == 200, "another account from the same place"


def test_one_address_may_try_so_often_and_no_more(serve):
    server = serve("--workers", "2", "--limits-sign-ins-address", "5", "--limits-throttle-period", "1h", "--trusted-proxies",
                   "loopback")
    user = make_user(server)

    def attempt(address, email, password="wrong"):
        return sign_in(server, email, password, headers={"X-Forwarded-For": address})

    statuses = [attempt("192.0.2.1", f"nobody{i}@example.com").status_code for i in range(7)]
    assert statuses == [401] * 5 + [429] * 2
    assert_problem(attempt("192.0.2.1", user["email"], PASSWORD), 429)
    assert attempt("192.0.2.2", user["email"], PASSWORD).status_code == 200, "another address is not concerned"
    assert attempt("192.0.2.1, 192.0.2.2", user["email"], PASSWORD).status_code == 200, "the last one counts"


def test_signing_in_well_is_no_try(serve):
    server = serve("--limits-sign-ins-account", "2", "--limits-sign-ins-address", "3", "--limits-throttle-period", "1h")
    user = make_user(server)
    assert [sign_in(server, user["email"]).status_code for _ in range(6)] == [200] * 6
    assert [sign_in(server, user["email"], "wrong").status_code for _ in range(3)] == [401, 401, 429]


def test_one_may_try_again_after_the_time_that_was_named(serve):
    server = serve("--limits-sign-ins-account", "2", "--limits-throttle-period", "2s")
    user = make_user(server)
    with Crowd(server, 4) as crowd:  # at once, or their time might pass meanwhile
        refusal = until(lambda: next((answer for answer in crowd.send(
            "POST", SESSION, json.dumps({"email": user["email"], "password": "wrong"})) if answer.status == 429), None),
            "it was too often")
    wait_out(refusal, 2)
    assert sign_in(server, user["email"]).status_code == 200


def test_guessing_ones_current_password_is_limited_too(serve):
    server = serve("--limits-sign-ins", "3", "--limits-throttle-period", "1h")
    person = make_person(server)
    body = {"password": "a new password", "current_password": "wrong password"}
    statuses = [person.patch("/api/v1/users/me", json=body).status_code for _ in range(5)]
    assert statuses == [403] * 3 + [429] * 2
    assert still_let_in(person) and sign_in(server, person.user["email"]).status_code == 200
