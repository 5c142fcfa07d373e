"""A server whose database is silent honours API keys and sessions from memory for accounts.stale_time, and then no longer."""
import time

import pytest

from harness import assert_problem, until
from people import make_person

STALE_SECONDS = 3


@pytest.fixture(autouse=True)
def postgres_comes_back(postgres):
    yield
    if postgres.process:
        postgres.resume()
    else:
        postgres.start()


@pytest.fixture
def server(nursery, database):
    return nursery("--workers", "1", "--accounts-stale-time", f"{STALE_SECONDS}s", "--cache-life", "200ms",
                   env={"CURT_STORE_URL": database})


def stop_answering(postgres, how):
    (postgres.kill if how == "killed" else postgres.pause)()


def answer_again(postgres, how):
    (postgres.start if how == "killed" else postgres.resume)()


@pytest.mark.parametrize("how", ["killed", "paused"])
def test_credentials_get_503_after_the_time(server, postgres, how):
    public = server.create("https://example.com/public")["key"]
    private = server.create("https://example.com/private", visibility="private")["key"]
    person = make_person(server)
    key = server.client(server.make_key()["key"])
    # What needs the account alone, and no other answer of the store: a right that is missing.
    asks = [lambda client=client: client.get("/api/v1/reconcile") for client in (person, key)]
    assert [ask().status_code for ask in asks] == [403, 403]
    assert server.get(f"/{public}", key=None).status_code == 302
    assert server.get(f"/{private}").status_code == 302
    assert server.get(f"/{private}", key=None).status_code == 401
    stop_answering(postgres, how)
    began = time.monotonic()
    assert [ask().status_code for ask in asks] == [403, 403], "what was read lately is honoured for a while"
    for ask in asks:
        until(lambda: ask().status_code == 503, "nobody knows any more whether they are in force")
    assert time.monotonic() - began > STALE_SECONDS - 1.5
    for ask in asks:
        answer = ask()
        assert_problem(answer, 503, "still valid")
        assert int(answer.headers["Retry-After"]) > 0
    assert server.client("ck_unknown").get("/api/v1/reconcile").status_code == 503, "nor whether a key is unknown"
    assert server.get("/api/v1/reconcile", key=None).status_code == 401, "nobody is nobody"
    assert server.get(f"/{public}", key=None).headers["Location"] == "https://example.com/public"
    assert server.get(f"/{public}").headers["Location"] == "https://example.com/public"
    assert server.get(f"/{private}").status_code == 503
    answer_again(postgres, how)
    for ask in asks:
        until(lambda: ask().status_code == 403, "it comes back by itself")
    until(lambda: server.get(f"/{private}").status_code == 302, "private links too")


def test_a_key_that_another_server_revokes_ends_here(nursery, database):
    one, other = (nursery("--workers", "1", env={"CURT_STORE_URL": database}) for _ in range(2))
    made = one.make_key()
    there = other.client(made["key"])
    assert there.get("/api/v1/links").status_code == 200, "a key is known where it was never used"
    assert one.delete(f"/api/v1/keys/{made['id']}").status_code == 204
    assert one.client(made["key"]).get("/api/v1/links").status_code == 401
    until(lambda: there.get("/api/v1/links").status_code == 401, "it has ended there, too")


def test_a_session_holds_on_every_server_and_ends_on_every_server(nursery, database):
    one, other = (nursery("--workers", "1", env={"CURT_STORE_URL": database}) for _ in range(2))
    person = make_person(one)
    cookie = {"Cookie": f"curt_session={person.cookie}"}
    assert other.get("/api/v1/session", key=None, headers=cookie).status_code == 200
    assert person.delete("/api/v1/session").status_code == 204
    assert one.get("/api/v1/session", key=None, headers=cookie).status_code == 401
    until(lambda: other.get("/api/v1/session", key=None, headers=cookie).status_code == 401, "signed out there, too")
