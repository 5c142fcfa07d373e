"""/api/v1/users: who there is, and what becomes of bad input."""
import datetime
import urllib.parse

import pytest

from harness import assert_problem, is_over, moment, scaled, unchanged, until
from people import PASSWORD, Crowd, Person, key_of, make_person, make_user, sign_in, still_let_in
from wire import request

USERS = "/api/v1/users"
FIELDS = {"id", "email", "first_name", "middle_name", "last_name", "role", "enabled", "created_at", "updated_at"}


@pytest.fixture(scope="module")
def person(shared):
    return make_person(shared, "editor", first_name="Grace", middle_name="Brewster", last_name="Hopper")


def changing(client, user, **fields):
    return client.patch(f"{USERS}/{user['id']}", json=fields)


# Making and reading

def test_a_user_has_the_shape_of_the_contract(shared):
    response = shared.post(USERS, json={"email": "Ada@Example.com", "password": PASSWORD, "first_name": "Ada",
                                        "middle_name": "King", "last_name": "Lovelace", "role": "viewer"})
    assert response.status_code == 201
    user = response.json()
    assert set(user) == FIELDS
    assert (user["email"], user["role"], user["enabled"]) == ("ada@example.com", "viewer", True)
    assert (user["first_name"], user["middle_name"], user["last_name"]) == ("Ada", "King", "Lovelace")
    assert user["created_at"] == user["updated_at"]
    datetime.datetime.fromisoformat(user["created_at"].replace("Z", "+00:00"))
    assert response.headers["Location"].endswith(f"{USERS}/{user['id']}")
    assert shared.get(urllib.parse.urlparse(response.headers["Location"]).path).json() == user


def test_what_is_not_given_is_nothing(shared):
    user = shared.post(USERS, json={"email": "bare@example.com"}).json()
    assert (user["first_name"], user["middle_name"], user["last_name"], user["role"]) == (None, None, None, "editor")
    assert_problem(sign_in(shared, "bare@example.com", ""), 401)


def test_a_user_is_found_by_id_by_email_and_as_oneself(shared, person):
    user = person.user
    for name in (user["id"], user["email"], user["email"].replace("@", "%40"), user["email"].upper()):
        assert shared.get(f"{USERS}/{name}").json() == user
    assert person.get(f"{USERS}/me").json() == person.get(f"{USERS}/{user['id']}").json() == user
    assert shared.get(f"{USERS}/me").json()["role"] == "admin"


@pytest.mark.parametrize("name", ["0", "999999", "nobody@example.com", "x", "-1", "18446744073709551616", "%ff", "%2F", "1x",
                                  "ME", "x" * 800])
def test_an_unknown_user_is_not_found(shared, name):
    with unchanged(shared):
        assert_problem(shared.get(f"{USERS}/{name}"), 404)
        assert_problem(shared.patch(f"{USERS}/{name}", json={"first_name": "x"}), 404)
        assert_problem(shared.delete(f"{USERS}/{name}/sessions"), 404)


def test_a_walk_through_the_pages_meets_everybody_once(server):
    made = [make_user(server, "viewer", password=None)["id"] for _ in range(25)]
    for limit in (1, 7, 25, 26, 1000):
        found, cursor = [], None
        while True:
            page = server.get(f"{USERS}?limit={limit}" + (f"&cursor={cursor}" if cursor else "")).json()
            assert set(page) == {"users", "next"} and len(page["users"]) <= limit
            found += [user["id"] for user in page["users"]]
            cursor = page["next"]
            if cursor is None:
                break
        assert found == sorted(set(found)) and set(made) <= set(found)


def test_a_page_is_fifty_by_default(server):
    for _ in range(55):
        make_user(server, "viewer", password=None)
    assert len(server.get(USERS).json()["users"]) == 50


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=-1", "limit=x", "limit=", "cursor=x", "cursor=-1",
                                   "cursor=99999999999999999999"])
def test_an_invalid_page_is_refused(shared, query):
    assert_problem(shared.get(f"{USERS}?{query}"), 400, query.split("=")[0])


def test_users_survive_a_crash(server):
    users = [make_user(server, role, first_name=role) for role in ("viewer", "editor", "admin")]
    changing(server, users[0], last_name="Changed", enabled=False)
    before = server.users()
    server.kill()
    server.start()
    assert server.users() == before
    assert sign_in(server, users[1]["email"]).status_code == 200
    assert sign_in(server, users[0]["email"]).status_code == 401


# Bad input

BAD = [
    *[("email", value) for value in (5, True, [], {}, "", "x", "@", "a@", "@b", "a@b@c", "a b@c", "a@b\n", "a@\tb", "a@b\x01",
                                     "a@b\x7f", " a@b", "x" * 250 + "@b.de", "@@", "ab")],
    *[(name, value) for name in ("first_name", "middle_name", "last_name")
      for value in (5, True, [], {}, "x" * 129, "a\x01b", "\x1b[31m", "a\rb", "a\u0085b")],
    *[("role", value) for value in (5, None, True, [], {}, "", "Admin", "root", "viewer,admin", "admin ")],
    *[("password", value) for value in (5, True, [], {}, "", "short12", "x" * 1025)],
]


