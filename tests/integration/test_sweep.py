"""Links whose time is over are removed, and only those; their aliases rest for a while."""
import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import ADMIN_KEY, assert_problem, hammer_end, hammer_start, is_over, moment, scaled, soon, until, until_status
from people import Crowd, make_person
from prometheus import metric
from wire import request

URL = "https://example.com/"
NEVER = ("--workers", "2", "--sweep-interval", "0ms")


def sweep(client):
    response = client.post("/api/v1/sweep")
    assert response.status_code == 200, response.text
    told = response.json()
    assert set(told) == {"removed", "remaining"}
    return told


def sweep_all(client):
    removed = 0
    while True:
        told = sweep(client)
        removed += told["removed"]
        if told["remaining"] == 0:
            return removed
        assert told["removed"] > 0, "it gets on"


def make_many(server, count, **fields):
    """Links by many connections at once; their keys."""
    keys = []
    with Crowd(server, 8) as crowd:
        for at, wire in enumerate(crowd.wires):
            share = len(range(at, count, 8))
            wire.send(request("POST", "/api/v1/links", key=ADMIN_KEY, body=json.dumps({"original_url": URL, **fields})) * share)
        for at, wire in enumerate(crowd.wires):
            for _ in range(at, count, 8):
                answer = wire.read()
                assert answer.status == 201, answer
                keys.append(json.loads(answer.body)["key"])
    return keys


def make_many_ending(server, count, milliseconds):
    """Links that end so soon, or not much later; their keys, and when each ends."""
    made = {}
    while len(made) < count:
        ends = soon(milliseconds)
        data = request("POST", "/api/v1/links", key=ADMIN_KEY, body=json.dumps({"original_url": URL, "expires_at": ends}))
        shares = [len(range(at, count - len(made), 8)) for at in range(8)]
        with Crowd(server, 8) as crowd:
            for wire, share in zip(crowd.wires, shares):
                wire.send(data * share)
            answers = [wire.read() for wire, share in zip(crowd.wires, shares) for _ in range(share)]
        for answer in answers:
            assert answer.status == 201 or answer.status == 400 and b"past" in answer.body, answer
        made.update({json.loads(answer.body)["key"]: ends for answer in answers if answer.status == 201})
        milliseconds *= 2  # for those that would have ended before they were made
    return made


def wait_until(end):
    until(lambda: is_over(end), "its time has come")


def keys_of(server):
    return {link["key"] for link in server.links()}


def assert_sound(server):
    server.stop()
    done = server.curt("verify")
    assert done.returncode == 0 and done.stdout.endswith("no damage found\n"), done.stdout


# What goes and what stays

def test_what_is_over_goes_and_all_else_stays(serve):
    server = serve(*NEVER)
    over = make_many_ending(server, 300, 1500)
    late = server.create_ending(1500, alias="late", expired_url="https://example.com/late")
    for link in (late, server.create_ending(1500, alias="over-private", visibility="private", password="x"),
                 server.create_ending(1500, alias="over-limited", max_clicks=3),
                 server.create_ending(1500, alias="over-disabled", enabled=False)):
        over[link["key"]] = link["expires_at"]
    begin_to_end, ends = min(over.values(), key=moment), max(over.values(), key=moment)
    over = set(over) - {"late"}
    stay = set(make_many(server, 50)) | set(make_many(server, 50, expires_at="2099-01-01"))
    stay.add(server.create(alias="never", expires_at=None)["key"])
    stay.add("late")
    stay.add(server.create(alias="early", not_before="2098-01-01", expires_at="2099-01-01")["key"])
    stay.add(server.create(alias="off", enabled=False)["key"])
    stay.add(server.create(alias="spent", max_clicks=1)["key"])
    assert server.target("spent") == URL
    early = sweep(server)
    assert early == {"removed": 0, "remaining": 0} or is_over(begin_to_end), "nothing goes before its time"
    wait_until(ends)
    left = keys_of(server)
    assert stay <= left <= stay | over and len(left) == len(stay) + len(over) - early["removed"], "nobody has asked for them"
    assert sweep_all(server) == len(over) - early["removed"]
    assert keys_of(server) == stay
    assert sweep(server) == {"removed": 0, "remaining": 0}
    assert server.target("late") == "https://example.com/late"
    assert server.target("never") == URL
    assert metric(server, "curt_links_swept_total") == len(over)
    assert_sound(server)


def test_one_that_was_prolonged_stays(serve):
    server = serve(*NEVER)
    for end in [server.create_ending(600, alias=f"x{number}")["expires_at"] for number in range(20)]:
        wait_until(end)
    for number in range(0, 20, 2):
        server.change(f"x{number}", expires_at="2099-01-01")
    assert sweep_all(server) == 10
    assert keys_of(server) == {f"x{number}" for number in range(0, 20, 2)}
    assert all(server.target(f"x{number}") == URL for number in range(0, 20, 2))


