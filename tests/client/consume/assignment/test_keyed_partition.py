"""What a consumer does in a group of order Key, against frames that a test writes."""

import asyncio

import pytest

from partq import Cause
from partq.client.consume.assignment.keyed_partition import KeyedPartition
from partq.core.dead_letters import LetterNote
from partq.errors import BadRequestError, ConflictError
from partq.testing import eventually
from partq.wire import frames
from tests.client.consume.assignment.keyed_frames import (
    TOKEN,
    A,
    B,
    ask_back,
    begun,
    bound,
    confirm,
    deliver,
    finish,
    frame_of,
    mask_of,
    returned,
    stored,
    values,
)
from tests.client.member import P0, WAIT_S, Member

ALL_SLOTS = [(0, 65_536)]


# ---- what is delivered ----


async def test_a_client_says_that_it_knows_slots(peer, member):
    flow = await bound(peer)
    assert flow.first.takes_lanes


async def test_only_the_messages_of_the_mask_are_handed_out(peer, member):
    """The others belong to somebody else, or wait: a later delivery of the batch has them."""
    payload = stored("a", "b", "a", "c", "b")
    flow = await bound(peer)
    await flow.send(deliver(1, 5, mask_of(0, 2, 3)), payload=payload)
    assert await values(member, 3) == ["b1", "c3", "b4"]
    await flow.send(deliver(0, 3, mask_of(0, 2)), payload=payload)
    assert await values(member, 2) == ["a0", "a2"]


async def test_a_batch_has_the_messages_of_the_mask_and_its_ack_names_them_alone(peer, member):
    flow = await bound(peer)
    frame = deliver(0, 5, mask_of(0, 1, 4), counts=[(4, 2)])
    await flow.send(frame, payload=stored("a", "b", "a", "c", "b"))
    delivered = await finish(anext(member.consumer.batches()))
    assert list(delivered.offsets) == [0, 1, 4]
    assert [each.value for each in delivered] == [b"a0", b"b1", b"b4"]
    assert [each.redeliveries for each in delivered.deliveries()] == [0, 0, 2]
    acking = asyncio.create_task(member.consumer.ack(delivered, confirmed=True))
    ack = await confirm(flow, frames.Ack, acking)
    assert (ack.upto, ack.ranges, ack.delivery) == (-1, [(0, 2), (4, 5)], 0)


async def test_each_message_has_its_cause(peer, member):
    flow = await bound(peer)
    causes = bytes([Cause.NACK, Cause.NONE, Cause.FLOW_LOST])
    frame = deliver(0, 4, mask_of(0, 1, 3), causes=causes)
    await flow.send(frame, payload=stored("a", "a", "b", "c"))
    first, second, third = [await member.next() for _ in range(3)]
    assert [first.cause, second.cause, third.cause] == [Cause.NACK, Cause.NONE, Cause.FLOW_LOST]
    assert not second.is_redelivered
    assert member.consumer.stats().redelivered == {Cause.NACK: 1, Cause.FLOW_LOST: 1}
    await flow.send(frame, payload=stored("a", "a", "b", "c"))
    delivered = await finish(anext(member.consumer.batches()))
    assert delivered.cause is Cause.NACK, "some are redelivered"
    assert [each.cause for each in delivered.deliveries()] == [
        Cause.NACK, Cause.NONE, Cause.FLOW_LOST,
    ]  # fmt: skip


async def test_an_unknown_kind_of_assignment_says_what_to_do(peer, member, caplog):
    flow = await peer.flow()
    await flow.send(frames.Assigned(1, 0, *TOKEN, 0, 99))
    await flow.closed()
    await eventually(lambda: "partition 1.0 came with mode 99" in caplog.text, "it is logged")
    assert "use a client of the broker's version" in caplog.text
    assert member.consumer.partitions == set()


# ---- what is given back ----


async def test_a_nack_holds_up_its_key_alone(peer, member):
    """Its broker asks for the rest of the key, which comes again behind it."""
    keys = ("a", "b", "a", "b", "a")
    flow = await bound(peer, *keys)
    nacking = asyncio.create_task(member.consumer.nack(await member.next(), delay_s=60))
    nack = await frame_of(flow, frames.Nack)
    assert (nack.ranges, nack.delay_ms, nack.begun, nack.keeps) == ([(0, 1)], 60_000, -1, False)
    await flow.send(ask_back(1, A))
    assert await returned(flow) == (1, [(2, 3), (4, 5)])
    await flow.send(frames.AckConfirmed(nack.request))
    await finish(nacking)
    assert member.consumer.stats().in_hand == 0
    assert await values(member, 2) == ["b1", "b3"]
    again = deliver(0, 5, mask_of(0, 2, 4), causes=bytes([Cause.NACK, 0, 0]), counts=[(0, 1)])
    await flow.send(again, payload=stored(*keys))
    first = await member.next()
    assert (first.value, first.cause, first.redeliveries) == (b"a0", Cause.NACK, 1)
    assert await values(member, 2) == ["a2", "a4"]
    stats = member.consumer.stats()
    assert (stats.received, stats.handed_out, stats.returned, stats.in_hand) == (8, 6, 2, 5)


