"""/api/v1/live: what happens, as it happens."""
import json
import signal
import time

import pytest

from reconciliation import settled
from harness import ADMIN_KEY, PATIENCE_S, VARIANT, assert_problem, hammer, scaled, until
from people import key_of, make_user
from prometheus import metric
from wire import request


class Feed:
    """A reader of server-sent events. Their form is checked strictly."""

    def __init__(self, server, query="", key=ADMIN_KEY):
        self.wire = server.connect()
        self.wire.send(request("GET", f"/api/v1/live{query}", key=key))
        self.text = b""
        while b"\r\n\r\n" not in self.text:
            self._more()
        self.head, self.text = self.text.split(b"\r\n\r\n", 1)
        assert self.head.startswith(b"HTTP/1.1 200 OK\r\n"), self.head
        assert b"\r\nContent-Type: text/event-stream\r\n" in self.head + b"\r\n"
        assert b"\r\nCache-Control: no-store\r\n" in self.head + b"\r\n"
        assert b"Content-Length" not in self.head

    def _more(self):
        piece = self.wire.sock.recv(65536)
        if not piece:
            raise EOFError
        self.text += piece

    def next(self):
        """(event, data) of the next event; comments are passed over."""
        while True:
            while b"\n\n" not in self.text:
                self._more()
            block, self.text = self.text.split(b"\n\n", 1)
            if block.startswith(b":"):
                continue
            event, data = block.decode().split("\n")
            assert event.startswith("event: ") and data.startswith("data: "), block
            return event[len("event: "):], json.loads(data[len("data: "):])

    def wait_for(self, wanted, seconds=PATIENCE_S):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            event, data = self.next()
            if event == wanted:
                return data
        raise AssertionError(f"no {wanted} came")

    def rest(self):
        """All events until the server ends the stream."""
        found = []
        try:
            while True:
                found.append(self.next())
        except EOFError:
            assert self.text == b"", f"half an event: {self.text[:200]}"
            return found


def impression(number, ad="an-ad"):
    return {"id": f"i-{number}", "ts": int(time.time() * 1000), "userId": "u", "adId": ad}


def test_clicks_orphans_and_impressions_are_reported_as_they_come(server):
    server.create(alias="here")
    feed = Feed(server)
    server.get("/here", key=None, headers={"Referer": "https://www.example.org/x", "User-Agent": "curl/8.5.0"})
    click = feed.wait_for("click")
    assert set(click) == {"t", "key", "referrer", "country", "browser", "os", "device", "language", "source", "bot"}
    assert click["key"] == "here" and "example.org" in click["referrer"] and click["bot"] == "http-library"
    assert feed.wait_for("totals")["clicks"] == 1
    server.head("/here", key=None)
    assert feed.wait_for("head")["key"] == "here"
    none = {"clicks": 0, "heads": 0, "prefetches": 0, "orphans": 0, "impressions": 0, "duplicates": 0}
    assert feed.wait_for("totals") == {**none, "heads": 1}
    server.get("/here", key=None, headers={"Sec-Purpose": "prefetch"})
    assert feed.wait_for("prefetch")["key"] == "here"
    assert feed.wait_for("totals") == {**none, "prefetches": 1}
    for path in ("nowhere", ""):
        server.get(f"/{path}", key=None)
        assert feed.wait_for("orphan")["key"] == path
        assert feed.wait_for("totals") == {**none, "orphans": 1}
    server.post("/event", json=impression(1), key=None)
    told = feed.wait_for("impression")
    assert set(told) == {"t", "adId"} and told["adId"] == "an-ad"
    assert feed.wait_for("totals") == {**none, "impressions": 1}
    server.post("/event", json=impression(1), key=None)
    assert feed.wait_for("totals") == {**none, "duplicates": 1}


