"""A server that is told to end answers everybody whose connection the system had established, and then closes."""
import signal
import socket

import pytest

from harness import ADMIN_KEY, PATIENCE_S, scaled, until
from wire import request

KNOWN = request("GET", "/known")
CREATE = request("POST", "/api/v1/links", "Content-Type: application/json", key=ADMIN_KEY,
                 body='{"original_url": "https://example.com/new"}')


@pytest.fixture
def known(serve):
    server = serve("--workers", "2", "--drain-time", "60s")
    server.create("https://example.com/known", alias="known")
    server.session.close()
    return server


def is_refused(port):
    with socket.socket() as sock:
        sock.settimeout(PATIENCE_S)
        return sock.connect_ex(("127.0.0.1", port)) != 0


def ends_well(server):
    assert server.wait_end() == 0, server.stderr


def test_connections_in_the_systems_queue_are_answered(known):
    """Both workers have a queue of their own. Nothing was accepted and nothing was read when the signal came."""
    known.freeze()
    wires = [known.connect() for _ in range(200 + scaled(400))]
    for number, wire in enumerate(wires):
        wire.send(CREATE if number % 4 == 0 else KNOWN)
    known.signal(signal.SIGTERM)
    known.thaw()
    for number, wire in enumerate(wires):
        assert wire.read().status == (201 if number % 4 == 0 else 302)
        assert wire.is_closed()
    ends_well(known)


def test_a_request_that_has_arrived_on_an_idle_connection_is_answered(known):
    wires = [known.connect() for _ in range(20)]
    assert all(wire.ask(KNOWN).status == 302 for wire in wires)
    known.freeze()
    for wire in wires[:10]:
        wire.send(KNOWN)
    known.signal(signal.SIGTERM)
    known.thaw()
    assert all(wire.read().status == 302 for wire in wires[:10])
    assert all(wire.is_closed() for wire in wires)
    ends_well(known)


def test_a_new_connection_has_time_for_its_request(known):
    wires = [known.connect() for _ in range(8)]
    known.signal(signal.SIGTERM)
    until(lambda: is_refused(known.port), "the listener has closed")
    for wire in wires:
        answer = wire.ask(KNOWN)
        assert (answer.status, answer["Connection"]) == (302, "close")
    ends_well(known)


def test_a_new_connection_that_says_nothing_does_not_hold_up_the_end(serve):
    server = serve("--drain-time", "600s", "--limits-head-time", "600s")  # a tenth: beyond the patience of this test
    silent = server.connect()
    server.signal(signal.SIGTERM)
    until(lambda: is_refused(server.port), "the listener has closed")
    silent.close()
    ends_well(server)
    server = serve("--drain-time", "1s")
    silent = server.connect()
    server.signal(signal.SIGTERM)
    assert silent.is_closed()
    ends_well(server)


def test_more_connections_than_a_worker_takes_are_answered_one_after_the_other(serve):
    server = serve("--workers", "1", "--drain-time", "60s", "--limits-connections", "16")
    server.create("https://example.com/known", alias="known")
    server.session.close()
    server.freeze()
    wires = [server.connect() for _ in range(60)]
    for wire in wires:
        wire.send(KNOWN)
    server.signal(signal.SIGTERM)
    server.thaw()
    for wire in wires:
        assert wire.read().status == 302
        wire.close()
    ends_well(server)


def test_requests_that_wait_for_a_pool_are_answered_as_usual(serve):
    """Statistics, passwords and the counts of limited links have threads of their own, which go on meanwhile."""
    server = serve("--workers", "1", "--drain-time", "60s")
    server.create("https://example.com/locked", alias="locked", password="open sesame")
    server.create("https://example.com/limited", alias="limited", max_clicks=5)
    server.session.close()
    requests = {
        request("GET", "/api/v1/stats", key=ADMIN_KEY): 200,
        request("GET", "/api/v1/users", key=ADMIN_KEY): 200,
        request("GET", "/readyz"): 200,
        request("GET", "/limited"): 302,
        request("POST", "/locked", body='{"password": "open sesame"}'): 303,
        request("POST", "/api/v1/session", body='{"email": "a@example.com", "password": "wrong"}'): 401,
        request("POST", "/api/v1/links", key=ADMIN_KEY,
                body='{"original_url": "https://example.com/new", "password": "new"}'): 201,
    }
    server.freeze()
    wires = [(server.connect(), sent, status) for sent, status in requests.items()]
    for wire, sent, _ in wires:
        wire.send(sent)
    server.signal(signal.SIGTERM)
    server.thaw()
    for wire, sent, status in wires:
        assert wire.read().status == status, sent
    ends_well(server)
