"""What was acknowledged is seen by whoever asks afterwards, although an older lookup of the same key is still under way."""
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
        assert self.thread.is_alive(), "the older lookup ended before the newer one: nothing was shown"
        self.thread.join()


def test_a_link_is_there_for_whoever_asks_after_the_201(slow):
    older = OlderLookup(slow, "fresh")
    slow.create("https://example.com/new", alias="fresh")
    client = slow.client()
    asked = threading.Event()
    answers = []
    newer = threading.Thread(target=lambda: (asked.set(), answers.append(client.target("fresh"))))
    newer.start()
    asked.wait()
    older.end()
    newer.join()
    assert answers == ["https://example.com/new"]


def test_a_change_is_there_for_whoever_asks_after_the_200(slow):
    slow.create("https://example.com/old", alias="moving")
    older = OlderLookup(slow, "moving")
    slow.change("moving", original_url="https://example.com/new")
    older.end()
    assert slow.target("moving") == "https://example.com/new"


def test_a_deleted_link_is_gone_for_whoever_asks_after_the_204(slow):
    slow.create(alias="going")
    older = OlderLookup(slow, "going")
    slow.remove("going")
    older.end()
    assert slow.target("going") is None
