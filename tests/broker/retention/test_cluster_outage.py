"""While one master of a Redis Cluster is dead or silent, all on the others goes on in full."""

import asyncio
import os
import signal

import pytest

from partq.resources import parse_resources
from partq.testing import eventually
from partq.testing.redis_cluster import RedisCluster, command
from partq.wire import frames
from tests.broker import conftest
from tests.broker.conftest import open_flow, open_producer
from tests.broker.queue_ttl import set_ttl

__all__ = ["set_ttl"]

QUOTA_BYTES = 1024 * 1024
VALUE_BYTES = 100_000
YAML = f"""
apiVersion: partq.dev/v1alpha1
kind: PartitionedQueue
metadata: {{name: orders}}
spec: {{partitions: 24, limits: {{maxMessageBytes: 131072, maxSpoolBytes: {QUOTA_BYTES}}}}}
---
apiVersion: partq.dev/v1alpha1
kind: ConsumerGroup
metadata: {{name: workers}}
spec: {{queue: orders}}
"""


@pytest.fixture
def redis_server(tmp_path_factory):
    """Masters without replicas, each of which serves its keys whatever becomes of the others."""
    cluster = RedisCluster(has_replicas=False)
    with cluster:
        cluster.start(tmp_path_factory.mktemp("redis"))
        for master in cluster.masters:
            command(master.port, "CONFIG", "SET", "cluster-require-full-coverage", "no")
        yield cluster


@pytest.fixture
def resources():
    return parse_resources(YAML)


@pytest.fixture(autouse=True)
def layout(running, monkeypatch):
    """Producers know how many partitions there are."""
    monkeypatch.setattr(conftest, "LAYOUT", running.broker.config.layout)


@pytest.fixture
def outage(running, redis_server, request):
    """Kill or stop the master that has nothing but partitions, and return those."""
    store, keys = running.broker.store, running.broker.keys
    needed = {store.server_of(key) for key in (keys.config(), keys.group_config("workers"))}
    (victim,) = [
        master
        for master in redis_server.masters
        if not any(name.endswith(f":{master.port}") for name in needed)
    ]
    lost = {
        partition
        for partition in running.broker.owned
        if store.server_of(keys.meta(partition)).endswith(f":{victim.port}")
    }
    assert 0 < len(lost) < len(running.broker.owned)

    def begin():
        if is_silent:
            os.kill(victim.pid, signal.SIGSTOP)
        else:
            victim.kill()
        return lost

    is_silent = getattr(request, "param", "") == "silent"
    yield begin
    if is_silent:
        os.kill(victim.pid, signal.SIGCONT)


@pytest.mark.parametrize("outage", ["silent"], indirect=True)
async def test_no_look_at_all_nodes_waits_for_the_silent_one(running, outage):
    """A look takes as long as those that answer; what is asked of the silent one alone waits."""
    broker = running.broker
    there = next(iter(outage()))
    looks = (
        lambda: broker.store.info(only_reachable=True),
        broker.store.read_clocks,
        lambda: broker.partitions.read_many(broker.owned, only_reachable=True),
    )
    for look in looks:
        waiting = asyncio.create_task(broker.partitions.read(there))
        await look()
        assert not waiting.done()
        waiting.cancel()


async def publish(producer, partition, value):
    """Publish a message as soon as it is taken."""

    async def is_stored():
        await producer.offer(producer.due[partition.index], value, partition=partition.index)
        answer, _ = await producer.expect((frames.Published, frames.PublishRefused))
        return isinstance(answer, frames.Published)

    await eventually(is_stored, "there is room")
    producer.due[partition.index] += 1


async def test_what_is_consumed_is_freed_and_its_room_is_used_again(running, outage):
    """Three times the quota goes through one partition."""
    lost = outage()
    here = next(partition for partition in running.broker.owned if partition not in lost)
    await running.assign("m", [here.index])
    flow, producer = await open_flow(running), await open_producer(running)
    count = 3 * QUOTA_BYTES // VALUE_BYTES
    for _ in range(count):
        await publish(producer, here, "x" * VALUE_BYTES)
        await flow.take(1)
    record = await running.broker.partitions.read(here)
    assert record.bytes <= QUOTA_BYTES
    await producer.close()


async def test_a_clock_that_is_out_of_reach_is_remembered(running, outage):
    """Else nobody would know whether its partitions' next server goes by another one."""
    clocks, lost = running.broker.expiry.clocks, None
    for _ in range(2):
        await clocks.observe()
        known = {partition for partition in running.broker.owned if clocks.find(partition)}
        assert known == running.broker.owned.keys(), f"out of reach: {lost}"
        lost = lost or outage()


async def test_messages_expire(running, outage, set_ttl):
    await set_ttl(1.0)
    lost = outage()
    producer = await open_producer(running)
    here = [partition for partition in running.broker.owned if partition not in lost]
    for partition in here:
        await publish(producer, partition, "old")
    for partition in here:
        book = running.broker.owned[partition].groups["workers"].book
        await eventually(lambda book=book: book.cursor == 1, "expired")
    await producer.close()
