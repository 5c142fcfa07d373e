"""Bad input gets a clear answer, and nothing changes."""
import json
import os
import shutil
import socket
import sqlite3

import pytest

from harness import ADMIN_KEY, CURT, assert_problem, curt, folder_bytes, run, unchanged
from wire import chunked, request

URL = "https://example.com/"


@pytest.fixture
def still(shared):
    """The module's server, which must be the same before and after."""
    with unchanged(shared):
        yield shared


@pytest.fixture(scope="module", autouse=True)
def something_to_lose(shared):
    shared.create("https://example.com/kept", alias="kept", title="kept", tags=["kept"])


def creating(client, **fields):
    return client.post("/api/v1/links", json=dict({"original_url": URL}, **fields))


def changing(client, **fields):
    return client.patch("/api/v1/links/kept", json=fields)


# URLs. tests/unit/link/url_test.c has all that is refused; here every place that takes one refuses it

BAD_URLS = {
    "empty": ("", "empty"),
    "javascript": ("javascript:alert(1)", "not 'javascript:'"),
    "NUL": ("https://example.com/a\0b", "must not contain a NUL character"),
    "escape character": ("https://example.com/a\x1bb", "control character"),
    "user info": ("https://user:password@example.com/", "user name or password"),
    "host that is none": ("https://exa mple.com/", "host"),
    "over 8 KiB": ("https://example.com/" + "x" * (8192 - 19), "8192"),
    "over 8 KiB once encoded": ("https://example.com/" + "ü" * 3000, "percent-encoded"),
}


@pytest.mark.parametrize("name", BAD_URLS)
def test_a_bad_url_is_refused_in_every_place_that_takes_one(still, name):
    url, word = BAD_URLS[name]
    answers = {field: [creating(still, **{field: url}), changing(still, **{field: url})]
               for field in ("original_url", "expired_url")}
    answers["original_url"].append(still.post("/api/v1/createURL", json={"original_url": url}))
    for field, responses in answers.items():
        for response in responses:
            problem = assert_problem(response, 400, word, *(["'expired_url'"] if field == "expired_url" else []))
            assert problem["field"] == field
            assert problem["type"] == ("urn:curt:invalid-field" if name == "NUL" else "urn:curt:invalid-url")


@pytest.mark.parametrize("spelling", [
    "http://127.0.0.1:{port}/x", "http://127.0.0.1:{port}", "HTTP://127.0.0.1:{port}/", "https://127.0.0.1:{port}/kept",
    "http://localhost:{port}/kept", "http://LOCALHOST:{port}/", "http://localhost.:{port}/",
])
def test_a_url_that_points_back_at_this_server_is_refused(still, spelling):
    url = spelling.format(port=still.port)
    assert_problem(creating(still, original_url=url), 400, "points back to this server")
    assert_problem(changing(still, original_url=url), 400, "points back to this server")


def test_a_url_of_the_same_host_on_another_port_is_somebody_else(server):
    other = f"http://127.0.0.1:{server.port % 65535 + 1}/"
    assert server.create(other)["original_url"] == other


@pytest.mark.parametrize("url", [
    "https://s.example/x", "http://S.EXAMPLE/x", "https://s.example:443/", "https://s.example./",
    "http://127.0.0.1:{port}/x", "http://localhost:{port}/x",
])
def test_the_base_url_and_the_address_behind_it_are_this_server(serve, url):
    server = serve("--base-url", "https://s.example/")
    with unchanged(server):
        assert_problem(creating(server, original_url=url.format(port=server.port)), 400, "points back to this server")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_a_server_that_listens_on_every_address_knows_itself_on_this_machine(serve, host):
    server = serve(listen="0.0.0.0:0")
    with unchanged(server):
        response = creating(server, original_url=f"http://{host}:{server.port}/x")
        assert_problem(response, 400, "points back to this server")


# Aliases

@pytest.mark.parametrize("alias, word", [
    ("", "1 to 255"), ("x" * 256, "at most 255"), ("a b", "A-Z a-z 0-9 - _"), ("a/b", "A-Z a-z 0-9 - _"),
    ("a+", "A-Z a-z 0-9 - _"), ("a.b", "A-Z a-z 0-9 - _"), ("ä", "A-Z a-z 0-9 - _"), ("a%41", "A-Z a-z 0-9 - _"),
    ("a\n", "A-Z a-z 0-9 - _"), ("?", "A-Z a-z 0-9 - _"),
])
def test_a_malformed_alias_is_refused(still, alias, word):
    assert_problem(creating(still, alias=alias), 400, word)
    assert_problem(still.post("/api/v1/createURL", json={"original_url": URL, "custom_alias": alias}), 400, word)


