"""API keys, what they may do in a period, and creating something exactly once."""
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import ADMIN_KEY, assert_problem, folder_bytes, scaled, unchanged
from prometheus import metric
from wire import request

URL = "https://example.com/"
KEY_FIELDS = {"id", "name", "admin", "scopes", "user", "created_at", "expires_at", "revoked_at", "last_used_at",
              "creates_limit", "redirects_limit", "limit_period_s"}


def creating(client, headers=None, **fields):
    return client.post("/api/v1/links", json=dict({"original_url": URL}, **fields), headers=headers)


def revoke(client, key):
    response = client.delete(f"/api/v1/keys/{key['id']}")
    assert response.status_code == 204, response.text


# Keys

def test_a_new_key_is_shown_once_and_works_at_once(server):
    key = server.make_key("ada", creates_limit=10, redirects_limit=20, limit_period_s=30)
    assert set(key) == KEY_FIELDS | {"key"}
    assert (key["name"], key["admin"], key["revoked_at"], key["expires_at"]) == ("ada", False, None, None)
    assert sorted(key["scopes"]) == ["create", "delete", "read", "stats"]
    assert (key["creates_limit"], key["redirects_limit"], key["limit_period_s"]) == (10, 20, 30)
    listed = [k for k in server.keys() if k["id"] == key["id"]]
    assert listed == [{name: value for name, value in key.items() if name != "key"}]
    assert server.client(key["key"]).create()["owner"] == "ada"


def test_every_key_is_another(server):
    keys = [server.make_key("twin") for _ in range(20)]
    assert len({key["key"] for key in keys}) == len({key["id"] for key in keys}) == 20


def test_the_list_has_all_keys_by_id_and_revoked_ones_too(server):
    keys = [server.make_key(f"key {i}") for i in range(5)]
    revoke(server, keys[2])
    listed = server.keys()
    assert [key["id"] for key in listed] == sorted(key["id"] for key in listed)
    assert [key["name"] for key in listed] == ["admin", *(f"key {i}" for i in range(5))]
    assert [key["revoked_at"] is not None for key in listed] == [False, False, False, True, False, False]


def test_no_file_of_the_data_folder_holds_a_key_itself(server):
    keys = [ADMIN_KEY, server.make_key("plain")["key"], server.make_key("other", admin=True)["key"]]
    for key in keys:
        server.client(key).create(f"https://example.com/{len(key)}")
    for state in ("running", "killed", "restarted", "stopped"):
        if state == "killed":
            server.kill()
        elif state == "restarted":
            server.start()
        elif state == "stopped":
            server.stop()
        for name, content in folder_bytes(server.data).items():
            for key in keys:
                assert key.encode() not in content, f"{name} of the {state} server holds a key"


def test_a_revoked_key_is_refused_at_once_on_every_connection(server):
    for _ in range(scaled(20) + 2):
        key = server.make_key("short-lived")
        wires = [server.connect() for _ in range(16)]
        for wire in wires:
            assert wire.ask(request("GET", "/api/v1/links", key=key["key"])).status == 200
        revoke(server, key)
        for wire in wires:
            wire.send(request("GET", "/api/v1/links", key=key["key"]))
        assert {wire.read().status for wire in wires} == {401}
        for wire in wires:
            wire.close()


def test_a_revoked_key_stays_revoked_after_a_crash(server):
    key = server.make_key("gone")
    revoke(server, key)
    server.kill()
    server.start()
    assert_problem(server.get("/api/v1/links", key=key["key"]), 401)


def test_revoking_twice_keeps_the_first_time(server):
    key = server.make_key("gone")
    revoke(server, key)
    before = server.keys_as_made()
    revoke(server, key)
    assert server.keys_as_made() == before


def test_links_of_a_revoked_key_go_on(server):
    key = server.make_key("gone")
    server.client(key["key"]).create(alias="still-here")
    revoke(server, key)
    assert server.target("still-here") == URL
    assert server.link("still-here")["owner"] == "gone"


@pytest.mark.parametrize("name", ["99", "0", "x", "-1", "18446744073709551616", "1x"])
def test_revoking_a_key_that_is_not_there_is_not_found(shared, name):
    with unchanged(shared):
        assert_problem(shared.delete(f"/api/v1/keys/{name}"), 404)


def test_the_last_admin_key_cannot_be_revoked(server):
    first = server.keys()[0]
    server.make_key("no admin")
    with unchanged(server):
        assert_problem(server.delete(f"/api/v1/keys/{first['id']}"), 409, "last admin key")
    second = server.make_key("second", admin=True)
    revoke(server, first)
    other = server.client(second["key"])
    with unchanged(other):
        assert_problem(other.delete(f"/api/v1/keys/{second['id']}"), 409, "last admin key")


