"""Who may do what: every route, every kind of caller, their own things and others'. The table is the contract."""
import contextlib
import itertools
import json
import time

import pytest
import requests

from harness import PATIENCE_S, ROOT, assert_problem, unchanged, until
from people import COOKIE, PASSWORD, Person, key_of, make_person, make_user

METHODS = {"get", "put", "post", "delete", "patch"}
URL = "https://example.com/"

# What comes back. Viewers, editors and admins come with a session and with an API key of all rights; "a/b" is a for
# the session and b for the key. The last five columns are keys of an editor (the last: of an admin) with that scope
# alone; a key that may change links but not read them is shown none (204). `own` and `foreign` say whose the link, user or key in the path is. A row with "public" is the same for all.
TABLE = """
                                                    nobody viewer  editor  admin    read stats create delete admin
GET    /                                            public 200
GET    /{key}                             foreign   public 302
GET    /{key}+                            foreign   public 200
POST   /{key}                             foreign   public 405
GET    /healthz                                     public 200
GET    /readyz                                      public 200
GET    /metrics                                     public 200
GET    /api/v1/openapi.json                         public 200
POST   /event                                       public 204
GET    /stats                                       public 200
POST   /api/v1/session                              public 200
GET    /api/v1/session                              401    200     200     200      200  200   200    200    200
DELETE /api/v1/session                              401    204/401 204/401 204/401  401  401   401    401    401

POST   /api/v1/createURL                            401    403     201     201      403  403   201    403    403
POST   /api/v1/links                                401    403     201     201      403  403   201    403    403
GET    /api/v1/links                                401    200     200     200      200  403   403    403    403
GET    /api/v1/links/{key}                own       401    200     200     200      200  403   403    403    403
GET    /api/v1/links/{key}                foreign   401    404     404     200      404  403   403    403    403
PATCH  /api/v1/links/{key}                own       401    403     200     200      403  403   204    403    403
PATCH  /api/v1/links/{key}                foreign   401    403     404     200      403  403   404    403    403
DELETE /api/v1/links/{key}                own       401    403     204     204      403  403   403    204    403
DELETE /api/v1/links/{key}                foreign   401    403     404     204      403  403   403    404    403
DELETE /api/v1/deleteURL                  own       401    403     200     200      403  403   403    200    403
DELETE /api/v1/deleteURL                  foreign   401    403     404     200      403  403   403    404    403
GET    /api/v1/links/{key}/permissions    own       401    200     200     200      200  403   403    403    403
GET    /api/v1/links/{key}/permissions    foreign   401    404     404     200      404  403   403    403    403
PUT    /api/v1/links/{key}/permissions/{user} own   401    403     204     204      403  403   204    403    403
PUT    /api/v1/links/{key}/permissions/{user} foreign 401  403     404     204      403  403   404    403    403
DELETE /api/v1/links/{key}/permissions/{user} own   401    403     204     204      403  403   204    403    403
DELETE /api/v1/links/{key}/permissions/{user} foreign 401  403     404     204      403  403   404    403    403

GET    /api/v1/links/{key}/stats          own       401    200     200     200      403  200   403    403    403
GET    /api/v1/links/{key}/stats          foreign   401    404     404     200      403  404   403    403    403
GET    /api/v1/links/{key}/visits         own       401    200     200     200      403  200   403    403    403
GET    /api/v1/links/{key}/visits         foreign   401    404     404     200      403  404   403    403    403
GET    /api/v1/live                                 401    403     403     200      403  403   403    403    403
GET    /api/v1/live                       own       401    200     200     200      403  200   403    403    403
GET    /api/v1/live                       foreign   401    404     404     200      403  404   403    403    403
GET    /api/v1/stats                                401    403     403     200      403  403   403    403    200
GET    /api/v1/orphans                              401    403     403     200      403  403   403    403    200
GET    /api/v1/reconcile                            401    403     403     200      403  403   403    403    200
POST   /api/v1/sweep                                401    403     403     200      403  403   403    403    200

POST   /api/v1/keys                       own       401    201/403 201/403 201      403  403   403    403    201
POST   /api/v1/keys                       foreign   401    403     403     201      403  403   403    403    201
GET    /api/v1/keys                                 401    200/403 200/403 200      403  403   403    403    200
DELETE /api/v1/keys/{id}                  own       401    204/403 204/403 204      403  403   403    403    204
DELETE /api/v1/keys/{id}                  foreign   401    404/403 404/403 204      403  403   403    403    204
POST   /api/v1/users                                401    403     403     201      403  403   403    403    201
GET    /api/v1/users                                401    200     200     200      200  200   200    200    200
GET    /api/v1/users/{user}               own       401    200     200     200      200  200   200    200    200
GET    /api/v1/users/{user}               foreign   401    403     403     200      403  403   403    403    200
PATCH  /api/v1/users/{user}               own       401    200/403 200/403 200      403  403   403    403    200
PATCH  /api/v1/users/{user}               foreign   401    403     403     200      403  403   403    403    200
DELETE /api/v1/users/{user}/sessions      own       401    204/403 204/403 204      403  403   403    403    204
DELETE /api/v1/users/{user}/sessions      foreign   401    403     403     204      403  403   403    403    204
"""
COLUMNS = TABLE.split("\n")[1].split()
ROLES = ("viewer", "editor", "admin")
SCOPES = ("read", "stats", "create", "delete", "admin")
SCOPES_OF = {"viewer": ["read", "stats"], "editor": ["read", "stats", "create", "delete"], "admin": list(SCOPES)}


