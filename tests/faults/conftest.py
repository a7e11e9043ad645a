"""What fault tests stand on: a process that forks, a Redis of each file, a stage of each test."""

import pytest

from tests.faults.own_redis import OwnRedis
from tests.faults.processes import Forker
from tests.faults.stage import Stage


@pytest.fixture(scope="session")
def forker():
    forker = Forker()
    yield forker
    forker.close()


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory):
    """A Redis of this file's tests alone."""
    redis = OwnRedis(tmp_path_factory.mktemp("redis"))
    yield redis
    redis.server.stop()


@pytest.fixture
async def bare_stage(forker, own_redis, tmp_path):
    """A stage that its test opens itself; all its processes are ended."""
    stage = Stage(forker, own_redis, tmp_path)
    yield stage
    await stage.close()


@pytest.fixture
async def stage(bare_stage):
    """Two brokers, members a and b; messages are published all the time."""
    await bare_stage.open()
    bare_stage.traffic.publish()
    return bare_stage


@pytest.fixture
async def three(bare_stage):
    """The same, and c stands by."""
    await bare_stage.open(members=("a", "b", "c"))
    bare_stage.traffic.publish()
    return bare_stage
