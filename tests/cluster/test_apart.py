"""Two installations that use one Redis have nothing to do with each other."""
import pytest

from engines import Engines
from harness import until
from prometheus import metric


@pytest.fixture
def redis():
    with Engines() as engines:
        yield engines.redis()


def test_installations_on_one_redis_do_not_see_each_others_links_and_limits(nursery, redis):
    env = {"CURT_CACHE_URL": redis.url(), "CURT_LIMITS_URL": redis.url()}
    ours, theirs = (nursery("--workers", "1", env=env) for _ in range(2))
    ours.create("https://example.com/ours", alias="promo")
    for server in (ours, theirs):
        server.restart()  # what is in its own memory would answer
        until(lambda: metric(server, "curt_limits_servers") == 1, "it settles its limits, alone")
    assert ours.target("promo") == "https://example.com/ours"
    until(lambda: redis.ask("KEYS", "curt:l:*:promo"), "the link is in the shared cache")
    assert theirs.get("/promo", key=None).status_code == 404
    theirs.create("https://example.com/theirs", alias="promo")
    assert theirs.target("promo") == "https://example.com/theirs"
    assert ours.target("promo") == "https://example.com/ours"
