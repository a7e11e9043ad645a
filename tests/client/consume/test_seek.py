"""A consumer that seeks, against a scripted peer: what it sends, tells and hands out."""

import asyncio
from typing import Any

import pytest

from partq import Cause, FencedError, LogPosition
from partq.client.transport.positions import SeekPlace
from partq.errors import BadRequestError, ConflictError, UnavailableError
from partq.testing import eventually
from partq.wire import frames
from tests.client.member import LEASE_MS, P0, P1, WAIT_S, Member, assigned, deliver

OLD, NEW = (5, 9), (5, 11)
TEXT: Any = "a"
MOVED = [frames.Revoked(1, 0, *OLD, Cause.RESET), assigned(NEW)]
"""What a broker says before its answer."""


async def open_flow(peer, *, takes_seeks=True):
    flow = await peer.raw_flow()
    await flow.send(frames.Bound("broker-0", 1, LEASE_MS, takes_seeks=takes_seeks))
    return flow


@pytest.fixture
async def flow(peer, member, stored_batch):
    """A flow that holds partition 0; the application has the first of three messages in hand."""
    flow = await open_flow(peer)
    await flow.send(assigned(OLD))
    await flow.send(deliver(0, 3, OLD), payload=stored_batch(b"a", b"b", b"c"))
    member.first = await member.next()
    return flow


async def begin(flow, member, where):
    """Seek, and return the call under way and the frame that the broker gets."""
    seeking = asyncio.create_task(member.consumer.seek(where))
    return seeking, await flow.next(frames.Seek)


async def test_nothing_that_came_before_is_handed_out_after_it(peer, flow, member, stored_batch):
    seeking, frame = await begin(flow, member, "earliest")
    assert frame == frames.Seek(1, 1, 0, *OLD, to="earliest")
    reading = asyncio.create_task(member.next())
    await flow.send(deliver(3, 4, OLD), payload=stored_batch(b"on its way"))
    await flow.send(*MOVED, frames.Sought(1, 0))
    assert await seeking == {P0: 0}
    assert not reading.done(), "it is not handed out either while the broker has not answered"
    await flow.send(deliver(0, 1, NEW, cause=Cause.RESET), payload=stored_batch(b"again"))
    message = await reading
    assert (message.value, message.token[1:3], message.cause) == (b"again", NEW, Cause.RESET)
    with pytest.raises(FencedError, match="stop working"):
        await member.consumer.ack(member.first)


async def test_the_application_is_not_told_that_it_lost_or_got_what_it_keeps(flow, member):
    seeking, _ = await begin(flow, member, {P0: 1})
    await flow.send(frames.Revoked(1, 0, *OLD, Cause.RESET))
    await flow.send(assigned((5, 10), partition=1))
    await member.has_been_told(2)
    assert member.consumer.partitions == {P0, P1}
    await flow.send(assigned(NEW), frames.Sought(1, 1))
    assert await seeking == {P0: 1}
    assert member.told == [("assigned", P0), ("assigned", P1)]


@pytest.mark.parametrize(
    ("where", "place"),
    [
        ("latest", {"to": "latest"}),
        ({"at_ms": 1_700_000_000_000}, {"at_ms": 1_700_000_000_000}),
        ({P0: 17}, {"offset": 17}),
        ({P0: LogPosition(P0, 5, 17)}, {"offset": 17, "append_broker_epoch": 5}),
    ],
)
async def test_each_kind_of_place_as_it_is_sent(flow, member, where, place):
    seeking, frame = await begin(flow, member, where)
    assert frame == frames.Seek(1, 1, 0, *OLD, **place)
    await flow.send(*MOVED, frames.Sought(1, 16))
    assert await seeking == {P0: 16}


