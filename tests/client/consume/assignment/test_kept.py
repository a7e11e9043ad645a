"""What an assigned partition keeps when it steps back, until that comes again without its bytes."""

import asyncio

import pytest

from partq import Cause
from partq.client.consume.assignment.sequential_partition import SequentialPartition
from partq.wire import frames
from tests.client.member import WAIT_S, Member, assigned, bound, deliver

TOKEN = (5, 9)
KEEP_ALL = 2**30


def rewound(start, delivery, *, partition=0, cause=Cause.NACK):
    return frames.Rewound(1, partition, *TOKEN, delivery, start, cause)


def again(start, stop, payload=b"", *, first, delivery=1, partition=0):
    """Return a delivery that comes without its bytes, if `payload` says which those are."""
    place = (1, partition, *TOKEN, delivery)
    kept_bytes = len(payload)
    return frames.Deliver(*place, 5, 0, first, start, stop, 0, [], [], kept_bytes=kept_bytes)


@pytest.fixture
def batches(stored_batch):
    """Three stored batches of two messages each, all of the same size."""
    return [stored_batch(b"a", b"b"), stored_batch(b"c", b"d"), stored_batch(b"e", b"f")]


@pytest.fixture
def assigned_partition(partition, batches):
    """An assigned partition that has got them, and has begun none."""
    assigned_partition = SequentialPartition(None, partition, TOKEN, 0)
    for start, payload in zip((0, 2, 4), batches, strict=True):
        assigned_partition.accept(deliver(start, start + 2, TOKEN), payload)
    return assigned_partition


def test_the_first_batches_are_kept_as_far_as_there_is_room(assigned_partition, batches):
    assigned_partition.rewind(rewound(0, 1), 2 * len(batches[0]) + 1)
    assert assigned_partition.kept_bytes == 2 * len(batches[0])
    assert not assigned_partition.accept(again(2, 4, batches[1], first=2), b"").is_missing
    assert assigned_partition.accept(again(4, 6, batches[2], first=4), b"").is_missing


def test_what_does_not_come_again_is_not_kept(assigned_partition, batches):
    """What is below stays ready, and takes no room of what is dropped."""
    assigned_partition.rewind(rewound(3, 1), 2 * len(batches[0]))
    assert assigned_partition.accept(again(4, 6, batches[2], first=4), b"").is_missing is False


def test_what_is_passed_over_is_kept_no_longer(assigned_partition, batches):
    """It was acknowledged late, or has expired."""
    assigned_partition.rewind(rewound(0, 1), KEEP_ALL)
    assigned_partition.accept(again(4, 5, batches[2], first=4), b"")
    assert assigned_partition.kept_bytes == len(batches[2]), "its second message is to come"
    assigned_partition.accept(again(5, 6, batches[2], first=4), b"")
    assert assigned_partition.kept_bytes == 0


def test_a_batch_of_which_a_part_came_again_is_kept_to_its_end(assigned_partition, batches):
    """The part is given back, too: what was to follow it has the same bytes."""
    assigned_partition.rewind(rewound(0, 1), KEEP_ALL)
    assigned_partition.accept(again(0, 1, batches[0], first=0), b"")
    assigned_partition.rewind(rewound(0, 2), KEEP_ALL)
    assigned_partition.accept(again(0, 1, batches[0], first=0, delivery=2), b"")
    rest = assigned_partition.accept(again(1, 2, batches[0], first=0, delivery=2), b"")
    assert [message.value for message in rest.take_all()] == [b"b"]


def test_an_assignment_that_has_ended_keeps_nothing(assigned_partition):
    """What the application has in hand refers to it, however long it takes."""
    assigned_partition.rewind(rewound(0, 1), KEEP_ALL)
    assigned_partition.forget()
    assert assigned_partition.kept_bytes == 0