def test_admins_who_revoke_each_other_at_the_same_moment_leave_one(server):
    for _ in range(scaled(20) + 5):
        keys = [server.make_key(f"admin {i}", admin=True) for i in range(2)]
        helpers = [key for key in server.keys() if key["admin"] and not key["revoked_at"] and
                   key["id"] not in [k["id"] for k in keys]]
        survivor = server.client(keys[0]["key"])
        for helper in helpers:
            assert survivor.delete(f"/api/v1/keys/{helper['id']}").status_code == 204
        wires = [server.connect() for _ in range(2)]
        for wire, own, other in zip(wires, keys, keys[::-1]):
            wire.send(request("DELETE", f"/api/v1/keys/{other['id']}", key=own["key"]))
        statuses = sorted(wire.read().status for wire in wires)
        assert statuses in ([204, 401], [204, 409]), "one of them is the last admin key"
        left = [key["key"] for key in keys if server.get("/api/v1/keys", key=key["key"]).status_code == 200]
        assert len(left) == 1
        server.key = left[0]


@pytest.mark.parametrize("method, path, body", [
    ("POST", "/api/v1/keys", {"name": "x", "admin": True}), ("GET", "/api/v1/keys", None),
    ("DELETE", "/api/v1/keys/1", None),
])
def test_keys_are_the_admins_business(shared, method, path, body):
    key = shared.make_key("curious")["key"]
    with unchanged(shared):
        assert_problem(shared.request(method, path, key=key, json=body), 403, "admin")


# Limits

def test_a_key_makes_exactly_as_many_links_as_its_limit_allows(server):
    client = server.client(server.make_key(creates_limit=5, limit_period_s=3600)["key"])
    for left in (4, 3, 2, 1, 0):
        response = creating(client)
        assert response.status_code == 201
        assert response.headers["RateLimit-Limit"] == "5"
        assert response.headers["RateLimit-Remaining"] == str(left)
        assert 0 < int(response.headers["RateLimit-Reset"]) <= 3600
    for _ in range(3):
        response = creating(client)
        assert_problem(response, 429, "limit")
        assert response.headers["Retry-After"] == response.headers["RateLimit-Reset"]
        assert 0 < int(response.headers["Retry-After"]) <= 3600
        assert (response.headers["RateLimit-Limit"], response.headers["RateLimit-Remaining"]) == ("5", "0")
    assert len(client.links()) == 5
    assert metric(server, "curt_http_requests_limited_total") == 3
    assert creating(server).status_code == 201, "another key is not concerned"


def test_what_fails_does_not_count_against_the_limit(server):
    server.create(alias="taken")
    client = server.client(server.make_key(creates_limit=3, limit_period_s=3600)["key"])
    for _ in range(5):
        assert creating(client, alias="taken").status_code == 409
        assert creating(client, alias="healthz").status_code == 400
        assert creating(client, original_url="nonsense").status_code == 400
        assert creating(client, wrong=1).status_code == 400
        assert client.post("/api/v1/createURL", json={"original_url": URL, "custom_alias": "taken"}).status_code == 409
    assert [creating(client).status_code for _ in range(4)] == [201, 201, 201, 429]


def test_create_url_and_links_share_one_limit(server):
    client = server.client(server.make_key(creates_limit=2, limit_period_s=3600)["key"])
    assert creating(client).status_code == 201
    response = client.post("/api/v1/createURL", json={"original_url": URL})
    assert response.status_code == 201 and response.headers["RateLimit-Remaining"] == "0"
    assert client.post("/api/v1/createURL", json={"original_url": URL}).status_code == 429


def test_only_creating_is_limited_by_the_limit_of_creations(server):
    client = server.client(server.make_key(creates_limit=1, limit_period_s=3600)["key"])
    client.create(alias="one")
    assert creating(client).status_code == 429
    for i in range(5):
        assert client.change("one", title=str(i))["title"] == str(i)
        assert client.target("one") == URL
    client.remove("one")
    assert creating(client).status_code == 429, "a deleted link was made all the same"


def test_an_unlimited_key_is_told_nothing_about_limits(server):
    response = creating(server)
    assert not [name for name in response.headers if name.lower().startswith("ratelimit")]


def test_the_settings_limit_keys_that_have_no_limit_of_their_own(serve):
    server = serve("--limits-creates", "3", "--limits-redirects", "4", "--limits-period", "1h")
    plain = server.client(server.make_key("plain")["key"])
    roomy = server.client(server.make_key("roomy", creates_limit=5, redirects_limit=6, limit_period_s=60)["key"])
    assert [creating(plain).status_code for _ in range(4)] == [201, 201, 201, 429]
    assert [creating(roomy, alias=f"roomy-{i}").status_code for i in range(6)] == [201] * 5 + [429]
    statuses = [server.get("/roomy-0", key=None).status_code for _ in range(7)]
    assert statuses == [302] * 6 + [429]
    key = plain.links()[0]["key"]
    assert [server.get(f"/{key}", key=None).status_code for _ in range(5)] == [302] * 4 + [429]


# Once and only once