@pytest.mark.parametrize(
    ("where", "error", "text"),
    [
        ("yesterday", BadRequestError, "got 'yesterday', expected 'earliest', 'latest'"),
        (17, BadRequestError, "got 17, expected"),
        (None, BadRequestError, "got None, expected"),
        ({}, BadRequestError, "got {}, expected"),
        ({"at_ms": "now"}, BadRequestError, "at_ms: got 'now', expected milliseconds"),
        ({"at_ms": True}, BadRequestError, "at_ms: got True"),
        ({"at_ms": -1}, BadRequestError, "at_ms: got -1"),
        ({"at_ms": 1_700_000_000}, BadRequestError, "is usually not in milliseconds"),
        ({"at_ms": 1_700_000_000_000_000}, BadRequestError, "is usually not in milliseconds"),
        ({"1.0": 5}, BadRequestError, "got a place in '1.0', expected a PartitionId"),
        ({P0: -1}, BadRequestError, "got -1 for partition 1.0, expected an offset"),
        ({P0: "end"}, BadRequestError, "got 'end' for partition 1.0"),
        ({P0: LogPosition(P1, 5, 17)}, BadRequestError, "a LogPosition of this partition"),
        (
            {P0: LogPosition(P0, TEXT, 17)},
            BadRequestError,
            "append_broker_epoch: got str, expected",
        ),
        ({P0: LogPosition(P0, 5, TEXT)}, BadRequestError, "offset: got str, expected a whole"),
        ({P0: LogPosition(P0, 5, -1)}, BadRequestError, "offset: got -1, expected 0 to"),
        ({P0: LogPosition(P0, 2**63, 1)}, BadRequestError, "append_broker_epoch: got 922"),
        ({P1: 0}, FencedError, "partition 1.1, expected one that this consumer has, of 1.0"),
    ],
)
async def test_what_is_no_place_is_refused_before_anything_is_sent(
    flow, member, where, error, text
):
    with pytest.raises(error) as refusal:
        await member.consumer.seek(where)
    assert text in str(refusal.value)
    assert flow.is_quiet()


async def test_without_a_partition_there_is_nothing_to_seek_in(peer, member):
    await open_flow(peer)
    with pytest.raises(FencedError, match="has no partition; nothing was moved"):
        await member.consumer.seek("earliest")


async def test_a_consumer_that_is_not_open_seeks_nowhere(peer):
    with pytest.raises(RuntimeError, match="not open"):
        await Member(peer).consumer.seek("earliest")


async def test_a_broker_of_an_earlier_version_gets_no_seek(peer, member):
    """It would end the connection at a frame that it does not know."""
    flow = await open_flow(peer, takes_seeks=False)
    await flow.send(assigned(OLD))
    await member.has_been_told(1)
    with pytest.raises(UnavailableError, match="does not know seeks; nothing was moved"):
        await member.consumer.seek("earliest")
    assert flow.is_quiet()


async def test_one_broker_of_an_earlier_version_keeps_all_from_moving(peer, other_peer):
    peer.brokers["broker-1"] = other_peer.url
    member = Member(peer)
    async with member.consumer:
        new, old = await open_flow(peer), await open_flow(other_peer, takes_seeks=False)
        await new.send(assigned(OLD))
        await old.send(assigned((5, 10), partition=1))
        await member.has_been_told(2)
        with pytest.raises(UnavailableError, match="does not know seeks"):
            await member.consumer.seek("latest")
        assert new.is_quiet()


async def test_after_a_refusal_it_goes_on_where_it_was(flow, member):
    seeking, _ = await begin(flow, member, "earliest")
    reading = asyncio.create_task(member.next())
    await flow.send(frames.SeekRefused(1, "unavailable", "a handoff is under way", 1000))
    with pytest.raises(UnavailableError, match="a handoff") as refusal:
        await seeking
    assert refusal.value.retry_after_s == 1.0
    assert (await reading).value == b"b"
    acking = asyncio.create_task(member.consumer.ack(member.first, confirmed=True))
    await flow.send(frames.AckConfirmed((await flow.next(frames.Ack)).request))
    await acking