class Row:
    def __init__(self, line):
        self.method, self.path, *cells = line.split()
        self.whose = cells.pop(0) if cells[0] in ("own", "foreign") else None
        self.is_public = cells[0] == "public"
        if self.is_public:
            cells = cells[1:] * len(COLUMNS)
        assert len(cells) == len(COLUMNS), line
        self.cells = list(cells)

    @property
    def name(self):
        return " ".join(filter(None, (self.method, self.path, self.whose)))

    def expected(self, column, by_key):
        cell = self.cells[column].split("/")
        return int(cell[-1] if by_key else cell[0])


ROWS = [Row(line) for line in TABLE.split("\n")[2:] if line]
GUARDED = [row for row in ROWS if not row.is_public]


class Caller:
    """Somebody in a column of the table: nobody, a person, or a key."""

    def __init__(self, name, column, client, user=None, scopes=None):
        self.name, self.column, self.client, self.user, self.scopes = name, column, client, user, scopes
        self.by_key = scopes is not None


class Stage:
    """A server with one of each, and things for them to lay hands on."""

    def __init__(self, server):
        self.server = server
        self.numbers = itertools.count()
        self.stranger = make_user(server, "editor")
        self.people = {role: make_person(server, role) for role in ROLES}
        self.callers = [Caller("nobody", 0, server.client(None))]
        for column, role in enumerate(ROLES, 1):
            person = self.people[role]
            self.callers += [Caller(f"{role} by session", column, person, person.user),
                             self.key_caller(f"{role} by key", column, person.user, SCOPES_OF[role])]
        for column, scope in enumerate(SCOPES, 4):
            user = self.people["admin" if scope == "admin" else "editor"].user
            self.callers.append(self.key_caller(f"key for {scope}", column, user, [scope]))

    def key_caller(self, name, column, user, scopes):
        return Caller(name, column, self.server.client(key_of(self.server, user, scopes=scopes)["key"]), user, scopes)

    def fresh(self, caller):
        """The same kind of caller, for what would end sessions that others still need."""
        if not caller.user:
            return caller
        if caller.by_key:
            return self.key_caller(caller.name, caller.column, make_user(self.server, caller.user["role"], password=None),
                                   caller.scopes)
        person = make_person(self.server, caller.user["role"])
        return Caller(caller.name, caller.column, person, person.user)

    def thing(self, row, caller):
        """What the row is about: (path, body)."""
        owner = caller.user if row.whose == "own" and caller.user else self.stranger
        number, path, body = next(self.numbers), row.path, None
        if "{key}" in path or row.path in ("/api/v1/deleteURL", "/api/v1/live") and row.whose:
            key = self.server.create(URL, alias=f"thing-{number}", owner=str(owner["id"]))["key"]
            path = path.replace("{key}", key)
            path += {"/api/v1/deleteURL": f"?url_key={key}", "/api/v1/live": f"?key={key}"}.get(row.path, "")
        if "{user}" in path:
            path = path.replace("{user}", str(self.stranger["id"] if "permissions" in path else owner["id"]))
        if "{id}" in path:
            path = path.replace("{id}", str(key_of(self.server, owner, scopes=["read"])["id"]))
        if row.method in ("POST", "PATCH"):
            body = self.body(row, owner, number)
        if row.path == "/stats":
            path += "?timeWindowMinutes=1"
        return path, body

    def body(self, row, owner, number):
        if row.path == "/api/v1/keys":
            return {"name": f"made {number}", "scopes": ["read"], "user": str(owner["id"])}
        return {
            "/{key}": {"password": "x"},
            "/event": {"id": f"e{number}", "ts": int(time.time() * 1000), "userId": "u", "adId": "a"},
            "/api/v1/session": {"email": self.stranger["email"], "password": PASSWORD},
            "/api/v1/createURL": {"original_url": URL},
            "/api/v1/links": {"original_url": URL},
            "/api/v1/links/{key}": {"title": f"changed {number}"},
            "/api/v1/users": {"email": f"made{number}@example.com"},
            "/api/v1/users/{user}": {"first_name": f"changed {number}"},
            "/api/v1/sweep": None,
        }[row.path]

    def ask(self, client, row, path, body, **kwargs):
        """The answer; only the head of a stream."""
        with client.request(row.method, path, json=body, stream=True, **kwargs) as response:
            if not path.startswith("/api/v1/live") or response.status_code != 200:
                response.content  # noqa: B018
            return response