async def test_what_the_application_has_got_stays_in_hand(peer, member):
    """After an ack timeout: an ack of it counts, and so does one of the rest of its key."""
    flow = await bound(peer, "a", "a", "b", "a")
    first, second = await member.next(), await member.next()
    await flow.send(ask_back(7, A))
    assert await returned(flow) == (7, [(3, 4)])
    acking = asyncio.create_task(member.consumer.ack(second, confirmed=True))
    assert (await confirm(flow, frames.Ack, acking)).ranges == [(1, 2)]
    acking = asyncio.create_task(member.consumer.ack(first, confirmed=True))
    assert (await confirm(flow, frames.Ack, acking)).ranges == [(0, 1)]
    assert await values(member, 1) == ["b2"]


async def test_an_answer_comes_also_when_there_is_nothing_to_give_back(peer, member):
    flow = await bound(peer, "b")
    await flow.send(ask_back(3, A), frames.AskBack(1, 0, *TOKEN, 4, [(0, B), (B + 1, 70_000)]))
    assert await returned(flow) == (3, [])
    assert await returned(flow) == (4, [])
    await flow.send(frames.AskBack(1, 0, *TOKEN, 5, ALL_SLOTS))
    assert await returned(flow) == (5, [(0, 1)])


async def test_a_token_that_has_ended_is_not_answered(peer, member):
    flow = await bound(peer, "a")
    await flow.send(frames.AskBack(1, 0, 5, 8, 1, ALL_SLOTS), ask_back(2, A))
    assert await returned(flow) == (2, [(0, 1)])


async def test_what_is_given_back_frees_its_room(peer):
    member = Member(peer, credit=4, credit_bytes=10_000)
    async with member.consumer:
        flow = await bound(peer)
        payload = stored("a", "a", "a", "a")
        await flow.send(deliver(0, 4), payload=payload)
        await flow.send(ask_back(1, A))
        assert (await flow.next(frames.Returned)).ranges == [(0, 4)]
        credit = await flow.next(frames.Credit)
        assert (credit.messages, credit.size_bytes) == (4, len(payload))


async def test_what_was_gathered_and_not_handed_out_is_given_back_too(peer, member):
    """A call that waits for more messages holds some, of which the broker was told."""
    flow = await bound(peer, "a", "b", "a", "b")
    consumer = member.consumer
    call = asyncio.create_task(consumer.getmany(10, timeout_s=WAIT_S))
    await eventually(lambda: len(consumer._held) == 4, "all are gathered")
    await flow.send(ask_back(1, A))
    assert await returned(flow) == (1, [(0, 1), (2, 3)])
    call.cancel()
    await asyncio.wait([call])
    assert [each.offset for each in await consumer.getmany(10, timeout_s=0)] == [1, 3]
    assert consumer.stats().returned == 2


async def test_what_waits_for_a_call_of_its_key_is_given_back(peer, member):
    """`run` begins the others of the key behind the one that was given back."""
    keys = ("a", "a", "b")
    flow = await bound(peer, *keys)
    calls, may_end = [], asyncio.Event()

    async def handle(message):
        calls.append((message.value.decode(), message.cause))
        if len(calls) == 1:
            await may_end.wait()
            await member.consumer.nack(message)

    running = asyncio.create_task(member.consumer.run(handle, concurrency=2))
    await eventually(lambda: len(calls) == 2, "one call of each key")
    may_end.set()
    nack = await frame_of(flow, frames.Nack)
    await flow.send(ask_back(1, A))
    assert await returned(flow) == (1, [(1, 2)])
    await flow.send(frames.AckConfirmed(nack.request))
    again = deliver(0, 2, causes=bytes([Cause.NACK, Cause.NONE]))
    await flow.send(again, payload=stored(*keys))
    await eventually(lambda: len(calls) == 4, "the key goes on")
    assert calls == [
        ("a0", Cause.NONE), ("b2", Cause.NONE), ("a0", Cause.NACK), ("a1", Cause.NONE),
    ]  # fmt: skip
    running.cancel()
    await asyncio.wait([running])


