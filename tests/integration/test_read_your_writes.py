"""An acknowledged change is seen by every later request, although an older lookup of the same key is still under way."""
import itertools
import threading

import pytest

from harness import until


@pytest.fixture
def slow(serve):
    """Lookups have read the store long before they answer: time enough for a change in between."""
    return serve("--workers", "2", "--store-url", "fault:lookup=slow;sqlite:")


class OlderLookup:
    """A request for the key that has asked the store before the change, and is answered after it."""

    def __init__(self, server, key):
        before = self.lookups(server)
        self.client = server.client()
        self.thread = threading.Thread(target=self.client.get, args=(f"/{key}",))
        self.thread.start()
        until(lambda: self.lookups(server) > before, "a flight for the key")

    @staticmethod
    def lookups(server):
        text = server.get("/metrics").text
        return sum(int(line.split()[1]) for line in text.splitlines()
                   if line.startswith('curt_cache_lookups_total{result="miss"}'))

    def end(self):
        """Was it still under way?"""
        was_under_way = self.thread.is_alive()
        self.thread.join()
        return was_under_way


def until_shown(show):
    """show(key) asserts what is to be shown, and tells whether the older lookup lasted for so long; if a slow machine let it
    end before, it is shown with another key."""
    keys = (f"key-{number}" for number in itertools.count())
    until(lambda: show(next(keys)), "an older lookup lasts for long enough")


def test_a_link_is_there_for_everyone_after_the_201(slow):
    def show(key):
        older = OlderLookup(slow, key)
        slow.create("https://example.com/new", alias=key)
        client = slow.client()
        asked = threading.Event()
        answers = []
        newer = threading.Thread(target=lambda: (asked.set(), answers.append(client.target(key))))
        newer.start()
        asked.wait()
        was_under_way = older.end()
        newer.join()
        assert answers == ["https://example.com/new"]
        return was_under_way
    until_shown(show)


def test_a_change_is_seen_by_everyone_after_the_200(slow):
    def show(key):
        slow.create("https://example.com/old", alias=key)
        older = OlderLookup(slow, key)
        slow.change(key, original_url="https://example.com/new")
        was_under_way = older.end()
        assert slow.target(key) == "https://example.com/new"
        return was_under_way
    until_shown(show)


def test_a_deleted_link_is_gone_for_everyone_after_the_204(slow):
    def show(key):
        slow.create(alias=key)
        older = OlderLookup(slow, key)
        slow.remove(key)
        was_under_way = older.end()
        assert slow.target(key) is None
        return was_under_way
    until_shown(show)