@pytest.fixture(scope="module")
def stage(shared):
    return Stage(shared)


def test_the_table_has_every_route_of_the_contract_and_no_other():
    contract = json.loads((ROOT / "src" / "web" / "openapi.json").read_text())
    routes = {(method.upper(), path) for path, item in contract["paths"].items() for method in item if method in METHODS}
    assert {(row.method, row.path) for row in ROWS} == routes


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_everybody_gets_what_the_table_says(stage, row):
    for caller in stage.callers:
        if row.path in ("/api/v1/session", "/api/v1/users/{user}/sessions") and row.method == "DELETE":
            caller = stage.fresh(caller)
        path, body = stage.thing(row, caller)
        expected = row.expected(caller.column, caller.by_key)
        refused = expected >= 400 and row.method != "GET"
        with unchanged(stage.server) if refused else contextlib.nullcontext():
            response = stage.ask(caller.client, row, path, body)
        assert response.status_code == expected, f"{caller.name}: {response.status_code} {response.text}"
        if expected in (401, 403):
            problem = assert_problem(response, expected)
            assert problem["type"] != "urn:curt:csrf-token-required", caller.name
            assert (expected == 401) == ("WWW-Authenticate" in response.headers), caller.name


# Those who were somebody once

@pytest.fixture(scope="module")
def ghosts(shared):
    """name -> a client whose key or session was good, and is not any more."""
    admin, person = make_user(shared, "admin"), make_person(shared, "admin")
    revoked = key_of(shared, admin, admin=True)
    expired = shared.make_key_ending(500, "a key", user=str(admin["id"]), admin=True)
    disabled = key_of(shared, person.user, admin=True)
    clients = {"a revoked key": shared.client(revoked["key"]), "an expired key": shared.client(expired["key"]),
               "a disabled user's key": shared.client(disabled["key"]), "a disabled user's session": person,
               "a key that never was": shared.client("ck_never-was"), "an empty key": shared.client(" ")}
    signed_out = make_person(shared, "admin")
    assert signed_out.delete("/api/v1/session").status_code == 204
    clients["a session that was ended"] = signed_out
    assert shared.delete(f"/api/v1/keys/{revoked['id']}").status_code == 204
    assert shared.patch(f"/api/v1/users/{person.user['id']}", json={"enabled": False}).status_code == 200
    until(lambda: shared.get("/api/v1/keys", key=expired["key"]).status_code == 401, "the key has expired")
    return clients


