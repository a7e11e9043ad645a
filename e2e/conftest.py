"""For all stories: one cluster, the image of this checkout, the chart. A namespace for each."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import Cluster, choose
from e2e.release import Release
from e2e.stage import Stage

CHECKOUT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Return a cluster; it is removed at the end, unless KEEP=1."""
    found = choose()
    found.up()
    yield found
    if os.environ.get("KEEP") != "1":
        found.down()


@pytest.fixture(scope="session")
def release(cluster: Cluster) -> Release:
    """Return the installed chart."""
    found = Release(cluster, CHECKOUT)
    found.load()
    found.install()
    return found


@pytest.fixture
def stage(release: Release, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Return a namespace of the story's own."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    with Stage(release.cluster, name[:50].strip("-"), release.image) as found:
        yield found
