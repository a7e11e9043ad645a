"""Leaving: what nobody will acknowledge any more is given back at once."""

import asyncio

import aiohttp
import pytest

from partq import Cause, Consumer, Producer
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from partq.wire import frames
from tests.client.member import WAIT_S, Member, bound, deliver

HANDOFF_S = 120
"""How long a drain would wait for acks that never come: longer than a test may last."""


async def test_what_is_in_hand_is_given_back_at_once(peer, stored_batch):
    member = Member(peer, leave_timeout_s=600)
    async with asyncio.timeout(WAIT_S):
        async with member.consumer as consumer:
            flow = await bound(peer, stored_batch, b"a", b"b", b"c")
            await consumer.ack(await anext(consumer))
            await flow.send(frames.AckConfirmed((await flow.next(frames.Ack)).request))
            await anext(consumer)
        assert isinstance(await flow.next(), frames.Leave)
        release = await flow.next(frames.Release)
        assert release.start == 2, "c has not begun"
        await flow.closed()


@pytest.mark.parametrize("is_free", [False, True], ids=["in turn", "out of turn"])
async def test_what_came_again_after_a_nack_is_in_hand_too(peer, stored_batch, is_free):
    member = Member(peer, leave_timeout_s=600)
    async with asyncio.timeout(WAIT_S):
        async with member.consumer as consumer:
            flow = await bound(peer, stored_batch, b"a", b"b")
            nacking = asyncio.create_task(consumer.nack(await anext(consumer)))
            request = (await flow.next(frames.Nack)).request
            if is_free:
                await flow.send(frames.AckConfirmed(request))
                await nacking
                consumer.ack_nowait(await anext(consumer))
                await flow.send(frames.AckConfirmed((await flow.next(frames.Ack)).request))
                await flow.send(deliver(0, 1), payload=stored_batch(b"a"))
            else:
                await flow.send(frames.Rewound(1, 0, 5, 9, 1, 0, Cause.NACK))
                await flow.send(frames.AckConfirmed(request))
                await nacking
                await flow.send(deliver(0, 2, delivery=1), payload=stored_batch(b"a", b"b"))
            assert (await anext(consumer)).value == b"a"
        await flow.closed()


async def test_who_has_stopped_gives_back_what_has_not_begun(peer, stored_batch):
    """With nothing in hand, too: a flow that just ends would count against the first message."""

    def fail(_):
        raise LookupError("the state is gone")

    member = Member(peer, on_assigned=fail, leave_timeout_s=600)
    async with asyncio.timeout(WAIT_S), member.consumer as consumer:
        flow = await bound(peer, stored_batch, b"a", b"b")
        with pytest.raises(LookupError):
            await anext(consumer)
        (held,) = consumer._flows
        await eventually(lambda: held._ready._windows, "the messages are there")
        await consumer.close()
        assert isinstance(await flow.next(), frames.Leave)
        release = await flow.next(frames.Release)
        assert release.start == 0, "neither has begun"
        await flow.closed()


async def test_with_nothing_in_hand_the_partitions_are_handed_over(peer, stored_batch):
    member = Member(peer, leave_timeout_s=600)
    async with asyncio.timeout(WAIT_S), member.consumer as consumer:
        flow = await bound(peer, stored_batch, b"a", b"b")
        await consumer.ack(await anext(consumer))
        await flow.send(frames.AckConfirmed((await flow.next(frames.Ack)).request))
        leaving = asyncio.create_task(consumer.close())
        assert isinstance(await flow.next(), frames.Leave)
        await flow.send(frames.Paused(1, 0, 5, 9))
        assert (await flow.next(frames.Release)).start == 1
        assert not leaving.done()
        await flow.send(frames.Revoked(1, 0, 5, 9, 0))
        await leaving
    assert member.told[-1][0] == "NONE"


async def test_an_error_in_the_loop_leaves_at_once_and_another_member_goes_on():
    """Of the messages only the one in hand comes again, with a cause and counted once."""
    spec = {"rebalance": {"maxHandoffSeconds": HANDOFF_S, "delaySeconds": HANDOFF_S}}
    async with LocalBroker(partitions=2, spec=spec) as local, asyncio.timeout(60):
        token = local.tokens

        def consumer():
            return Consumer(local.url, queue="orders", group="workers", token=token.consume)

        async def fail():
            async with consumer() as one:
                async for message in one:
                    if message.value == b"1":
                        raise ValueError("in hand")
                    await one.ack(message)

        async with Producer(local.url, queue="orders", token=token.produce) as producer:
            for number in range(4):
                await producer.send_and_wait(b"%d" % number, key="k")
        with pytest.raises(ValueError, match="in hand"):
            await fail()
        async with consumer() as two:
            seen = []
            async for message in two:
                seen.append((message.value, message.cause, message.redeliveries))
                await two.ack(message)
                if message.value == b"3":
                    break
        assert seen == [
            (b"1", Cause.FLOW_LOST, 1),
            (b"2", Cause.NONE, 0),
            (b"3", Cause.NONE, 0),
        ]


async def test_the_last_one_that_leaves_is_shown_as_left():
    """Not as lost: it has handed over what it held, and nobody waits for it."""
    async with LocalBroker(partitions=1) as local, asyncio.timeout(60):
        tokens = local.tokens
        async with Producer(local.url, queue="orders", token=tokens.produce) as producer:
            await producer.send_and_wait(b"x", key="k")
        async with Consumer(
            local.url, queue="orders", group="workers", token=tokens.consume
        ) as consumer:
            await consumer.ack(await anext(consumer))
        headers = {"Authorization": f"Bearer {tokens.admin}"}
        async with aiohttp.ClientSession(headers=headers) as http:

            async def states_without_it():
                async with http.get(f"{local.url}/v1/queues/orders/status") as response:
                    group = (await response.json())["groups"]["workers"]
                states = {each["state"] for each in group["members"]}
                return None if states & {"Active", "Standby"} else states

            assert await eventually(states_without_it, "it is gone") == {"Left"}
