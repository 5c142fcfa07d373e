import itertools
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import pytest  # noqa: E402

import harness  # noqa: E402
from lives import live_many_lives  # noqa: E402


class Nursery:
    """Starts servers, and sees to it that each ends well."""

    def __init__(self, folder):
        self.folder = folder
        self.numbers = itertools.count()
        self.servers = []

    def server(self, *flags, data=None, **kwargs):
        data = data or self.folder / f"data{next(self.numbers)}"
        server = harness.Server(data, *flags, **kwargs)
        self.servers.append(server)
        return server

    def __call__(self, *flags, **kwargs):
        return self.server(*flags, **kwargs).start()

    def finish(self):
        problems = []
        for server in reversed(self.servers):
            try:
                server.finish()
            except AssertionError as problem:
                problems.append(str(problem))
        assert not problems, "\n".join(problems)


@pytest.fixture(scope="session", autouse=True)
def build_is_there():
    for path in (harness.CURT, harness.HAMMER):
        assert path.exists(), f"{path} is missing: build it with 'make tests-built', or set CURT_BUILD"


@pytest.fixture
def nursery(tmp_path):
    nursery = Nursery(tmp_path)
    yield nursery
    nursery.finish()


@pytest.fixture
def serve(nursery):
    """serve(*flags): a server of the test's own."""
    return nursery


@pytest.fixture
def server(serve):
    """A fresh server with two workers."""
    return serve("--workers", "2")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One server for all tests of a module that leave it as it is."""
    nursery = Nursery(tmp_path_factory.mktemp("shared"))
    yield nursery("--workers", "2")
    nursery.finish()


@pytest.fixture(scope="session")
def many_lives(tmp_path_factory):
    """A million links, made through crashes; see lives.py."""
    nursery = Nursery(tmp_path_factory.mktemp("lives"))
    outcome = live_many_lives(nursery)
    yield outcome
    nursery.finish()
