"""What every test may ask for: a real Redis of the session, and a key prefix of its own."""

import gc
import logging
import os
import signal
from collections.abc import AsyncIterator, Generator, Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import settings

from partq.store.connection import Store
from partq.testing.redis_server import RedisServer
from tests.forked_processes import SERVER, fork_children

pytest_plugins = ["tests.spark.session"]
_prefix_numbers = count()

# The same examples in every run, however busy the machine: what fails here, fails everywhere.
# Others are tried by `pytest --hypothesis-profile=default`.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")

# Commands find their queue in the environment: that of whoever runs the tests is not for them.
for name in [name for name in os.environ if name.startswith("PARTQ_")]:
    if name not in {"PARTQ_CACHE", "PARTQ_REQUIRE_APISERVER", "PARTQ_REQUIRE_CHROMIUM"}:
        del os.environ[name]

# A process that imports an HTTP client reads all authorities that its machine trusts: a tenth of
# its start. Tests call servers on loopback, whose authority they name.
os.environ |= dict.fromkeys(("SSL_CERT_FILE", "SSL_CERT_DIR"), os.devnull)

# A shell has its background jobs ignore Ctrl-C, and what they start inherits it; tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


EXECUTED = (
    "tests/cli/hosting/",
    "tests/cli/lab/",
    "tests/embedded/",
    "tests/lab/",
    "tests/testing/",
)
"""Whose brokers and coordinators start as those of users do; those of other tests are forked."""

fork_children()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the fixtures of its module, too."""
    SERVER.is_used = not item.nodeid.startswith(EXECUTED)


def pytest_sessionfinish() -> None:
    """Nothing that the tests have started outlives them."""
    SERVER.stop()


@pytest.fixture(autouse=True)
def _process_is_left_as_it_was() -> Iterator[None]:
    """What a test leaves behind for its process, one of another file trips over some day."""
    before = _of_the_process()
    yield
    assert _of_the_process() == before


def _of_the_process() -> dict[str, Any]:
    """Return what tests of all files share: handlers of signals, the collector, our loggers."""
    found: dict[str, Any] = {
        number.name: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)
    }
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("partq") and isinstance(logger, logging.Logger):
            changed = (logger.level, list(logger.filters), list(logger.handlers), logger.disabled)
            if changed != (logging.NOTSET, [], [], False):
                found[name] = changed
    return found | {"collects": gc.isenabled(), "logs": logging.root.manager.disable}


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A redis-server that syncs every write to disk; nobody may stop it."""
    with RedisServer() as server:
        server.start(tmp_path_factory.mktemp("redis"))
        yield server


@pytest.fixture
def key_prefix() -> str:
    """No other test of the session uses it."""
    return f"test{next(_prefix_numbers)}"


@pytest.fixture
async def store(redis_server: RedisServer, key_prefix: str) -> AsyncIterator[Store]:
    """A store on the session's Redis, under a prefix of its own."""
    store = await Store.open(redis_server.url, prefix=key_prefix, timeout_s=60.0)
    yield store
    await store.close()


SLOW = (
    "tests/pipeline/",
    "tests/spark/",
    "tests/kube/api_server/",
    "tests/broker/api/test_schemathesis.py",
    "tests/cli/hosting/test_dev.py",
    "tests/lab/simulate/",
    "tests/cli/lab/",
    "tests/broker/api/page/test_page.py",
    "tests/client/test_client_assigned_consumer.py",
    "tests/examples/",
    "tests/coordinator/group/test_waiting_moves.py",
    "tests/client/test_seek_with_brokers.py",
    "tests/core/group/test_assignors.py",
    "tests/store/test_fail_points.py",
    "tests/test_chart.py",
    "tests/test_manifests.py",
    "tests/test_prose.py",
    "tests/lab/chaos/test_chaos.py",
    "tests/faults/",
    "tests/embedded/",
)
"""Where a file takes long, the longest first: begun last, it would keep one worker busy alone."""
TREES = ("any", "architecture", "errors", "house", "prose", "verbs")
TOGETHER = {
    "tests/pipeline/audit/": "Spark",
    "tests/pipeline/": "pipeline",
    "tests/lab/bench/test_spark_jobs.py": "pipeline",
    "tests/spark/write/": "pipeline",
    "tests/spark/": "Spark",
    "tests/kube/api_server/": "Kubernetes",
    **dict.fromkeys([f"tests/test_{name}.py" for name in TREES], "trees"),
}
"""What one worker runs, for it starts one Java, or one API server with its etcd, or parses all of
the product. The first counts; all of Spark in one Java would be what the others wait for."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give what stands under `TOGETHER` to one worker each; the others go by file, `SLOW` first."""
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False  # it would be by the number of tests

    class FoldersTogether(LoadFileScheduling):  # type: ignore[misc]  # xdist ships no types
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return next((one for begin, one in TOGETHER.items() if file.startswith(begin)), file)

    return FoldersTogether(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Have the collector leave out what stays until the end: thousands of tests, and modules.

    Each worker collects all tests. A quarter of that time went to looks at what nothing frees, and
    every full collection afterwards would look at it again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what takes long first; files stay whole and in their order."""
    items.sort(key=lambda item: _rank(item.nodeid))


def _rank(node: str) -> int:
    return next((at for at, begin in enumerate(SLOW) if node.startswith(begin)), len(SLOW))