@pytest.mark.parametrize("alias", ["api", "API", "Api", "app", "healthz", "readyz", "metrics", "event", "stats",
                                   "login", "admin", "static", "favicon", "robots"])
def test_a_reserved_word_is_refused_in_any_case(still, alias):
    assert_problem(creating(still, alias=alias), 400, "reserved")
    assert_problem(still.post("/api/v1/createURL", json={"original_url": URL, "custom_alias": alias}), 400, "reserved")


def test_a_taken_alias_is_a_conflict(still):
    assert_problem(creating(still, alias="kept"), 409, "'kept' is taken")
    assert_problem(still.post("/api/v1/createURL", json={"original_url": URL, "custom_alias": "kept"}), 409, "'kept'")


# Keys

@pytest.fixture(scope="module")
def revoked(shared):
    key = shared.make_key("revoked")
    assert shared.delete(f"/api/v1/keys/{key['id']}").status_code == 204
    return key["key"]


@pytest.mark.parametrize("method, path", [
    ("POST", "/api/v1/links"), ("GET", "/api/v1/links"), ("GET", "/api/v1/links/kept"), ("PATCH", "/api/v1/links/kept"),
    ("DELETE", "/api/v1/links/kept"), ("POST", "/api/v1/keys"), ("GET", "/api/v1/keys"), ("DELETE", "/api/v1/keys/1"),
    ("POST", "/api/v1/createURL"), ("DELETE", "/api/v1/deleteURL?url_key=kept"),
])
def test_a_missing_unknown_or_revoked_key_is_refused(still, revoked, method, path):
    body = {"original_url": URL, "title": "changed"} if method in ("POST", "PATCH") else None
    for key in (None, "ck_unknown", revoked, ADMIN_KEY + "x", ADMIN_KEY[:-1], ADMIN_KEY.upper(), "x" * 5000):
        response = still.request(method, path, key=key, json=body)
        assert_problem(response, 401, "API key")
        assert response.headers["WWW-Authenticate"] == 'Bearer realm="curt"'


@pytest.mark.parametrize("field", ["Authorization: Basic YTpi", "Authorization: Bearer", "Authorization: Bearer ",
                                   "Authorization:", "X-Api-Key:", "X-Api-Key: "])
def test_a_header_without_a_key_is_no_key(still, field):
    assert still.connect().get("/api/v1/links", field).status == 401


# JSON

BROKEN_BODIES = {
    "nothing": (b"", "The body is empty"), "white space": (b" \n", "The body is empty"),
    "half an object": (b'{"original_url": "https://example.com/"', "line 1, column 40, a comma or a closing bracket"),
    "two objects": (b"{} {}", "line 1, column 4, the text must end after the value"),
    "not UTF-8": (b'{"original_url":\n "https://example.com/\xff"}', "line 2, column 23, a string has a byte"),
    "half of a character": (b'{"title": "\\ud800"}', "half of a surrogate pair"),
    "a comma too many": (b'{"name": "x",}', "column 14, a name in double quotes was expected"),
    "single quotes": (b"{'name': 'x'}", "column 2, a name in double quotes was expected"),
    "a comment": (b'{"name": "x" /* y */}', "a comma or a closing bracket was expected"),
    "a leading zero": (b'{"name": 01}', "a number must not begin with 0"),
    "no number": (b'{"name": NaN}', "column 10, a value was expected"),
    "a line break in a string": (b'{"name": "a\nb"}', "a string has a control character"),
    "a zero byte": (b'{"name": "x"}\0', "the text must end after the value"),
    "a byte order mark": (b'\xef\xbb\xbf{"name": "x"}', "a byte order mark must be removed"),
    "UTF-16": ('{"name": "x"}'.encode("utf-16-le"), "a name in double quotes was expected"),
    "nesting without end": (b"[" * 100_000, "nested too deeply"),
    "form fields": (b"original_url=https%3A%2F%2Fexample.com%2F", "column 1, a value was expected"),
}