def test_a_feed_of_one_link_tells_nothing_else(server):
    server.create(alias="mine")
    server.create(alias="other")
    feed = Feed(server, "?key=mine")
    for key in ("other", "mine", "other", "nowhere", "mine"):
        server.get(f"/{key}", key=None)
    server.post("/event", json=impression(2), key=None)
    settled(server)
    server.get("/mine?source=qr", key=None)
    found = [feed.next() for _ in range(3)]
    assert [(event, data["key"], data["source"]) for event, data in found] == [
        ("click", "mine", "link"), ("click", "mine", "link"), ("click", "mine", "qr")]


def test_who_may_watch_what(server):
    server.create(alias="admins")
    plain_key = server.make_key()["key"]
    plain = server.client(plain_key)
    plain.create(alias="own")
    assert_problem(plain.get("/api/v1/live"), 403, "?key=")
    assert_problem(plain.get("/api/v1/live?key=admins"), 404)
    assert_problem(plain.get("/api/v1/live?key=nowhere"), 404)
    assert_problem(server.get("/api/v1/live?key=nowhere"), 404)
    assert_problem(server.get("/api/v1/live?key=no.key"), 404)
    assert_problem(server.get("/api/v1/live", key=None), 401)
    assert_problem(server.post("/api/v1/live"), 405)
    for path in ("/api/v1/live", "/api/v1/live?key=own"):
        head = server.head(path)
        assert (head.status_code, head.headers["Content-Type"], head.content) == (200, "text/event-stream", b"")
    assert plain.head("/api/v1/live?key=own").status_code == 200
    feed = Feed(server, "?key=own", key=plain_key)
    server.get("/own", key=None)
    assert feed.wait_for("click")["key"] == "own"


def test_many_watch_at_once_and_all_are_told(server):
    server.create(alias="here")
    feeds = [Feed(server) for _ in range(16)]
    server.get("/here", key=None)
    for feed in feeds:
        assert feed.wait_for("click")["key"] == "here"


def test_a_reader_that_leaves_is_forgotten(server):
    server.create(alias="here")
    for _ in range(20):
        Feed(server).wire.close()
    feed = Feed(server)
    for _ in range(3):
        server.get("/here", key=None)
        feed.wait_for("click")
    closed = "curt_connections_closed_total"
    until(lambda: metric(server, closed) >= 20, "their connections are closed")


def watch_as(server, key, query=""):
    """The connection of one more watcher, and the first that it hears."""
    wire = server.connect()
    wire.send(request("GET", f"/api/v1/live{query}", key=key))
    return wire, wire.sock.recv(65536)


def watch_all(server, key, count):
    """So many watchers more; all must be let in."""
    feeds = []
    for _ in range(count):
        wire, head = watch_as(server, key)
        assert head.startswith(b"HTTP/1.1 200"), head
        feeds.append(wire)
    return feeds


def assert_full(server, key, word):
    _, head = watch_as(server, key)
    assert head.startswith(b"HTTP/1.1 503") and b"urn:curt:too-many-watchers" in head and word in head, head


def test_one_user_has_so_many_watchers_on_a_worker_and_no_more(serve):
    server = serve("--workers", "1")
    admin = make_user(server, "admin", password=None)
    key, another = (key_of(server, admin, admin=True)["key"] for _ in range(2))
    plain = key_of(server, make_user(server, password=None))["key"]
    server.client(plain).create(alias="own")
    feeds = watch_all(server, key, 10) + watch_all(server, another, 6)
    assert_full(server, key, b"You have 16 connections")
    assert_full(server, another, b"You have 16 connections")
    for _ in range(16):
        assert watch_as(server, plain, "?key=own")[1].startswith(b"HTTP/1.1 200"), "others have room of their own"
    assert watch_as(server, plain, "?key=own")[1].startswith(b"HTTP/1.1 503")
    feeds[0].close()
    until(lambda: watch_as(server, key)[1].startswith(b"HTTP/1.1 200"), "who leaves makes room")
    assert server.target("own")


