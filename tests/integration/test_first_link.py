"""From a fresh start to a working short link, and through every way a server can end."""
import json
import re
import signal
import socket

import pytest

from harness import ADMIN_KEY, Client, assert_problem, curt, folder_bytes, until
from wire import Closed, request

KEY_LINE = re.compile(r"ck_[0-9A-Za-z]{40}")


def test_a_link_that_was_made_redirects(server):
    link = server.create("https://example.com/a/long/address", alias="first")
    assert link["short_url"] == server.url + "/first"
    answer = server.get("/first", key=None)
    assert answer.status_code == 302
    assert answer.headers["Location"] == "https://example.com/a/long/address"
    assert answer.headers["Cache-Control"] == "private, no-store"
    assert answer.content == b""


def test_a_link_without_an_alias_gets_a_key_of_seven_characters_that_redirects(server):
    link = server.create("https://example.com/x")
    assert re.fullmatch(r"[0-9A-Za-z]{7}", link["key"])
    assert server.target(link["key"]) == "https://example.com/x"


@pytest.mark.parametrize("path", ["/first", "/first+", "/missing", "/", "/healthz", "/readyz", "/no/such/address",
                                  "/api/v1/links", "/api/v1/links/first", "/api/v1/keys", "/api/v1/openapi.json"])
@pytest.mark.parametrize("times", ["at first", "from the cache"])
def test_head_equals_get_without_the_body(server, path, times):
    server.create(alias="first")
    if times == "from the cache":
        server.get(path)
    wire = server.connect()
    head = wire.ask(request("HEAD", path, key=ADMIN_KEY), method="HEAD")
    get = wire.ask(request("GET", path, key=ADMIN_KEY))
    assert head.status == get.status
    assert [f for f in head.fields if f[0] != "Date"] == [f for f in get.fields if f[0] != "Date"]
    assert int(head["Content-Length"]) == len(get.body)


def some_history(server):
    """Creates, changes and deletes; gives what must be there afterwards, by key."""
    wanted = {}
    for i in range(60):
        fields = {"alias": f"name-{i}"} if i % 2 else {}
        link = server.create(f"https://example.com/{i}", title=f"title {i}", tags=["a", "b"], **fields)
        wanted[link["key"]] = link
    for i, key in enumerate(list(wanted)):
        if i % 3 == 0:
            wanted[key] = server.change(key, original_url=f"https://example.org/{i}", redirect_status=308)
        elif i % 7 == 0:
            server.remove(key)
            wanted[key] = None
    return wanted


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_everything_acknowledged_is_there_after_the_server_is_started_again(server, end):
    wanted = some_history(server)
    key = server.make_key("kept", creates_limit=7)
    getattr(server, end)()
    server.start()
    for name, link in wanted.items():
        found = server.link(name)
        if link:  # the port has changed, and with it what short URLs begin with
            assert dict(found, short_url=None, domain=None) == dict(link, short_url=None, domain=None)
            assert server.target(name) == link["original_url"]
        else:
            assert found is None and server.target(name) is None
    assert len(server.links()) == sum(link is not None for link in wanted.values())
    assert {k: v for k, v in key.items() if k != "key"} in server.keys()
    assert server.get("/api/v1/links", key=key["key"]).status_code == 200