def test_a_repeated_create_gives_the_same_link(server):
    headers = {"Idempotency-Key": "order-1"}
    first = creating(server, headers=headers)
    assert first.status_code == 201 and "Idempotency-Replayed" not in first.headers
    for _ in range(3):
        again = creating(server, headers=headers)
        assert (again.status_code, again.json()) == (201, first.json())
        assert again.headers["Location"] == first.headers["Location"]
        assert again.headers["Idempotency-Replayed"] == "true"
    assert len(server.links()) == 1


def test_a_repeated_create_gives_the_same_link_with_an_alias_and_by_create_url(server):
    for path, fields in (("/api/v1/links", {"alias": "mine"}), ("/api/v1/createURL", {"custom_alias": "ours"})):
        answers = [server.post(path, json={"original_url": URL, **fields}, headers={"Idempotency-Key": path})
                   for _ in range(3)]
        assert {answer.status_code for answer in answers} == {201}
        assert len({answer.text for answer in answers}) == 1
    assert len(server.links()) == 2


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_repeated_create_gives_the_same_link_after_a_restart(server, end):
    headers = {"Idempotency-Key": "order-1"}
    first = creating(server, headers=headers).json()
    getattr(server, end)()
    server.start()
    again = creating(server, headers=headers)
    assert again.status_code == 201 and again.headers["Idempotency-Replayed"] == "true"
    assert again.json()["key"] == first["key"] and again.json()["created_at"] == first["created_at"]
    assert len(server.links()) == 1


def test_a_repeated_create_is_answered_although_the_limit_is_used_up(server):
    client = server.client(server.make_key(creates_limit=1, limit_period_s=3600)["key"])
    body = {"original_url": "https://example.com/"}
    first = client.post("/api/v1/links", body, headers={"Idempotency-Key": "once"})
    again = client.post("/api/v1/links", body, headers={"Idempotency-Key": "once"})
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json()["key"] == first.json()["key"]
    assert client.post("/api/v1/links", body, headers={"Idempotency-Key": "another"}).status_code == 429
    assert len(client.links()) == 1


def test_an_idempotency_key_with_another_body_is_refused(server):
    headers = {"Idempotency-Key": "order-1"}
    creating(server, headers=headers)
    with unchanged(server):
        assert_problem(creating(server, headers=headers, title="other"), 422, "Idempotency-Key")
        assert_problem(creating(server, headers=headers, original_url="https://example.org/"), 422)


def test_an_idempotency_key_belongs_to_its_api_key(server):
    other = server.client(server.make_key("other")["key"])
    headers = {"Idempotency-Key": "order-1"}
    first, second = creating(server, headers=headers).json(), creating(other, headers=headers).json()
    assert first["key"] != second["key"]


def test_a_create_that_failed_may_be_repeated_with_its_idempotency_key(server):
    headers = {"Idempotency-Key": "order-1"}
    server.create(alias="taken")
    assert creating(server, headers=headers, alias="taken").status_code == 409
    server.remove("taken")
    assert creating(server, headers=headers, alias="taken").status_code == 201


def test_an_idempotency_key_of_a_deleted_link_makes_no_second_one(server):
    headers = {"Idempotency-Key": "order-1"}
    server.remove(creating(server, headers=headers).json()["key"])
    with unchanged(server):
        assert_problem(creating(server, headers=headers), 409, "gone")


@pytest.mark.parametrize("length, status", [(1, 201), (255, 201), (256, 400)])
def test_an_idempotency_key_has_1_to_255_bytes(server, length, status):
    assert creating(server, headers={"Idempotency-Key": "k" * length}).status_code == status


def test_an_empty_idempotency_key_is_refused(server):
    wire = server.connect()
    assert wire.ask(request("POST", "/api/v1/links", "Idempotency-Key:", key=ADMIN_KEY,
                            body='{"original_url": "https://example.com/"}')).status == 400


def test_a_repeated_create_does_not_count_against_the_limit(server):
    client = server.client(server.make_key(creates_limit=2, limit_period_s=3600)["key"])
    for _ in range(5):
        assert creating(client, headers={"Idempotency-Key": "order-1"}).status_code == 201
    assert [creating(client).status_code for _ in range(2)] == [201, 429]


def test_duplicates_at_the_same_moment_make_exactly_one_link(server):
    wires = [server.connect() for _ in range(16)]
    for i in range(scaled(40) + 5):
        data = request("POST", "/api/v1/links", f"Idempotency-Key: order-{i}", key=ADMIN_KEY,
                       body=f'{{"original_url": "https://example.com/{i}"}}')
        barrier = threading.Barrier(len(wires))

        def ask(wire):
            barrier.wait()
            return wire.ask(data)

        with ThreadPoolExecutor(len(wires)) as pool:
            answers = list(pool.map(ask, wires))
        assert {answer.status for answer in answers} == {201}
        assert len({answer.body for answer in answers}) == 1
        assert sum(answer["Idempotency-Replayed"] is None for answer in answers) == 1
    assert len(server.links()) == scaled(40) + 5