@pytest.mark.parametrize("name", BROKEN_BODIES)
@pytest.mark.parametrize("method, path", [("POST", "/api/v1/links"), ("POST", "/api/v1/createURL"),
                                          ("PATCH", "/api/v1/links/kept"), ("POST", "/api/v1/keys")])
def test_broken_json_is_refused(still, name, method, path):
    body, word = BROKEN_BODIES[name]
    problem = assert_problem(still.request(method, path, data=body), 400, word)
    assert problem["type"] == "urn:curt:invalid-body"


@pytest.mark.parametrize("body", ["[]", '"text"', "5", "null", "true", '[{"original_url": "https://example.com/"}]'])
@pytest.mark.parametrize("method, path", [("POST", "/api/v1/links"), ("POST", "/api/v1/createURL"),
                                          ("PATCH", "/api/v1/links/kept"), ("POST", "/api/v1/keys")])
def test_json_that_is_not_an_object_is_refused(still, body, method, path):
    problem = assert_problem(still.request(method, path, data=body), 400, "The body must be a JSON object, not")
    assert problem["type"] == "urn:curt:invalid-body"


WRONG_TYPES = [
    *[("original_url", value) for value in (5, None, True, [], {}, 1.5)],
    *[("expires_at", value) for value in (5, True, [], {}, "", "soon", "2027-02-30", "2027-13-01", "01.02.2027",
                                          "2027-01-31T25:00:00Z", "2027-01-31T12:00:00", "2027-01-31 12:00",
                                          "20270131")],
    *[("redirect_status", value) for value in ("302", True, [], 302.5, -1, 0, 200, 300, 303, 304, 2 ** 40)],
    *[("enabled", value) for value in (1, 0, "true", [])],
    *[("title", value) for value in (5, True, [], {}, "x" * 513)],
    *[("note", value) for value in (5, True, [], {}, "x" * 4097)],
    *[("not_before", value) for value in (5, True, [], {}, "", "soon", "2027-02-30", "2027-01-31T12:00:00")],
    *[("max_clicks", value) for value in (0, -1, 1.5, "10", True, [], {}, 2 ** 53 + 1, 10 ** 30, 1e300)],
    *[("visibility", value) for value in (5, True, "", "Private", "secret", [])],
    *[("password", value) for value in (5, True, [], {}, "", "x" * 1025)],
    *[("tags", value) for value in ("a", 5, {}, [1], [None], [[]], ["a", 2], [""], ["x" * 65], ["x"] * 33)],
]


@pytest.mark.parametrize("field, value", WRONG_TYPES)
def test_a_field_of_a_wrong_type_or_value_is_named(still, field, value):
    for response in (creating(still, **{field: value}), changing(still, **{field: value})):
        problem = assert_problem(response, 400, field)
        assert problem["field"] == field and problem["type"] == "urn:curt:invalid-field"


@pytest.mark.parametrize("field, value", [("alias", 5), ("alias", True), ("alias", []), ("alias", {}), ("user_name", 5),
                                          ("user_name", []), ("user_name", "x" * 129)])
def test_a_field_that_only_creating_has_is_named_too(still, field, value):
    assert assert_problem(creating(still, **{field: value}), 400, field)["field"] == field


@pytest.mark.parametrize("method, path, fields, field", [
    ("POST", "/api/v1/links", {"original_url": URL, "expires_at": "2001-01-01"}, "expires_at"),
    ("PATCH", "/api/v1/links/kept", {"expires_at": "2001-01-01"}, "expires_at"),
    ("POST", "/api/v1/createURL", {"original_url": URL, "expire_date": "2001-01-01"}, "expire_date"),
    ("POST", "/api/v1/createURL", {"original_url": URL, "custom_alias": "a b"}, "custom_alias"),
    ("POST", "/api/v1/links", {"original_url": URL, "alias": "a b"}, "alias"),
    ("POST", "/api/v1/links", {"original_url": URL, "owner": "nobody@example.com"}, "owner"),
    ("PATCH", "/api/v1/links/kept", {"owner": 99999}, "owner"),
    ("POST", "/api/v1/keys", {"name": "x", "user": "nobody@example.com"}, "user"),
    ("POST", "/api/v1/keys", {"name": "x", "admin": True, "scopes": ["read"]}, "scopes"),
    ("POST", "/api/v1/keys", {"name": "x", "scopes": ["fly"]}, "scopes"),
    ("POST", "/api/v1/users", {"email": "nobody"}, "email"),
    ("POST", "/api/v1/users", {"email": "a@example.com", "password": "short"}, "password"),
    ("POST", "/api/v1/users", {"email": "a@example.com", "role": "king"}, "role"),
    ("DELETE", "/api/v1/deleteURL", {}, "url_key"),
    ("POST", "/api/v1/session", {"email": "a@example.com"}, "password"),
    ("POST", "/kept", {}, "password"),
])
def test_a_problem_with_one_field_names_it(still, method, path, fields, field):
    assert assert_problem(still.request(method, path, json=fields), 400)["field"] == field


