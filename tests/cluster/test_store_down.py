"""A store that is down ends no link that is in use. What cannot be served says why, and all is well when it is back."""
import time

import pytest

from harness import until
from prometheus import metric

LIFE = "200ms"
ATTEMPTS = 15
RESCUE_SECONDS = 1  # how long a link is served without another question once the store could not be asked
FOLLOWS = 20


@pytest.fixture(autouse=True)
def postgres_comes_back(postgres):
    """Tests kill it."""
    yield
    if not postgres.process:
        postgres.start()


@pytest.fixture
def server(nursery, database):
    return nursery("--workers", "1", "--cache-life", LIFE, env={"CURT_STORE_URL": database})


def follow(server, key):
    return server.get(f"/{key}", key=None)


def followed_in_time(server):
    """A link that ends soon, and was followed before that, however slow the machine is."""
    for ms in (2000, 8000, 32000):
        key = server.create_ending(ms)["key"]
        if follow(server, key).status_code == 302:
            return key
    return pytest.fail("no link could be followed in time")


def test_links_that_are_in_use_are_served_while_the_store_is_down(server, postgres):
    hot = [server.create(f"https://example.com/{i}")["key"] for i in range(5)]
    cold = server.create()["key"]
    for key in hot:
        assert follow(server, key).status_code == 302
    postgres.kill()
    until(lambda: server.get("/readyz").status_code == 503, "the server knows")

    def all_are_served_and_have_been_tried_again_and_again():
        for i, key in enumerate(hot):
            answer = follow(server, key)
            assert answer.status_code == 302 and answer.headers["Location"] == f"https://example.com/{i}"
        return metric(server, "curt_cache_refreshes_total") + metric(server, "curt_cache_stale_served_total") >= ATTEMPTS

    until(all_are_served_and_have_been_tried_again_and_again, "several lives of an entry have passed")
    answer = follow(server, cold)
    assert answer.status_code == 503 and answer.headers["Retry-After"]
    assert server.post("/api/v1/links", json={"original_url": "https://example.com/"}).status_code == 503
    postgres.start()
    until(lambda: follow(server, cold).status_code == 302, "the store is asked again")
    until(lambda: server.get("/readyz").status_code == 200, "the server is ready again")


def test_a_link_that_nobody_has_followed_for_long_is_served_too(nursery, postgres, database):
    server = nursery("--workers", "1", "--cache-life", "1ms", env={"CURT_STORE_URL": database})
    key = server.create()["key"]
    assert follow(server, key).status_code == 302
    postgres.kill()
    started = time.monotonic()

    def rescues_after_a_follow():
        assert follow(server, key).status_code == 302
        return metric(server, "curt_cache_stale_served_total")

    until(rescues_after_a_follow, "what is known is too old: the store is asked first, in vain")
    rescues = [rescues_after_a_follow() for _ in range(FOLLOWS)][-1]
    assert rescues <= 1 + (time.monotonic() - started) / RESCUE_SECONDS, "and for a moment it is not asked again"


def test_a_link_ends_at_its_time_though_the_store_is_down(server, postgres):
    key = followed_in_time(server)
    postgres.kill()
    until(lambda: follow(server, key).status_code == 503, "its time is over, and the store is not there to say what then")


def test_that_there_is_no_link_is_not_claimed_while_the_store_is_down(nursery, postgres, database):
    server = nursery("--workers", "1", "--cache-life", LIFE, "--cache-negative-time", "200ms",
                     env={"CURT_STORE_URL": database})
    assert follow(server, "nobody").status_code == 404
    postgres.kill()
    until(lambda: follow(server, "nobody").status_code == 503, "what was known of it is too old")


def test_a_link_with_a_click_limit_is_not_served_on_what_was_known(server, postgres):
    key = server.create(max_clicks=1000)["key"]
    until(lambda: follow(server, key).status_code == 302, "it is counted")
    postgres.kill()
    until(lambda: follow(server, key).status_code == 503, "its limit may have changed")
