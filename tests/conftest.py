"""What every test may ask for: a real Redis of the session, and a key prefix of its own."""

import signal
from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import settings

from partq.store.connection import Store
from partq.testing.redis_server import RedisServer

_prefix_numbers = count()

# The same examples in every run, however busy the machine: what fails here, fails everywhere.
# Others are tried by `pytest --hypothesis-profile=default`.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")

# A shell has its background jobs ignore Ctrl-C, and what they start inherits it; tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
    store = await Store.open(redis_server.url, prefix=key_prefix, timeout_s=30.0)
    yield store
    await store.close()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give all tests with Spark to one worker, which starts one Java; the others go by file."""
    from xdist.scheduler import LoadFileScheduling

    class SparkTogether(LoadFileScheduling):  # type: ignore[misc]  # xdist ships no types
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "tests/spark" if file.startswith("tests/spark/") else file

    return SparkTogether(config, log)
