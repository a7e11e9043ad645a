"""For all stories: a cluster, the image of this checkout, the chart; a namespace for a file.

With several workers of pytest each has a separate cluster, and a share of the files.
"""

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
_SENT = "figures"
"""What a worker calls its measurements when it ends."""
WORKER = "PYTEST_XDIST_WORKER"
"""The variable with the name of a worker, as `gw1`, where there are several."""
LONGEST_FIRST = (
    "spark",
    "upgrade",
    "deletion",
    "shared_and_session",
    "operator",
    "brokers",
    "manifests",
    "key_shared",
    "lost_consumers",
    "rollout",
    "redis",
    "scale",
    "partitions",
)
"""The files whose stories take longer than the others: begun last, one would run alone."""


def pytest_configure(config: pytest.Config) -> None:
    """Have a place for what is measured."""
    config.stash[_FIGURES] = Figures()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where workers share the files, put the longest first; a file's stories stay in order."""
    if WORKER not in os.environ:
        return
    ranks = {f"test_{name}": rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path.stem, len(ranks)))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send what a worker has measured to the process that shows it."""
    sent: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if sent is not None:
        sent[_SENT] = session.config.stash[_FIGURES].rows()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker has measured; one that died has sent nothing."""
    for what, value in getattr(node, "workeroutput", {}).get(_SENT, ()):
        node.config.stash[_FIGURES].add(what, value)


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
    """Return a cluster, this worker's own; it is removed at the end, unless KEEP=1."""
    is_kept = os.environ.get("KEEP") == "1"
    worker = os.environ.get(WORKER, "gw0")
    found = choose(number=int(worker.removeprefix("gw")))
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
