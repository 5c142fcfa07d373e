"""No key twice, none lost: through crashes, restarts, and several processes at once."""
import json
import random
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from harness import ADMIN_KEY, curt, hammer, hammer_end, hammer_start, scaled, until
from lives import CONNECTIONS, CRASHES, CREATES
from prometheus import metric

pytestmark = pytest.mark.slow


# A million creates from 64 connections, through 20 crashes

def test_as_many_links_as_wanted_were_acknowledged(many_lives):
    assert many_lives.acknowledged >= CREATES
    assert len(many_lives.reports) == CRASHES + 1
    assert all(report["wrong"] == 0 for report in many_lives.reports), "every answer was a 201"
    assert all(report["connections_left"] == 0 for report in many_lives.reports[:-1]), "each crash cut all connections"
    assert many_lives.reports[-1]["connections_left"] == CONNECTIONS


def test_no_key_was_given_out_twice(many_lives):
    keys = [key for key, _ in many_lives.entries()]
    assert len(keys) == many_lives.acknowledged
    assert len(set(keys)) == len(keys)


def test_no_acknowledged_link_was_lost(many_lives, tmp_path):
    ledger = tmp_path / "all"
    with open(ledger, "wb") as whole:
        for part in many_lives.ledgers:
            whole.write(part.read_bytes())
    server = many_lives.running()
    report = hammer("verify", port=server.port, ledger=ledger, connections=CONNECTIONS, pipeline=16)
    assert report["answered"] == many_lives.acknowledged
    assert (report["wrong"], report["broken"]) == (0, 0), report["first_wrong"]


@pytest.mark.embedded("it is about SQLite's files")
def test_the_store_is_sound_and_holds_no_more_than_was_sent(many_lives):
    server = many_lives.stopped()
    database = sqlite3.connect(f"file:{server.data}/links.db?mode=ro", uri=True)
    count, = database.execute("SELECT count(*) FROM link").fetchone()
    unanswered = sum(report["broken"] for report in many_lives.reports)
    assert many_lives.acknowledged <= count <= many_lives.acknowledged + unanswered
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()


# Clients that repeat themselves through crashes

def test_orders_that_are_repeated_through_crashes_make_one_link_each(server):
    orders, threads, crashes = scaled(4000), 8, 8
    chance = random.Random(5)
    restarting = threading.Lock()
    made, trouble = {}, []

    def place(number):
        session = requests.Session()
        session.trust_env = False
        try:
            for order in range(number, orders, threads):
                while order not in made:
                    try:
                        response = session.post(
                            f"{server.url}/api/v1/links", json={"original_url": f"https://example.com/{order}"},
                            headers={"Authorization": f"Bearer {ADMIN_KEY}", "Idempotency-Key": f"order-{order}"},
                            timeout=60)
                    except requests.RequestException:
                        with restarting:  # wait for the next life
                            continue
                    assert response.status_code == 201, response.text
                    made[order] = response.json()["key"]
        except Exception as problem:  # told below, in the test's own thread
            trouble.append(problem)
        session.close()

    workers = [threading.Thread(target=place, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for crash in range(crashes):
        target = (crash + chance.random()) * orders / (crashes + 1)
        until(lambda: len(made) >= target or trouble, "orders are placed")
        with restarting:
            server.kill()
            server.start()
    for worker in workers:
        worker.join()
    assert not trouble, trouble
    assert len(made) == orders and len(set(made.values())) == orders
    assert sorted(made.values()) == sorted(link["key"] for link in server.links())


# Several processes

def keys_of(results):
    for done in results:
        assert done.returncode == 0, done.stderr
    return [json.loads(done.stdout)["key"] for done in results]


def test_the_command_line_and_a_busy_server_share_the_keys_without_a_clash(server, tmp_path):
    ledger, count = tmp_path / "ledger", scaled(60_000)
    load = hammer_start("create", port=server.port, token=ADMIN_KEY, ledger=ledger, prefix="load", connections=16,
                        count=count)
    until(lambda: metric(server, "curt_links_created_total") > 0, "the load has begun")
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda i: server.curt("link", "create", f"https://example.com/cli/{i}", "--json"),
                                range(40)))
    keys = keys_of(results)
    report = hammer_end(load)
    assert (report["acknowledged"], report["wrong"]) == (count, 0)
    loaded = [line.split()[0] for line in ledger.read_text().splitlines()]
    assert len(set(loaded + keys)) == count + 40
    assert [server.target(key) for key in keys] == [f"https://example.com/cli/{i}" for i in range(40)]