@pytest.mark.parametrize("field, value", BAD, ids=lambda v: repr(v)[:30])
def test_a_field_of_a_wrong_type_or_value_is_named_and_nothing_changes(shared, person, field, value):
    with unchanged(shared):
        assert_problem(shared.post(USERS, json={"email": "fine@example.com", **{field: value}}), 400, field)
        assert_problem(changing(shared, person.user, **{field: value, **({} if field == "last_name" else
                                                                          {"last_name": "Changed"})}), 400, field)


@pytest.mark.parametrize("value", [None, 5, "true", 0, []])
def test_enabled_is_true_or_false(shared, person, value):
    with unchanged(shared):
        assert_problem(changing(shared, person.user, enabled=value), 400, "enabled")


@pytest.mark.parametrize("body", ["", "[]", "null", "nonsense", '"x"', '{"email":', '{"email": "a@b", "email": "c@d"}'])
def test_a_body_that_is_no_object_is_refused(shared, person, body):
    with unchanged(shared):
        assert_problem(shared.request("POST", USERS, data=body), 400)
        assert_problem(shared.request("PATCH", f"{USERS}/{person.user['id']}", data=body), 400)


@pytest.mark.parametrize("field", ["id", "created_at", "Email", "name", "generation", "", "password_hash"])
def test_an_unknown_field_is_named(shared, person, field):
    with unchanged(shared):
        assert_problem(shared.post(USERS, json={"email": "fine@example.com", field: "x"}), 400, "Unknown field", field)
        assert_problem(changing(shared, person.user, **{field: "x"}), 400, "Unknown field", field)


def test_a_missing_email_is_named_and_a_change_of_nothing_refused(shared, person):
    with unchanged(shared):
        assert_problem(shared.post(USERS, json={"first_name": "x"}), 400, "'email' is missing")
        assert_problem(changing(shared, person.user), 400, "changes nothing")


def test_an_email_address_belongs_to_one(shared, person):
    other = make_user(shared)
    for spelling in (person.user["email"], person.user["email"].upper()):
        with unchanged(shared):
            assert assert_problem(shared.post(USERS, json={"email": spelling}), 409)["type"] == "urn:curt:email-taken"
            assert_problem(changing(shared, other, email=spelling), 409)
    assert changing(shared, other, email=other["email"].upper()).status_code == 200, "one's own is one's own"


def test_one_email_address_at_the_same_moment_makes_one_user(shared):
    for number in range(scaled(5)):
        with Crowd(shared, 8) as crowd:
            for wire in crowd.wires:
                wire.send(request("POST", USERS, key=shared.key, body='{"email": "race%d@example.com"}' % number))
            assert sorted(wire.read().status for wire in crowd.wires) == [201] + [409] * 7


# Changing

def test_an_admin_changes_everything(shared):
    user = make_user(shared)
    for fields in ({"email": "changed@example.com"}, {"first_name": "A", "last_name": None}, {"middle_name": "B"},
                   {"role": "viewer"}, {"enabled": False}, {"enabled": True, "role": "editor"}, {"first_name": ""}):
        before, after = shared.get(f"{USERS}/{user['id']}").json(), changing(shared, user, **fields).json()
        assert {name for name in FIELDS if before[name] != after[name]} <= {*fields, "updated_at"}
        for name, value in fields.items():
            assert after[name] == (value or None if name.endswith("name") else value)
        assert shared.get(f"{USERS}/{user['id']}").json() == after
    assert sign_in(shared, "changed@example.com").status_code == 200
    assert_problem(sign_in(shared, user["email"]), 401)


def test_one_changes_ones_own_names_and_nothing_else(shared):
    person = make_person(shared)
    after = person.patch(f"{USERS}/me", json={"first_name": "New", "middle_name": None, "last_name": "Name"}).json()
    assert (after["first_name"], after["middle_name"], after["last_name"]) == ("New", None, "Name")
    for fields in ({"role": "admin"}, {"role": "editor"}, {"enabled": True}, {"enabled": False}, {"email": "new@example.com"},
                   {"first_name": "x", "role": "admin"}):
        with unchanged(shared):
            assert_problem(person.patch(f"{USERS}/me", json=fields), 403, "admin")
    assert still_let_in(person)


def test_ones_own_password_needs_the_current_one(shared):
    for role in ("editor", "admin"):
        person = make_person(shared, role)
        for body in ({"password": "a new password"}, {"password": "a new password", "current_password": None}):
            with unchanged(shared):
                assert_problem(person.patch(f"{USERS}/me", json=body), 400, "current_password")
        with unchanged(shared):
            assert_problem(person.patch(f"{USERS}/me", json={"password": "a new password", "current_password": "wrong"}), 403)
        assert still_let_in(person) and sign_in(shared, person.user["email"]).status_code == 200
        with unchanged(shared):
            assert_problem(person.patch(f"{USERS}/me", json={"current_password": PASSWORD}), 400)