async def test_a_batch_of_which_some_was_taken_gives_back_the_rest(peer, member):
    flow = await bound(peer, "a", "b", "a", "b", "a")
    assert await values(member, 2) == ["a0", "b1"]
    await flow.send(ask_back(1, A))
    assert await returned(flow) == (1, [(2, 3), (4, 5)])
    rest = await finish(anext(member.consumer.batches()))
    assert ([each.value for each in rest], list(rest.offsets)) == ([b"b3"], [3])


# ---- the assignment by itself ----


@pytest.fixture
def keyed():
    return KeyedPartition(None, P0, TOKEN, 0)


def test_causes_stay_with_their_messages(keyed):
    """Also if some before them are given back, decoded or not."""
    for is_decoded in (False, True):
        causes = bytes([Cause.NONE, Cause.NACK, Cause.FLOW_LOST, Cause.NONE])
        window = keyed.accept(deliver(0, 4, causes=causes), stored("b", "a", "b", "c"))
        if is_decoded:
            window.take_one()
        keyed.ask_back(ask_back(1, A))
        left = window.take_all().deliveries()
        assert [each.cause for each in left[-2:]] == [Cause.FLOW_LOST, Cause.NONE]


def test_what_has_begun_is_named_once_for_each_delivery(keyed):
    window = keyed.accept(deliver(0, 4), stored("a", "b", "a", "b"))
    window.take_one()
    assert keyed.begun() == [(0, 1)]
    assert keyed.begun() == []
    window.take_one()
    keyed.ask_back(ask_back(1, A))
    window.take_one()
    assert keyed.begun() == [(1, 2), (3, 4)]
    keyed.accept(deliver(0, 1, cause=Cause.NACK), stored("a", "b", "a", "b")).take_one()
    assert keyed.begun() == [(0, 1)]


def test_what_has_begun_is_named_with_the_number_of_its_copy(keyed):
    """A later copy of it, which has come as well, has not begun."""
    payload = stored("a", "b")
    keyed.accept(deliver(0, 2), payload).take_one()
    again = keyed.accept(deliver(0, 1, number=1, cause=Cause.NACK), payload)
    assert [*keyed.begun_copies()] == [(0, [(0, 1)]), (1, [])]
    again.take_one()
    assert dict(keyed.begun_copies())[1] == [(0, 1)]


def test_what_is_redelivered_may_be_given_back_again(keyed):
    """An ack of it was refused; or it came before the broker knew of the ack."""
    keyed.accept(deliver(0, 1), stored("a")).take_one()
    assert keyed.ack(1, 0, -1, [(0, 1)])[1] == 1
    with pytest.raises(ConflictError):
        keyed.check_unacknowledged("nack", [(0, 1)])
    keyed.accept(deliver(0, 1, cause=Cause.FLOW_LOST), stored("a")).take_one()
    keyed.check_unacknowledged("nack", [(0, 1)])
    assert keyed.nack(2, 0, [(0, 1)], -1, LetterNote())[1] == 1
    assert not keyed.has_in_hand


def test_a_batch_that_is_broken_is_not_given_back_unread(keyed):
    """It is given back as undecodable when its turn comes; the others are."""
    keyed.accept(deliver(0, 2), b"no batch")
    keyed.accept(deliver(2, 4, first=2), stored("a", "b"))
    returned, freed = keyed.ask_back(ask_back(1, A))
    assert (returned.ranges, freed.message_count) == ([(2, 3)], 1)


def test_nothing_is_taken_of_an_assignment_that_has_ended(keyed):
    keyed.is_ended = True
    assert keyed.accept(deliver(0, 1), stored("a")) is None


def test_an_empty_mask_has_nothing_to_hand_out(keyed):
    assert keyed.accept(deliver(0, 1, b"\x00"), stored("a")) is None


async def test_a_batch_is_given_back_by_its_mask(peer, member):
    flow = await bound(peer)
    await flow.send(deliver(0, 5, mask_of(0, 1, 4)), payload=stored("a", "b", "a", "c", "b"))
    delivered = await finish(anext(member.consumer.batches()))
    nacking = asyncio.create_task(member.consumer.nack(delivered))
    nack = await frame_of(flow, frames.Nack)
    await flow.send(ask_back(1, A, B))
    assert (nack.ranges, await returned(flow)) == ([(0, 2), (4, 5)], (1, []))
    await flow.send(frames.AckConfirmed(nack.request))
    await finish(nacking)
    await finish(member.consumer.ack(delivered, confirmed=True))
    assert member.consumer.stats().nacked == 3


# ---- pauses and ends ----


