"""While one master of a Redis Cluster is dead or silent, all on the others continues in full."""

import asyncio
from itertools import count

import pytest

from partq.broker.retention.trimmer import Trimmer
from partq.testing import eventually
from partq.wire import frames
from tests.broker import conftest
from tests.broker.cluster_outage import outage, redis_server
from tests.broker.conftest import open_flow, open_producer, queue_and_group
from tests.broker.queue_ttl import set_ttl

__all__ = ["outage", "redis_server", "set_ttl"]

QUOTA_BYTES = 1024 * 1024
VALUE_BYTES = 100_000
LIMITS = {"maxMessageBytes": 131_072, "maxSpoolBytes": QUOTA_BYTES}


@pytest.fixture
def resources():
    return queue_and_group(partitions=24, limits=LIMITS)


@pytest.fixture(autouse=True)
def layout(running, monkeypatch):
    """Producers know how many partitions there are."""
    monkeypatch.setattr(conftest, "LAYOUT", running.broker.config.layout)


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


async def nothing_waits(running, lost, *conditions):
    """Wait until they hold, while the silent node has not answered yet, or been given up."""
    silent = asyncio.create_task(running.broker.partitions.read(next(iter(lost))))
    for condition in conditions:
        await eventually(condition)
    assert not silent.done()
    silent.cancel()


@pytest.mark.parametrize("outage", ["silent"], indirect=True)
async def test_the_logs_on_other_nodes_are_trimmed(running, outage, monkeypatch):
    broker, trimmed, trim = running.broker, set(), running.broker.log.trim

    async def noted(partition, **options):
        found = await trim(partition, **options)
        trimmed.add(partition)
        return found

    monkeypatch.setattr(broker.log, "trim", noted)
    lost = outage()
    for _ in range(2):
        broker.trimmer = Trimmer(
            broker.owned,
            broker.log,
            broker.trimmer._retention,
            broker.known_ids,
            broker.metrics,
            groups=lambda: broker.config.groups,
            on_lost=broker.ownership.lose,
            spawn=broker._spawn,
        )
        trimmed.clear()
        await nothing_waits(running, lost, lambda: trimmed == broker.owned.keys() - lost)


@pytest.mark.req("AZR-01", "AZR-03")
@pytest.mark.parametrize("outage", ["silent"], indirect=True)
async def test_a_member_is_bound_to_its_partitions_on_other_nodes(running, outage):
    """It comes while one node is silent, and gets the others' messages; the rest comes later."""
    await running.assign("m", range(24))
    lost = outage()
    silent = asyncio.create_task(running.broker.partitions.read(next(iter(lost))))
    flow, producer = await open_flow(running), await open_producer(running)
    here = running.broker.owned.keys() - lost
    for partition in here:
        await publish(producer, partition, "x")
    await flow.take(len(here))
    assert not silent.done()
    silent.cancel()
    outage.end()

    def is_whole():
        owned = running.broker.owned
        return len(owned) == 24 and all(each.groups["workers"].flow for each in owned.values())

    await eventually(is_whole, "the other partitions are bound, too")
    await producer.close()


@pytest.mark.req("AZR-03")
@pytest.mark.parametrize("outage", ["silent"], indirect=True)
async def test_the_status_of_other_nodes_is_shown(running, outage):
    lost = outage()
    silent = asyncio.create_task(running.broker.partitions.read(next(iter(lost))))
    status, answer = await running.call("GET", "/v1/queues/orders/status")
    assert (status, set(answer["unavailable"])) == (200, set(map(str, lost)))
    assert answer["groups"]["workers"]["partitions"].keys() == {
        str(each) for each in running.broker.owned.keys() - lost
    }
    assert not silent.done()
    silent.cancel()


@pytest.mark.parametrize("outage", ["silent"], indirect=True)
async def test_the_settings_of_partitions_on_other_nodes_are_followed(running, outage):
    broker, lost = running.broker, outage()
    known = await broker.configs.read_queue()
    spec = {**known.spec, "audit": True}
    await broker.configs.write_queue(spec, resource_generation=known.resource_generation + 1)

    def recorded():
        return {partition for partition, owned in broker.owned.items() if owned.audit.is_on}

    await nothing_waits(running, lost, lambda: recorded() >= broker.owned.keys() - lost)


@pytest.mark.parametrize("outage", ["silent"], indirect=True)
async def test_groups_on_other_nodes_are_read(running, outage):
    broker, keys = running.broker, running.broker.keys
    there = broker.store.server_of(keys.meta(next(iter(outage.lost))))
    names = (f"g-{number}" for number in count())
    silent = next(x for x in names if broker.store.server_of(keys.group_config(x)) == there)
    assert await broker.configs.read_reachable_groups([silent]) == {silent: None}
    outage()
    waiting = asyncio.create_task(broker.configs.read_group(silent))
    found = await broker.configs.read_reachable_groups([silent, "workers"])
    assert found == {"workers": await broker.configs.read_group("workers")}
    assert await broker.configs.read_reachable_groups([silent]) == {}
    assert not waiting.done()
    waiting.cancel()


@pytest.mark.parametrize("outage", ["silent"], indirect=True)
async def test_messages_on_other_nodes_expire(running, outage, set_ttl):
    producer = await open_producer(running)
    for partition in running.broker.owned:
        await publish(producer, partition, "old")
    await set_ttl(1.0)
    lost = outage()

    def expired():
        owned = running.broker.owned
        return {each for each in owned if owned[each].groups["workers"].book.cursor == 1}

    await nothing_waits(running, lost, lambda: expired() >= running.broker.owned.keys() - lost)
    await producer.close()


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