@pytest.mark.parametrize("field", ["original_url", "title", "tags", "enabled"])
def test_a_field_that_comes_twice_is_named(still, field):
    for method, path in (("POST", "/api/v1/links"), ("PATCH", "/api/v1/links/kept")):
        value = {"tags": "[]", "enabled": "true"}.get(field, f'"{URL}"')
        other = field.replace("t", "\\u0074")  # the same name, written in another way
        response = still.request(method, path, data=f'{{"{field}": {value}, "{other}": {value}}}')
        problem = assert_problem(response, 400, f"'{field}' appears twice")
        assert problem["type"] == "urn:curt:invalid-field" and problem["field"] == field


@pytest.mark.parametrize("number, value", [("5.0", 5), ("5e0", 5), ("0.5E+1", 5), ("1e3", 1000), ("50e-1", 5)])
def test_a_whole_number_is_one_however_it_is_written(shared, number, value):
    body = f'{{"original_url": "{URL}", "max_clicks": {number}, "redirect_status": 307.0}}'
    made = shared.request("POST", "/api/v1/links", data=body).json()
    assert made["max_clicks"] == value and made["redirect_status"] == 307
    shared.remove(made["key"])


@pytest.mark.parametrize("text", ["a\0b", "\x1b[31m", "a\rb", "a\x7fb", "a\u0085b", "a\u009bb", "\x01"])
def test_text_for_people_has_no_control_characters(still, text):
    for field in ("title", "note"):
        assert_problem(creating(still, **{field: text}), 400)
        assert_problem(changing(still, **{field: text}), 400)
    assert_problem(creating(still, tags=["fine", text]), 400)
    assert_problem(changing(still, tags=["fine", text]), 400)
    assert_problem(creating(still, user_name=text), 400)
    assert_problem(still.post("/api/v1/createURL", json={"original_url": URL, "user_name": text}), 400)
    assert_problem(still.post("/api/v1/keys", json={"name": text}), 400)


@pytest.mark.parametrize("before", range(4))
def test_a_value_in_a_message_is_not_cut_within_a_character(still, before):
    value = "a" * before + "\U0001f600" * 50
    answers = [still.get("/api/v1/stats", params={name: value}) for name in ("by", "bots", "limit")]
    answers += [creating(still, owner=value), still.post("/api/v1/keys", json={"name": "x", "user": value})]
    for response in answers:
        assert "\ufffd" not in assert_problem(response, 400, value[:8])["detail"], response.text


def test_a_missing_url_is_named(still):
    assert_problem(still.post("/api/v1/links", json={"alias": "x"}), 400, "'original_url' is missing")


@pytest.mark.parametrize("field", ["url", "Original_url", "original_url ", "key", "clicks", "has_password", "", "x" * 500,
                                   "line\nbreak", "<b>", "ü"])
def test_an_unknown_field_is_named(still, field):
    for response in (creating(still, **{field: "x"}), changing(still, **{field: "x"})):
        problem = assert_problem(response, 400, "Unknown field", field[:40].split("\n")[0])
        assert problem["type"] == "urn:curt:invalid-field" and problem["field"] == problem["detail"].split("'")[1]
    assert_problem(still.post("/api/v1/keys", json={"name": "x", field: "x"}), 400, "Unknown field")


def test_a_field_of_creating_is_unknown_to_changing(still):
    assert_problem(changing(still, alias="other"), 400, "Unknown field 'alias'")
    assert_problem(changing(still, user_name="other"), 400, "Unknown field 'user_name'")


def test_a_change_of_nothing_is_refused(still):
    assert_problem(changing(still), 400, "changes nothing")


