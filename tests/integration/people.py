"""Users, their sessions, and many clients at once."""
import itertools

import requests

from harness import PATIENCE_S, Client
from wire import Closed, Wire, request

PASSWORD = "a password of the tests"
COOKIE = "curt_session"

_numbers = itertools.count(1)


def make_user(server, role="editor", email=None, password=PASSWORD, **fields):
    """A user who must come to be, as the API tells it."""
    email = email or f"user{next(_numbers)}@example.com"
    body = dict(email=email, role=role, **({"password": password} if password else {}), **fields)
    response = server.post("/api/v1/users", json=body)
    assert response.status_code == 201, response.text
    return response.json()


def sign_in(server, email, password=PASSWORD, headers=None):
    """The bare answer."""
    return requests.post(f"{server.url}/api/v1/session", json={"email": email, "password": password}, headers=headers,
                         timeout=PATIENCE_S, allow_redirects=False)


def cookie_of(response):
    """(token, attributes by lower-case name) of the session's cookie; it must be set once."""
    cookies = [value for name, value in response.raw.headers.items() if name.lower() == "set-cookie"]
    assert len(cookies) == 1 and cookies[0].startswith(f"{COOKIE}="), cookies
    first, *rest = [part.strip() for part in cookies[0].split(";")]
    attributes = {name.lower(): value for name, _, value in (part.partition("=") for part in rest)}
    assert len(attributes) == len(rest), f"an attribute comes twice: {cookies[0]}"
    return first.removeprefix(f"{COOKIE}="), attributes


class Person(Client):
    """Somebody who is signed in: a client with a cookie, and the token that goes with every change."""

    def __init__(self, server, user, password=PASSWORD, headers=None):
        super().__init__(server.url, None)
        self.server = server
        self.user = user
        self.is_listed = False
        response = sign_in(server, user["email"], password, headers)
        assert response.status_code == 200, response.text
        self.cookie, _ = cookie_of(response)
        self.csrf = response.json()["csrf_token"]

    def request(self, method, path, key=True, headers=None, csrf=True, **kwargs):
        """key=None: as nobody. csrf: True for the session's own, None for none, or what to send."""
        headers = dict(headers or {})
        if not self.is_listed:  # so that the server need not wait for us when it stops
            self.server.clients.append(self)
            self.is_listed = True
        if key is True:
            headers.setdefault("Cookie", f"{COOKIE}={self.cookie}")
            token = self.csrf if csrf is True else csrf
            if token and method not in ("GET", "HEAD"):
                headers.setdefault("X-CSRF-Token", token)
        return super().request(method, path, key=None if key is True else key, headers=headers, **kwargs)

    def close(self):
        super().close()
        self.is_listed = False

    @property
    def fields(self):
        """For a bare connection."""
        return f"Cookie: {COOKIE}={self.cookie}", f"X-CSRF-Token: {self.csrf}"


def make_person(server, role="editor", **fields):
    return Person(server, make_user(server, role, **fields), fields.get("password", PASSWORD))


def key_of(server, user, **fields):
    """An API key of that user's."""
    return server.make_key(fields.pop("name", "a key"), user=str(user["id"]), **fields)


def still_let_in(client):
    """Is the key or the session worth anything?"""
    response = client.get("/api/v1/session")
    assert response.status_code in (200, 401), response.text
    return response.status_code == 200


class Crowd:
    """Many clients, each with a connection of its own that was opened before anybody asked."""

    def __init__(self, server, count):
        self.wires = [Wire(server.port, PATIENCE_S) for _ in range(count)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for wire in self.wires:
            wire.close()

    def ask(self, path, method="GET", *fields):
        """All at once; the answers."""
        for wire in self.wires:
            wire.send(request(method, path, *fields))
        return [wire.read(method) for wire in self.wires]

    def send(self, method, path, body):
        """Likewise, with a body."""
        for wire in self.wires:
            wire.send(request(method, path, body=body))
        return [wire.read() for wire in self.wires]

    def hear(self, wires, method="GET"):
        """The answers that came whole before the end of the server, and how many asked in vain."""
        answers, vain = [], 0
        for wire in wires:
            try:
                answers.append(wire.read(method))
            except Closed:
                vain += 1
        return answers, vain