@pytest.mark.parametrize("row", GUARDED, ids=lambda row: row.name)
def test_what_is_not_in_force_any_more_is_worth_nothing(stage, ghosts, row):
    path, body = stage.thing(row, Caller("ghost", 0, None))
    with unchanged(stage.server):
        for name, client in ghosts.items():
            response = stage.ask(client, row, path, body)
            assert response.status_code == 401, f"{name}: {response.text}"


def test_a_wrong_key_is_wrong_although_the_session_is_good(stage):
    person = stage.people["admin"]
    for wrong in ({"Authorization": "Bearer ck_wrong"}, {"X-Api-Key": "ck_wrong"}):
        assert_problem(person.get("/api/v1/links", headers=wrong), 401)


def test_two_different_sessions_at_once_are_refused(stage):
    one, other = stage.people["editor"], stage.people["viewer"]
    both = f"{COOKIE}={one.cookie}; {COOKIE}={other.cookie}"
    assert_problem(one.get("/api/v1/links", headers={"Cookie": both}), 401)


@pytest.mark.parametrize("change", [
    lambda token: token[:-1] + ("A" if token[-1] != "A" else "B"), lambda token: "Z" + token[1:], lambda token: token[:-1],
    lambda token: token + "A", lambda token: token + "=", lambda token: token.swapcase(), lambda token: "", lambda _: "x" * 4000,
    lambda token: token[::-1], lambda token: f'"{token}"',
])
def test_a_token_that_was_tampered_with_is_worth_nothing(stage, change):
    person = stage.people["admin"]
    assert_problem(person.get("/api/v1/users", headers={"Cookie": f"{COOKIE}={change(person.cookie)}"}), 401)


def test_every_single_byte_of_a_token_counts(stage):
    person = stage.people["admin"]
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for at, letter in enumerate(person.cookie[:-1]):  # the last one may hold bits that say nothing
        other = letters[(letters.index(letter) + 32) % 64]
        forged = person.cookie[:at] + other + person.cookie[at + 1:]
        assert person.get("/api/v1/session", headers={"Cookie": f"{COOKIE}={forged}"}).status_code == 401, at


# What the role says counts, not what the key says

def test_a_keys_rights_end_with_those_of_its_user(shared):
    user = make_user(shared, "admin")
    client = shared.client(key_of(shared, user, admin=True)["key"])
    assert client.get("/api/v1/stats").status_code == 200
    shared.patch(f"/api/v1/users/{user['id']}", json={"role": "viewer"})
    assert_problem(client.get("/api/v1/stats"), 403)
    assert_problem(client.post("/api/v1/links", json={"original_url": URL}), 403, "create")
    assert client.get("/api/v1/links").status_code == 200
    assert client.get("/api/v1/session").json()["rights"] == ["read", "stats"]
    shared.patch(f"/api/v1/users/{user['id']}", json={"role": "admin"})
    assert client.get("/api/v1/stats").status_code == 200


def test_a_change_of_role_holds_at_once_for_sessions(shared):
    person = make_person(shared, "viewer")
    assert_problem(person.post("/api/v1/links", json={"original_url": URL}), 403, "create")
    shared.patch(f"/api/v1/users/{person.user['id']}", json={"role": "editor"})
    key = person.create()["key"]
    shared.patch(f"/api/v1/users/{person.user['id']}", json={"role": "viewer"})
    assert_problem(person.delete(f"/api/v1/links/{key}"), 403, "delete")
    assert person.link(key)


def test_nobody_makes_a_key_that_may_more_than_they(stage):
    for role, scopes in (("viewer", ["create"]), ("viewer", ["read", "delete"]), ("editor", ["admin"]),
                         ("editor", ["read", "stats", "create", "delete", "admin"])):
        with unchanged(stage.server):
            assert_problem(stage.people[role].post("/api/v1/keys", json={"name": "more", "scopes": scopes}), 403)
            assert_problem(stage.people[role].post("/api/v1/keys", json={"name": "more", "admin": True}), 403)


def test_a_persons_key_is_theirs_and_sees_their_links(stage):
    person = stage.people["editor"]
    made = person.make_key("mine")
    assert made["user"] == person.user["id"] and sorted(made["scopes"]) == ["create", "delete", "read", "stats"]
    client = stage.server.client(made["key"])
    mine = person.create(alias="seen-by-my-key")["key"]
    assert client.link(mine)["key"] == mine
    listed = [key["id"] for key in person.keys()]
    assert made["id"] in listed and len(listed) < len(stage.server.keys())
    assert all(key["user"] == person.user["id"] for key in person.keys())


