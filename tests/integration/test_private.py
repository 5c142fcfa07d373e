"""A private link's target is for its owner, admins and those on its list: nobody else gets a glimpse of it."""
import itertools
import json
import secrets
import statistics
import time

import pytest

from reconciliation import settled
from harness import assert_problem, scaled, until
from people import COOKIE, Person, key_of, make_person, make_user
from wire import request

HTML = "Accept: text/html"
MANY_GUESSES = ("--limits-passwords-link", "100000", "--limits-passwords-address", "100000")


def marker():
    """What must not be seen."""
    return f"secret-{secrets.token_hex(12)}"


class Scene:
    """A server, and those who may and may not."""

    def __init__(self, server):
        self.server = server
        self.owner = make_person(server, "editor")
        self.friend = make_person(server, "viewer")
        self.stranger = make_person(server, "editor")
        self.stranger_key = key_of(server, self.stranger.user)["key"]
        self.names = itertools.count()
        gone = make_person(server, "editor")
        assert gone.delete("/api/v1/session").status_code == 204
        # By name: header fields of those who may not follow the links here.
        self.outsiders = {
            "nobody": (), "a stranger": self.stranger.fields, "a stranger's key": (f"X-Api-Key: {self.stranger_key}",),
            "somebody signed out": gone.fields, "a wrong key": ("Authorization: Bearer ck_wrong",),
            "a made-up session": (f"Cookie: {COOKIE}={'A' * len(gone.cookie)}",),
        }

    def private(self, mark=None, **fields):
        return self.owner.create(f"https://example.com/{mark or marker()}", visibility="private", **fields)["key"]

    def permit(self, key, user, method="PUT", by=None):
        response = (by or self.owner).request(method, f"/api/v1/links/{key}/permissions/{user}")
        assert response.status_code == 204, response.text


@pytest.fixture(scope="module")
def scene(serve_all):
    return Scene(serve_all("--workers", "2", "--worker-interval-ms", "5", *MANY_GUESSES))


def probes(key):
    """Every way to ask about a link. (method, path, body, more fields)"""
    link = f"/api/v1/links/{key}"
    password = '{"password": "guess"}'
    yield from [(method, f"/{key}{end}", None, fields) for method in ("GET", "HEAD") for end in ("", "+", "%2B", "?x=1")
                for fields in ((), (HTML,))]
    yield from [("GET", f"/{key}", None, (f"Sec-Purpose: {purpose}",)) for purpose in ("prefetch", "prefetch;prerender")]
    yield from [("POST", f"/{key}", body, fields) for body, fields in
                ((password, ()), (password, (HTML,)), ("", ()), ("nonsense", ()),
                 ("password=guess", ("Content-Type: application/x-www-form-urlencoded", HTML)))]
    yield from [(method, f"/{key}", None, ()) for method in ("OPTIONS", "PUT", "PATCH", "DELETE")]
    yield from [("GET", path, None, ()) for path in (
        "/api/v1/links", "/api/v1/links?limit=1000", link, f"{link}/stats", f"{link}/visits", f"{link}/permissions",
        f"/api/v1/live?key={key}", "/api/v1/live", "/api/v1/stats", "/api/v1/orphans", "/api/v1/reconcile", "/metrics",
        "/readyz", "/api/v1/session", "/api/v1/users", "/api/v1/keys", "/stats?timeWindowMinutes=60", "/")]
    yield from [("PATCH", link, body, ()) for body in ('{"title": "mine"}', '{"visibility": "public"}', "{}", "nonsense",
                                                       '{"owner": "me"}')]
    yield from [("POST", "/api/v1/links", json.dumps({"original_url": "https://example.com/", "alias": key}), ()),
                ("POST", "/api/v1/createURL", json.dumps({"original_url": "https://example.com/", "custom_alias": key}), ()),
                ("DELETE", link, None, ()), ("DELETE", f"/api/v1/deleteURL?url_key={key}", None, ()),
                ("PUT", f"{link}/permissions/me", None, ()), ("DELETE", f"{link}/permissions/1", None, ())]


def everything_said(server, method, path, body, fields):
    """All bytes of the answer."""
    wire = server.connect()
    answer = wire.ask(request(method, path, *fields, body=body), method)
    wire.close()
    return answer.status, repr(answer.fields).encode() + answer.body


# Nobody else sees it

