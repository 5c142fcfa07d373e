"""A first start may die at any step, and the next one goes on."""
import contextlib
import json
import re
import socket

import pytest

from harness import ADMIN_KEY, ROOT, curt, until


def test_a_first_start_that_died_before_its_marker_stood_is_taken_up(nursery):
    server = nursery.server()
    server.data.mkdir()
    (server.data / "curt.lock").touch()
    (server.data / "curt.folder.12345.tmp").write_text("curt data fol")
    server.start()
    server.create(alias="first")
    assert server.target("first") == "https://example.com/"


def test_a_first_start_that_died_after_its_marker_shows_its_admin_key_the_next_time(nursery):
    server = nursery.server(admin_key=None)
    server.data.mkdir()
    (server.data / "curt.folder").write_text("curt data folder, format 1\n")
    server.start()
    assert len(re.findall(r"ck_[0-9A-Za-z]{40}", server.stdout)) == 1


def test_a_command_on_a_folder_that_was_never_served_makes_no_admin_key(nursery):
    server = nursery.server(admin_key=None)
    server.data.mkdir()
    (server.data / "curt.folder").write_text("curt data folder, format 1\n")
    assert curt("doctor", "--data", server.data).returncode == 0
    server.start()
    assert len(re.findall(r"ck_[0-9A-Za-z]{40}", server.stdout)) == 1


def test_an_address_that_a_killed_server_left_is_removed_before_anything_is_served(nursery):
    server = nursery.server()
    server.start()
    server.kill()
    stale = json.loads((server.data / "server.json").read_text())
    server.start()
    fresh = json.loads((server.data / "server.json").read_text())
    assert fresh["token"] != stale["token"]
    assert server.curt("link", "list").returncode == 0


@pytest.mark.embedded("it is about SQLite's files")
def test_two_servers_never_share_one_database(nursery, tmp_path):
    first = nursery.server("--store-url", f"sqlite:{tmp_path}/shared.db")
    first.start()
    done = curt("serve", "--data", tmp_path / "other", "--store-url", f"sqlite:{tmp_path}/shared.db", "--listen",
                "127.0.0.1:0")
    assert done.returncode == 1
    assert "shared.db is in use by another process" in done.stderr


# Wrong settings: nothing is created, and no key is shown

def settings():
    """(section, name, value as the page describes it) of every setting that the program has."""
    page = curt("help", "--settings").stdout
    for entry in page.split("\n### ")[1:]:
        section, name = re.match(r"(\w+)\.(\w+)\n", entry).groups()
        value = re.search(r"^- Value: (.*?)(?=^- |\Z|^#)", entry, re.MULTILINE | re.DOTALL)[1]
        yield section, name, " ".join(value.split())


WRONG = {  # of each text; other types know their right values themselves
    "serve.listen": ["nonsense", "127.0.0.1:99999", "::1:80", "example.com:80", "192.0.2.1:80", ""],
    "serve.base_url": ["ftp://s.example", "nonsense", "https://s.example/path", "https://ada@s.example"],
    "serve.trusted_proxies": ["nonsense", "10.0.0.1/8", "10.0.0.0/8,"],
    "store.url": ["nonsense", "oracle://db", "sqlite:/no/such/folder/links.db", "postgres://[x", "fault:ping=busy", "",
                  ",".join(["postgres://127.0.0.1/x"] * 33)],
    "store.replicas": ["nonsense", "sqlite:", "postgres://[x"],
    "cache.url": ["nonsense", "http://127.0.0.1", "redis://127.0.0.1:x", "redis://127.0.0.1,redis://127.0.0.1"],
    "limits.url": ["nonsense", "redis://@127.0.0.1"],
    "lease.url": ["nonsense", "zookeeper://127.0.0.1", "redis://a,redis://b", "file:"],
    "sink.url": ["nonsense", "sqlite:/no/such/folder/stats.db", "clickhouse://", "clickhouse://db/1", "postgres://[x", ""],
    "seen.url": ["nonsense", "redis://127.0.0.1/x"],
    "worker.listen": ["nonsense", "127.0.0.1"],
    "worker.places": ["/no/such/file", str(ROOT / "VERSION")],
    "keys.url": ["nonsense", "redis://127.0.0.1,redis://127.0.0.1"],
    "keys.db_url": ["nonsense", "sqlite:"],
    "keys.length": ["1", "3", "11"],
    "queue.url": ["nonsense", "kafka://", "kafka://ada@127.0.0.1"],
    "queue.group": [""],
    "queue.prefix": ["a b", "ö", "x" * 125],
    "queue.options": ["nonsense", "no.such.property=1", "security.protocol=nonsense", "=", "linger.ms=x"],
    "events.country_header": ["two words", "Länd", "a:b"],
    "log.file": ["/no/such/folder/log", "/"],
}
ANY_TEXT = {"serve.data"}  # a folder that cannot be created is an error of that folder


def wrong_values(section, name, expected):
    if f"{section}.{name}" in WRONG:
        return WRONG[f"{section}.{name}"]
    assert not expected.startswith("text"), f"WRONG has no value of {section}.{name}"
    return ["nonsense", "-1", ""]