def test_eight_commands_at_once_on_a_folder_without_a_server_take_turns(server):
    server.stop()
    rounds = 2

    def create_once(i):
        done = curt("link", "create", f"https://example.com/{i}", "--json", "--data", server.data)
        return None if "is in use by a process that does not answer; wait for it" in done.stderr else done

    def create(i):  # on a slow machine one may wait in vain for its turn, and gets a 503
        return until(lambda: create_once(i), "it is its turn")

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(create, range(8 * rounds)))
    keys = keys_of(results)
    assert len(set(keys)) == 8 * rounds
    server.start()
    assert [server.target(key) for key in keys] == [f"https://example.com/{i}" for i in range(8 * rounds)]
    assert len(server.links()) == 8 * rounds


def test_commands_and_servers_in_turn_never_give_a_key_twice(server):
    keys = []
    for i in range(6):
        keys += [server.create()["key"] for _ in range(5)]
        server.kill() if i % 2 else server.stop()
        keys += keys_of([server.curt("link", "create", "https://example.com/", "--json") for _ in range(2)])
        server.start()
    assert len(set(keys)) == len(keys) == 42
    assert sorted(link["key"] for link in server.links()) == sorted(keys)


# A long random history

def test_a_random_history_with_crashes_in_it_agrees_with_a_model(server):
    """One client, so every answer and every redirect is known beforehand."""
    chance, model = random.Random(6), {}
    names = [f"name-{i}" for i in range(40)]
    operations = scaled(5000) + 200

    def some_fields():
        fields = {"original_url": f"https://example.com/{chance.randrange(10**9)}",
                  "redirect_status": chance.choice((301, 302, 307, 308)), "enabled": chance.random() < 0.7,
                  "title": chance.choice((None, "t", "ü" * 20)), "tags": chance.choice(([], ["a"], ["b", "c"]))}
        return {name: fields[name] for name in chance.sample(sorted(fields), chance.randrange(1, 6))}

    for number in range(operations):
        name = chance.choice(names)
        action = chance.choice(("create", "change", "change", "remove", "look", "follow", "follow", "follow"))
        known = model.get(name)
        if action == "create":
            fields = {"original_url": "https://example.com/", **some_fields()}
            response = server.post("/api/v1/links", json=dict(fields, alias=name))
            assert response.status_code == (409 if known else 201)
            if not known:
                model[name] = {"redirect_status": 302, "enabled": True, "title": None, "tags": [], **fields}
        elif action == "change":
            fields = some_fields()
            response = server.patch(f"/api/v1/links/{name}", json=fields)
            assert response.status_code == (200 if known else 404)
            if known:
                known.update(fields)
        elif action == "remove":
            assert server.delete(f"/api/v1/links/{name}").status_code == (204 if known else 404)
            model.pop(name, None)
        elif action == "look":
            link = server.link(name)
            assert (link and {field: link[field] for field in known}) == known
        else:
            response = server.get(f"/{name}", key=None)
            if known and known["enabled"]:
                assert (response.status_code, response.headers["Location"]) == (known["redirect_status"],
                                                                               known["original_url"])
            else:
                assert response.status_code == 404
        if number % (operations // 6) == operations // 7:
            server.kill()
            server.start()
    assert {link["key"] for link in server.links()} == set(model)
