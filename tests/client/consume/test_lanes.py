"""A member of a KeyShared group, against a scripted peer: its slots, and what its acks name."""

import pytest

from partq.testing import eventually
from partq.wire import frames
from tests.client.member import LEASE_MS, P0, Member, deliver

OLD, NEW = (5, 9), (5, 12)


@pytest.fixture
def lanes():
    return []


@pytest.fixture
async def shared(peer, lanes):
    """A consumer that notes its slots, and its flow, which holds some of partition 0."""
    member = Member(peer, on_lanes=lambda partition, ranges: lanes.append((partition, ranges)))
    async with member.consumer:
        flow = await peer.raw_flow()
        await flow.send(frames.Bound("broker-0", 1, LEASE_MS, takes_lanes=True))
        await flow.send(frames.Assigned(1, 0, *OLD, 0, frames.KEYED))
        await flow.send(frames.Lanes(1, 0, *OLD, [(0, 4096)]))
        yield member, flow


async def test_it_is_told_its_slots_behind_the_assignment_and_at_each_change(shared, lanes):
    member, flow = shared
    await flow.send(frames.Lanes(1, 0, *NEW, [(0, 2048), (8192, 12_288)]))
    await eventually(lambda: len(lanes) == 2, "both are told")
    assert lanes == [(P0, [(0, 4096)]), (P0, [(0, 2048), (8192, 12_288)])]
    assert member.told == [("assigned", P0)]


async def test_messages_of_a_later_epoch_follow_and_acks_of_earlier_ones_count(
    shared, stored_batch
):
    member, flow = shared
    await flow.send(deliver(0, 1, OLD), payload=stored_batch(b"a"))
    first = await member.next()
    await flow.send(frames.Lanes(1, 0, *NEW, [(0, 2048)]))
    await flow.send(deliver(1, 2, NEW, delivery=3), payload=stored_batch(b"b"))
    second = await member.next()
    assert (first.token[1:3], second.token[1:3]) == (OLD, NEW)
    confirmed = member.consumer.ack_nowait(first)
    ack = await flow.next(frames.Ack)
    assert ((ack.broker_epoch, ack.epoch), ack.delivery, ack.ranges) == (NEW, 0, [(0, 1)])
    del confirmed
    member.consumer.ack_nowait(second)
    ack = await flow.next(frames.Ack)
    assert ((ack.broker_epoch, ack.epoch), ack.delivery, ack.ranges) == (NEW, 3, [(1, 2)])


async def test_slots_of_an_earlier_epoch_change_nothing(shared, lanes, stored_batch):
    member, flow = shared
    await flow.send(frames.Lanes(1, 0, *NEW, [(0, 2048)]), frames.Lanes(1, 0, *OLD, [(0, 1)]))
    await flow.send(deliver(0, 1, NEW), payload=stored_batch(b"a"))
    assert (await member.next()).token[1:3] == NEW
    assert [ranges for _, ranges in lanes] == [[(0, 4096)], [(0, 2048)]]
