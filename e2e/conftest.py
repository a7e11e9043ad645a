"""For all stories: one cluster, the image of this checkout, the chart; a namespace for a file."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import pytest

from e2e.cluster import Cluster, choose
from e2e.figures import Figures
from e2e.images import CHECKOUT, SPARK_IMAGE
from e2e.nodes import Nodes
from e2e.release import Release
from e2e.stage import Stage

Progress: TypeAlias = Callable[[], AbstractContextManager[None]]
_FIGURES = pytest.StashKey[Figures]()


def pytest_configure(config: pytest.Config) -> None:
    """Have a place for what is measured."""
    config.stash[_FIGURES] = Figures()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Show what was measured."""
    if lines := list(config.stash[_FIGURES].lines()):
        terminalreporter.section("measured")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> Figures:
    """Return where to note what is measured."""
    return pytestconfig.stash[_FIGURES]


@pytest.fixture(scope="session")
def progress(pytestconfig: pytest.Config) -> Progress:
    """Return a context in which progress is seen on the terminal: the first run takes minutes."""
    capture: Any = pytestconfig.pluginmanager.getplugin("capturemanager")
    shown: Progress = capture.global_and_fixture_disabled
    return shown


@pytest.fixture(scope="session")
def cluster(figures: Figures, progress: Progress) -> Iterator[Cluster]:
    """Return a cluster; it is removed at the end, unless KEEP=1."""
    is_kept = os.environ.get("KEEP") == "1"
    found = choose()
    with progress():
        if not is_kept:
            found.down()  # what a run that was killed has left
        began = time.monotonic()
        found.up()
        figures.add("the cluster is up", f"{time.monotonic() - began:.1f} s")
    yield found
    if not is_kept:
        found.down()


@pytest.fixture(scope="session")
def release(cluster: Cluster, progress: Progress) -> Release:
    """Return the installed chart."""
    found = Release(cluster, CHECKOUT)
    with progress():
        found.load()
    found.install()
    return found


@pytest.fixture(scope="session")
def spark_image(cluster: Cluster, figures: Figures, progress: Progress) -> str:
    """Return the image for jobs of Spark, which only their story needs."""
    began = time.monotonic()
    with progress():
        image = cluster.spark_image(CHECKOUT, SPARK_IMAGE)
    figures.add("the image for Spark is there", f"{time.monotonic() - began:.1f} s")
    return image


@pytest.fixture(scope="session")
def nodes(release: Release) -> Nodes:
    """Return the nodes, on which processes can be killed."""
    found = Nodes(release.cluster, release.image)
    found.open()
    return found


@pytest.fixture(scope="module")
def stage(release: Release, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Return a namespace for the stories of one file."""
    name = request.module.__name__.rpartition("test_")[2].replace("_", "-")
    with Stage(release.cluster, name, release.image) as found:
        yield found
