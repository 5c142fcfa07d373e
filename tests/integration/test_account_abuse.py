"""What people with little trust may try with accounts: outrun their own end, crowd others out, help themselves to limits."""
import itertools
import json
import select

import pytest

from harness import assert_problem, is_over, unchanged, until
from people import PASSWORD, Person, key_of, make_person, make_user, sign_in, still_let_in
from wire import request

SESSION, USERS, KEYS, LINKS = "/api/v1/session", "/api/v1/users", "/api/v1/keys", "/api/v1/links"
URL = "https://example.com/"
PROXY = ("--trusted-proxies", "loopback", "--limits-throttle-period", "1h")
QUEUE = 100  # more passwords than may wait at once
NEVER_KEPT = "private, no-store"

_numbers = itertools.count(1)


def from_nowhere():
    """An address that nobody has used."""
    number = next(_numbers)
    return f"X-Forwarded-For: 10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def send_all(server, datas):
    """All of it is there before the server looks at any, and it looks in that order."""
    wires = [server.connect() for _ in datas]
    with server.frozen():
        for wire, data in zip(wires, datas):
            wire.send(data)
    return wires


def send_both(server, some, others):
    wires = send_all(server, [*some, *others])
    return wires[:len(some)], wires[len(some):]


def sign_ins(count, email=None, address=None, password="wrong password"):
    """Requests from so many addresses, or from one."""
    return [request("POST", SESSION, address or from_nowhere(),
                    body=json.dumps({"email": email or f"nobody{next(_numbers)}@example.com", "password": password}))
            for _ in range(count)]


def unlocks(count, key, address=None, password="wrong"):
    return [request("POST", f"/{key}", address or from_nowhere(), body=json.dumps({"password": password}))
            for _ in range(count)]


def finish(wires):
    """The statuses of all of them."""
    statuses = [wire.read().status for wire in wires]
    for wire in wires:
        wire.close()
    return statuses


def has_answer(wire):
    return bool(select.select([wire.sock], [], [], 0)[0])


# A revoked key or session does nothing more, not even what it asked for before

# One loop, so that requests are taken in order; and the password thread takes its time for passwords of links.
SLOW = ("--workers", "1", *PROXY, "--store-url", "fault:lookup=slow;sqlite:")


def with_a_slow_door(server):
    server.create(URL, alias="door", password="right")
    return server


@pytest.fixture(scope="module")
def slow(serve_all):
    return with_a_slow_door(serve_all(*SLOW))


def overtaken(server, prepare):
    """The answer to a request that waits for the password thread while its end takes place, and what prepare() said of it.
    On a slow machine more than a few passwords are needed to keep that thread busy for so long."""
    for passwords in (4, 16, 48):
        prepared = prepare()
        busy = send_all(server, unlocks(passwords, "door"))
        until(lambda: server.has_read(busy[-1]), "the thread has enough to do")
        wire = server.connect()
        wire.send(prepared.data)
        until(lambda: server.has_read(wire), "the request is under way")
        prepared.end()
        was_overtaken = not has_answer(busy[-1])  # its password has not been looked at yet
        answer = wire.read()
        wire.close()
        finish(busy)
        if was_overtaken:
            return answer, prepared
    return pytest.fail("the end never took place before the passwords were looked at")


class Prepared:
    """A request, what is to take place before it is dealt with, and things that the test looks at afterwards."""

    def __init__(self, data, end, **things):
        self.data, self.end = data, end
        self.__dict__.update(things)


def assert_ended(answer):
    assert answer.status == 401, answer
    problem = json.loads(answer.body)
    assert problem["type"] == "urn:curt:key-required" and "nothing was changed" in problem["detail"]
    assert answer["WWW-Authenticate"]


def test_a_key_that_is_revoked_meanwhile_adds_no_user(slow):
    def prepare():
        key, email = slow.make_key("leaving", admin=True), f"back{next(_numbers)}@door.example"
        body = json.dumps({"email": email, "password": PASSWORD, "role": "admin"})
        return Prepared(request("POST", USERS, key=key["key"], body=body), lambda: slow.delete(f"{KEYS}/{key['id']}"),
                        email=email)
    answer, prepared = overtaken(slow, prepare)
    assert_ended(answer)
    assert prepared.email not in [user["email"] for user in slow.users()]