def test_only_an_admin_gives_links_to_others(stage):
    editor, viewer = stage.people["editor"], stage.people["viewer"]
    for owner in (str(viewer.user["id"]), viewer.user["email"], "nobody@example.com"):
        with unchanged(stage.server):
            assert_problem(editor.post("/api/v1/links", json={"original_url": URL, "owner": owner}), 403)
    mine = editor.create(owner=editor.user["email"])["key"]
    with unchanged(stage.server):
        assert_problem(editor.patch(f"/api/v1/links/{mine}", json={"owner": viewer.user["email"]}), 403)
    stage.server.change(mine, owner=viewer.user["email"])
    assert editor.link(mine) is None and viewer.link(mine)["key"] == mine


def test_lists_show_ones_own_and_admins_everything(stage):
    editor, viewer = stage.people["editor"], stage.people["viewer"]
    key = editor.create(alias="on-my-list")["key"]
    assert key in [link["key"] for link in editor.links()]
    assert key not in [link["key"] for link in viewer.links()]
    assert key in [link["key"] for link in stage.people["admin"].links()]
    assert [user["id"] for user in viewer.users()] == [viewer.user["id"]]
    assert len(stage.people["admin"].users()) > 3


# Requests that another site sends

def by_session(row):
    return row.method != "GET" and not row.is_public and (row.method, row.path) != ("DELETE", "/api/v1/session")


@pytest.mark.parametrize("row", [row for row in GUARDED if by_session(row) and row.whose != "foreign"],
                         ids=lambda row: row.name)
def test_a_change_by_session_needs_the_sessions_token(stage, row):
    admin = stage.people["admin"]
    caller = Caller("admin", 3, admin, admin.user)
    path, body = stage.thing(row, caller)
    other = stage.people["editor"].csrf
    for token in (None, "wrong", admin.csrf[:-1], admin.csrf + "x", other, admin.cookie):
        with unchanged(stage.server):
            problem = assert_problem(stage.ask(admin, row, path, body, csrf=token), 403, "X-CSRF-Token")
        assert problem["type"] == "urn:curt:csrf-token-required"
    caller = stage.fresh(caller)
    path, body = stage.thing(row, caller)
    assert stage.ask(caller.client, row, path, body).status_code == row.expected(3, False)


def test_signing_out_needs_no_token(shared):
    person = make_person(shared)
    assert person.delete("/api/v1/session", csrf=None).status_code == 204
    assert_problem(person.get("/api/v1/session"), 401)


def test_reading_needs_no_token(stage):
    for path in ("/api/v1/links", "/api/v1/keys", "/api/v1/users", "/api/v1/session"):
        assert stage.people["admin"].get(path, csrf=None).status_code == 200


def test_a_key_needs_no_token_although_a_cookie_comes_along(stage):
    key = key_of(stage.server, stage.people["editor"].user)["key"]
    response = requests.post(f"{stage.server.url}/api/v1/links", json={"original_url": URL}, timeout=PATIENCE_S,
                             headers={"Authorization": f"Bearer {key}", **dict([("Cookie", f"{COOKIE}=anything")])})
    assert response.status_code == 201, response.text


def test_a_form_of_another_site_cannot_create_by_session(stage):
    """What a browser sends for a plain form: the cookie, and no header that a page could add."""
    admin = stage.people["admin"]
    with unchanged(stage.server):
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            response = admin.post("/api/v1/createURL", data='{"original_url": "https://example.com/"}', csrf=None,
                                  headers={"Content-Type": kind, "Origin": "https://evil.example"})
            assert_problem(response, 403)


def test_a_person_is_who_they_are_with_any_connection(shared):
    person = make_person(shared)
    again = Person(shared, person.user)
    assert again.cookie != person.cookie and again.csrf != person.csrf
    for wire in [shared.connect() for _ in range(16)]:
        answer = wire.get("/api/v1/session", *person.fields)
        assert answer.status == 200 and json.loads(answer.body)["user"]["id"] == person.user["id"]
