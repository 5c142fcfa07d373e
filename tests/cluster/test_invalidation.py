"""Two servers on one store: what is changed on one is soon seen on the other."""
import statistics
import time

import pytest

from harness import until

ROUNDS = 20
LONG = "1h"


@pytest.fixture
def pair(together, database):
    """pair(setting=value, ...): two servers that share the store, and what else is set."""
    def start(**settings):
        env = {"CURT_STORE_URL": database, **{f"CURT_{name.upper()}": value for name, value in settings.items()}}
        return together(2, env)
    return start


def seconds_until(condition, what):
    begun = time.monotonic()
    until(condition, what)
    return time.monotonic() - begun


def follow_changes(one, other, rounds=ROUNDS):
    """Changes links on one server that the other has in its memory; how long until the other goes along."""
    times = []
    for i in range(rounds):
        key = one.create(f"https://example.com/{i}/old")["key"]
        until(lambda: other.target(key) == f"https://example.com/{i}/old", "the other has it")
        one.change(key, original_url=f"https://example.com/{i}/new")
        assert one.target(key) == f"https://example.com/{i}/new", "who has changed it sees that at once"
        times.append(seconds_until(lambda: other.target(key) == f"https://example.com/{i}/new", "the other sees the change"))
    return times


def tell(how, times):
    print(f"\n{how}: a change is seen after {statistics.median(times) * 1000:.1f} ms (median of {len(times)}), "
          f"at most {max(times) * 1000:.1f} ms")


def test_a_change_is_published_though_links_are_cached_for_an_hour(pair, redis):
    one, other = pair(cache_url=redis.url(), cache_life=LONG)
    tell("by publish", follow_changes(one, other) + follow_changes(other, one))


def test_a_change_is_published_through_every_node_of_the_cache(pair, engines):
    one, other = pair(cache_url=",".join(engines.redis().url() for _ in range(3)), cache_life=LONG)
    tell("by publish, three nodes", follow_changes(one, other))


def test_without_a_shared_cache_a_change_is_seen_when_an_entry_is_old(pair):
    one, other = pair(cache_life="300ms")
    tell("by cache.life = 300 ms", follow_changes(one, other, rounds=5))


def test_without_a_shared_cache_a_change_is_read_from_the_feed(pair):
    one, other = pair(cache_life=LONG)
    tell("by the change feed", follow_changes(one, other, rounds=5) + follow_changes(other, one, rounds=5))
    assert other.get("/not-there-yet").status_code == 404
    one.create("https://example.com/late", alias="not-there-yet")
    until(lambda: other.target("not-there-yet") == "https://example.com/late", "a link that was not there is seen")


def test_a_link_that_is_deleted_disabled_or_made_is_published_too(pair, redis):
    one, other = pair(cache_url=redis.url(), cache_life=LONG, cache_negative_time="1h")
    gone, off = one.create()["key"], one.create()["key"]
    for key in (gone, off):
        until(lambda: other.target(key), "the other has it")
    assert other.target("later") is None
    one.remove(gone)
    one.change(off, enabled=False)
    one.create(alias="later")
    for key, target in ((gone, None), (off, None), ("later", "https://example.com/")):
        until(lambda: other.target(key) == target, f"{key} leads to {target}")


def test_what_was_changed_while_redis_was_down_is_seen_when_it_is_back(pair, redis):
    one, other = pair(cache_url=redis.url(), cache_life=LONG)
    key = one.create("https://example.com/old")["key"]
    until(lambda: other.target(key) == "https://example.com/old", "the other has it")
    redis.kill()
    one.change(key, original_url="https://example.com/new")
    assert one.target(key) == "https://example.com/new"
    redis.start()
    until(lambda: other.target(key) == "https://example.com/new", "the other has asked again")


def test_while_redis_hangs_an_old_entry_is_the_backstop(pair, redis):
    one, other = pair(cache_url=redis.url(), cache_life="500ms")
    key = one.create("https://example.com/old")["key"]
    until(lambda: other.target(key) == "https://example.com/old", "the other has it")
    redis.pause()
    try:
        one.change(key, original_url="https://example.com/new")
        until(lambda: other.target(key) == "https://example.com/new", "the other has asked again")
    finally:
        redis.resume()


def test_an_api_key_works_and_ends_on_both_servers(pair, redis):
    one, other = pair(cache_url=redis.url(), cache_life=LONG)
    key = one.make_key("shared")
    until(lambda: other.get("/api/v1/links", key=key["key"]).status_code == 200, "the other knows the key")
    assert other.delete(f"/api/v1/keys/{key['id']}").status_code == 204
    until(lambda: one.get("/api/v1/links", key=key["key"]).status_code == 401, "the first knows that it was revoked")