def test_an_admin_who_is_demoted_meanwhile_changes_nobodys_password(slow):
    def prepare():
        person, victim = make_person(slow, "admin"), make_user(slow)
        data = request("PATCH", f"{USERS}/{victim['id']}", *person.fields, body='{"password": "stolen account"}')
        return Prepared(data, lambda: slow.patch(f"{USERS}/{person.user['id']}", json={"role": "editor"}), victim=victim)
    answer, prepared = overtaken(slow, prepare)
    assert_ended(answer)
    assert sign_in(slow, prepared.victim["email"], "stolen account").status_code == 401
    assert sign_in(slow, prepared.victim["email"]).status_code == 200


@pytest.mark.parametrize("current", [PASSWORD, "a wrong one"])
def test_a_session_that_is_ended_meanwhile_does_not_change_its_own_password(slow, current):
    def prepare():
        person = make_person(slow)
        body = json.dumps({"password": "a new password", "current_password": current})
        return Prepared(request("PATCH", f"{USERS}/me", *person.fields, body=body), lambda: person.delete(SESSION), person=person)
    answer, prepared = overtaken(slow, prepare)
    assert_ended(answer)
    assert answer["Set-Cookie"] is None
    assert sign_in(slow, prepared.person.user["email"]).status_code == 200


def test_a_key_that_is_revoked_meanwhile_changes_no_link(slow):
    def prepare():
        key = key_of(slow, make_user(slow))
        link = slow.client(key["key"]).create(URL, visibility="private")["key"]
        body = json.dumps({"original_url": "https://hijack.example/", "visibility": "public", "password": "mine now"})
        return Prepared(request("PATCH", f"{LINKS}/{link}", key=key["key"], body=body),
                        lambda: slow.delete(f"{KEYS}/{key['id']}"), before=slow.link(link))
    answer, prepared = overtaken(slow, prepare)
    assert_ended(answer)
    assert slow.link(prepared.before["key"]) == prepared.before


def test_who_is_disabled_meanwhile_makes_no_link_and_has_spent_nothing(serve):
    server = with_a_slow_door(serve(*SLOW, "--limits-creates", "2", "--limits-period", "1h"))

    def enable(user, enabled):
        assert server.patch(f"{USERS}/{user['id']}", json={"enabled": enabled}).status_code == 200

    def prepare():
        user, alias = make_user(server), f"not-made-{next(_numbers)}"
        client = server.client(key_of(server, user)["key"])
        body = json.dumps({"original_url": URL, "alias": alias, "password": "secret"})
        return Prepared(request("POST", LINKS, key=client.key, body=body), lambda: enable(user, False), user=user,
                        client=client, alias=alias)
    answer, prepared = overtaken(server, prepare)
    assert_ended(answer)
    assert server.link(prepared.alias) is None
    enable(prepared.user, True)
    assert [prepared.client.post(LINKS, json={"original_url": URL}).status_code for _ in range(3)] == [201, 201, 429]


def test_who_is_still_somebody_gets_what_they_asked_for(slow):
    key = slow.make_key("staying", admin=True)["key"]

    def prepare_user():
        body = json.dumps({"email": f"welcome{next(_numbers)}@example.com", "password": PASSWORD})
        return Prepared(request("POST", USERS, key=key, body=body), lambda: slow.make_key("other"))

    def prepare_link():
        body = json.dumps({"original_url": URL, "alias": f"made-{next(_numbers)}", "password": "secret"})
        return Prepared(request("POST", LINKS, key=key, body=body), lambda: slow.make_key("other"))
    for prepare in (prepare_user, prepare_link):
        assert overtaken(slow, prepare)[0].status == 201


# What was not looked at was no try

LIMIT = 5


def assert_only_looks_counted(statuses, try_again, wrong=401):
    """Among those that were turned away unheard, only the heard ones have used up tries."""
    heard = statuses.count(wrong)
    assert statuses.count(503) > LIMIT and heard + statuses.count(503) == len(statuses), statuses
    assert [try_again() for _ in range(LIMIT - heard + 1)] == [wrong] * (LIMIT - heard) + [429]


