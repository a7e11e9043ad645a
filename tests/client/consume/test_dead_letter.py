"""A consumer that asks for dead letters, against a scripted peer: what it sends and hands out."""

import asyncio

import pytest

from partq.core.model import Cause
from partq.errors import BadRequestError, ConflictError, FencedError, RewoundError, UnavailableError
from partq.wire import frames
from tests.client.member import LEASE_MS, WAIT_S, Member, assigned, deliver

TOKEN = (5, 9)


@pytest.fixture
async def member(peer):
    member = Member(peer)
    async with asyncio.timeout(WAIT_S), member.consumer:
        yield member


async def open_flow(peer, stored_batch, *, takes_dead_letters=True):
    """Bind a flow that holds partition 0 and has delivered three messages."""
    flow = await peer.raw_flow()
    bound = frames.Bound("broker-0", 1, LEASE_MS, takes_dead_letters=takes_dead_letters)
    await flow.send(bound, assigned())
    await flow.send(deliver(0, 3), payload=stored_batch(b"a", b"b", b"c"))
    return flow


async def test_it_is_sent_with_its_reason_and_nothing_is_behind_it_in_the_way(
    peer, member, stored_batch
):
    flow = await open_flow(peer, stored_batch)
    first = await member.next()
    call = member.consumer.dead_letter(first, reason="bad", description="of no use")
    asking = asyncio.create_task(call)
    frame = await flow.next(frames.Nack)
    assert (frame.ranges, frame.reason, frame.description) == ([(0, 1)], "bad", "of no use")
    assert frame.makes_dead_letters
    assert not asking.done()
    await flow.send(frames.AckConfirmed(frame.request))
    await asking
    assert (await member.next()).value == b"b", "without a step back"
    assert member.consumer.stats().nacked == 1


@pytest.mark.parametrize(
    ("given", "sent"), [("x" * 1024, "x" * 1024), ("x" * 1025, "x" * 1021 + "...")]
)
async def test_of_a_long_description_the_beginning_is_sent(peer, member, stored_batch, given, sent):
    flow = await open_flow(peer, stored_batch)
    call = member.consumer.dead_letter(await member.next(), description=given)
    asking = asyncio.create_task(call)
    frame = await flow.next(frames.Nack)
    assert frame.description == sent
    await flow.send(frames.AckConfirmed(frame.request))
    await asking


async def test_a_reason_goes_with_a_nack(peer, member, stored_batch):
    flow = await open_flow(peer, stored_batch)
    nacking = asyncio.create_task(member.consumer.nack(await member.next(), reason="db_down"))
    frame = await flow.next(frames.Nack)
    assert (frame.reason, frame.makes_dead_letters, frame.description) == ("db_down", False, "")
    await flow.send(frames.AckConfirmed(frame.request))
    await nacking


async def test_an_earlier_broker_gets_no_dead_letter_and_the_message_stays_in_hand(
    peer, member, stored_batch
):
    flow = await open_flow(peer, stored_batch, takes_dead_letters=False)
    first = await member.next()
    with pytest.raises(UnavailableError, match=r"makes no dead letters .* nothing has happened"):
        await member.consumer.dead_letter(first, reason="bad")
    assert flow.is_quiet()
    acking = asyncio.create_task(member.consumer.ack(first, confirmed=True))
    ack = await flow.next(frames.Ack)
    assert ack.ranges == [(0, 1)]
    await flow.send(frames.AckConfirmed(ack.request))
    await acking


async def test_an_earlier_broker_gets_a_nack_without_the_reason_that_it_would_refuse(
    peer, member, stored_batch
):
    flow = await open_flow(peer, stored_batch, takes_dead_letters=False)
    nacking = asyncio.create_task(member.consumer.nack(await member.next(), reason="db_down"))
    frame = await flow.next(frames.Nack)
    assert (frame.reason, frame.ranges) == ("", [(0, 1)])
    await flow.send(frames.AckConfirmed(frame.request))
    await nacking


async def test_auto_ack_leaves_it_out(peer, stored_batch):
    member = Member(peer, auto_ack=True)
    async with asyncio.timeout(WAIT_S), member.consumer:
        flow = await open_flow(peer, stored_batch)
        asking = asyncio.create_task(member.consumer.dead_letter(await member.next()))
        frame = await flow.next(frames.Nack)
        await flow.send(frames.AckConfirmed(frame.request))
        await asking
        await member.next()
        await member.next()
        assert (await flow.next(frames.Ack)).ranges == [(1, 2)]