def test_one_that_is_asked_for_goes_without_a_sweep(serve):
    server = serve(*NEVER)
    ends = make_many_ending(server, 10, 500)
    keys = list(ends)
    wait_until(max(ends.values()))
    assert [server.target(key) for key in keys[:5]] == [None] * 5
    until(lambda: keys_of(server) == set(keys[5:]), "those that were asked for are gone")
    assert sweep(server)["removed"] == 5


def test_the_server_sweeps_by_itself(serve):
    server = serve("--workers", "2", "--sweep-interval", "100ms")
    keep = server.create()["key"]
    for _ in range(2):
        make_many_ending(server, 100, 300)
        until(lambda: keys_of(server) == {keep}, "they are swept away")


def test_sweeping_needs_an_admin(serve):
    server = serve(*NEVER)
    assert_problem(server.post("/api/v1/sweep", key=None), 401)
    assert_problem(make_person(server, "editor").post("/api/v1/sweep"), 403)


def test_the_command_line_sweeps_until_nothing_is_left(serve):
    server = serve(*NEVER)
    ends = make_many_ending(server, 200, 800)
    keep = server.create()["key"]
    wait_until(max(ends.values()))
    done = server.curt("sweep")
    assert done.returncode == 0 and "200" in done.stdout, done
    assert keys_of(server) == {keep}


def test_two_sweeps_at_once_remove_everything_once(serve):
    server = serve(*NEVER)
    wait_until(max(make_many_ending(server, 1000, 1500).values()))
    with ThreadPoolExecutor(3) as pool:
        told = list(pool.map(sweep_all, [server.client() for _ in range(3)]))
    assert sum(told) == 1000 and server.links() == []
    assert metric(server, "curt_links_swept_total") == 1000


# Under load and through crashes

def test_links_are_followed_and_made_while_others_are_swept(serve, tmp_path):
    server = serve(*NEVER)
    ends = make_many_ending(server, scaled(3000), 1500)
    stay = make_many(server, 100)
    keys = tmp_path / "keys"
    keys.write_text("".join(f"{key}\n" for key in stay))
    wait_until(max(ends.values()))
    followers = hammer_start("redirect", port=server.port, keys=keys, connections=16, seconds=600, rate=3000)
    maker = hammer_start("create", port=server.port, token=ADMIN_KEY, ledger=tmp_path / "made", prefix="meanwhile",
                         connections=4, count=scaled(1000))
    assert sweep_all(server) == scaled(3000)
    made = hammer_end(maker)
    assert made["wrong"] == made["broken"] == 0
    until(lambda: metric(server, "curt_redirects_total") > 200, "links are followed")
    server.kill()  # ends the followers
    report = hammer_end(followers)
    assert report["wrong"] == 0 and report["answered"] > 100, report
    server.start()
    assert len(keys_of(server)) == 100 + made["acknowledged"]
    assert_sound(server)


@pytest.mark.slow
def test_a_crash_in_the_middle_of_a_sweep_leaves_a_sound_store_and_the_sweep_goes_on(serve):
    server, chance = serve(*NEVER), random.Random(6)
    stay = set(make_many(server, 50))
    for _ in range(scaled(5)):
        over = make_many_ending(server, scaled(2000), 1500)
        wait_until(max(over.values()))
        over = set(over)
        thread = threading.Thread(target=sweep_until_cut_off, args=(server.client(),))
        thread.start()
        until(lambda: metric(server, "curt_links_swept_total") > 0, "the sweep is under way")
        time.sleep(chance.uniform(0, 0.05))  # the moment of the crash
        server.kill()
        thread.join()
        verified = server.curt("verify")
        assert verified.returncode == 0 and verified.stdout.endswith("no damage found\n"), verified.stdout
        assert server.curt("doctor").returncode == 0
        server.start()
        left = keys_of(server)
        assert stay <= left <= stay | over
        assert sweep_all(server) == len(left - stay), "it goes on where it was"
        assert keys_of(server) == stay
    assert_sound(server)


def sweep_until_cut_off(client):
    try:
        while True:
            client.post("/api/v1/sweep")
    except Exception:  # noqa: BLE001 - the server is dead, whatever the client library calls that
        pass


# Aliases rest

def test_a_quarantined_alias_is_free_after_its_quarantine(serve):
    server = serve(*NEVER, "--keys-quarantine", "2s")
    owner, other = make_person(server), make_person(server)
    ends = {alias: owner.create_ending(600, alias=alias)["expires_at"] for alias in ("swept", "left-there")}
    wait_until(ends["swept"])
    assert server.target("swept") is None
    for alias in ("swept", "left-there"):
        body = {"original_url": "https://example.com/new", "alias": alias}
        taken = until_status(lambda: other.post("/api/v1/links", json=body), 201)
        assert is_over(ends[alias], 2000), "not before its time"
        assert taken.json()["key"] == alias and server.target(alias) == "https://example.com/new"


def test_a_quarantine_of_zero_is_none(serve):
    server = serve(*NEVER, "--keys-quarantine", "0ms")
    owner, other = make_person(server), make_person(server)
    wait_until(owner.create_ending(500, alias="restless")["expires_at"])
    other.create("https://example.com/new", alias="restless")
    assert server.target("restless") == "https://example.com/new"
    assert owner.link("restless") is None