def test_a_sign_in_that_found_no_room_is_no_try(serve):
    server = serve("--workers", "1", *PROXY, "--limits-sign-ins", LIMIT)
    user, address = make_user(server), from_nowhere()
    busy, some = send_both(server, sign_ins(QUEUE), sign_ins(12, user["email"], address))
    statuses = finish(some)
    assert 503 in finish(busy)
    assert_only_looks_counted(statuses, lambda: finish(send_all(server, sign_ins(1, user["email"], address)))[0])


def test_a_links_password_that_found_no_room_is_no_try(serve):
    server = serve("--workers", "1", *PROXY, "--limits-passwords-address", LIMIT, "--limits-passwords-link", "10000")
    key, address = server.create(URL, password="right")["key"], from_nowhere()
    busy, some = send_both(server, unlocks(QUEUE, key), unlocks(12, key, address))
    statuses = finish(some)
    assert 503 in finish(busy)
    assert_only_looks_counted(statuses, lambda: finish(send_all(server, unlocks(1, key, address)))[0])


def test_a_current_password_that_found_no_room_is_no_try(serve):
    server = serve("--workers", "1", *PROXY, "--limits-sign-ins", LIMIT)
    person = make_person(server)
    body = json.dumps({"password": "a new password", "current_password": "wrong password"})
    data = request("PATCH", f"{USERS}/me", *person.fields, body=body)
    busy, some = send_both(server, sign_ins(QUEUE), [data] * 12)
    statuses = finish(some)
    assert 503 in finish(busy)
    assert_only_looks_counted(statuses, lambda: finish(send_all(server, [data]))[0], wrong=403)


def test_a_links_password_that_could_not_be_looked_at_is_no_try(serve):
    server = serve("--workers", "1", *PROXY)
    key, address = server.create(URL, password="right")["key"], from_nowhere()
    server.restart("--workers", "1", *PROXY, "--limits-passwords-address", "1", "--store-url",
                   "fault:lookup=unavailable@1!;sqlite:")
    assert [finish(send_all(server, unlocks(1, key, address)))[0] for _ in range(3)] == [503, 401, 429]


# Nobody crowds others out

def test_a_flood_of_one_kind_of_password_leaves_room_for_the_others(serve):
    server = serve("--workers", "2", *PROXY, "--limits-passwords-link", "10000")
    user, key = make_user(server), server.create(URL, password="right")["key"]
    settings = [request("POST", LINKS, key=server.key, body='{"original_url": "https://example.com/", "password": "x"}')] * QUEUE
    floods = {"sign-ins": sign_ins(QUEUE), "unlocks": unlocks(QUEUE, key), "new ones": settings}
    good = {"sign-ins": (sign_ins(1, user["email"], password=PASSWORD), 200), "unlocks": (unlocks(1, key, password="right"), 303),
            "new ones": (settings[:1], 201)}
    for flood, datas in floods.items():
        busy = send_all(server, datas)
        others = {name: send_all(server, data) for name, (data, _) in good.items() if name != flood}
        for name, wires in others.items():
            assert finish(wires) == [good[name][1]], f"{name} during a flood of {flood}"
        statuses = finish(busy)
        assert statuses.count(503) > QUEUE // 4 and len(set(statuses)) == 2, f"{flood}: {statuses}"


def test_a_create_that_found_no_room_has_spent_nothing(serve):
    server = serve("--workers", "2", "--limits-creates", "50", "--limits-period", "1h")
    client = server.client(key_of(server, make_user(server))["key"])
    data = request("POST", LINKS, key=client.key, body='{"original_url": "https://example.com/", "password": "x"}')
    statuses = finish(send_all(server, [data] * QUEUE))
    assert set(statuses) <= {201, 429, 503} and statuses.count(503) > 0
    made = statuses.count(201)
    assert len(client.links()) == made
    rest = [client.post(LINKS, json={"original_url": URL}).status_code for _ in range(51 - made)]
    assert rest == [201] * (50 - made) + [429]


# Limits of keys

@pytest.mark.parametrize("field", ["creates_limit", "redirects_limit", "limit_period_s"])
def test_nobody_but_admins_sets_limits(shared, field):
    for role in ("viewer", "editor"):
        person = make_person(shared, role)
        for value in (4294967295 if field != "limit_period_s" else 1, 0):
            with unchanged(shared):
                refusal = assert_problem(person.post(KEYS, json={"name": "generous", field: value}), 403, field)
                assert refusal["type"] == "urn:curt:admin-only"
    admin = make_person(shared, "admin")
    assert admin.make_key("by an admin", user=str(person.user["id"]), **{field: 60})[field] == 60
    assert person.make_key("plain")[field] == 0