@pytest.mark.parametrize("fields, word", [
    ({}, "name"), ({"name": 5}, "name"), ({"name": ""}, "name"), ({"name": "x" * 65}, "name"), ({"name": None}, "name"),
    ({"name": "x", "admin": 1}, "admin"), ({"name": "x", "admin": "yes"}, "admin"),
    ({"name": "x", "creates_limit": -1}, "creates_limit"), ({"name": "x", "creates_limit": "5"}, "creates_limit"),
    ({"name": "x", "creates_limit": 2 ** 32}, "limit"), ({"name": "x", "creates_limit": 1.5}, "creates_limit"),
    ({"name": "x", "redirects_limit": None}, "redirects_limit"), ({"name": "x", "redirects_limit": 2 ** 32}, "limit"),
    ({"name": "x", "limit_period_s": []}, "limit_period_s"),
    ({"name": "x", "limit_period_s": 31 * 86400 + 1}, "limit_period_s"),
    ({"name": "x", "limit_period_s": 2 ** 62}, "limit_period_s"),
])
def test_a_wrong_field_of_a_key_is_named(still, fields, word):
    assert_problem(still.post("/api/v1/keys", json=fields), 400, word)


# Bodies that are too large

BIG = json.dumps({"original_url": URL, "note": "x" * (4 << 20)}).encode()


@pytest.mark.parametrize("method, path", [("POST", "/api/v1/links"), ("POST", "/api/v1/createURL"),
                                          ("PATCH", "/api/v1/links/kept"), ("GET", "/kept")])
@pytest.mark.parametrize("framing", ["Content-Length", "chunked"])
def test_a_body_over_the_limit_is_refused_and_the_connection_closed(still, method, path, framing):
    wire = still.connect()
    if framing == "chunked":
        head = request(method, path, "Transfer-Encoding: chunked", key=ADMIN_KEY)
        wire.send_until_closed(head + chunked(*[BIG[i:i + 30_000] for i in range(0, len(BIG), 30_000)]))
    else:
        wire.send_until_closed(request(method, path, key=ADMIN_KEY, body=BIG))
    answer, = wire.answers_until_closed()
    assert answer.status == 413 and answer["Connection"] == "close"
    assert answer["Content-Type"] == "application/problem+json"


def padded(length):
    body = json.dumps({"original_url": URL}).encode()
    return body + b" " * (length - len(body))


@pytest.mark.parametrize("framing", ["Content-Length", "chunked"])
def test_a_body_of_exactly_the_limit_is_taken(serve, framing):
    server = serve("--limits-body-bytes", "4k")
    wire = server.connect()
    if framing == "chunked":
        head = request("POST", "/api/v1/links", "Transfer-Encoding: chunked", key=ADMIN_KEY)
        answer = wire.ask(head + chunked(padded(4096)[:1000], padded(4096)[1000:]))
    else:
        answer = wire.ask(request("POST", "/api/v1/links", key=ADMIN_KEY, body=padded(4096)))
    assert answer.status == 201
    assert wire.ask(request("POST", "/api/v1/links", key=ADMIN_KEY, body=padded(4097))).status == 413


# Data folders

def serve_fails(data, *flags, env=None, listen="127.0.0.1:0", status=1):
    """The sentence with which a start ends. There must be one, and this status."""
    done = curt("serve", "--data", data, "--listen", listen, *flags, env=env)
    assert done.returncode == status, (done.stdout, done.stderr)
    assert "listening" not in done.stdout
    sentence, = done.stderr.splitlines()
    assert sentence.startswith("curt: ")
    return sentence


@pytest.fixture
def stopped(server):
    """A data folder with a link in it and nobody working there."""
    server.create("https://example.com/kept", alias="kept")
    server.stop()
    return server


def refuses_folder(data, *words):
    """Neither a server nor a command works there, and not a byte of it changes."""
    before = folder_bytes(data)
    sentence = serve_fails(data)
    for word in words:
        assert word in sentence
    done = curt("link", "list", "--data", data)
    assert done.returncode == 1 and words[0] in done.stderr
    after = folder_bytes(data)
    after.pop("curt.lock", None)
    before.pop("curt.lock", None)
    assert after == before


def test_a_folder_that_is_not_ours_is_refused(tmp_path):
    data = tmp_path / "photos"
    data.mkdir()
    (data / "cat.jpg").write_bytes(b"cat")
    refuses_folder(data, "is not a data folder of curt", str(data))
    assert sorted(folder_bytes(data)) == ["cat.jpg"], "nothing of ours is left there"


