"""What the outside sees when the store fails: a server on a sound store first, then on the same one with faults."""
import pytest

from harness import WELL, assert_problem, curt, until
from prometheus import metric
from wire import request

URL = "https://example.com/"

# Where others may change links, a lookup that a change overtakes is repeated: the feed tells a server that has just started of
# the latest ones.
counts_lookups = pytest.mark.embedded("it counts lookups")


@pytest.fixture
def faulty(server):
    """faulty(spec): the same data folder, with a store that fails as told. There are links `kept` and `other`."""
    server.create("https://example.com/kept", alias="kept", title="kept")
    server.create("https://example.com/other", alias="other")

    def restart(spec):
        server.restart("--workers", "2", "--store-url", f"fault:{spec};sqlite:")
        return server

    server.faulty = restart
    return server


def sound(server):
    """The same folder without faults again."""
    return server.restart("--workers", "2", "--store-url", "sqlite:")


def plain(links):
    """Without what changes with the port, or by being followed."""
    return [dict(link, short_url=None, domain=None, clicks=None) for link in links]


def writes(server):
    return {
        "create": server.post("/api/v1/links", json={"original_url": URL, "alias": "new"}),
        "createURL": server.post("/api/v1/createURL", json={"original_url": URL, "custom_alias": "new"}),
        "patch": server.patch("/api/v1/links/kept", json={"title": "changed"}),
        "delete": server.delete("/api/v1/links/kept"),
        "deleteURL": server.delete("/api/v1/deleteURL?url_key=kept"),
        "key": server.post("/api/v1/keys", json={"name": "new"}),
    }


def test_writes_to_a_store_that_is_down_get_503_and_change_nothing(faulty):
    before = plain(faulty.links()), faulty.keys_as_made()
    server = faulty.faulty("apply=unavailable")
    for what, response in writes(server).items():
        assert_problem(response, 503, "store does not answer", "nothing was changed")
        assert response.headers["Retry-After"] == "1", what
    assert server.target("kept") == "https://example.com/kept", "reading goes on"
    sound(server)
    assert (plain(server.links()), server.keys_as_made()) == before


@pytest.mark.parametrize("error", ["unavailable", "busy", "no-memory"])
def test_a_write_that_may_be_repeated_succeeds_when_it_is(faulty, error):
    server = faulty.faulty(f"apply={error}@1!")
    first = server.post("/api/v1/links", json={"original_url": URL, "alias": "new"})
    assert_problem(first, 503)
    assert first.headers["Retry-After"] == "1"
    assert server.post("/api/v1/links", json={"original_url": URL, "alias": "new"}).status_code == 201


def test_an_uncertain_create_says_so_and_its_repetition_finds_it_done(faulty):
    server = faulty.faulty("apply=uncertain@1!")
    headers = {"Idempotency-Key": "once"}
    response = server.post("/api/v1/links", json={"original_url": URL, "alias": "new"}, headers=headers)
    assert_problem(response, 503, "may or may not")
    again = server.post("/api/v1/links", json={"original_url": URL, "alias": "new"}, headers=headers)
    assert again.status_code == 201 and again.headers["Idempotency-Replayed"] == "true"
    assert [link["key"] for link in server.links()] == ["new", "other", "kept"]


def test_after_an_uncertain_change_redirects_show_what_the_store_holds(faulty):
    server = faulty.faulty("apply=uncertain")
    assert server.target("kept") == "https://example.com/kept"
    assert_problem(server.patch("/api/v1/links/kept", json={"original_url": "https://example.org/"}), 503)
    assert server.target("kept") == "https://example.org/", "the work was done, and the cache must not hide it"
    assert_problem(server.delete("/api/v1/links/kept"), 503)
    assert server.target("kept") is None
    assert server.target("new") is None
    assert_problem(server.post("/api/v1/links", json={"original_url": URL, "alias": "new"}), 503)
    assert server.target("new") == URL, "nor the memory of a miss"


@counts_lookups
def test_cached_links_go_on_redirecting_when_lookups_fail(faulty):
    server = faulty.faulty("lookup=unavailable@2")
    assert server.target("kept") == "https://example.com/kept"
    for _ in range(20):
        assert server.target("kept") == "https://example.com/kept"
        response = server.get("/other", key=None)
        assert_problem(response, 503, "store does not answer")
        assert response.headers["Retry-After"] == "1"
        assert_problem(server.get("/other+", key=None), 503)
        assert_problem(server.get("/api/v1/links/other"), 503)
    wires = [server.connect() for _ in range(16)]
    for wire in wires:
        wire.send(request("GET", "/kept"))
    assert {wire.read().status for wire in wires} == {302}
    assert metric(server, "curt_store_errors_total") >= 20


@counts_lookups
def test_a_failed_lookup_is_not_remembered(faulty):
    server = faulty.faulty("lookup=unavailable@1!,lookup=busy@2!,lookup=no-memory@3!")
    for _ in range(3):
        assert_problem(server.get("/kept", key=None), 503)
    assert server.target("kept") == "https://example.com/kept"