@pytest.mark.parametrize("more", [
    {}, {"password": "open sesame"}, {"max_clicks": 5}, {"password": "open sesame", "max_clicks": 5, "redirect_status": 301},
    {"expired_url": True}, {"enabled": False}, {"not_before": "2099-01-01", "expires_at": None},
], ids=lambda more: " and ".join(more) or "plain")
def test_the_target_shows_nowhere_for_those_who_may_not(scene, more):
    mark, server = marker(), scene.server
    if "expired_url" in more:
        more = {"expired_url": f"https://example.com/late-{mark}"}
    key = scene.private(mark, alias=f"private-{next(scene.names)}", title=f"title of {mark}", note=f"note of {mark}",
                        tags=[mark], **more)
    for name, fields in scene.outsiders.items():
        for method, path, body, more_fields in probes(key):
            status, said = everything_said(server, method, path, body, (*fields, *more_fields))
            assert mark.encode() not in said, f"{name} saw it by {method} {path} ({status})"
    link = server.link(key)
    assert link and mark in link["original_url"] and link["visibility"] == "private", "and nobody could change it"


def test_what_nobody_may_see_is_not_in_the_log(serve, tmp_path):
    log = tmp_path / "the-log"
    server = serve("--workers", "2", "--log-level", "debug", "--log-file", log, *MANY_GUESSES)
    scene, mark = Scene(server), marker()
    key = scene.private(mark, alias="quiet", password=f"password-{mark}")
    for fields in scene.outsiders.values():
        for method, path, body, more in probes(key):
            everything_said(server, method, path, body, (*fields, *more))
    assert server.post(f"/{key}", json={"password": f"password-{mark}"}).headers["Location"].endswith(mark)
    server.patch(f"/api/v1/links/{key}", json={"original_url": f"not a url {mark}"})
    server.restart()
    for text in (log.read_text(), server.stderr, server.stdout):
        assert mark not in text and scene.owner.cookie not in text and scene.stranger_key not in text


def test_answers_say_who_is_asked_for(scene):
    key, server = scene.private(), scene.server
    refusal = server.get(f"/{key}", key=None)
    assert assert_problem(refusal, 401, "sign in")["type"] == "urn:curt:sign-in-required"
    assert refusal.headers["WWW-Authenticate"].startswith("Bearer")
    assert assert_problem(scene.stranger.get(f"/{key}"), 403)["type"] == "urn:curt:not-permitted"
    assert_problem(server.get(f"/{key}", key=scene.stranger_key), 403)
    for response in (refusal, scene.stranger.get(f"/{key}")):
        assert response.headers["Cache-Control"] == "private, no-store" and "Location" not in response.headers
    page = server.get(f"/{key}", key=None, headers={"Accept": "text/html"})
    assert page.status_code == 401 and page.headers["Content-Type"].startswith("text/html")
    assert f'value="/{key}"' in page.text and "<script" not in page.text and "script-src" not in page.text


def test_a_page_leads_through_the_sign_in_to_the_link(scene):
    """What a browser without scripts does."""
    key, server = scene.private(), scene.server
    scene.permit(key, scene.friend.user["id"])
    form = {"email": scene.friend.user["email"], "password": "a password of the tests", "next": f"/{key}"}
    done = server.post("/api/v1/session", data=form, key=None)
    assert (done.status_code, done.headers["Location"]) == (303, f"/{key}")
    cookie = done.headers["Set-Cookie"].split(";")[0]
    assert server.get(done.headers["Location"], key=None, headers={"Cookie": cookie}).status_code == 302


def test_the_owner_the_admin_and_the_permitted_may_follow_it(scene):
    mark = marker()
    key = scene.private(mark)
    scene.permit(key, scene.friend.user["id"])
    friend_key = key_of(scene.server, scene.friend.user, scopes=["read"])["key"]
    owner_key = key_of(scene.server, scene.owner.user)["key"]
    for response in (scene.owner.get(f"/{key}"), scene.friend.get(f"/{key}"), scene.server.get(f"/{key}"),
                     make_person(scene.server, "admin").get(f"/{key}"), scene.server.get(f"/{key}", key=friend_key),
                     scene.server.get(f"/{key}", key=owner_key)):
        assert (response.status_code, response.headers["Location"]) == (302, f"https://example.com/{mark}")
        assert response.headers["Cache-Control"] == "private, no-store"
    for response in (scene.owner.get(f"/{key}+"), scene.friend.get(f"/{key}+"), scene.server.get(f"/{key}+")):
        assert response.status_code == 200 and mark in response.text
    assert scene.friend.link(key) is None, "to follow is not to own"
    assert mark not in scene.friend.get("/api/v1/links").text


@pytest.mark.parametrize("scope", ["stats", "create", "delete"])
def test_a_key_that_may_not_read_follows_no_private_link(scene, scope):
    key = scene.private()
    blind = key_of(scene.server, scene.owner.user, scopes=[scope])["key"]
    assert_problem(scene.server.get(f"/{key}", key=blind), 401)
    assert scene.server.get(f"/{key}+", key=blind).status_code == 401
    assert scene.server.post(f"/{key}", json={"password": "x"}, key=blind).status_code == 401


