"""createURL and deleteURL, exactly as the contract has them."""
import datetime
import json
import re

import pytest

from harness import ADMIN_KEY, assert_problem, unchanged
from wire import request

URL = "https://example.com/a/long/address?with=query#and-fragment"


def create_url(client, headers=None, **fields):
    return client.post("/api/v1/createURL", key=None, json=dict(api_dev_key=ADMIN_KEY, original_url=URL, **fields),
                       headers=headers)


def delete_url(client, **kwargs):
    return client.delete("/api/v1/deleteURL", key=None, **kwargs)


def moment(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def test_create_url_answers_with_the_five_fields_of_the_contract(server):
    response = create_url(server)
    assert response.status_code == 201
    assert response.headers["Content-Type"] == "application/json"
    link = response.json()
    assert set(link) == {"key", "short_url", "original_url", "created_at", "expires_at"}
    assert link["short_url"] == f"{server.url}/{link['key']}" == response.headers["Location"]
    assert link["original_url"] == URL
    assert server.target(link["key"]) == URL


def test_create_url_answers_a_client_of_plain_text_with_the_short_url_alone(server):
    response = create_url(server, headers={"Accept": "text/plain"})
    assert response.status_code == 201
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert re.fullmatch(re.escape(server.url) + "/[0-9A-Za-z]{7}", response.text)
    assert server.target(response.text.rsplit("/", 1)[1]) == URL


def test_create_url_takes_a_custom_alias(server):
    assert create_url(server, custom_alias="my-alias").json()["short_url"] == server.url + "/my-alias"
    assert server.target("my-alias") == URL
    with unchanged(server):
        assert_problem(create_url(server, custom_alias="my-alias"), 409, "'my-alias' is taken")


def test_create_url_keeps_the_user_name_as_the_owner(server):
    link = create_url(server, user_name="Ada").json()
    assert server.link(link["key"])["owner"] == "Ada"


def test_create_url_without_an_expire_date_makes_a_link_for_two_years(server):
    link = create_url(server).json()
    assert moment(link["expires_at"]) - moment(link["created_at"]) == datetime.timedelta(days=730)


@pytest.mark.parametrize("given, kept", [
    ("2099-01-31", "2099-01-31T00:00:00Z"),
    ("2099-01-31T12:30:00Z", "2099-01-31T12:30:00Z"),
    ("2099-01-31T12:30:00.250Z", "2099-01-31T12:30:00.250Z"),
    ("2099-01-31T12:30:00+02:00", "2099-01-31T10:30:00Z"),
    (None, None),
])
def test_create_url_takes_an_expire_date(server, given, kept):
    assert create_url(server, expire_date=given).json()["expires_at"] == kept


@pytest.mark.parametrize("field", ["custom_alias", "user_name"])
def test_create_url_takes_null_for_an_optional_field_as_not_given(server, field):
    assert create_url(server, **{field: None}).status_code == 201


@pytest.mark.parametrize("headers", [{"Authorization": f"Bearer {ADMIN_KEY}"}, {"authorization": f"bearer {ADMIN_KEY}"},
                                     {"X-Api-Key": ADMIN_KEY}])
def test_the_key_may_come_in_a_header_instead(server, headers):
    response = server.post("/api/v1/createURL", key=None, json={"original_url": URL}, headers=headers)
    assert response.status_code == 201
    key = response.json()["key"]
    assert delete_url(server, json={"url_key": key}, headers=headers).text == "SUCCESS"


def test_create_url_without_a_key_is_refused(server):
    with unchanged(server):
        for fields in ({}, {"api_dev_key": ""}, {"api_dev_key": "ck_wrong"}):
            response = server.post("/api/v1/createURL", key=None, json={"original_url": URL, **fields})
            assert_problem(response, 401, "API key")
            assert response.headers["WWW-Authenticate"] == 'Bearer realm="curt"'


@pytest.mark.parametrize("fields, word", [
    ({"original_url": 5}, "original_url"),
    ({"custom_alias": 5}, "custom_alias"),
    ({"user_name": []}, "user_name"),
    ({"expire_date": 5}, "expire_date"),
    ({"expire_date": "tomorrow"}, "expire_date"),
    ({"alias": "x"}, "alias"),
])
def test_a_wrong_field_is_named_also_when_the_key_stands_in_the_same_body(shared, fields, word):
    body = {"api_dev_key": ADMIN_KEY, "original_url": URL, **fields}
    with unchanged(shared):
        assert_problem(shared.post("/api/v1/createURL", key=None, json=body), 400, word)


def test_delete_url_by_body_says_success_and_the_link_is_gone(server):
    server.create(alias="going")
    response = delete_url(server, json={"api_dev_key": ADMIN_KEY, "url_key": "going"})
    assert (response.status_code, response.text) == (200, "SUCCESS")
    assert response.headers["Content-Type"].startswith("text/plain")
    assert server.target("going") is None and server.link("going") is None


def test_delete_url_by_query_says_success_and_the_link_is_gone(server):
    server.create(alias="going_too")
    response = delete_url(server, params={"api_dev_key": ADMIN_KEY, "url_key": "going_too"})
    assert (response.status_code, response.text) == (200, "SUCCESS")
    assert server.target("going_too") is None


def test_delete_url_decodes_its_query(server):
    server.create(alias="going-away")
    assert server.delete("/api/v1/deleteURL?url_key=going%2Daway").text == "SUCCESS"


def test_delete_url_of_what_is_not_there_is_not_found(server):
    with unchanged(server):
        assert_problem(delete_url(server, json={"api_dev_key": ADMIN_KEY, "url_key": "nothing"}), 404)
        assert_problem(delete_url(server, json={"api_dev_key": ADMIN_KEY, "url_key": "not a key!"}), 404)


def test_delete_url_of_somebody_elses_link_is_not_found(server):
    server.create(alias="the-admins")
    other = server.make_key()["key"]
    with unchanged(server):
        assert_problem(delete_url(server, json={"api_dev_key": other, "url_key": "the-admins"}), 404)
        assert_problem(delete_url(server, params={"api_dev_key": other, "url_key": "the-admins"}), 404)


@pytest.mark.parametrize("kwargs, word", [
    ({"json": {"api_dev_key": ADMIN_KEY}}, "url_key"),
    ({"json": {"api_dev_key": ADMIN_KEY, "url_key": 7}}, "url_key"),
    ({"json": {"url_key": 7, "api_dev_key": ADMIN_KEY}}, "url_key"),
    ({"json": {"other": 7, "api_dev_key": ADMIN_KEY, "url_key": "x"}}, "other"),
    ({"params": {"api_dev_key": ADMIN_KEY}}, "url_key"),
])
def test_delete_url_names_what_is_wrong(shared, kwargs, word):
    with unchanged(shared):
        assert_problem(delete_url(shared, **kwargs), 400, word)


@pytest.mark.parametrize("query, body", [
    ("url_key=one", {"url_key": "two"}), ("url_key=one&api_dev_key=ck_other", {"api_dev_key": ADMIN_KEY, "url_key": "one"}),
    ("url_key=one&url_key=two", None), ("url_key=one&api_dev_key=ck_other", None), ("url_key=%6fne", {"url_key": "two"}),
    ("", {"api_dev_key": "ck_other", "url_key": "one"}), ("url_key=on%6", None), ("url_key=on%00", None),
])
def test_delete_url_refuses_values_that_contradict_each_other(server, query, body):
    """In the header is the admin's key."""
    server.create(alias="one")
    server.create(alias="two")
    with unchanged(server):
        answer = server.connect().ask(request("DELETE", f"/api/v1/deleteURL?{query}", key=ADMIN_KEY,
                                              body=json.dumps(body) if body else None))
        assert answer.status == 400, answer
        problem = json.loads(answer.body)
        assert problem["detail"].split("'")[1] in ("url_key", "api_dev_key")
        assert problem.get("field") in (problem["detail"].split("'")[1], None)


def test_delete_url_takes_the_same_value_twice(server):
    server.create(alias="one")
    body = {"api_dev_key": ADMIN_KEY, "url_key": "one"}
    assert server.delete(f"/api/v1/deleteURL?url_key=%6fne&api_dev_key={ADMIN_KEY}", json=body).text == "SUCCESS"


def test_create_url_refuses_another_key_than_the_headers(server):
    body = {"api_dev_key": server.make_key()["key"], "original_url": URL}
    with unchanged(server):
        problem = assert_problem(server.post("/api/v1/createURL", json=body), 400, "'api_dev_key' differs", "header")
        assert problem["field"] == "api_dev_key"
    body["api_dev_key"] = ADMIN_KEY
    assert server.post("/api/v1/createURL", json=body).status_code == 201


def test_delete_url_without_a_key_is_refused(server):
    server.create(alias="safe")
    with unchanged(server):
        assert_problem(delete_url(server, json={"url_key": "safe"}), 401)
        assert_problem(delete_url(server, params={"url_key": "safe", "api_dev_key": "ck_wrong"}), 401)


def test_both_addresses_take_their_one_method_only(shared):
    assert_problem(shared.get("/api/v1/createURL"), 405, "POST")
    assert_problem(shared.post("/api/v1/deleteURL"), 405, "DELETE")