async def test_a_lost_connection_says_that_the_cursor_may_have_moved(peer, flow, member):
    """Between the broker's script and its answer; the application is told what it has lost."""
    seeking, _ = await begin(flow, member, "earliest")
    await flow.send(frames.Revoked(1, 0, *OLD, Cause.RESET))
    await flow.drop()
    with pytest.raises(UnavailableError, match="the cursor may have moved, or not: seek again"):
        await seeking
    assert member.told == [("assigned", P0), ("FLOW_LOST", P0)]
    again = await open_flow(peer)
    assert again.first.held == [(1, 0)]
    await again.send(assigned(NEW))
    await member.has_been_told(3)
    seeking, frame = await begin(again, member, "earliest")
    assert frame == frames.Seek(2, 1, 0, *NEW, to="earliest")
    await again.send(frames.Revoked(1, 0, *NEW, Cause.RESET), assigned((5, 12)))
    await again.send(frames.Sought(2, 0))
    assert await seeking == {P0: 0}


async def test_an_answer_without_an_assignment_tells_that_the_partition_is_gone(flow, member):
    """The store did not answer the bind, or another member has got it."""
    seeking, _ = await begin(flow, member, "earliest")
    await flow.send(MOVED[0], frames.Sought(1, 0))
    assert await seeking == {P0: 0}
    assert member.told == [("assigned", P0), ("RESET", P0)]
    assert member.consumer.partitions == set()
    await flow.send(assigned(NEW))
    assert (await member.has_been_told(3))[2] == ("assigned", P0)


async def test_another_broker_that_has_the_partition_meanwhile_is_told(peer, other_peer):
    peer.brokers["broker-1"] = other_peer.url
    member = Member(peer)
    async with member.consumer:
        flow, other = await open_flow(peer), await open_flow(other_peer)
        await flow.send(assigned(OLD))
        await member.has_been_told(1)
        seeking, _ = await begin(flow, member, "earliest")
        await flow.send(MOVED[0])
        await other.send(assigned((7, 1)))
        told = await member.has_been_told(3)
        assert told == [("assigned", P0), ("BROKER_CHANGE", P0), ("assigned", P0)]
        await flow.send(frames.Sought(1, 0))
        assert await seeking == {P0: 0}
        assert member.consumer.partitions == {P0}


async def test_an_administrator_s_reset_is_told_as_ever(flow, member):
    await flow.send(*MOVED)
    told = await member.has_been_told(3)
    assert told == [("assigned", P0), ("RESET", P0), ("assigned", P0)]


async def test_two_seeks_at_once_come_one_after_the_other(flow, member):
    first, _ = await begin(flow, member, "earliest")
    second = asyncio.create_task(member.consumer.seek("latest"))
    await flow.send(*MOVED, frames.Sought(1, 0))
    assert await first == {P0: 0}
    assert await flow.next(frames.Seek) == frames.Seek(2, 1, 0, *NEW, to="latest")
    await flow.send(frames.Revoked(1, 0, *NEW, Cause.RESET), assigned((5, 12), cursor=3))
    await flow.send(frames.Sought(2, 3))
    assert await second == {P0: 3}


async def test_after_a_cancelled_call_the_next_one_waits_for_its_answer(flow, member):
    first, _ = await begin(flow, member, "earliest")
    first.cancel()
    await asyncio.wait([first])
    second = asyncio.create_task(member.consumer.seek("latest"))
    await flow.send(frames.Revoked(1, 0, *OLD, Cause.RESET), assigned((5, 10), partition=1))
    await member.has_been_told(2)
    assert flow.is_quiet(), "it is sent under the next token, in both partitions"
    assert not second.done()
    await flow.send(assigned(NEW), frames.Sought(1, 0))
    assert await flow.next(frames.Seek) == frames.Seek(2, 1, 0, *NEW, to="latest")
    assert await flow.next(frames.Seek) == frames.Seek(3, 1, 1, 5, 10, to="latest")
    await flow.send(
        frames.SeekRefused(2, "conflict", "no"), frames.SeekRefused(3, "conflict", "no")
    )
    with pytest.raises(ConflictError):
        await second
    assert member.told == [("assigned", P0), ("assigned", P1)]