def test_too_many_readers_are_refused_and_others_are_not(serve):
    server = serve("--workers", "1")
    keys = [key_of(server, make_user(server, "admin", password=None), admin=True)["key"] for _ in range(17)]
    feeds = [feed for key in keys[:16] for feed in watch_all(server, key, 16)]
    assert_full(server, keys[16], b"256 clients")
    feeds[0].close()
    until(lambda: watch_as(server, keys[16])[1].startswith(b"HTTP/1.1 200"), "who leaves makes room")
    assert_full(server, keys[16], b"256 clients")
    server.create(alias="here")
    assert server.connect().ask(request("HEAD", "/api/v1/live", key=ADMIN_KEY), "HEAD").status == 200
    assert server.target("here")


def test_a_stopping_server_ends_the_feed(serve):
    server = serve("--workers", "2", "--drain-time", "10m")  # it does not wait for the watcher until its patience ends
    server.create(alias="here")
    feed = Feed(server)
    server.get("/here", key=None)
    feed.wait_for("click")
    server.session.close()
    server.signal(signal.SIGTERM)
    feed.rest()
    feed.wire.close()
    assert server.wait_end() == 0


@pytest.mark.slow
@pytest.mark.alone
def test_a_reader_that_does_not_read_hurts_nobody(serve, tmp_path):
    server = serve("--workers", "1", "--worker-interval-ms", "1", "--worker-batch", "50")
    server.create(alias="here")
    keys = tmp_path / "keys"
    keys.write_text("here\n")
    deaf = server.connect(receive_buffer=4096)
    deaf.send(request("GET", "/api/v1/live", key=ADMIN_KEY))
    feed = Feed(server)
    before = server.status_field("VmRSS")
    report = hammer("redirect", port=server.port, keys=keys, connections=8, browsers=1, count=scaled(100_000))
    assert report["wrong"] == report["broken"] == 0
    now = settled(server)
    assert now["clicks_in_rollups"] == report["answered"]
    kept = 0 if VARIANT == "release" else 256 * 1024  # sanitizers keep what was freed for a while
    assert server.status_field("VmRSS") - before < 64 * 1024 + kept, "what it does not read is not kept for it"
    assert feed.wait_for("totals")["clicks"] > 0


def test_a_key_that_is_revoked_sees_no_more(counting):
    server = counting
    made = server.post("/api/v1/keys", json={"name": "watcher", "admin": True}).json()
    server.create(alias="here")
    feed = Feed(server, key=made["key"])
    server.target("here")
    feed.wait_for("click")
    assert server.delete(f"/api/v1/keys/{made['id']}").status_code == 204
    server.target("here")
    assert "click" not in [event for event, _ in feed.rest()]


def test_a_link_that_is_given_away_is_watched_no_more(counting):
    server = counting
    giver, taker = make_user(server), make_user(server)
    key, new_key = key_of(server, giver)["key"], key_of(server, taker)["key"]
    server.client(key).create(alias="given")
    feed, admins = Feed(server, "?key=given", key=key), Feed(server, "?key=given")
    server.target("given")
    assert feed.wait_for("click")["key"] == admins.wait_for("click")["key"] == "given"
    server.change("given", owner=taker["email"])
    server.target("given")
    with pytest.raises(EOFError):  # not even the first click after it
        feed.next()
    assert_problem(server.client(key).get("/api/v1/live?key=given"), 404)
    new_feed = Feed(server, "?key=given", key=new_key)
    assert admins.wait_for("click")["key"] == "given", "an admin need not own it"
    server.target("given")
    assert admins.wait_for("click")["key"] == new_feed.wait_for("click")["key"] == "given"


def test_who_gives_a_link_to_themselves_ends_nobodys_watching(counting):
    server = counting
    watching, busy = make_user(server), make_user(server)
    key, busy_key = key_of(server, watching)["key"], key_of(server, busy)["key"]
    server.client(key).create(alias="watched")
    feed = Feed(server, "?key=watched", key=key)
    server.client(busy_key).create(alias="own-all-along")
    for _ in range(3):
        server.client(busy_key).change("own-all-along", owner=busy["email"])
    server.target("watched")
    assert feed.wait_for("click")["key"] == "watched"