async def test_a_pause_gives_back_what_the_broker_asks_for(peer, member):
    """Nothing unasked: it would cross what is on its way."""
    flow = await bound(peer, "a", "b")
    await values(member, 1)
    member.consumer.pause([P0])
    assert await frame_of(flow, frames.Withhold) == frames.Withhold(1, 0, *TOKEN, is_on=True)
    await flow.send(deliver(2, 3, first=2), payload=stored("c"))
    await flow.send(frames.AskBack(1, 0, *TOKEN, 1, ALL_SLOTS))
    assert await returned(flow) == (1, [(1, 3)])
    member.consumer.resume([P0])
    assert await frame_of(flow, frames.Withhold) == frames.Withhold(1, 0, *TOKEN, is_on=False)
    await flow.send(deliver(1, 2), payload=stored("a", "b"))
    assert await values(member, 1) == ["b1"]


async def test_a_handoff_gives_back_what_the_broker_asks_for(peer, member):
    flow = await bound(peer, "a", "b", "c")
    first = await member.next()
    await flow.send(frames.Paused(1, 0, *TOKEN), frames.AskBack(1, 0, *TOKEN, 1, ALL_SLOTS))
    assert await returned(flow) == (1, [(1, 3)])
    acking = asyncio.create_task(member.consumer.ack(first, confirmed=True))
    assert (await confirm(flow, frames.Ack, acking)).ranges == [(0, 1)]


async def test_what_has_begun_alone_is_redelivered_for_a_cause_after_a_close(peer):
    """The last frame before the connection is closed gives back the rest."""
    member = Member(peer)
    async with member.consumer:
        flow = await bound(peer, "a", "b", "a")
        await values(member, 1)
    await frame_of(flow, frames.Leave)
    assert await returned(flow) == (0, [(1, 3)])
    await flow.closed()


# ---- what the application says ----


async def test_a_cumulative_ack_is_refused(peer, member):
    flow = await bound(peer, "a", "b")
    message = await member.next()
    with pytest.raises(BadRequestError, match=r"^ack_cumulative: partition 1.0.*is Key.*`ack`"):
        await member.consumer.ack_cumulative(message)
    acking = asyncio.create_task(member.consumer.ack(message, confirmed=True))
    assert (await confirm(flow, frames.Ack, acking)).ranges == [(0, 1)]


async def test_what_has_begun_is_named_once(peer, member):
    flow = await bound(peer)
    await flow.send(deliver(0, 5, mask_of(0, 1, 4)), payload=stored("a", "b", "a", "c", "b"))
    await values(member, 3)
    await begun(flow, {0, 1, 4})


async def test_what_was_acknowledged_is_not_given_back(peer, member):
    flow = await bound(peer, "a", "b")
    message = await member.next()
    acking = asyncio.create_task(member.consumer.ack(message, confirmed=True))
    await confirm(flow, frames.Ack, acking)
    with pytest.raises(ConflictError, match="was acknowledged before"):
        await member.consumer.nack(message)
    await flow.send(deliver(0, 1, cause=Cause.FLOW_LOST), payload=stored("a", "b"))
    assert await values(member, 2) == ["b1", "a0"]


async def test_what_cannot_be_read_is_given_back_by_its_mask(peer, member):
    whole = stored("a", "b", "a", "c", "b")
    flow = await bound(peer)
    await flow.send(deliver(0, 5, mask_of(0, 1, 4)), payload=whole[:-30] + bytes(30))
    asking = asyncio.create_task(member.next())
    nack = await frame_of(flow, frames.Nack)
    assert (nack.ranges, nack.reason) == ([(0, 2), (4, 5)], frames.UNDECODABLE)
    asking.cancel()


async def test_messages_in_progress_are_named_by_the_mask(peer, member):
    flow = await bound(peer)
    await flow.send(deliver(0, 5, mask_of(0, 1, 4)), payload=stored("a", "b", "a", "c", "b"))
    delivered = await finish(anext(member.consumer.batches()))
    extending = asyncio.create_task(member.consumer.in_progress(delivered))
    assert (await confirm(flow, frames.InProgress, extending)).ranges == [(0, 2), (4, 5)]


async def test_the_position_is_the_lowest_that_was_not_handed_out(peer, member):
    flow = await bound(peer, "a", "b", "c")
    await values(member, 2)
    assert member.consumer.position(P0) == 2
    await flow.send(deliver(0, 1, cause=Cause.NACK), payload=stored("a", "b", "c"))
    await eventually(lambda: member.consumer.position(P0) == 0, "the message is here again")
    await values(member, 2)
    assert member.consumer.position(P0) == 3