@pytest.fixture(scope="module")
def limited(serve_all):
    return serve_all("--workers", "2", "--limits-creates", "5", "--limits-redirects", "8", "--limits-period", "1h")


def creates(client, count):
    return [client.post(LINKS, json={"original_url": URL}).status_code for _ in range(count)]


def test_more_keys_are_not_more_links(limited):
    person = make_person(limited)
    clients = [limited.client(person.make_key(f"key {i}")["key"]) for i in range(3)]
    assert [creates(client, 1) for client in (*clients, person)] == [[201]] * 4
    assert creates(clients[0], 2) == [201, 429]
    assert [creates(client, 1) for client in (*clients, person)] == [[429]] * 4
    refused = clients[1].post(LINKS, json={"original_url": URL})
    assert (refused.headers["RateLimit-Limit"], refused.headers["RateLimit-Remaining"]) == ("5", "0")
    assert creates(limited.client(key_of(limited, make_user(limited))["key"]), 1) == [201], "another user is not concerned"


def test_more_keys_are_not_more_redirections(limited):
    person = make_person(limited)
    links = [limited.client(person.make_key(f"key {i}")["key"]).create(URL)["key"] for i in range(3)]
    links.append(person.create(URL)["key"])
    assert [limited.get(f"/{links[i % 4]}", key=None).status_code for i in range(10)] == [302] * 8 + [429] * 2


def test_a_keys_own_limits_take_the_place_of_its_users(limited):
    user = make_user(limited)
    plain = limited.client(key_of(limited, user)["key"])
    roomy = limited.client(key_of(limited, user, creates_limit=7, redirects_limit=10, limit_period_s=3600)["key"])
    link = roomy.create(URL)["key"]
    assert creates(roomy, 7) == [201] * 6 + [429]
    assert creates(plain, 6) == [201] * 5 + [429], "which are not touched by that"
    assert [limited.get(f"/{link}", key=None).status_code for _ in range(11)] == [302] * 10 + [429]


def test_a_link_that_is_given_away_is_followed_on_its_new_owners_account(limited):
    giver, heir = make_user(limited), make_user(limited)
    link = limited.client(key_of(limited, giver, redirects_limit=1, limit_period_s=3600)["key"]).create(URL)["key"]
    assert [limited.get(f"/{link}", key=None).status_code for _ in range(2)] == [302, 429]
    limited.change(link, owner=heir["email"])
    assert [limited.get(f"/{link}", key=None).status_code for _ in range(9)] == [302] * 8 + [429]


# How many keys

def test_a_user_has_a_hundred_keys_at_most(serve):
    server = serve("--workers", "2")
    person, other = make_person(server), make_person(server)
    keys = [person.make_key(f"key {i}") for i in range(99)]
    keys.append(key_of(server, person.user))
    with unchanged(server):
        for response in (person.post(KEYS, json={"name": "one more"}),
                         server.post(KEYS, json={"name": "one more", "user": person.user["email"]})):
            assert assert_problem(response, 409, "100")["type"] == "urn:curt:too-many-keys"
    other.make_key("not concerned")
    server.make_key("a user of its own")
    assert person.delete(f"{KEYS}/{keys[0]['id']}").status_code == 204
    short = person.make_key_ending(800, "short")
    while (refused := person.post(KEYS, json={"name": "one more"})).status_code == 201:
        assert is_over(short["expires_at"]), "there was no room before"
        assert person.delete(f"{KEYS}/{keys.pop()['id']}").status_code == 204
        short = person.make_key_ending(800, "short")
    assert_problem(refused, 409)
    until(lambda: server.get(SESSION, key=short["key"]).status_code == 401, "it has expired")
    person.make_key("in its place")
    assert_problem(person.post(KEYS, json={"name": "one more"}), 409)


# Who there is