def test_a_pause_that_gives_nothing_back_forgets_nothing(assigned_partition, batches):
    """The broker sends without bytes what was kept and not released since."""
    assigned_partition.rewind(rewound(0, 1), KEEP_ALL)
    assert assigned_partition.release() == (None, (0, 0)), "nothing has come yet"
    assert not assigned_partition.accept(again(0, 2, batches[0], first=0), b"").is_missing
    release, _ = assigned_partition.release()
    assert (release.start, assigned_partition.kept_bytes) == (0, 0)


def test_what_comes_with_its_bytes_is_kept_no_longer(assigned_partition, batches):
    """As after a time-out of acks, and from brokers that know of nothing kept."""
    assigned_partition.rewind(rewound(0, 1, cause=Cause.ACK_TIMEOUT), KEEP_ALL)
    assigned_partition.accept(again(0, 1, first=0), batches[0])
    assert assigned_partition.kept_bytes == 3 * len(batches[0])
    assigned_partition.accept(again(1, 2, first=0), batches[0])
    assert assigned_partition.kept_bytes == 2 * len(batches[0])
    assigned_partition.accept(again(4, 6, first=4), batches[2])
    assert assigned_partition.kept_bytes == 0


def test_the_rest_of_a_batch_is_kept_though_its_first_message_was_handed_out(
    assigned_partition, batches
):
    assigned_partition.rewind(rewound(0, 1), KEEP_ALL)
    assigned_partition.accept(again(0, 1, batches[0], first=0), b"").take_one()
    assigned_partition.rewind(rewound(0, 2), KEEP_ALL)
    assigned_partition.accept(again(0, 1, first=0, delivery=2), batches[0])
    rest = assigned_partition.accept(again(1, 2, batches[0], first=0, delivery=2), b"")
    assert [message.value for message in rest.take_all()] == [b"b"]


async def test_all_partitions_of_a_flow_keep_no_more_than_its_credit(peer, stored_batch):
    """What does not fit is released when it comes, and comes with its bytes then."""
    payload = stored_batch(b"a", b"b")
    member = Member(peer, credit_bytes=len(payload) + 1)
    async with member.consumer:
        flow = await peer.flow()
        for partition in (0, 1):
            await flow.send(assigned(TOKEN, partition=partition))
            await flow.send(deliver(0, 2, TOKEN, partition=partition), payload=payload)
            message = await member.next()
            nacking = asyncio.create_task(member.consumer.nack(message))
            nack = await flow.next(frames.Nack)
            rewind = rewound(0, 1, partition=partition)
            await flow.send(rewind, frames.AckConfirmed(nack.request))
            async with asyncio.timeout(WAIT_S):
                await nacking
        await flow.send(again(1, 2, payload, first=0, partition=1))
        release = await flow.next(frames.Release)
        assert (release.partition, release.start) == (1, 1)
        await flow.send(again(0, 2, payload, first=0))
        assert [(await member.next()).value for _ in range(2)] == [b"a", b"b"]


async def test_what_comes_out_of_turn_without_its_bytes_is_given_back(peer, stored_batch):
    """As from a broker that does not know that they were dropped: the connection continues."""
    payload = stored_batch(b"a", b"b", b"c")
    member = Member(peer)
    async with member.consumer:
        flow = await bound(peer, stored_batch, b"a", b"b", b"c")
        _, message = await member.next(), await member.next()
        nacking = asyncio.create_task(member.consumer.nack(message))
        await flow.send(frames.AckConfirmed((await flow.next(frames.Nack)).request))
        async with asyncio.timeout(WAIT_S):
            await nacking
        await flow.send(again(1, 2, payload, first=0, delivery=0))
        nack = await flow.next(frames.Nack)
        assert (nack.ranges, nack.delay_ms, nack.reason) == ([(1, 2)], -1, "")
        await flow.send(frames.AckConfirmed(nack.request))
        await flow.send(again(1, 2, first=0, delivery=0), payload=payload)
        assert {(await member.next()).value for _ in range(2)} == {b"b", b"c"}
    assert member.errors == []