def refuse(folder, text, *args, env=None):
    """A first start with these settings ends with a sentence, shows no key, and creates nothing."""
    (folder / "curt.conf").write_text(text)
    done = curt("serve", "--config", folder / "curt.conf", "--data", folder / "data", *args, env=env)
    assert (done.returncode, done.stdout) == (1, ""), (text, done)
    assert re.fullmatch(r"curt: .+\n", done.stderr), done.stderr
    assert [path.name for path in folder.iterdir()] == ["curt.conf"], text
    return done.stderr


@pytest.mark.embedded("it sets store.url and cache.url itself")
def test_every_wrong_value_of_every_setting_is_found_before_anything_is_created(tmp_path):
    rows = [row for row in settings() if f"{row[0]}.{row[1]}" not in ANY_TEXT]
    assert len(rows) > 80 and set(WRONG) <= {f"{section}.{name}" for section, name, _ in rows}
    for section, name, expected in rows:
        listen = "" if (section, name) == ("serve", "listen") else "[serve]\nlisten = 127.0.0.1:0\n"
        for value in wrong_values(section, name, expected):
            said = refuse(tmp_path, f"{listen}[{section}]\n{name} = {value}\n")
            shown = {"log.file": "log file", "serve.listen": "listen"}.get(f"{section}.{name}", f"{section}.{name}")
            assert shown in said, (value, said)


@pytest.mark.embedded("it is about SQLite, too")
@pytest.mark.parametrize("text, word", [
    ("[keys]\nlow = 10\nhigh = 5\n", "keys.low = 10"), ("[keys]\ndb_low = 10\ndb_high = 5\n", "keys.db_low = 10"),
    ("[keys]\nsource = pool\n", "keys.url is not set"), ("[keys]\nsource = claim\n", "keys.source = claim"),
    ("[serve]\nrole = stats\n", "serve.role = stats needs a shared sink"),
    ("[queue]\nurl = kafka://127.0.0.1:1\noptions = security.protocol=ssl,ssl.ca.location=/no/such/file\n", "queue.options"),
], ids=str)
def test_settings_that_contradict_each_other_are_found_before_anything_is_created(tmp_path, text, word):
    assert word in refuse(tmp_path, text, "--listen", "127.0.0.1:0")


def test_a_port_that_is_taken_leaves_no_folder_behind(tmp_path):
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        said = refuse(tmp_path, "", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert "--listen" in said


@pytest.mark.parametrize("key", ["short", "with a space", "ends with a newline\n", "Schlüssel"])
def test_an_admin_key_that_cannot_be_sent_is_found_before_anything_is_created(tmp_path, key):
    assert "CURT_ADMIN_KEY" in refuse(tmp_path, "", "--listen", "127.0.0.1:0", env={"CURT_ADMIN_KEY": key})


@pytest.mark.parametrize("flags, word", [
    ([], "store.url = sqlite:"), (["--store-url", "postgres://127.0.0.1:1/x"], "sink.url = sqlite:"),
    (["--worker-places", "/no/such/file"], "store.url"), (["--queue-options", "nonsense"], "queue.options"),
], ids=str)
def test_a_worker_with_wrong_settings_creates_nothing(tmp_path, flags, word):
    done = curt("worker", "--queue-url", "kafka://127.0.0.1:1", *flags, env={"CURT_DATA": tmp_path / "data"})
    assert (done.returncode, done.stdout) == (1, "") and word in done.stderr
    assert list(tmp_path.iterdir()) == []


# CURT_ADMIN_KEY at later starts

def test_the_admin_key_of_the_first_start_may_stay_in_the_environment(nursery):
    server = nursery.server().start()
    server.restart()
    assert "CURT_ADMIN_KEY" not in server.stderr
    assert server.get("/api/v1/keys").status_code == 200


def test_another_admin_key_is_not_ignored_silently(nursery):
    server = nursery.server().start()
    server.stop()
    server.env["CURT_ADMIN_KEY"] = "ck_another-admin-key"
    server.start()
    warning = until(lambda: re.search(r"warn .*CURT_ADMIN_KEY is ignored.*", server.stderr), "the warning is logged")[0]
    assert "curt key create" in warning and "another-admin-key" not in warning
    assert server.get("/api/v1/keys", key="ck_another-admin-key").status_code == 401
    assert server.get("/api/v1/keys", key=ADMIN_KEY).status_code == 200


def test_a_revoked_admin_key_in_the_environment_is_reported(nursery):
    server = nursery.server().start()
    key = server.make_key("second", admin=True)["key"]
    first = [row["id"] for row in server.keys() if row["name"] == "admin"][0]
    assert server.delete(f"/api/v1/keys/{first}", key=key).status_code == 204
    server.restart()
    until(lambda: "CURT_ADMIN_KEY is ignored" in server.stderr, "the warning is logged")


# Links without a server

def test_a_command_without_a_server_prints_the_links_of_the_last_one(nursery):
    server = nursery.server("--base-url", "https://s.example").start()
    server.stop()
    assert server.curt("link", "create", "https://example.com/", "--alias", "x").stdout == "https://s.example/x\n"
    done = server.curt("link", "create", "https://s.example/x")
    assert done.returncode == 1 and "points back to this server" in done.stderr
    done = curt("link", "get", "x", "--data", server.data, env={"CURT_BASE_URL": "https://t.example"})
    assert "https://t.example/x" in done.stdout, "a setting is stronger"
    server.start("--base-url", "https://u.example")
    server.stop()
    assert "https://u.example/x" in server.curt("link", "get", "x").stdout