async def test_a_lost_connection_is_told(peer, member, stored_batch):
    flow = await open_flow(peer, stored_batch)
    asking = asyncio.create_task(member.consumer.dead_letter(await member.next()))
    await flow.next(frames.Nack)
    await flow.drop()
    with pytest.raises(FencedError, match="the connection was lost"):
        await asking


async def acknowledge(flow, call):
    """Make a call that acknowledges, and confirm it."""
    acking = asyncio.create_task(call)
    await flow.send(frames.AckConfirmed((await flow.next(frames.Ack)).request))
    await acking


@pytest.mark.parametrize("is_cumulative", [False, True])
async def test_what_is_acknowledged_is_refused_and_what_is_behind_it_still_comes(
    peer, member, stored_batch, is_cumulative
):
    """Nothing would become a dead letter, and nobody would learn of it."""
    flow = await open_flow(peer, stored_batch)
    consumer = member.consumer
    first, second = await member.next(), await member.next()
    if is_cumulative:
        await acknowledge(flow, consumer.ack_cumulative(second, confirmed=True))
    else:
        await acknowledge(flow, consumer.ack(first, confirmed=True))
    for call in (consumer.dead_letter(first, reason="bad"), consumer.nack(first)):
        with pytest.raises(ConflictError, match=r"partition 1.0, .* offset 0: got what was ack"):
            await call
    assert flow.is_quiet()
    assert (await member.next()).value == b"c"


async def test_of_a_batch_what_is_acknowledged_is_left_out_until_it_is_all(
    peer, member, stored_batch
):
    flow = await open_flow(peer, stored_batch)
    batch = await anext(member.consumer.batches())
    await acknowledge(flow, member.consumer.ack(batch.deliveries()[0], confirmed=True))
    asking = asyncio.create_task(member.consumer.dead_letter(batch))
    frame = await flow.next(frames.Nack)
    assert frame.ranges == [(0, 3)], "the broker leaves out the first"
    await flow.send(frames.AckConfirmed(frame.request))
    await asking
    await acknowledge(flow, member.consumer.ack_cumulative(batch, confirmed=True))
    with pytest.raises(ConflictError, match="offsets 0 to 2: got what was acknowledged"):
        await member.consumer.nack(batch)


async def test_what_is_redelivered_after_a_refused_ack_may_become_one(peer, member, stored_batch):
    flow = await open_flow(peer, stored_batch)
    acking = asyncio.create_task(
        member.consumer.ack_cumulative(await member.next(), confirmed=True)
    )
    request = (await flow.next(frames.Ack)).request
    await flow.send(frames.Rewound(1, 0, *TOKEN, 1, 0, Cause.NACK))
    await flow.send(frames.AckRefused(request, "rewound", "too late"))
    with pytest.raises(RewoundError):
        await acking
    again = deliver(0, 3, delivery=1, cause=Cause.NACK)
    await flow.send(again, payload=stored_batch(b"a", b"b", b"c"))
    asking = asyncio.create_task(member.consumer.dead_letter(await member.next()))
    await flow.send(frames.AckConfirmed((await flow.next(frames.Nack)).request))
    await asking


@pytest.mark.parametrize(
    ("told", "kind", "words"),
    [
        ({"reason": "x" * 65}, BadRequestError, "of 65 characters; expected at most 64 printable"),
        ({"reason": "a\tb"}, BadRequestError, "printable"),
        ({"reason": frames.UNDECODABLE}, BadRequestError, "expected another one"),
        ({"description": "\ud800"}, BadRequestError, "half a surrogate pair"),
        ({"reason": None}, TypeError, "reason: got NoneType, expected str"),
        ({"description": b"x"}, TypeError, "description: got bytes, expected str"),
    ],
)
async def test_what_no_dead_letter_can_tell_is_refused(
    peer, member, stored_batch, told, kind, words
):
    flow = await open_flow(peer, stored_batch)
    message = await member.next()
    with pytest.raises(kind, match=words):
        await member.consumer.dead_letter(message, **told)
    if "reason" in told:
        with pytest.raises(kind, match=words):
            await member.consumer.nack(message, **told)
    assert flow.is_quiet()