def told(response):
    """All but the clock."""
    return response.status_code, response.text, {name: value for name, value in response.headers.items() if name != "Date"}


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_foreign_links_list_does_not_tell_who_there_is(shared, method):
    owner, stranger = make_person(shared), make_person(shared)
    link = owner.create(URL, visibility="private")["key"]
    known, unknown = make_user(shared), "nobody-at-all@example.com"
    for key in (link, "there-is-no-such-link"):
        answers = [told(stranger.request(method, f"{LINKS}/{key}/permissions/{user}"))
                   for user in (known["email"], known["id"], unknown, "999999999", "%ff", owner.user["email"])]
        assert answers[0][0] == 404 and "no-such-link" in answers[0][1]
        assert all(answer == answers[0] for answer in answers), answers
    for client in (owner, shared):
        refusal = client.request(method, f"{LINKS}/{link}/permissions/{unknown}")
        assert assert_problem(refusal, 404)["type"] == "urn:curt:no-such-user"
        assert client.request(method, f"{LINKS}/{link}/permissions/{known['id']}").status_code == 204


def test_the_list_shows_email_addresses_to_admins_only(shared):
    owner = make_person(shared)
    link = owner.create(URL, visibility="private")["key"]
    ada = make_user(shared, email="ada.lovelace@sub.example.com", first_name="Ada", last_name="Lovelace")
    umlaut = make_user(shared, email="ünï@example.org")
    nameless = shared.make_key("robot")["user"]
    for user in (ada["id"], umlaut["id"], nameless):
        assert owner.request("PUT", f"{LINKS}/{link}/permissions/{user}").status_code == 204

    def listed(client):
        return [(user["id"], user["email"], user["name"]) for user in client.get(f"{LINKS}/{link}/permissions").json()["users"]]
    assert listed(owner) == [(ada["id"], "a***@sub.example.com", None), (umlaut["id"], "ü***@example.org", None),
                             (nameless, None, None)]
    assert listed(shared) == [(ada["id"], ada["email"], "Ada Lovelace"), (umlaut["id"], umlaut["email"], None),
                              (nameless, None, "robot")]
    owner_key = shared.client(key_of(shared, owner.user)["key"])
    assert listed(owner_key) == listed(owner)


# Wrong passwords

def attempt(server, email, address, password="wrong password"):
    return sign_in(server, email, password, headers={"X-Forwarded-For": address}).status_code


def test_an_account_is_guessed_at_a_hundred_times_from_everywhere(serve):
    server = serve("--workers", "2", *PROXY)
    user = make_user(server)
    statuses = [attempt(server, user["email"], f"192.0.2.{number}") for number in range(102)]
    assert statuses == [401] * 100 + [429] * 2
    assert attempt(server, user["email"], "192.0.2.200", PASSWORD) == 429


def test_strangers_do_not_keep_anybody_from_changing_their_password(serve):
    server = serve("--workers", "2", *PROXY, "--limits-sign-ins", "3", "--limits-sign-ins-account", "4")
    person = make_person(server)
    assert [attempt(server, person.user["email"], f"192.0.2.{number}") for number in range(6)] == [401] * 4 + [429] * 2

    def change(current):
        return person.patch(f"{USERS}/me", json={"password": "a new password", "current_password": current})
    assert [change("wrong").status_code for _ in range(2)] == [403] * 2
    assert change(PASSWORD).status_code == 200


def test_ones_own_wrong_passwords_count_wherever_they_come_from_and_for_nobody_else(serve):
    server = serve("--workers", "2", *PROXY, "--limits-sign-ins", "3")
    user, other = make_user(server), make_person(server)
    people = [Person(server, user) for _ in range(2)]

    def guess(person, number):
        return person.patch(f"{USERS}/me", json={"password": "a new password", "current_password": "wrong"},
                            headers={"X-Forwarded-For": f"192.0.2.{number}"}).status_code
    assert [guess(people[number % 2], number) for number in range(5)] == [403] * 3 + [429] * 2
    assert guess(other, 1) == 403
    assert sign_in(server, user["email"]).status_code == 200 and still_let_in(people[0])


# What is shown, and what is kept