def test_visits_of_a_private_link_count_and_refusals_do_not(scene):
    key = scene.private()
    for _ in range(3):
        assert scene.owner.get(f"/{key}").status_code == 302
        assert scene.server.get(f"/{key}", key=None).status_code == 401
        assert scene.stranger.get(f"/{key}").status_code == 403
    settled(scene.server, deep=False)
    assert scene.owner.get(f"/api/v1/links/{key}/stats").json()["clicks"] == 3


# At once, everywhere

def statuses(wires, path, fields):
    for wire in wires:
        wire.send(request("GET", path, *fields))
    return {wire.read().status for wire in wires}


@pytest.fixture
def wires(scene):
    wires = [scene.server.connect() for _ in range(24)]
    yield wires
    for wire in wires:
        wire.close()


def test_a_permission_holds_at_once_on_every_connection_and_so_does_its_end(scene, wires):
    key, friend = scene.private(), scene.friend
    for name in (friend.user["id"], friend.user["email"], friend.user["email"].upper().replace("@", "%40")) * scaled(3):
        assert statuses(wires, f"/{key}", friend.fields) == {403}
        scene.permit(key, name)
        assert statuses(wires, f"/{key}", friend.fields) == {302}
        assert [user["id"] for user in scene.owner.get(f"/api/v1/links/{key}/permissions").json()["users"]] == \
            [friend.user["id"]]
        scene.permit(key, name)  # a second time is no news
        scene.permit(key, name, "DELETE")
    assert statuses(wires, f"/{key}", friend.fields) == {403}
    scene.permit(key, friend.user["id"], "DELETE")


def test_a_link_is_private_at_once_on_every_connection(scene, wires):
    key = scene.owner.create("https://example.com/open")["key"]
    for _ in range(scaled(10)):
        assert statuses(wires, f"/{key}", ()) == {302}
        scene.owner.change(key, visibility="private")
        assert statuses(wires, f"/{key}", ()) == {401}
        assert statuses(wires, f"/{key}", scene.stranger.fields) == {403}
        assert statuses(wires, f"/{key}", scene.owner.fields) == {302}
        scene.owner.change(key, visibility="public")


def test_signing_out_shuts_the_door_on_every_connection(scene, wires):
    key, friend = scene.private(), Person(scene.server, scene.friend.user)
    scene.permit(key, friend.user["id"])
    assert statuses(wires, f"/{key}", friend.fields) == {302}
    assert friend.delete("/api/v1/session").status_code == 204
    assert statuses(wires, f"/{key}", friend.fields) == {401}
    assert statuses(wires, f"/{key}", scene.friend.fields) == {302}, "another session of theirs goes on"


def test_a_new_owner_is_let_in_and_the_old_one_is_not(scene):
    heir = make_person(scene.server, "editor")
    key = scene.private()
    scene.server.change(key, owner=heir.user["email"])
    assert heir.get(f"/{key}").status_code == 302
    assert_problem(scene.owner.get(f"/{key}"), 403)
    assert scene.owner.link(key) is None


def test_a_create_that_is_repeated_does_not_show_what_has_become_of_the_link(scene):
    heir, mark = make_person(scene.server, "editor"), marker()
    body = {"original_url": "https://example.com/mine", "alias": f"handed-over-{next(scene.names)}"}
    headers = {"Idempotency-Key": "handed over"}
    made = scene.owner.post("/api/v1/links", json=body, headers=headers)
    assert made.status_code == 201
    key = made.json()["key"]
    scene.server.change(key, owner=heir.user["email"])
    heir.change(key, visibility="private", original_url=f"https://example.com/{mark}")
    again = scene.owner.post("/api/v1/links", json=body, headers=headers)
    assert mark not in again.text, "its former owner may not follow it, and must not read it either"


# The list

def test_an_alias_that_is_made_anew_does_not_inherit_the_list(scene):
    alias = f"heirless-{next(scene.names)}"
    scene.private(alias=alias)
    scene.permit(alias, scene.friend.user["id"])
    assert scene.friend.get(f"/{alias}").status_code == 302
    scene.owner.remove(alias)
    scene.private(alias=alias)
    assert_problem(scene.friend.get(f"/{alias}"), 403)
    assert scene.owner.get(f"/api/v1/links/{alias}/permissions").json()["users"] == []


def test_an_alias_whose_link_has_ended_does_not_hand_its_list_on(scene):
    alias = f"ended-{next(scene.names)}"
    scene.private(alias=alias)
    scene.permit(alias, scene.friend.user["id"])
    scene.owner.end_soon(alias, 600)
    until(lambda: scene.friend.get(f"/{alias}").status_code == 404, "it has ended")
    scene.private(alias=alias)
    assert_problem(scene.friend.get(f"/{alias}"), 403)