@pytest.mark.embedded("it is about SQLite's files")
def test_a_clean_stop_leaves_no_log_and_no_address_behind(server):
    server.create()
    assert (server.data / "server.json").exists()
    server.stop()
    left = set(folder_bytes(server.data))
    assert {"curt.folder", "links.db"} <= left
    assert not left & {"server.json", "links.db-wal", "links.db-shm"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_stop_ends_the_server_with_status_0(server, number):
    server.get("/healthz")
    server.close()
    server.signal(number)
    assert server.wait_end() == 0


def is_refused(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_request_under_way_when_the_server_stops_gets_its_answer(serve):
    server = serve("--drain-time", "10m")
    body = '{"original_url": "https://example.com/late", "alias": "late"}'
    whole = request("POST", "/api/v1/links", key=ADMIN_KEY, body=body)
    wire = server.connect()
    wire.send(whole[:-20])
    until(lambda: server.has_read(wire), "the first part has arrived")
    server.session.close()
    server.signal(signal.SIGTERM)
    until(lambda: is_refused(server.port), "no new connection is taken")
    wire.send(whole[-20:])
    answer = wire.read()
    assert answer.status == 201 and answer["Connection"] == "close"
    assert wire.is_closed()
    wire.close()
    assert server.wait_end() == 0
    server.start()
    assert server.target("late") == "https://example.com/late"


def test_a_stopping_server_closes_idle_connections_at_once(serve):
    server = serve("--drain-time", "10m")
    idle = [server.connect() for _ in range(20)]
    for wire in idle:
        assert wire.get("/healthz").status == 200
    server.session.close()
    server.signal(signal.SIGTERM)
    for wire in idle:
        assert wire.is_closed()
        wire.close()
    assert server.wait_end() == 0


def test_a_request_that_never_ends_does_not_hold_a_stopping_server_beyond_its_drain_time(serve):
    server = serve("--drain-time", "200ms", "--limits-head-time", "1h")
    wire = server.connect()
    wire.send(b"GET /he")
    until(lambda: server.has_read(wire), "the first part has arrived")
    server.session.close()
    server.signal(signal.SIGTERM)
    assert server.wait_end() == 0
    with pytest.raises(Closed):
        wire.read()


def test_creates_under_way_when_the_server_stops_are_all_answered_or_not_taken(server):
    wires = [server.connect() for _ in range(30)]
    for i, wire in enumerate(wires):
        body = f'{{"original_url": "https://example.com/{i}", "alias": "under-way-{i}"}}'
        wire.send(request("POST", "/api/v1/links", key=ADMIN_KEY, body=body))
    server.signal(signal.SIGTERM)
    answered = set()
    for i, wire in enumerate(wires):
        for answer in wire.answers_until_closed():
            assert answer.status == 201
            answered.add(f"under-way-{i}")
        wire.close()
    server.session.close()
    assert server.wait_end() == 0
    server.start()
    assert answered <= {link["key"] for link in server.links()}


# Signals and settings

def log_says(server, *words):
    return lambda: any(all(word in line for word in words) for line in server.stderr.splitlines())


def test_sighup_applies_a_new_log_level(serve, tmp_path):
    config = tmp_path / "curt.ini"
    config.write_text("[log]\nlevel = error\n")
    server = serve("--config", config)
    config.write_text("[log]\nlevel = info\n")
    server.signal(signal.SIGHUP)
    until(log_says(server, "info", "settings reloaded"), "the log tells of it at level info")
    lines = server.stderr.count("\n")
    config.write_text("[log]\nlevel = error\n")
    server.signal(signal.SIGHUP)
    config_is_read = server.create(alias="still-there")
    assert config_is_read and server.target("still-there")
    server.stop()
    assert server.stderr.count("\n") == lines, "at level error neither the reload nor the stop is logged"


def test_sighup_with_a_broken_file_changes_nothing_and_says_so(serve, tmp_path):
    config = tmp_path / "curt.ini"
    config.write_text("[log]\nlevel = info\n")
    server = serve("--config", config)
    server.create(alias="here")
    config.write_text("[log]\nlevel = loud\n")
    server.signal(signal.SIGHUP)
    until(log_says(server, "error", "the settings are unchanged", f"{config}:2", "loud"), "the log says why not")
    assert server.target("here") == "https://example.com/"


def test_sighup_says_what_only_a_restart_can_change(serve, tmp_path):
    config = tmp_path / "curt.ini"
    config.write_text("[cache]\nmemory = 16m\n")
    server = serve("--config", config)
    config.write_text("[cache]\nmemory = 32m\n")
    server.signal(signal.SIGHUP)
    until(log_says(server, "warn", "restart to apply it", "setting=cache.memory"), "the log says so")


def test_sighup_opens_the_log_file_anew_after_rotation(serve, tmp_path):
    log, rotated = tmp_path / "curt.log", tmp_path / "curt.log.1"
    server = serve("--log-file", log)
    log.rename(rotated)
    server.signal(signal.SIGHUP)
    until(lambda: log.exists() and "settings reloaded" in log.read_text() + rotated.read_text(), "the new file is there")
    server.stop()
    assert "stopping" in log.read_text() and "stopping" not in rotated.read_text()


def test_the_log_can_be_json_lines(serve, tmp_path):
    log = tmp_path / "curt.log"
    server = serve("--log-file", log, "--log-format", "json")
    server.stop()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert any("stopping" in line.values() for line in lines)


# The first key

def test_the_first_start_prints_an_admin_key_exactly_once_and_it_works(nursery):
    server = nursery.server(admin_key=None).start()
    key, = KEY_LINE.findall(server.stdout)
    admin = server.client(key)
    assert [k["name"] for k in admin.keys()] == ["admin"]
    admin.create(alias="by-the-admin")
    for end in (server.stop, server.kill):
        end()
        server.start()
        assert len(KEY_LINE.findall(server.stdout)) == 1, "it is never printed again"
        assert server.client(key).link("by-the-admin")
    assert key not in server.stderr


def test_a_preset_admin_key_is_not_printed_and_works(serve):
    server = serve(admin_key="a-key-of-my-own-choice")
    assert "admin key" not in server.stdout and "a-key-of-my-own-choice" not in server.stdout
    assert Client(server.url, "a-key-of-my-own-choice").keys()
    assert_problem(server.get("/api/v1/keys", key="a-key-of-my-own-choic"), 401, "unknown")


def test_a_preset_admin_key_counts_on_a_fresh_folder_only(nursery):
    first = nursery("--workers", "1")
    first.stop()
    second = nursery(data=first.data, admin_key="another-key-later")
    assert second.get("/api/v1/keys", key=ADMIN_KEY).status_code == 200
    assert second.get("/api/v1/keys", key="another-key-later").status_code == 401


def test_the_ready_line_names_the_port_that_the_system_chose(serve):
    server = serve()
    assert server.port > 0 and server.stdout.endswith(f"listening on http://127.0.0.1:{server.port}\n")


def test_a_browser_finds_a_front_page(server):
    page = server.get("/", key=None, headers={"Accept": "text/html"})
    assert page.status_code == 200 and page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert f"{server.url}/api/v1/links" in page.text
