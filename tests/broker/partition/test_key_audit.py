"""The audit record of a group of order Key: which messages of a batch each delivery has."""

import asyncio

import pytest

from partq.testing import eventually
from partq.wire import frames
from tests.broker.api.routes.test_pull import GROUP, Member, token_of
from tests.broker.conftest import CONSUME, Gate, open_producer
from tests.broker.delivery.keyed import DAY_MS, KEY_ORDER, KeyedScene, follow, publish
from tests.broker.partition.test_audit import P0, of_kind, resources, told

__all__ = ["resources"]


def ranges(records):
    return [(each.first, each.stop, each.cause) for each in records]


async def test_each_range_of_a_mask_is_recorded_with_its_cause(running):
    scene = await KeyedScene().set(running, "a0", "b0", "a1")
    source = scene.source
    held, _ = await source.deliver()
    assert await source.nack(held, [(0, 1)], delay_ms=DAY_MS) == ""
    asked = await source.asked()
    await publish(scene.producer, "b1", "a2", "c0")
    assert (await source.deliver())[1] == ["b1", "c0"]
    await source.give_back(asked, (2, 3))
    await eventually(lambda: scene.consumed.book.in_flight == 3, "a1 is back")
    assert scene.consumed.book.unpark(11)
    scene.consumed.flow.notice(scene.consumed)
    await source.finish_alone("a0")
    assert await source.values(2) == ["a1", "a2"]
    records = await told(running)
    assert ranges(of_kind(records, "deliver")) == [
        (0, 3, ""),
        (3, 4, ""),
        (5, 6, ""),
        (0, 1, "nack"),
        (2, 3, ""),
        (4, 5, ""),
    ]
    assert ranges(of_kind(records, "release")) == [(2, 3, "")]
    assert ranges(of_kind(records, "nack")) == [(0, 1, "nack")]


async def test_no_ack_counts_of_what_waits_for_its_record(running):
    scene = await KeyedScene().set(running, "a0", "b0")
    source = scene.source
    held, _ = await source.deliver()
    gate = Gate(running.broker.audits, "write")
    await publish(scene.producer, "c0")
    await gate.is_reached()
    assert await source.ack(held, ranges=[(2, 3)]) == "not_delivered"
    assert await source.ack(held, ranges=[(0, 2)]) == ""
    gate.opened.set()
    assert await source.values(1) == ["c0"]
    assert await source.ack(held, ranges=[(2, 3)]) == ""


async def test_acks_that_come_while_the_time_is_asked_for_are_stored_with_their_records(
    running, monkeypatch
):
    scene = await KeyedScene().set(running, "a0", "b0", "c0")
    held, _ = await scene.source.deliver()
    flush, stored = running.broker.partitions.flush, []

    async def note(*args, acked, audit, **kwargs):
        stored.append((acked != b"", len(audit.records)))
        return await flush(*args, acked=acked, audit=audit, **kwargs)

    monkeypatch.setattr(running.broker.partitions, "flush", note)
    gate = Gate(running.broker.cursor_writer, "_read_ms")
    nacked = asyncio.create_task(scene.source.nack(held, [(0, 1)], delay_ms=DAY_MS))
    await gate.is_reached()
    running.broker.ack_handler.ack(
        scene.consumed.flow,
        frames.Ack(0, 1, 0, held.broker_epoch, held.epoch, 0, -1, [(1, 2)]),
        lambda _: None,
    )
    gate.opened.set()
    assert await nacked == ""
    assert stored[0] == (True, 2), "the nack and the ack"


@pytest.fixture
async def pulling(running):
    """A member that has a0 in hand, and a pull that has taken b0 and a1."""
    await follow(running, nack=KEY_ORDER)
    await running.assign("m", [0])
    member = Member(running, CONSUME)
    producer = await open_producer(running)
    await publish(producer, "a0")
    (member.held,) = await member.messages()
    gate = Gate(running.broker.audits, "write")
    pull = asyncio.create_task(member.pull())
    await publish(producer, "b0", "a1")
    await gate.is_reached()
    return member, pull, gate


async def test_a_pull_is_not_answered_with_what_follows_a_message_that_was_given_back(
    running, pulling
):
    """Else its member would process a1 before a0, which it has given back."""
    member, pull, gate = pulling
    item = {**token_of(member.held), "offsets": [0], "delay_ms": DAY_MS}
    body = {"member": "m", "flow": member.flow, "nacks": [item]}
    _, answer = await running.call("POST", f"{GROUP}/nacks", token=CONSUME, json=body)
    assert answer["results"] == [{}]
    gate.opened.set()
    status, answer = await pull
    assert (status, [each["value"] for each in answer["messages"]]) == (200, ["b0"])
    book = running.broker.owned[P0].groups["workers"].book
    assert book.in_flight == 1
    assert book.unpark(11)
    (again,) = await member.messages()
    assert again["value"] == "a0"
    status, answer = await member.ack({**token_of(again), "offsets": [0]})
    assert (status, answer["results"]) == (200, [{}])
    assert [each["value"] for each in await member.messages()] == ["a1"]


async def test_of_an_ack_that_counts_in_part_the_record_has_that_part(running):
    scene = await KeyedScene().set(running, "a0", "b0")
    source = scene.source
    held, _ = await source.deliver()
    assert await source.nack(held, [(0, 1)], delay_ms=DAY_MS) == ""
    assert await source.ack(held, ranges=[(0, 2)]) == "not_delivered"
    assert scene.consumed.book.acked_pairs() == [(1, 2)]
    assert ranges(of_kind(await told(running), "ack")) == [(1, 2, "")]