def masked(email):
    return email[0] + "***@" + email.split("@")[1]


def test_the_list_tells_owners_whom_they_let_in_but_no_addresses_and_survives_a_crash(serve):
    scene = Scene(serve("--workers", "2"))
    key, server = scene.private(), scene.server
    others = [make_user(server, "viewer") for _ in range(5)]
    named = {"first_name": "Ada", "last_name": "Lovelace"}
    assert server.patch(f"/api/v1/users/{others[1]['id']}", json=named).status_code == 200
    for user in others:
        scene.permit(key, user["id"])
    told = scene.owner.get(f"/api/v1/links/{key}/permissions").json()
    assert set(told) == {"key", "visibility", "users"} and told["visibility"] == "private"
    assert [(user["id"], user["email"]) for user in told["users"]] == [(user["id"], masked(user["email"])) for user in others]
    assert all(user["email"] not in json.dumps(told) for user in others)
    in_full = server.get(f"/api/v1/links/{key}/permissions").json()["users"]
    assert [(user["id"], user["email"]) for user in in_full] == [(user["id"], user["email"]) for user in others], "for admins"
    assert [user["name"] for user in in_full] == [None, "Ada Lovelace", None, None, None], "the address is no name"
    assert {user["name"] for user in told["users"]} == {None}
    server.kill()
    server.start()
    owner = Person(server, scene.owner.user)
    assert owner.get(f"/api/v1/links/{key}/permissions").json() == told
    assert server.get(f"/{key}", key=None).status_code == 401


@pytest.mark.parametrize("user", ["0", "999999", "nobody@example.com", "-1", "x", "%ff", "18446744073709551616", "%2F"])
def test_an_unknown_user_cannot_be_put_on_a_list(scene, user):
    key = scene.private()
    for method in ("PUT", "DELETE"):
        assert_problem(scene.owner.request(method, f"/api/v1/links/{key}/permissions/{user}"), 404)
    assert scene.owner.get(f"/api/v1/links/{key}/permissions").json()["users"] == []


# A private link that is not there answers like any other

@pytest.mark.parametrize("more", [{"enabled": False}, {"not_before": "2099-01-01", "expires_at": None}],
                         ids=["disabled", "not yet"])
def test_a_private_link_that_is_not_there_is_not_found_by_anybody(scene, more):
    key = scene.private(**more)
    for method, path, body, fields in (("GET", f"/{key}", None, ()), ("GET", f"/{key}+", None, ()),
                                       ("POST", f"/{key}", '{"password": "x"}', ())):
        unknown = everything_said(scene.server, method, path.replace(key, "unknown-key"), body, fields)
        for name, who in scene.outsiders.items():
            answer = everything_said(scene.server, method, path, body, (*who, *fields))
            assert answer[0] == unknown[0] == 404, f"{name}: {method} {path}"


def test_the_late_of_a_private_link_are_asked_who_they_are(scene):
    key = scene.private(expired_url="https://example.com/late")
    scene.owner.end_soon(key, 600)
    until(lambda: scene.owner.get(f"/{key}").headers.get("Location") == "https://example.com/late", "it has ended")
    assert scene.server.get(f"/{key}", key=None).status_code == 401
    assert scene.stranger.get(f"/{key}").status_code == 403


# Time tells nothing

def answer_times(server, keys, rounds):
    """Nanoseconds of answering for each key, in alternating rounds."""
    wire, times = server.connect(), [[] for _ in keys]
    for number in range(rounds + 20):
        for at in range(len(keys)) if number % 2 else reversed(range(len(keys))):
            data = request("GET", f"/{keys[at]}")
            before = time.perf_counter_ns()
            wire.send(data)
            answer = wire.read()
            if number >= 20:
                times[at].append(time.perf_counter_ns() - before)
            assert answer.status == 401
    return times


@pytest.mark.release_only
def test_the_time_of_a_refusal_does_not_tell_how_long_the_target_is(scene):
    short = scene.private()
    twin = scene.private()
    long = scene.private("x" * 8100)
    times = answer_times(scene.server, [short, short, twin, long], 400)
    medians = [statistics.median(t) for t in times]
    blocks = [statistics.median(times[0][at::8]) for at in range(8)]
    noise = max(medians[:3]) / min(medians[:3]) * max(blocks) / min(blocks)
    ratio = max(medians[3], medians[0]) / min(medians[3], medians[0])
    print(f"medians {medians}, noise {noise:.3f}, long to short {ratio:.3f}")
    assert ratio <= max(1.3, noise ** 2), "an 8 KiB target takes as long as a short one"
