"""Partitions that are lost while the audit record of their deliveries is written."""

import asyncio
from contextlib import suppress

import pytest

from partq.core.model import PartitionId
from partq.errors import ConflictError, StoreUnavailableError
from partq.store.records.audit import Audits
from partq.testing.frame_peers import values_of
from partq.wire import frames
from tests.audit_record import decode_group
from tests.broker.api.routes.test_pull import Member
from tests.broker.partition.test_audit import of_kind, resources, switch

__all__ = ["resources"]


@pytest.fixture
async def producer(running, peers):
    await running.assign("m", [0, 1])
    producer = await peers.open_producer(running)
    await producer.publish("of-0", partition=0)
    await producer.publish("of-1", partition=1)
    return producer


async def fence(running, index):
    """Let another broker claim a partition; this one does not know it yet."""
    keys, partition = running.broker.keys, PartitionId(1, index)
    other = running.broker.owned[partition].broker_epoch + 10**9
    fields = ["broker_epoch", other, "owner", "b-1"]
    await running.store.read("HSET", keys.meta(partition), *fields)


async def delivered(running, index):
    """Return what the record of a partition tells of deliveries."""
    partition = PartitionId(1, index)
    groups = await Audits(running.store, running.broker.keys).read(partition, 0, max_bytes=1 << 24)
    records = [record for group in groups for record in decode_group(partition, group)]
    return [(each.first, each.stop) for each in of_kind(records, "deliver")]


async def test_a_pull_leaves_out_a_partition_that_is_lost_before_its_record(
    running, producer, peers
):
    """Its messages go to whoever has it next; the others are answered as ever."""
    gate = peers.Gate(running.broker.audits, "write")
    member = Member(running, peers.CONSUME)
    pull = asyncio.create_task(member.messages())
    await gate.is_reached()
    await fence(running, 0)
    gate.opened.set()
    messages = await pull
    assert [(each["partition"], each["value"]) for each in messages] == [("1.1", "of-1")]
    assert await delivered(running, 0) == []
    assert await delivered(running, 1) == [(0, 1)]
    (message,) = messages
    token = {name: message[name] for name in ("partition", "broker_epoch", "epoch", "delivery")}
    _, answer = await member.ack({**token, "upto": 1})
    assert answer == {"results": [{}]}


async def test_a_pull_that_loses_all_its_partitions_is_answered_without_messages(
    running, producer, peers
):
    gate = peers.Gate(running.broker.audits, "write")
    member = Member(running, peers.CONSUME)
    pull = asyncio.create_task(member.pull())
    await gate.is_reached()
    await fence(running, 0)
    await fence(running, 1)
    gate.opened.set()
    status, answer = await pull
    assert (status, answer["messages"], answer["held"]) == (200, [], [])
    assert [await delivered(running, index) for index in (0, 1)] == [[], []]


async def test_a_flow_gets_back_the_room_of_a_partition_that_is_lost_before_its_record(
    running, producer, peers
):
    """It is sent nothing of that partition, and continues with the others."""
    gate = peers.Gate(running.broker.audits, "write")
    flow = await peers.open_flow(running, "m", credit=2)
    await gate.is_reached()
    await fence(running, 0)
    gate.opened.set()
    await producer.publish("next-of-1", partition=1)
    got, revoked = [], []
    while len(got) < 2:
        frame, payload = await flow.receive()
        if isinstance(frame, frames.Deliver):
            assert frame.partition == 1, "nothing of what is lost"
            got += values_of(frame, payload)
        elif isinstance(frame, frames.Revoked):
            revoked.append(frame.partition)
    assert got == ["of-1", "next-of-1"]
    assert revoked == [0]
    assert await delivered(running, 0) == []
    assert await delivered(running, 1) == [(0, 1), (1, 2)]


@pytest.mark.parametrize("was_on", [True, False])
async def test_a_switch_of_the_record_that_was_given_up_changes_nothing_when_it_arrives(
    running, peers, producer, monkeypatch, was_on
):
    """It was decided before the spec was changed again, and its answer was never awaited."""
    audits, given_up = running.broker.audits, []
    if was_on:
        await switch(running, is_on=False)
    call = audits.switch

    async def unanswered(*place, **options):
        given_up.append((place, options))
        raise StoreUnavailableError("no answer")

    monkeypatch.setattr(audits, "switch", unanswered)
    with suppress(StoreUnavailableError):
        await switch(running, is_on=was_on)
    monkeypatch.setattr(audits, "switch", call)
    await switch(running, is_on=not was_on)
    for place, options in given_up:
        with pytest.raises(ConflictError, match="switched again"):
            await call(*place, **options)
    flow = await peers.open_flow(running)
    await producer.publish("more", partition=0)
    frame, _ = await flow.deliver()
    assert given_up
    assert ((0, frame.stop) in await delivered(running, 0)) is (not was_on)
    await flow.close()