def test_a_file_in_place_of_a_folder_is_refused(tmp_path):
    data = tmp_path / "file"
    data.write_text("not a folder")
    assert str(data) in serve_fails(data)
    assert data.read_text() == "not a folder"


def test_a_folder_of_a_newer_version_is_refused(stopped):
    (stopped.data / "curt.folder").write_text("curt data folder, format 99\n")
    refuses_folder(stopped.data, "newer version", "format 99")


def test_a_folder_with_a_damaged_mark_is_refused(stopped):
    (stopped.data / "curt.folder").write_text("curt data fol")
    refuses_folder(stopped.data, "damaged", "curt.folder")


def alter_database(data, sql):
    database = sqlite3.connect(data / "links.db")
    database.execute(sql)
    database.commit()
    database.close()


@pytest.mark.embedded("it is about SQLite's files")
def test_a_database_of_a_newer_version_is_refused(stopped):
    alter_database(stopped.data, "PRAGMA user_version = 99")
    refuses_folder(stopped.data, "newer version", "99", "links.db")


@pytest.mark.embedded("it is about SQLite's files")
def test_a_database_of_another_program_is_refused(stopped):
    alter_database(stopped.data, "PRAGMA application_id = 12345")
    refuses_folder(stopped.data, "another program", "links.db")


@pytest.mark.embedded("it is about SQLite's files")
def test_a_file_that_is_no_database_is_refused(stopped):
    (stopped.data / "links.db").write_bytes(b"this is not a database, but it is long enough to be looked at" * 99)
    refuses_folder(stopped.data, "not a SQLite database", "links.db")


def test_a_folder_in_use_by_another_server_is_refused_and_that_server_goes_on(server):
    server.create("https://example.com/kept", alias="kept")
    with unchanged(server):
        sentence = serve_fails(server.data)
        assert "in use by another" in sentence and str(server.data) in sentence
    assert server.target("kept") == "https://example.com/kept"
    assert json.loads(server.curt("link", "get", "kept", "--json").stdout)["key"] == "kept", "its address still stands"


def test_a_folder_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    assert str(tmp_path / "file") in serve_fails(tmp_path / "file" / "data")


def test_a_folder_that_may_not_be_written_is_refused(tmp_path):
    data = tmp_path / "locked"
    data.mkdir(mode=0o555)
    as_others = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    done = run([*as_others, CURT, "serve", "--data", data, "--listen", "127.0.0.1:0"])
    assert done.returncode == 1 and str(data) in done.stderr
    assert list(data.iterdir()) == []


def test_a_folder_that_is_missing_is_made_for_its_owner_alone(server):
    server.create()
    assert server.data.stat().st_mode & 0o777 == 0o700
    for path in server.data.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.embedded("it is about a folder that holds everything")
def test_a_copy_of_a_stopped_folder_is_as_good_as_the_folder(stopped, nursery):
    shutil.copytree(stopped.data, nursery.folder / "copy")
    assert nursery(data=nursery.folder / "copy").target("kept") == "https://example.com/kept"


def test_keys_of_another_shape_than_the_stores_are_refused(stopped):
    sentence = serve_fails(stopped.data, "--keys-alphabet", "base36")
    for word in ("base62 of length 7", "base36 of length 8", "keys.alphabet = base62", "keys.length = 7"):
        assert word in sentence
    assert "keys.length = 9" not in serve_fails(stopped.data, "--keys-length", "9")
    stopped.start()
    assert stopped.target("kept") == "https://example.com/kept"


# Settings

USAGE = {
    "unknown flag": (["--lisen", "x"], ["--lisen", "did you mean --listen?"]),
    "flag without a value": (["--workers"], ["--workers", "needs a value"]),
    "word that is no flag": (["data"], ["takes no arguments"]),
    "number out of range": (["--workers", "257"], ["--workers", "0 to 256", "'257'"]),
    "unknown alphabet": (["--keys-alphabet", "base63"], ["--keys-alphabet", "base62"]),
}
FLAGS = {
    "keys that are too short": (["--keys-length", "3"], ["keys.length", "4 to 10"]),
    "unknown store": (["--store-url", "mysql://x"], ["store.url", "mysql", "sqlite:"]),
    "invalid fault": (["--store-url", "fault:x"], ["store.url", "fault:"]),
    "fault of no operation": (["--store-url", "fault:write=busy;sqlite:"], ["write=busy", "lookup, apply"]),
    "fault of no error": (["--store-url", "fault:apply=sad;sqlite:"], ["apply=sad", "unavailable"]),
    "fault of call 0": (["--store-url", "fault:apply=busy@0;sqlite:"], ["apply=busy@0", "from 1"]),
    "base URL with a path": (["--base-url", "https://s.example/x/"], ["serve.base_url", "must end after the host"]),
    "invalid base URL": (["--base-url", "s.example"], ["serve.base_url", "http://"]),
    "configuration that is not there": (["--config", "/no/such/file.ini"], ["/no/such/file.ini"]),
}


