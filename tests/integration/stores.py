"""Which store and cache the servers of the tests have. The tests themselves do not know.

CURT_TEST_STORE   sqlite (the default), postgres (one database), shards (two databases)
CURT_TEST_CACHE   off (the default), on: a cache on Redis, shared with nobody

With another store than SQLite each data folder gets databases of its own, and a server that is started again on a folder
finds them again. Where a test names the store `sqlite:` it gets the one that was asked for; tests that are about SQLite's
files, or about a folder that holds everything, are marked `embedded` and left out.
"""
import itertools
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from engines import Engines  # noqa: E402

STORE = os.environ.get("CURT_TEST_STORE", "sqlite")
CACHE = os.environ.get("CURT_TEST_CACHE", "off")
PARTS = {"sqlite": 0, "postgres": 1, "shards": 2}[STORE]
CACHED = {"off": False, "on": True}[CACHE]
EMBEDDED = PARTS == 0 and not CACHED

CACHES_MAX = 20000


class Stores:
    """The engines behind the servers of all tests of this process."""

    def __init__(self):
        self.engines = Engines()
        self.postgres = self.engines.postgres(durable=False, settings={"max_connections": 500}) if PARTS else None
        self.redis = self.engines.redis(settings={"databases": CACHES_MAX}) if CACHED else None
        self.numbers = itertools.count()
        self.known = {}  # folder: its databases, and its number
        self.clean = []  # databases that nobody uses

    def database(self):
        if self.clean:
            return self.clean.pop()
        name = f"links{next(self.numbers)}"
        self.postgres.sql(f"CREATE DATABASE {name} STRATEGY file_copy")
        return name

    def of(self, data):
        """What the server on that folder gets."""
        folder = str(pathlib.Path(data).absolute())
        if folder not in self.known:
            self.known[folder] = [self.database() for _ in range(PARTS)], next(self.numbers) % CACHES_MAX
        databases, number = self.known[folder]
        settings = {}
        if databases:
            settings["CURT_STORE_URL"] = ",".join(self.postgres.url(database) for database in databases)
        if self.redis:
            settings["CURT_CACHE_URL"] = self.redis.url(number)
        return settings

    def forget(self, data):
        """The folder is not used any more."""
        for database in self.known.pop(str(pathlib.Path(data).absolute()), ([], 0))[0]:
            # Cheaper than another database.
            self.postgres.sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public", database)
            self.clean.append(database)


_stores = None


def begin():
    """Starts what is needed. Before the first server, on the main thread: engines end with the thread that starts them."""
    global _stores
    if not EMBEDDED and _stores is None:
        _stores = Stores()


def end():
    global _stores
    if _stores:
        _stores.engines.end()
        _stores = None


def settings_of(data):
    return _stores.of(data) if _stores else {}


def forget(data):
    if _stores:
        _stores.forget(data)


def translated(words, data):
    """The command's words, with the store that was asked for in the place of `sqlite:`."""
    if not PARTS:
        return list(words)
    url = settings_of(data)["CURT_STORE_URL"]
    return [word[:-len("sqlite:")] + url if isinstance(word, str) and (word == "sqlite:" or word.endswith(";sqlite:")) else word
            for word in words]
