import collections
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import pytest  # noqa: E402

import harness  # noqa: E402
import stores  # noqa: E402
from lives import live_many_lives  # noqa: E402
from nursery import Nursery  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def build_is_there():
    for path in (harness.CURT, harness.HAMMER):
        assert path.exists(), f"{path} is missing: build it with 'make tests-built', or set CURT_BUILD"


@pytest.fixture(scope="session", autouse=True)
def engines():
    stores.begin()
    yield
    stores.end()


def pytest_collection_modifyitems(config, items):
    """On another store than the embedded one, tests that are about the embedded one are left out. Those that measure run
    alone."""
    for item in items:
        if item.get_closest_marker("release_only") or "many_lives" in item.fixturenames:
            item.add_marker("alone")
    if not stores.EMBEDDED:
        out = [item for item in items if item.get_closest_marker("embedded")]
        items[:] = [item for item in items if not item.get_closest_marker("embedded")]
        config.hook.pytest_deselected(items=out)
        config.left_out = collections.Counter(item.get_closest_marker("embedded").args[0] for item in out)


def pytest_terminal_summary(terminalreporter, config):
    for reason, count in sorted(getattr(config, "left_out", {}).items()):
        terminalreporter.write_line(f"left out {count}: {reason}")


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
def serve_all(tmp_path_factory):
    """serve_all(*flags): a server for all tests of a module."""
    nursery = Nursery(tmp_path_factory.mktemp("all"))
    yield nursery
    nursery.finish()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One server for all tests of a module that leave it as it is."""
    nursery = Nursery(tmp_path_factory.mktemp("shared"))
    yield nursery("--workers", "2")
    nursery.finish()


@pytest.fixture(scope="module")
def counting(tmp_path_factory):
    """One server for all tests of a module about statistics. It counts at once, so that nobody waits for it."""
    nursery = Nursery(tmp_path_factory.mktemp("counting"))
    yield nursery("--workers", "2", "--worker-interval-ms", "5")
    nursery.finish()


@pytest.fixture(scope="session")
def many_lives(tmp_path_factory):
    """A million links, made through crashes; see lives.py."""
    nursery = Nursery(tmp_path_factory.mktemp("lives"))
    yield live_many_lives(nursery)
    nursery.finish()
    shutil.rmtree(nursery.folder)  # it is large, and pytest keeps the folders of its last runs