def test_a_key_that_may_not_read_is_not_shown_what_it_changes(shared):
    user = make_user(shared)
    link = shared.create(URL, owner=user["email"], note="a secret")["key"]
    writer = shared.client(key_of(shared, user, scopes=["create"])["key"])
    for body in ({"title": "changed"}, {"password": "x"}, {"password": None}):
        response = writer.patch(f"{LINKS}/{link}", json=body)
        assert (response.status_code, response.content) == (204, b"")
    assert shared.link(link)["title"] == "changed"
    assert_problem(writer.patch(f"{LINKS}/no-such-link", json={"title": "x"}), 404)
    both = shared.client(key_of(shared, user, scopes=["create", "read"])["key"])
    assert both.change(link, title="again")["note"] == "a secret"
    assert shared.client(key_of(shared, make_user(shared, "admin"), scopes=["create", "admin"])["key"]).patch(
        f"{LINKS}/{link}", json={"title": "x"}).status_code == 204


def test_no_json_is_kept_anywhere(shared):
    person = make_person(shared, "admin")
    link = person.create(URL)["key"]
    answers = [shared.get(path) for path in (
        LINKS, f"{LINKS}/{link}", f"{LINKS}/{link}/permissions", f"{LINKS}/{link}/stats", f"{LINKS}/{link}/visits", KEYS, USERS,
        f"{USERS}/me", SESSION, "/api/v1/stats", "/api/v1/orphans", "/api/v1/reconcile", "/stats?timeWindowMinutes=1", "/readyz")]
    answers += [
        shared.post(LINKS, json={"original_url": URL}), shared.patch(f"{LINKS}/{link}", json={"title": "x"}),
        shared.post("/api/v1/createURL", json={"original_url": URL}), shared.post(KEYS, json={"name": "new"}),
        shared.post(USERS, json={"email": "kept@example.com"}),
        shared.patch(f"{USERS}/kept@example.com", json={"first_name": "x"}),
        shared.post("/event", json=[]), sign_in(shared, person.user["email"]), shared.get(SESSION, key=None),
        person.patch(f"{USERS}/me", json={"password": "a new password", "current_password": PASSWORD})]
    for answer in answers:
        kept = [value for name, value in answer.raw.headers.items() if name.lower() == "cache-control"]
        assert kept == [NEVER_KEPT], f"{answer.request.method} {answer.request.url}: {kept}"
        assert "json" in answer.headers["Content-Type"], answer.request.url


@pytest.mark.parametrize("next", ["/ü", "/x\u2028y", "/\u00a0", "/\u3000//evil.example", "/\ufeff", "/a\u202eb"])
def test_a_form_leads_to_plain_paths_only(shared, next):
    user, plain = make_user(shared), "/~!*'();%C3%BC"
    for asked, led in ((next, "/"), (plain, plain)):
        done = shared.request("POST", SESSION, key=None, data={"email": user["email"], "password": PASSWORD, "next": asked})
        assert (done.status_code, done.headers["Location"]) == (303, led)


def test_unknown_api_keys_are_limited_by_address_and_known_ones_go_on(serve):
    server = serve("--workers", "1", "--limits-misses", "5")
    known = server.client(server.make_key()["key"])
    assert known.get("/api/v1/session").status_code == 200
    repeated = [server.get("/api/v1/session", key="ck_wrong").status_code for _ in range(20)]
    assert repeated == [401] * 20, "one that is known to be unknown costs nothing"
    guesses = [server.get("/api/v1/session", key=f"ck_guess{i}") for i in range(10)]
    assert [guess.status_code for guess in guesses] == [401] * 4 + [429] * 6
    assert_problem(guesses[-1], 429, "unknown API keys")
    assert int(guesses[-1].headers["Retry-After"]) > 0
    assert known.get("/api/v1/session").status_code == 200
    assert server.get("/api/v1/session", key="ck_wrong").status_code == 401


def test_a_list_of_keys_comes_in_pages(serve):
    server = serve("--workers", "1")
    made = [server.make_key(f"key {i}")["id"] for i in range(5)]
    seen, path = [], "/api/v1/keys?limit=2"
    while path:
        page = server.get(path).json()
        assert len(page["keys"]) <= 2
        seen += [key["id"] for key in page["keys"]]
        path = page["next"] and f"/api/v1/keys?limit=2&cursor={page['next']}"
    assert seen[-5:] == made and len(seen) == 6
    for bad in ("limit=0", "limit=1001", "cursor=x"):
        assert server.get(f"/api/v1/keys?{bad}").status_code == 400