@pytest.mark.parametrize("name", [*USAGE, *FLAGS])
def test_a_wrong_flag_ends_the_start_with_a_sentence_that_names_it(tmp_path, name):
    flags, words = USAGE.get(name) or FLAGS[name]
    sentence = serve_fails(tmp_path / "data", *flags, status=2 if name in USAGE else 1)
    for word in words:
        assert word in sentence, sentence


@pytest.mark.parametrize("listen, word", [("127.0.0.1", "HOST:PORT"), ("127.0.0.1:", "HOST:PORT"), ("x:99999", "65535"),
                                          ("example.com:80", "numeric address"), ("::1:80", "brackets"),
                                          ("203.0.113.7:0", "no such address"), ("", "HOST:PORT")])
def test_a_wrong_address_to_listen_on_ends_the_start_with_a_sentence(tmp_path, listen, word):
    assert word in serve_fails(tmp_path / "data", listen=listen)


FILES = {
    "mistyped key": ("[serve]\nworker = 2\n", 2, "did you mean workers?"),
    "bad value": ("[log]\nlevel = info\nformat = xml\n", 3, "text, json"),
    "a line that is nothing": ("[log]\nlevel\n", 2, ""),
}


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_line_of_the_configuration_is_named(tmp_path, name):
    text, line, word = FILES[name]
    config = tmp_path / "curt.ini"
    config.write_text(text)
    for flags, env in ((["--config", config], None), ([f"--config={config}"], None), ([], {"CURT_CONFIG": config})):
        sentence = serve_fails(tmp_path / "data", *flags, env=env)
        assert f"{config}:{line}:" in sentence and word in sentence
    assert not (tmp_path / "data").exists(), "a start that fails so early makes nothing"


@pytest.mark.parametrize("name, value, words", [
    ("CURT_SERVE_WORKER", "2", ["CURT_SERVE_WORKER", "did you mean CURT_SERVE_WORKERS?"]),
    ("CURT_NONSENSE", "", ["CURT_NONSENSE", "unknown setting"]),
    ("CURT_WORKERS", "two", ["CURT_WORKERS", "'two'"]),
    ("CURT_LOG_LEVEL", "loud", ["CURT_LOG_LEVEL", "'loud'"]),
])
def test_a_wrong_variable_is_named(tmp_path, name, value, words):
    sentence = serve_fails(tmp_path / "data", env={name: value})
    for word in words:
        assert word in sentence
    assert not (tmp_path / "data").exists()


def test_a_flag_is_stronger_than_a_variable_and_a_variable_than_the_file(serve, tmp_path):
    config = tmp_path / "curt.ini"
    config.write_text("[serve]\nbase_url = https://file.example\n[limits]\ncreates = 7\n[cache]\nmemory = 3m\n")
    server = serve("--config", config, "--cache-memory", "5m",
                   env={"CURT_LIMITS_CREATES": "8", "CURT_CACHE_MEMORY": "4m"})
    assert server.create()["short_url"].startswith("https://file.example/")
    limited = server.client(server.make_key()["key"])
    assert limited.post("/api/v1/links", json={"original_url": URL}).headers["RateLimit-Limit"] == "8"
    assert "curt_cache_max_bytes 5242880\n" in server.get("/metrics").text


def test_a_port_in_use_ends_the_start_with_a_sentence(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        sentence = serve_fails(tmp_path / "data", listen=f"127.0.0.1:{other.getsockname()[1]}")
    assert "already in use" in sentence and "--listen" in sentence


def test_a_port_of_another_curt_is_not_shared(server, tmp_path):
    assert "already in use" in serve_fails(tmp_path / "other", listen=f"127.0.0.1:{server.port}")
    assert server.get("/healthz").status_code == 200
