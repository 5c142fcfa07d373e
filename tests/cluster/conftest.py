import functools
import pathlib
import sys

for folder in ("integration", "support"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / folder))

import pytest  # noqa: E402

import harness  # noqa: E402
from engines import Engines  # noqa: E402
from fleet import launch_together  # noqa: E402
from nursery import Nursery  # noqa: E402


@pytest.hookimpl(tryfirst=True)  # xdist itself looks at the marks in this hook
def pytest_collection_modifyitems(config, items):
    """Where several processes share the tests, those of a file stay together: they share engines."""
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="session", autouse=True)
def build_is_there():
    assert harness.CURT.exists(), f"{harness.CURT} is missing: build it with 'make tests-built', or set CURT_BUILD"


@pytest.fixture(scope="module")
def engines():
    """Real servers, for all tests of a file."""
    with Engines() as engines:
        yield engines


@pytest.fixture(scope="module")
def postgres(engines):
    return engines.postgres(durable=False)


@pytest.fixture
def database(postgres, request):
    """The address of a database of the test's own."""
    return postgres.database(request.node.name[:60])


@pytest.fixture
def redis(engines):
    """A Redis server of the test's own."""
    redis = engines.redis()
    yield redis
    redis.kill()


@pytest.fixture
def nursery(tmp_path, engines):
    """curt servers of the test's own; they end before the engines that they stand on."""
    nursery = Nursery(tmp_path)
    yield nursery
    nursery.finish()


@pytest.fixture
def together(nursery):
    """together(count, env, *flags): see launch_together."""
    return functools.partial(launch_together, nursery)
