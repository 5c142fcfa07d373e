import pathlib
import sys

for folder in ("integration", "support"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / folder))

import pytest  # noqa: E402

import harness  # noqa: E402
from engines import Engines  # noqa: E402
from nursery import Nursery  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def build_is_there():
    assert harness.CURT.exists(), f"{harness.CURT} is missing: build it with 'make tests-built', or set CURT_BUILD"


@pytest.fixture
def engines():
    """Real servers of the test's own."""
    with Engines() as engines:
        yield engines


@pytest.fixture
def nursery(tmp_path, engines):
    """curt servers of the test's own; they end before the engines that they stand on."""
    nursery = Nursery(tmp_path)
    yield nursery
    nursery.finish()
