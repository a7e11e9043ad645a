"""Time to live: what waits for too long goes, what is in flight stays."""

import re
import time
from dataclasses import replace

import pytest

from partq.broker.operations.gauges import render_metrics
from partq.core.clocks.clock_watch import ClockWatch
from partq.core.model import PartitionId
from partq.errors import StoreUnavailableError
from partq.resources import group_document, queue_document, resources_of
from partq.testing import eventually
from partq.wire import frames
from tests.broker.conftest import open_flow, open_producer
from tests.broker.group_rules import without_rules
from tests.broker.moved_clocks import put_watch
from tests.broker.queue_ttl import set_ttl

__all__ = ["set_ttl"]

P = PartitionId(1, 0)
QUEUE = queue_document("orders", partitions=4)
DEAD_LETTERS = {"queue": "dead", "expired": True}


@pytest.fixture
def group_spec():
    return {}


@pytest.fixture
def resources(group_spec):
    return resources_of(QUEUE, group_document("workers", "orders", **group_spec))


async def test_old_messages_are_dropped_but_for_those_in_flight(running, set_ttl):
    await running.assign("m", [0])
    flow = await open_flow(running, credit=1)
    await flow.expect(frames.Assigned)
    producer = await open_producer(running)
    await producer.publish("in flight", "late", "later")
    header, _ = await flow.deliver()
    await set_ttl(1.0)
    consumed = running.broker.owned[P].groups["workers"]
    await eventually(lambda: consumed.book.acked.pairs() == [(1, 3)], "expired")
    assert (consumed.book.cursor, consumed.book.in_flight) == (0, 1)
    assert "partq_messages_expired_total{" in render_metrics(running.broker).decode()
    await set_ttl(3600.0)
    assert await flow.ack(header, upto=1) == ""
    await producer.publish("young")
    await flow.send(frames.Credit(1))
    header, _ = await flow.deliver()
    assert (header.start, header.cause) == (3, 0)
    await producer.close()


async def test_an_expiry_is_stored_for_a_group_that_nobody_consumes(running, set_ttl):
    await set_ttl(1.0)
    producer = await open_producer(running)
    await producer.publish("a", "b")

    async def is_stored():
        return (await running.broker.partitions.read_cursor(P, "workers")).cursor == 2

    await eventually(is_stored, "the cursor is behind them")

    async def is_trimmed():
        return (await running.broker.partitions.read(P)).trimmed == 2

    await eventually(is_trimmed, "their memory is free")
    await producer.close()


@pytest.mark.parametrize("group_spec", [{"deadLetter": DEAD_LETTERS}])
async def test_nothing_expires_for_a_group_whose_rules_are_not_known(running):
    """The queue still names it: its config is gone, or is not stored yet."""
    broker = running.broker
    consumed = broker.owned[P].groups["workers"]
    broker.expiry._config = lambda: replace(broker.config, message_ttl_s=0.001)
    producer = await open_producer(running)
    async with without_rules(broker):
        await producer.publish("a", "b")

        async def is_over():
            await broker.expiry.expire()
            return broker.owned[P].expired == 2

        await eventually(is_over, "both are over")
        await broker.expiry.expire()
        assert (consumed.book.cursor, consumed.outbox.letters) == (0, [])
    await eventually(lambda: len(consumed.outbox.letters) == 2, "they become dead letters")
    await producer.close()


async def test_nothing_expires_after_a_jump_of_the_clock_until_it_is_confirmed(running, set_ttl):
    await set_ttl(1.0)
    expiry = running.broker.expiry
    put_watch(running.broker, ClockWatch()).observe(0, 0.0, wall_s=0.0)
    await expiry.expire()
    assert running.broker.expiry.clocks.is_suspended
    producer = await open_producer(running)
    await producer.publish("a")
    await expiry.expire()
    assert (running.broker.owned[P].expired, running.broker.owned[P].expired_at) == (
        0,
        float("-inf"),
    )
    assert "partq_expiry_suspended" in render_metrics(running.broker).decode()
    status, answer = await running.call("POST", "/admin/v1/queues/orders/expiry/confirm")
    assert (status, answer) == (200, {"is_suspended": False})
    await eventually(lambda: running.broker.owned[P].expired == 1, "expired")
    await producer.close()


