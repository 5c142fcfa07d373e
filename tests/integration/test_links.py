"""/api/v1/links and the redirects that follow from it."""
import datetime
import html
import json
import re
import threading

import pytest

import stores
from harness import ADMIN_KEY, assert_problem, is_over, scaled, soon, unchanged, until
from people import make_user
from prometheus import metric
from wire import request

LINK_FIELDS = {"key", "domain", "short_url", "original_url", "created_at", "updated_at", "not_before", "expires_at",
               "expired_url", "max_clicks", "visibility", "has_password", "redirect_status", "forward_query", "rules",
               "title", "note", "tags", "external_id", "owner", "clicks", "enabled"}


def moment(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


# Creating and reading

def test_a_link_has_the_shape_of_the_contract(server):
    link = server.create("https://example.com/", alias="shape", title="A title", note="A note", tags=["one", "two"],
                         redirect_status=301, user_name="Ada", enabled=True, expires_at="2099-01-01")
    assert set(link) == LINK_FIELDS
    assert link == server.link("shape")
    assert link["key"] == "shape" and link["short_url"] == f"{server.url}/shape"
    assert link["domain"] == f"127.0.0.1:{server.port}"
    assert (link["title"], link["note"], link["tags"], link["owner"]) == ("A title", "A note", ["one", "two"], "Ada")
    assert link["redirect_status"] == 301 and link["enabled"] is True and link["visibility"] == "public"
    assert moment(link["expires_at"]) == moment("2099-01-01T00:00:00Z")
    assert link["created_at"] == link["updated_at"]


def test_a_link_without_more_has_the_defaults_of_the_contract(server):
    link = server.create()
    assert link["redirect_status"] == 302 and link["enabled"] is True
    assert (link["title"], link["note"], link["tags"]) == (None, None, [])
    assert link["owner"] == "admin", "the name of the API key"


def test_text_comes_back_as_it_went_in(server):
    text = 'quotes " and \\ and </script> and ünïcödé and 🦊 and \t and \u2028'
    link = server.create(title=text, note=text, tags=["ü", '"', "</script>"])
    assert (link["title"], link["note"], link["tags"]) == (text, text, ["ü", '"', "</script>"])
    assert server.link(link["key"]) == link


def test_null_stands_for_not_given(server):
    link = server.create(alias=None, title=None, note=None, user_name=None)
    assert len(link["key"]) == 7 and link["title"] is None


@pytest.mark.parametrize("given, kept", [
    ("HTTP://Example.COM", "http://example.com/"),
    ("https://example.com:443/a/./b/../c", "https://example.com/a/c"),
    ("http://Bücher.example/straße?q=ü#ä", "http://xn--bcher-kva.example/stra%C3%9Fe?q=%C3%BC#%C3%A4"),
    ("https://example.com/%7euser/%2f/100%", "https://example.com/%7euser/%2f/100%"),
    ("https://example.com/a#b#c", "https://example.com/a#b#c"),
    ("https:/example.com\\a b\tc", "https://example.com/a%20bc"),
    ("https://☃.net/", "https://xn--n3h.net/"),
    ("https://FAẞ.de/", "https://xn--fa-hia.de/"),
    ("https://0x7f.1/", "https://127.0.0.1/"),
    ("https://[2001:DB8::1]:8443/x", "https://[2001:db8::1]:8443/x"),
    ("  https://example.com/pasted\n", "https://example.com/pasted"),
    ("https://example.com/a'b\"c<d>", "https://example.com/a'b%22c%3Cd%3E"),
])
def test_a_url_is_kept_and_sent_in_its_canonical_form(server, given, kept):
    link = server.create(given)
    assert link["original_url"] == kept
    assert server.target(link["key"]) == kept


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_link_redirects_with_its_own_status(server, status):
    server.create("https://example.com/there", alias="go", redirect_status=status)
    for _ in ("from the store", "from the cache"):
        answer = server.get("/go", key=None)
        assert answer.status_code == status
        assert answer.headers["Location"] == "https://example.com/there"
        assert answer.headers["Cache-Control"] == "private, no-store"


def test_a_query_behind_the_key_does_not_matter(server):
    server.create(alias="here")
    assert server.target("here?utm_source=x&y") == "https://example.com/"


def test_a_percent_encoded_key_is_the_same_key(server):
    """Wherever it stands: to follow a link, in paths of the API, and in a query."""
    server.create(alias="here")
    server.create(alias="locked", password="x")
    email = make_user(server, "viewer")["email"]
    wire = server.connect()

    def ask(method, path, body=None):
        return wire.ask(request(method, path, key=ADMIN_KEY, body=body), method)

    for _ in range(2):  # from the store, and when the cache knows the key
        assert wire.get("/%68er%65").status == 302 and wire.get("/here").status == 302
    assert ask("HEAD", "/%68ere").status == 302
    assert ask("GET", "/%68ere+").status == ask("GET", "/here%2B").status == 200
    assert ask("POST", "/%6cocked", '{"password": "x"}').status == 303
    api = "/api/v1/links/%68er%65"
    assert json.loads(ask("GET", api).body)["key"] == "here"
    assert json.loads(ask("PATCH", api, '{"title": "x"}').body)["title"] == "x"
    for end in ("stats", "visits", "permissions"):
        assert ask("GET", f"{api}/{end}").status == 200
    assert ask("HEAD", "/api/v1/live?key=%68er%65").status == 200
    user = email.replace("@", "%40").replace("e", "%65")
    assert ask("PUT", f"{api}/permissions/{user}").status == 204
    assert ask("DELETE", f"{api}/permissions/{email}").status == 204
    assert json.loads(ask("GET", f"/api/v1/users/{user}").body)["email"] == email
    made = server.make_key("encoded")["id"]
    assert ask("DELETE", "/api/v1/keys/" + "".join(f"%3{digit}" for digit in str(made))).status == 204
    assert ask("DELETE", api).status == 204 and ask("GET", "/here").status == 404


@pytest.mark.parametrize("escape", ["%", "%6", "%zz", "%6g", "a%", "%00", "%25%"])
def test_a_malformed_escape_in_an_address_of_the_api_is_refused(server, escape):
    wire = server.connect()
    for method, path in (("GET", "links/{}"), ("PATCH", "links/{}"), ("DELETE", "links/{}"), ("GET", "links/{}/stats"),
                         ("PUT", "links/x/permissions/{}"),
                         ("GET", "users/{}"), ("DELETE", "keys/{}")):
        answer = wire.ask(request(method, "/api/v1/" + path.format(escape), key=ADMIN_KEY,
                                  body="{}" if method == "PATCH" else None))
        assert answer.status == 400 and b"urn:curt:invalid-path" in answer.body, (method, path, answer)
    for method, path in (("GET", "live?key"), ("DELETE", "deleteURL?url_key")):
        answer = wire.ask(request(method, f"/api/v1/{path}={escape}", key=ADMIN_KEY))
        assert answer.status == 400 and b"urn:curt:invalid-parameter" in answer.body, (path, answer)


def test_an_encoded_slash_is_no_separator_and_a_path_is_decoded_once(server):
    server.create(alias="a")
    wire = server.connect()
    for path in ("links%2Fa", "links/a%2Fstats", "links/a%2F", "links/%2561", "links/%2E%2E/keys"):
        assert wire.ask(request("GET", f"/api/v1/{path}", key=ADMIN_KEY)).status == 404, path
    assert wire.get("/%2561").status == wire.get("/a%2F").status == 404


# Null

DEFAULTS = {"not_before": None, "expired_url": None, "max_clicks": None, "redirect_status": 302, "enabled": True,
            "visibility": "public", "title": None, "note": None, "tags": [], "external_id": None, "expires_at": None}


def test_null_means_the_default_when_creating(server):
    link = server.create(**dict.fromkeys([*DEFAULTS, "alias", "password", "owner", "user_name"]))
    assert {name: link[name] for name in DEFAULTS} == DEFAULTS
    assert link["owner"] == "admin" and link["has_password"] is False and len(link["key"]) == 7
    assert server.target(link["key"]) == "https://example.com/"


def test_null_means_the_default_when_changing(server):
    values = {"not_before": "2001-01-01", "expired_url": "https://example.com/late", "max_clicks": 5, "redirect_status": 308,
              "enabled": False, "visibility": "private", "title": "x", "note": "x", "tags": ["x"], "external_id": "x",
              "expires_at": "2090-01-01", "password": "x", "owner": make_user(server, "editor")["email"]}
    one, all_at_once = (server.create(**values)["key"] for _ in range(2))
    for name in values:
        changed = server.change(one, **{name: None})
        if name in DEFAULTS:
            assert changed[name] == DEFAULTS[name], name
    for link in (changed, server.change(all_at_once, **dict.fromkeys(values))):
        assert {name: link[name] for name in DEFAULTS} == DEFAULTS
        assert link["owner"] == "admin" and link["has_password"] is False
    assert server.link(one)["tags"] == []
    assert_problem(server.patch(f"/api/v1/links/{one}", json={"original_url": None}), 400, "'original_url' must be a string")


def test_the_base_url_is_what_short_links_begin_with(serve):
    server = serve("--base-url", "https://S.Example")
    link = server.create(alias="x")
    assert link["short_url"] == "https://s.example/x" and link["domain"] == "s.example"
    assert server.target("x") == "https://example.com/"


# Aliases and keys

def test_aliases_differ_by_case(server):
    server.create("https://example.com/upper", alias="Case")
    server.create("https://example.com/lower", alias="case")
    assert server.target("Case") == "https://example.com/upper"
    assert server.target("case") == "https://example.com/lower"


def test_a_generated_key_cannot_be_taken_as_an_alias(server):
    link = server.create("https://example.com/mine")
    with unchanged(server):
        response = server.post("/api/v1/links", json={"original_url": "https://example.com/", "alias": link["key"]})
        assert_problem(response, 409, link["key"], "taken")
    assert server.target(link["key"]) == "https://example.com/mine"


def test_an_alias_can_be_taken_again_once_its_link_is_deleted(server):
    server.create("https://example.com/old", alias="again")
    server.remove("again")
    server.create("https://example.com/new", alias="again")
    assert server.target("again") == "https://example.com/new"


@pytest.mark.parametrize("alphabet, length, pattern", [
    ("base62", 0, r"[0-9A-Za-z]{7}"), ("base64url", 0, r"[0-9A-Za-z_-]{8}"), ("base36", 0, r"[0-9a-z]{8}"),
    ("base62", 4, r"[0-9A-Za-z]{4}"), ("base62", 10, r"[0-9A-Za-z]{10}"),
])
def test_generated_keys_have_the_shape_that_the_settings_say(serve, alphabet, length, pattern):
    server = serve("--keys-alphabet", alphabet, "--keys-length", length)
    keys = [server.create(f"https://example.com/{i}")["key"] for i in range(20)]
    assert all(re.fullmatch(pattern, key) for key in keys) and len(set(keys)) == 20
    assert [server.target(key) for key in keys] == [f"https://example.com/{i}" for i in range(20)]


def test_base36_keys_and_aliases_are_read_without_regard_to_case(serve):
    server = serve("--keys-alphabet", "base36")
    key = server.create("https://example.com/generated")["key"]
    server.create("https://example.com/alias", alias="Name")
    for text in (key, key.upper()):
        assert server.target(text) == "https://example.com/generated"
        assert server.link(text)["key"] == key
    for text in ("name", "NAME", "nAmE"):
        assert server.target(text) == "https://example.com/alias"
    assert_problem(server.post("/api/v1/links", json={"original_url": "https://example.com/", "alias": "NAME"}), 409)


# Expiry

def test_a_link_lives_for_two_years_by_default(server):
    link = server.create()
    assert moment(link["expires_at"]) - moment(link["created_at"]) == datetime.timedelta(days=730)


def test_an_expiry_of_null_is_never(server):
    link = server.create(expires_at=None)
    assert link["expires_at"] is None and server.target(link["key"])
    assert server.change(link["key"], expires_at="2099-01-01")["expires_at"] == "2099-01-01T00:00:00Z"
    assert server.change(link["key"], expires_at=None)["expires_at"] is None


@pytest.mark.parametrize("when", ["2001-01-01", "1970-01-01T00:00:00Z", "1970-01-02", "2020-02-29T23:59:59Z"])
def test_an_expiry_in_the_past_is_refused(shared, when):
    link = shared.create()
    with unchanged(shared):
        assert_problem(shared.post("/api/v1/links", json={"original_url": "https://example.com/", "expires_at": when}),
                       400, "past")
        assert_problem(shared.patch(f"/api/v1/links/{link['key']}", json={"expires_at": when}), 400, "past")


@pytest.mark.parametrize("cached", [True, False], ids=["from the cache", "from the store"])
def test_a_link_ends_at_its_expiry_and_is_removed_when_somebody_asks_for_it(server, cached):
    ends = server.create_ending(1200, alias="short-lived")["expires_at"]
    if cached:
        assert server.target("short-lived") == "https://example.com/" or is_over(ends)
        until(lambda: server.target("short-lived") is None, "the link has ended")
        assert is_over(ends), "it did not end before its time"
    else:
        until(lambda: is_over(ends), "its time has come")
        assert server.link("short-lived"), "nobody has asked for it yet"
        assert server.target("short-lived") is None
    until(lambda: server.link("short-lived") is None, "it is removed, with the writer's next batch")
    assert server.links() == []
    until(lambda: metric(server, "curt_links_swept_total") == 1, "the writer counts what it has committed")
    assert_problem(server.get("/short-lived", key=None), 404)


@pytest.mark.parametrize("asked", [True, False], ids=["after somebody asked for it", "though nobody asked for it"])
def test_an_alias_is_free_again_once_its_link_has_ended(server, asked):
    ends = server.create_ending(1000, "https://example.com/old", alias="short-lived")["expires_at"]
    if asked:
        until(lambda: server.target("short-lived") is None, "the link has ended")
    else:
        until(lambda: is_over(ends), "its time has come")
    server.create("https://example.com/new", alias="short-lived")
    assert server.target("short-lived") == "https://example.com/new"


def test_a_link_whose_expiry_is_put_off_lives_on(server):
    ms = 1000
    while True:
        link = server.create_ending(ms)
        server.target(link["key"])
        changed = server.patch(f"/api/v1/links/{link['key']}", json={"expires_at": soon(3_600_000)})
        if not is_over(link["expires_at"]):
            break
        ms *= 2  # it had ended meanwhile: the machine is slow
    assert changed.status_code == 200, changed.text
    until(lambda: is_over(link["expires_at"]), "the first expiry has passed")
    assert server.target(link["key"]) == "https://example.com/"


# Listing

def assert_newest_first(links, keys):
    """`keys` in the order of creation. Over several databases the links of one millisecond come in any order."""
    met = [link["key"] for link in links]
    assert len(set(met)) == len(met) and set(met) == set(keys)
    times = [moment(link["created_at"]) for link in links]
    assert times == sorted(times, reverse=True)
    if stores.STORE != "shards":
        assert met == keys[::-1]


@pytest.mark.parametrize("limit", [1, 7, 50, 100, 249, 250, 251, 1000])
def test_a_walk_through_the_pages_meets_every_link_once_newest_first(shared_250, limit):
    server, keys = shared_250
    pages = list(server.pages(limit))
    assert_newest_first([link for page in pages for link in page], keys)
    assert all(len(page) == limit for page in pages[:-1]) and 1 <= len(pages[-1]) <= limit


@pytest.fixture(scope="module")
def shared_250(shared):
    """250 links of a key of their own, so that the module's other tests do not matter."""
    client = shared.client(shared.make_key("lister")["key"])
    keys = [client.create(f"https://example.com/{i}", **({"alias": f"listed-{i}"} if i % 5 == 0 else {}))["key"]
            for i in range(250)]
    return client, keys


def test_a_page_has_50_links_when_nobody_says_how_many(shared_250):
    client, keys = shared_250
    assert client.get("/api/v1/links").json()["links"] == next(client.pages(50)) and len(keys) > 50


def test_a_list_has_the_whole_links(shared_250):
    client, _ = shared_250
    for link in next(client.pages(10)):
        assert link == client.link(link["key"])


@pytest.mark.parametrize("query, word", [
    ("limit=0", "limit"), ("limit=1001", "limit"), ("limit=-1", "limit"), ("limit=ten", "limit"), ("limit=", "limit"),
    ("cursor=", "cursor"), ("cursor=0", "cursor"), ("cursor=abc", "cursor"), ("cursor=-5", "cursor"),
    ("cursor=99999999999999999999", "cursor"),
])
def test_a_wrong_limit_or_cursor_is_refused(shared, query, word):
    assert_problem(shared.get(f"/api/v1/links?{query}"), 400, word)


# Owners

def test_another_key_neither_sees_nor_changes_nor_deletes_a_link(server):
    server.create("https://example.com/", alias="mine")
    ada = server.client(server.make_key("ada")["key"])
    eve = server.client(server.make_key("eve")["key"])
    ada.create("https://example.com/adas", alias="adas")
    with unchanged(server):
        for key in ("mine", "adas"):
            assert_problem(eve.get(f"/api/v1/links/{key}"), 404, "not yours")
            assert_problem(eve.patch(f"/api/v1/links/{key}", json={"title": "x"}), 404, "not yours")
            assert_problem(eve.delete(f"/api/v1/links/{key}"), 404, "not yours")
        assert eve.links() == []
        assert [link["key"] for link in ada.links()] == ["adas"]
        assert ada.link("adas")["owner"] == "ada"
        assert ada.link("mine") is None
    assert ada.change("adas", title="mine alone")["title"] == "mine alone"
    ada.remove("adas")


def test_an_admin_sees_and_changes_everybodys_links(server):
    ada = server.client(server.make_key("ada")["key"])
    ada.create(alias="adas")
    assert [link["key"] for link in server.links()] == ["adas"]
    assert server.change("adas", title="seen")["owner"] == "ada"
    server.remove("adas")
    assert ada.links() == []


# Changing

def test_a_change_sets_what_it_names_and_nothing_else(server):
    before = server.create("https://example.com/", alias="it", title="t", note="n", tags=["x"], user_name="Ada")
    changes = [{"original_url": "https://example.org/"}, {"title": "new"}, {"note": "new"}, {"tags": ["a", "b"]},
               {"redirect_status": 307}, {"enabled": False}, {"expires_at": "2099-01-01T00:00:00Z"},
               {"title": None, "note": None, "tags": []}]
    for change in changes:
        after = server.change("it", **change)
        assert moment(after["updated_at"]) >= moment(before["updated_at"])
        assert after == dict(before, updated_at=after["updated_at"], **change)
        assert server.link("it") == after
        before = after


def test_a_disabled_link_is_not_found_until_it_is_enabled_again(server):
    server.create(alias="switch")
    for _ in range(3):
        server.change("switch", enabled=False)
        assert server.target("switch") is None
        assert_problem(server.get("/switch+", key=None), 404)
        server.change("switch", enabled=True)
        assert server.target("switch") == "https://example.com/"


def test_a_link_may_be_made_disabled(server):
    server.create(alias="later", enabled=False)
    assert server.target("later") is None
    server.change("later", enabled=True)
    assert server.target("later") == "https://example.com/"


# What is seen where: many connections over both workers

@pytest.fixture
def wires(server):
    return [server.connect() for _ in range(24)]


def locations(wires, path):
    for wire in wires:
        wire.send(request("GET", path))
    return {(answer.status, answer["Location"]) for answer in (wire.read() for wire in wires)}


def test_a_change_is_seen_by_the_very_next_redirect_on_every_connection(server, wires):
    server.create("https://example.com/0", alias="moving")
    for i in range(1, scaled(200) + 3):
        assert locations(wires, "/moving") == {(302, f"https://example.com/{i - 1}")}
        server.change("moving", original_url=f"https://example.com/{i}")


def test_a_delete_is_seen_by_the_very_next_redirect_on_every_connection(server, wires):
    for i in range(scaled(100) + 2):
        server.create(f"https://example.com/{i}", alias="coming-and-going")
        assert locations(wires, "/coming-and-going") == {(302, f"https://example.com/{i}")}, "also what was not there"
        server.remove("coming-and-going")
        assert locations(wires, "/coming-and-going") == {(404, None)}


def test_disabling_is_seen_by_the_very_next_redirect_on_every_connection(server, wires):
    server.create(alias="switch")
    for i in range(scaled(100) + 2):
        assert locations(wires, "/switch") == {(302, "https://example.com/")}
        server.change("switch", enabled=False)
        assert locations(wires, "/switch") == {(404, None)}
        server.change("switch", enabled=True, redirect_status=302)


def test_a_remembered_miss_is_forgotten_when_the_alias_is_made(serve):
    server = serve("--workers", "2", "--cache-negative-time", "1h")
    wires = [server.connect() for _ in range(24)]
    assert locations(wires, "/new-here") == {(404, None)}
    assert locations(wires, "/new-here") == {(404, None)}
    assert metric(server, 'curt_cache_lookups_total{result="negative"}') >= 24
    server.create(alias="new-here")
    assert locations(wires, "/new-here") == {(302, "https://example.com/")}


def test_no_redirect_that_begins_after_a_change_was_acknowledged_shows_what_was_before(server):
    """Readers go on all the time; each notes the last acknowledged version before it asks."""
    server.create("https://example.com/0", alias="racing")
    acknowledged, versions = [0], scaled(400) + 10
    stop = threading.Event()
    stale, asked = [], [0]

    def follow():
        wire = server.connect()
        while not stop.is_set():
            wanted = acknowledged[0]
            answer = wire.get("/racing")
            asked[0] += 1
            if answer.status != 302 or int(answer["Location"].rsplit("/", 1)[1]) < wanted:
                stale.append((wanted, answer))
                return

    readers = [threading.Thread(target=follow) for _ in range(4)]
    for reader in readers:
        reader.start()
    until(lambda: asked[0] > 4 or stale, "the readers read")
    for version in range(1, versions):
        server.change("racing", original_url=f"https://example.com/{version}")
        acknowledged[0] = version
    stop.set()
    for reader in readers:
        reader.join()
    assert not stale, stale[0]


# The preview

def test_the_preview_shows_where_a_link_goes_without_going_there(server):
    server.create("https://example.com/there?a=1&b=2", alias="look", title="A <b>title</b>")
    page = server.get("/look+", key=None)
    assert page.status_code == 200 and "Location" not in page.headers
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert page.headers["Cache-Control"] == "private, no-store"
    assert html.escape("https://example.com/there?a=1&b=2") in page.text
    assert metric(server, "curt_redirects_total") == 0


def test_the_preview_escapes_what_users_wrote(server):
    evil = '<script>alert("x")</script><img src=x onerror=\'y\'>&'
    server.create("https://example.com/?q='\"<script>", alias="evil", title=evil)
    page = server.get("/evil+", key=None).text
    assert "<script" not in page and "<img" not in page and "onerror='" not in page
    assert html.escape(evil).replace("&#x27;", "&#39;") in page


def test_the_preview_of_a_generated_key_works_and_of_nothing_is_not_found(server):
    key = server.create()["key"]
    assert server.get(f"/{key}+", key=None).status_code == 200
    assert server.connect().get(f"/{key}%2B").status == 200
    assert_problem(server.get("/nothing+", key=None), 404)
    assert_problem(server.get("/+", key=None), 404)


# Addresses and methods

@pytest.mark.parametrize("path, allow", [
    ("/healthz", "GET, HEAD, OPTIONS"), ("/", "GET, HEAD, OPTIONS"), ("/somekey", "GET, HEAD, POST, OPTIONS"),
    ("/somekey+", "GET, HEAD, OPTIONS"), ("/somekey%2B", "GET, HEAD, OPTIONS"),
    ("/api/v1/links", "GET, HEAD, POST, OPTIONS"), ("/api/v1/links/somekey", "GET, HEAD, PATCH, DELETE, OPTIONS"),
    ("/api/v1/keys", "GET, HEAD, POST, OPTIONS"), ("/api/v1/keys/1", "DELETE, OPTIONS"),
    ("/api/v1/createURL", "POST, OPTIONS"), ("/api/v1/deleteURL", "DELETE, OPTIONS"),
])
def test_a_method_that_an_address_does_not_take_is_answered_with_those_it_takes(shared, path, allow):
    response = shared.request("PUT", path)
    assert_problem(response, 405, allow)
    for method in ("PUT", "BREW", "TRACE", "GETS", "get", "X-1!#$%&'*+.^_`|~"):
        answer = shared.connect().ask(request(method, path, key=ADMIN_KEY))
        assert (answer.status, answer["Allow"]) == (405, allow), method
    options = shared.request("OPTIONS", path, key=None)
    assert (options.status_code, options.headers["Allow"], options.content) == (204, allow, b"")


def test_options_of_the_whole_server_is_answered(shared):
    answer = shared.connect().ask(request("OPTIONS", "*"))
    assert answer.status == 204 and answer["Allow"] == "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"


def test_a_wrong_method_is_the_clients_error(server):
    """Alerts fire on the class 5xx."""
    def classes():
        return [metric(server, f'curt_http_responses_total{{class="{name}"}}') for name in ("4xx", "5xx")]
    before = classes()
    wrong = [request("BREW", "/nothing"), request("BREW", "/api/v1/links"), request("TRACE", "/event"),
             request("BREW", "/no/such/address"), request("POST", "/event", "Transfer-Encoding: gzip"),
             b"CONNECT curt.test:443 HTTP/1.1\r\nHost: curt.test\r\n\r\n", b"GET / HTTP/2.0\r\nHost: curt.test\r\n\r\n"]
    answers = [server.connect().ask(data) for data in wrong]
    assert [answer.status for answer in answers] == [405, 405, 405, 404, 501, 405, 505]
    assert answers[5]["Allow"] == "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
    assert classes() == [before[0] + len(wrong), before[1]]


@pytest.mark.parametrize("path", ["/nothing", "/nothing/", "/a/b", "/api", "/api/v1", "/api/v1/", "/api/v2/links",
                                  "/api/v1/links/", "/api/v1/links/a/b", "/API/V1/LINKS", "/key.txt", "/%00", "/%zz",
                                  "/a%2Fb", "/" + "x" * 256, "/" + "%41" * 256, "//", "/favicon.ico"])
def test_an_address_that_leads_nowhere_is_not_found(shared, path):
    answer = shared.connect().ask(request("GET", path, key=ADMIN_KEY))
    assert answer.status == 404 and answer["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("path", ["/nothing", "/no/such/address", "/nothing+"])
@pytest.mark.parametrize("accept, is_page", [
    ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True), ("text/html", True),
    ("application/json, text/html", False), ("application/json", False), ("*/*", False), (None, False),
])
def test_a_browser_gets_a_page_and_a_program_gets_json(shared, path, accept, is_page):
    answer = shared.connect().get(path, *([f"Accept: {accept}"] if accept else []))
    assert answer.status == 404
    if is_page:
        assert answer["Content-Type"] == "text/html; charset=utf-8"
        assert answer.body.startswith(b"<!doctype html>") and b"default-src 'none'" in str(answer.fields).encode()
    else:
        assert answer["Content-Type"] == "application/problem+json"


def test_the_contract_is_served(shared):
    response = shared.get("/api/v1/openapi.json", key=None)
    assert response.status_code == 200 and response.headers["Content-Type"] == "application/json"
    assert response.json()["openapi"].startswith("3.1")


def test_a_link_carries_what_another_system_calls_it(server):
    link = server.create("https://example.com/", external_id="crm-7")
    assert link["external_id"] == "crm-7"
    assert server.change(link["key"], external_id="crm-8")["external_id"] == "crm-8"
    assert server.get(f"/api/v1/links/{link['key']}").json()["external_id"] == "crm-8"
    assert server.change(link["key"], external_id=None)["external_id"] is None
    for wrong in ("", "x" * 257, 7, "a\x01b"):
        assert server.patch(f"/api/v1/links/{link['key']}", json={"external_id": wrong}).status_code == 400
    assert server.create("https://example.com/")["external_id"] is None