async def test_a_call_that_is_cancelled_before_its_turn_sends_nothing(flow, member):
    first, _ = await begin(flow, member, "earliest")
    second = asyncio.create_task(member.consumer.seek("latest"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(second, 0.01)
    await flow.send(*MOVED, frames.Sought(1, 0))
    assert await first == {P0: 0}
    _, frame = await begin(flow, member, {P0: 2})
    assert frame == frames.Seek(2, 1, 0, *NEW, offset=2)


async def test_the_answer_to_one_of_two_seeks_says_nothing_of_the_other(flow, member):
    """Of another caller of the flow: the broker refuses the second before it has assigned again."""
    (held,) = member.consumer._membership.assigned
    answers = [held.holder.seek(held, SeekPlace(to="earliest")) for _ in range(2)]
    await flow.send(MOVED[0], frames.SeekRefused(2, "conflict", "one is under way"))
    with pytest.raises(ConflictError):
        await answers[1]
    assert member.consumer.partitions == {P0}
    await flow.send(MOVED[1], frames.Sought(1, 0))
    assert await answers[0] == 0
    assert member.told == [("assigned", P0)]


async def test_closing_ends_a_seek_that_has_no_answer(peer):
    member = Member(peer)
    async with member.consumer as consumer:
        flow = await open_flow(peer)
        await flow.send(assigned(OLD))
        await member.has_been_told(1)
        seeks = [asyncio.create_task(consumer.seek("earliest")) for _ in range(2)]
        await flow.next(frames.Seek)
    async with asyncio.timeout(WAIT_S):
        first, second = await asyncio.gather(*seeks, return_exceptions=True)
    assert isinstance(first, UnavailableError)
    assert isinstance(second, FencedError)


async def test_of_several_partitions_one_that_is_refused_is_told_after_all_answers(flow, member):
    await flow.send(assigned((5, 10), partition=1))
    await member.has_been_told(2)
    seeking, first = await begin(flow, member, "latest")
    second = await flow.next(frames.Seek)
    assert (first.partition, second.partition) == (0, 1)
    await flow.send(frames.SeekRefused(1, "conflict", "not now"))
    await flow.send(frames.Revoked(1, 1, 5, 10, Cause.RESET), assigned((5, 12), partition=1))
    await flow.send(frames.Sought(2, 3))
    with pytest.raises(ConflictError, match="not now"):
        await seeking
    assert member.told == [("assigned", P0), ("assigned", P1)]


async def test_a_caller_that_goes_away_leaves_the_partition_usable(flow, member, stored_batch):
    seeking, _ = await begin(flow, member, "earliest")
    seeking.cancel()
    await asyncio.wait([seeking])
    await flow.send(*MOVED, frames.Sought(1, 0))
    await flow.send(deliver(0, 1, NEW), payload=stored_batch(b"again"))
    assert (await member.next()).value == b"again"


async def test_acks_given_before_it_are_sent_before_it(flow, member):
    member.consumer.ack_nowait(member.first)
    seeking = asyncio.create_task(member.consumer.seek({P0: 0}))
    ack = await flow.next(frames.Ack)
    await flow.next(frames.Seek)
    await flow.send(frames.AckConfirmed(ack.request), *MOVED, frames.Sought(1, 0))
    await seeking
    await member.consumer.flush()


@pytest.fixture
async def automatic(peer, stored_batch):
    """A flow of a consumer that acknowledges by itself, and that consumer."""
    member = Member(peer, auto_ack=True)
    async with member.consumer as consumer:
        flow = await open_flow(peer)
        await flow.send(assigned(OLD))
        await flow.send(deliver(0, 3, OLD), payload=stored_batch(b"a", b"b", b"c"))
        yield flow, consumer


async def answer(flow, stored_batch):
    await flow.next(frames.Seek)
    await flow.send(*MOVED, frames.Sought(1, 0))
    await flow.send(deliver(0, 1, NEW), payload=stored_batch(b"again"))


async def test_what_a_cancelled_call_has_gathered_is_not_handed_out_after_it(
    peer, flow, member, stored_batch
):
    gathering = asyncio.create_task(member.consumer.getmany(5, timeout_s=WAIT_S))
    await eventually(lambda: member.consumer.stats().buffered == 0, "all is gathered")
    gathering.cancel()
    await asyncio.wait([gathering])
    seeking, _ = await begin(flow, member, {P0: 0})
    await flow.send(*MOVED, frames.Sought(1, 0))
    await seeking
    await flow.send(deliver(0, 1, NEW), payload=stored_batch(b"again"))
    assert [each.value for each in await member.consumer.getmany(1)] == [b"again"]


@pytest.mark.parametrize("way", ["async for", "batches", "lists", "getmany", "run", "several"])
async def test_from_inside_of_each_way_to_consume(automatic, stored_batch, way):
    """The message that it was called for is not acknowledged any more: that would be refused."""
    flow, consumer = automatic
    values = []

    async def handle(value):
        values.append(value)
        if len(values) == 1:
            answering = asyncio.create_task(answer(flow, stored_batch))
            await consumer.seek("earliest")
            await answering
        else:
            consumer.leave()

    async def consume():
        if way == "run":
            await consumer.run(lambda message: handle(message.value))
        elif way == "several":
            await consumer.run(lambda message: handle(message.value), concurrency=2)
        elif way == "lists":
            async for messages in consumer.batches(max_messages=1):
                await handle(messages[0].value)
        elif way == "getmany":
            while len(values) < 2:
                await handle((await consumer.getmany(1, timeout_s=WAIT_S))[0].value)
            with pytest.raises(RuntimeError, match="has left"):  # and it acknowledges the last one
                await consumer.getmany(1, timeout_s=WAIT_S)
        elif way == "batches":
            async for batch in consumer.batches():
                await handle(b"".join(each.value for each in batch))
        else:
            async for message in consumer:
                await handle(message.value)

    async with asyncio.timeout(WAIT_S):
        await consume()
    assert values == [b"abc" if way == "batches" else b"a", b"again"]
    await flow.next(frames.Leave)
    ack = await flow.next(frames.Ack)
    assert (ack.epoch, ack.upto, ack.ranges) == (NEW[1], -1, [(0, 1)])
    await flow.send(frames.AckConfirmed(ack.request))
    await consumer.flush()


async def test_from_on_assigned_before_the_first_message(peer, stored_batch):
    """To where the application has its own position; it is called once, and comes to its end."""
    calls, end = [], asyncio.Event()

    async def on_assigned(partition):
        calls.append(await member.consumer.seek({partition: 1}))
        await end.wait()

    member = Member(peer, on_assigned=on_assigned)
    async with member.consumer:
        flow = await open_flow(peer)
        await flow.send(assigned(OLD))
        await flow.send(deliver(0, 2, OLD), payload=stored_batch(b"a", b"b"))
        await flow.next(frames.Seek)
        reading = asyncio.create_task(member.next())
        await flow.send(MOVED[0], assigned(NEW, cursor=1), frames.Sought(1, 1))
        await flow.send(deliver(1, 2, NEW), payload=stored_batch(b"b"))
        buffered = member.consumer.stats
        await eventually(lambda: calls and buffered().buffered == 1, "the message is here")
        assert not reading.done(), "the callback has not ended"
        end.set()
        assert (await reading).value == b"b"
    assert calls == [{P0: 1}]


async def test_standing_is_not_told_of_a_partition_that_it_keeps(peer):
    told = []
    member = Member(
        peer,
        on_active=lambda partition: told.append(("active", partition)),
        on_inactive=lambda partition: told.append(("inactive", partition)),
    )
    async with member.consumer:
        flow = await open_flow(peer)
        await flow.send(assigned(OLD), frames.Standing(1, 0, is_active=True))
        await member.has_been_told(1)
        seeking, _ = await begin(flow, member, "earliest")
        await flow.send(MOVED[0], frames.Standing(1, 0, is_active=False))
        await flow.send(MOVED[1], frames.Standing(1, 0, is_active=True), frames.Sought(1, 0))
        await seeking
        assert told == [("active", P0)]
        seeking, _ = await begin(flow, member, "earliest")
        await flow.send(frames.Revoked(1, 0, *NEW, Cause.RESET))
        await flow.send(frames.Standing(1, 0, is_active=False))
        await flow.send(frames.SeekRefused(2, "fenced", "gone"))
        with pytest.raises(FencedError):
            await seeking
        assert told == [("active", P0), ("inactive", P0)]