def test_damaged_data_is_told_as_such(faulty):
    server = faulty.faulty("lookup=corrupt,apply=corrupt,list=corrupt")
    assert_problem(server.get("/kept", key=None), 500, "damaged")
    assert_problem(server.get("/api/v1/links/kept"), 500, "damaged")
    assert_problem(server.post("/api/v1/links", json={"original_url": URL}), 500, "damaged")
    assert_problem(server.get("/api/v1/links"), 500, "damaged")
    assert server.get("/healthz").status_code == 200


def test_lists_of_a_store_that_is_down_get_503(faulty):
    server = faulty.faulty("list=unavailable@1!,keys=unavailable@2!")
    assert_problem(server.get("/api/v1/links"), 503, "store does not answer")
    assert len(server.links()) == 2
    assert_problem(server.get("/api/v1/keys"), 503, "store does not answer")
    assert len(server.keys()) == 1


def test_without_new_ids_creating_fails_and_all_else_goes_on(faulty):
    server = faulty.faulty("lease=unavailable@1!")
    assert_problem(server.post("/api/v1/links", json={"original_url": URL}), 503)
    assert server.change("kept", title="changed")["title"] == "changed"
    assert server.target("kept") and server.target("other")
    server.remove("other")
    assert server.post("/api/v1/links", json={"original_url": URL}).status_code == 201


def test_readiness_says_why_not_and_when_it_is_over(faulty):
    server = faulty.faulty("ping=unavailable@1!,ping=corrupt@2!")
    response = server.get("/readyz", key=None)
    assert response.status_code == 503
    assert response.json()["status"] == "not ready"
    assert "injected fault: unavailable" in response.json()["checks"]["store"]
    assert server.get("/healthz", key=None).status_code == 200, "it is alive all the same"
    assert "corrupt" in server.get("/readyz", key=None).json()["checks"]["store"]
    assert server.get("/readyz", key=None).json() == {"status": "ready", "checks": WELL}


def test_what_the_store_refuses_does_not_count_against_a_limit(faulty):
    key = faulty.make_key(creates_limit=2, limit_period_s=3600)["key"]
    server = faulty.faulty("apply=unavailable@1!,apply=unavailable@2!,apply=unavailable@3!")
    client = server.client(key)
    statuses = [client.post("/api/v1/links", json={"original_url": URL}).status_code for _ in range(6)]
    assert statuses == [503, 503, 503, 201, 201, 429]


def test_a_link_that_has_ended_is_gone_even_when_it_cannot_be_removed(faulty):
    faulty.change("kept", expires_at="2099-01-01")
    server = faulty.faulty("apply=unavailable@2")
    server.end_soon("kept", 1000)
    until(lambda: server.target("kept") is None, "the link has ended")
    for _ in range(3):
        assert server.target("kept") is None
    assert metric(server, "curt_links_swept_total") == 0


def test_a_revocation_that_was_acknowledged_holds_even_if_the_keys_cannot_be_read_again(faulty):
    key = faulty.make_key("gone")
    server = faulty.faulty("keys=unavailable@2!")  # the first two reads are the start's own
    response = server.delete(f"/api/v1/keys/{key['id']}")
    if response.status_code == 204:
        assert_problem(server.get("/api/v1/links", key=key["key"]), 401)
    else:
        assert_problem(response, 503)


def test_a_new_key_that_was_acknowledged_works_even_if_the_keys_cannot_be_read_again(faulty):
    server = faulty.faulty("keys=unavailable@2!")
    response = server.post("/api/v1/keys", json={"name": "new"})
    if response.status_code == 201:
        assert server.get("/api/v1/links", key=response.json()["key"]).status_code == 200
    else:
        assert_problem(response, 503)


@pytest.mark.parametrize("spec, word", [("constant=unavailable", "from the store (unavailable)"), ("keys=unavailable", "API keys"),
                                        ("keys=corrupt", "API keys")])
def test_a_start_without_what_it_needs_ends_with_a_sentence(faulty, spec, word):
    faulty.stop()
    done = curt("serve", "--data", faulty.data, "--listen", "127.0.0.1:0", "--store-url", f"fault:{spec};sqlite:")
    assert done.returncode == 1 and word in done.stderr and done.stderr.startswith("curt: ")
    sound(faulty)
    assert faulty.target("kept") == "https://example.com/kept"


def test_a_first_start_that_cannot_write_its_admin_key_ends_with_a_sentence(tmp_path):
    done = curt("serve", "--data", tmp_path / "data", "--listen", "127.0.0.1:0", "--store-url",
                "fault:apply=unavailable;sqlite:")
    assert done.returncode == 1 and "admin key" in done.stderr


@pytest.mark.embedded("it is about SQLite's files")
def test_a_sqlite_store_may_lie_elsewhere(serve, tmp_path):
    path = tmp_path / "elsewhere.db"
    server = serve("--store-url", f"sqlite:{path}")
    server.create(alias="name")
    server.restart()
    assert server.target("name") == URL
    assert path.exists() and not (server.data / "links.db").exists()