def test_an_admins_key_needs_no_current_password(shared):
    admin = make_user(shared, "admin")
    client = shared.client(key_of(shared, admin, admin=True)["key"])
    assert client.patch(f"{USERS}/me", json={"password": "a new password"}).status_code == 200
    assert sign_in(shared, admin["email"], "a new password").status_code == 200


def test_no_key_of_an_editor_changes_its_user(shared):
    person = make_person(shared)
    client = shared.client(key_of(shared, person.user)["key"])
    for fields in ({"first_name": "x"}, {"password": "a new password", "current_password": PASSWORD}):
        with unchanged(shared):
            assert_problem(client.patch(f"{USERS}/me", json=fields), 403)


# Somebody must be left

def test_the_last_admin_stays_one(serve):
    server = serve("--workers", "2")
    first, = [user for user in server.users() if user["role"] == "admin"]
    for fields in ({"role": "editor"}, {"role": "viewer"}, {"enabled": False}, {"role": "editor", "enabled": True}):
        with unchanged(server):
            assert assert_problem(changing(server, first, **fields), 409, "last admin")["type"] == "urn:curt:last-admin"
    second = make_user(server, "admin")
    assert changing(server, second, enabled=False).status_code == 200
    with unchanged(server):
        assert_problem(changing(server, first, role="editor"), 409, "last admin")
    assert changing(server, second, enabled=True).status_code == 200
    admin = Person(server, second)
    assert changing(admin, first, role="editor").status_code == 200
    with unchanged(admin):
        assert_problem(changing(admin, second, role="editor"), 409, "last admin")


# Keys and users

def test_a_key_of_nobody_in_particular_is_somebody_of_its_own(shared):
    one, other = shared.make_key("one"), shared.make_key("other")
    assert one["user"] != other["user"]
    user = shared.get(f"{USERS}/{one['user']}").json()
    assert (user["email"], user["first_name"], user["role"]) == (None, "one", "editor")
    link = shared.client(one["key"]).create()["key"]
    assert shared.client(other["key"]).link(link) is None
    for scopes, role in ((["read"], "viewer"), (["stats"], "viewer"), (["delete"], "editor"), (["create"], "editor"),
                         (["admin"], "admin")):
        assert shared.get(f"{USERS}/{shared.make_key('x', scopes=scopes)['user']}").json()["role"] == role


@pytest.mark.parametrize("fields, word", [
    ({"scopes": []}, "scopes"), ({"scopes": ["everything"]}, "scopes"), ({"scopes": "read"}, "scopes"),
    ({"scopes": [5]}, "scopes"), ({"scopes": None}, "scopes"), ({"admin": True, "scopes": ["read"]}, "contradict"),
    ({"admin": False, "scopes": ["admin"]}, "contradict"), ({"user": "nobody@example.com"}, "user"), ({"user": "999999"}, "user"),
    ({"user": True}, "user"), ({"expires_at": "2001-01-01"}, "past"), ({"expires_at": "soon"}, "expires_at"),
    ({"expires_at": 5}, "expires_at"), ({"creates_limit": -1}, "creates_limit"), ({"name": ""}, "name"), ({"name": 5}, "name"),
    ({"name": "x" * 65}, "name"), ({"limit_period_s": 2 ** 40}, "limit_period_s"), ({"redirects_limit": 2 ** 33}, "limit"),
])
def test_a_key_that_cannot_be_is_refused_and_named(shared, fields, word):
    with unchanged(shared):
        assert_problem(shared.post("/api/v1/keys", json={"name": "bad", **fields}), 400, word)


def test_a_key_tells_when_it_was_last_used(serve):
    server = serve("--workers", "2")
    key = server.make_key("used")
    assert key["last_used_at"] is None
    client = server.client(key["key"])
    assert client.get("/api/v1/links").status_code == 200

    def told():
        return {k["id"]: k["last_used_at"] for k in server.keys()}[key["id"]]
    used = told()
    assert used and moment(used) >= moment(key["created_at"])
    server.restart()
    assert told() == used, "a stop writes it down"


def test_a_key_ends_at_its_time_on_every_connection(shared):
    key = shared.make_key_ending(700, "short-lived")
    with Crowd(shared, 16) as crowd:
        assert {a.status for a in crowd.ask("/api/v1/links", "GET", f"X-Api-Key: {key['key']}")} == {200} or \
            is_over(key["expires_at"])
        until(lambda: shared.get("/api/v1/links", key=key["key"]).status_code == 401, "it has ended")
        assert is_over(key["expires_at"]), "not before its time"
        assert {a.status for a in crowd.ask("/api/v1/links", "GET", f"X-Api-Key: {key['key']}")} == {401}