async def test_a_broker_that_stood_still_while_it_asked_has_seen_no_jump(running, set_ttl):
    """The time in the answer is as old as the round trip was long."""
    await set_ttl(1.0)
    clocks = running.broker.expiry.clocks
    store = clocks._store
    own, wall, real, passed = clocks._clock, clocks._wall_clock, store.read_clocks, [0.0]
    clocks._clock = lambda: own() + passed[-1]
    clocks._wall_clock = lambda: wall() + passed[-1]

    async def read_clocks():
        times = await real()
        return {name: at_ms + passed[-1] * 1000 for name, at_ms in times.items()}

    async def stand_still():
        times = await read_clocks()
        passed.append(passed[-1] + 100.0)
        return times

    store.read_clocks = read_clocks
    await clocks.observe()
    for _ in range(2):
        store.read_clocks = stand_still
        with pytest.raises(StoreUnavailableError, match="100"):
            await clocks.observe()
        assert not clocks.is_suspended
        store.read_clocks = read_clocks
        await clocks.observe()
        assert not clocks.is_suspended
    store.read_clocks = real
    await clocks.observe()
    assert clocks.is_suspended, "a clock that was set back by 200 s still counts"


async def test_nothing_expires_by_a_clock_that_is_far_from_the_broker_s(running, set_ttl, caplog):
    """Both may have been started when Redis's machine had a wrong clock: nobody saw it jump."""
    expiry = running.broker.expiry
    running.broker.expiry.clocks._wall_clock = lambda: time.time() - 86_400
    producer = await open_producer(running)
    await producer.publish("young")
    await set_ttl(0.001)
    await eventually(lambda: running.broker.expiry.clocks.is_suspended, "suspended")
    await expiry.expire()
    assert running.broker.owned[P].expired == 0
    assert "differs from that of this machine by 86400 s" in caplog.text
    await running.call("POST", "/admin/v1/queues/orders/expiry/confirm")
    await eventually(lambda: running.broker.owned[P].expired == 1, "expired")
    await producer.close()


async def test_a_partition_that_was_written_to_while_the_clock_was_ahead_says_so(
    running, peers, store, start_broker
):
    """Its times never fall: nothing of it ages until the clock is there."""
    day_ms = 24 * 3600 * 1000
    now_ms, _ = await running.broker.log.read_times(P, [])
    await store.read("HSET", running.broker.keys.meta(P), "at_ms", now_ms + day_ms)
    producer = await open_producer(running)
    await producer.publish("from the future")
    _, answer = await running.call("GET", "/v1/queues/orders/status")
    ahead = answer["partitions"]["1.0"]["clock_ahead_ms"]
    assert day_ms - 3600_000 < ahead <= day_ms
    assert answer["partitions"]["1.1"]["clock_ahead_ms"] == 0
    name = 'partq_partition_clock_ahead_seconds{namespace="default",partition="1.0"'
    await eventually(lambda: running.broker.quota.info, "Redis has said what it is")
    text = render_metrics(running.broker).decode()
    assert name in text
    assert 'clock_ahead_seconds{namespace="default",partition="1.1"' not in text
    # Whoever owns it next knows it from the record.
    other = await start_broker("orders-1")
    await running.admin("/yield", {"partitions": ["1.0"]})
    await other.admin("/claim", {"partitions": ["1.0"]})
    await eventually(lambda: other.broker.quota.info, "Redis has said what it is")
    assert name in render_metrics(other.broker).decode()
    await producer.close()


async def test_the_memory_and_the_file_of_redis_are_measured(running):
    await eventually(lambda: running.broker.quota.info, "Redis has said what it is")
    text = render_metrics(running.broker).decode()
    found = dict(re.findall(r"^(partq_store_[a-z_]+)\{.*\} (.*)$", text, re.MULTILINE))
    assert float(found["partq_store_aof_bytes"]) > 0
    assert float(found["partq_store_memory_bytes"]) > 0
    assert found["partq_store_max_memory_bytes"] == "0.0"
