"""What a client keeps at a nack, because it has not begun: it comes again without its bytes."""

from collections import Counter

import pytest

from partq import Consumer
from partq.broker.api.frame_socket import FrameSocket
from partq.core.model import Cause
from partq.testing import eventually
from partq.wire import frames
from tests.broker.conftest import open_flow, open_producer
from tests.broker.delivery.test_nack import follow

COUNT = 600
BATCH = 100


@pytest.fixture
def lease_ttl_s():
    """Nothing here is about leases: none shall be over on a busy machine."""
    return 30.0


async def open_filled(running, credit):
    """Open a flow of m, which holds partition 0 with three batches of ten messages each."""
    await running.assign("m", [0])
    producer = await open_producer(running)
    for start in (0, 10, 20):
        await producer.publish(*(str(value) for value in range(start, start + 10)))
    flow = await open_flow(running, credit=credit)
    flow.held, _ = await flow.deliver()
    for _ in range(2):
        await flow.deliver()
    return flow


@pytest.fixture
async def flow(running):
    """A flow that has got all, and has credit for it to come twice again."""
    return await open_filled(running, credit=100)


@pytest.fixture
async def waiting(running):
    """A flow that has given one message back, and has no credit for what comes again."""
    flow = await open_filled(running, credit=30)
    assert await flow.nack(flow.held, [(3, 4)], delay_ms=0, begun=5, keeps=True) == ""
    return flow


@pytest.fixture
async def halfway(waiting):
    """The same flow, to which all below 10 has come again since."""
    await waiting.send(frames.Credit(7))
    assert await again(waiting, 10) == [(3, 5, True), (5, 10, False)]
    return waiting


async def again(flow, stop):
    """Return the deliveries that come up to an offset: (from, to, whether it has its bytes)."""
    found = []
    while not found or found[-1][1] < stop:
        frame, payload = await flow.find(frames.Deliver)
        assert bool(payload) != bool(frame.kept_bytes)
        found.append((frame.start, frame.stop, bool(payload)))
        flow.last = frame
    return found


async def test_the_bytes_of_what_has_not_begun_do_not_come_again(flow):
    assert await flow.nack(flow.held, [(3, 4)], delay_ms=0, begun=5, keeps=True) == ""
    assert await again(flow, 30) == [
        (3, 5, True), (5, 10, False), (10, 20, False), (20, 30, False),
    ]  # fmt: skip


async def test_a_client_that_keeps_nothing_gets_all_bytes(flow):
    assert await flow.nack(flow.held, [(3, 4)], delay_ms=0, begun=5) == ""
    assert [has_bytes for *_, has_bytes in await again(flow, 30)] == [True] * 4


async def test_what_is_released_after_all_comes_with_its_bytes(flow):
    """As by a client that has not kept it, for want of room."""
    assert await flow.nack(flow.held, [(3, 4)], delay_ms=0, begun=5, keeps=True) == ""
    assert (await again(flow, 20))[-1] == (10, 20, False)
    await flow.release(flow.last, 10)
    await flow.find(frames.Deliver)  # it was on its way
    assert await again(flow, 30) == [(10, 20, True), (20, 30, True)]


async def test_a_second_nack_adds_what_is_kept_then_to_the_rest(flow):
    """In hand now: all below 12."""
    assert await flow.nack(flow.held, [(3, 4)], delay_ms=0, begun=5, keeps=True) == ""
    await again(flow, 30)
    assert await flow.nack(flow.last, [(11, 12)], delay_ms=0, begun=12, keeps=True) == ""
    assert await again(flow, 30) == [(11, 12, True), (12, 20, False), (20, 30, False)]


async def test_what_was_not_sent_again_before_a_second_nack_is_kept_still(halfway):
    assert await halfway.nack(halfway.last, [(7, 8)], delay_ms=0, begun=8, keeps=True) == ""
    await halfway.send(frames.Credit(100))
    assert await again(halfway, 30) == [
        (7, 8, True), (8, 10, False), (10, 20, False), (20, 30, False),
    ]  # fmt: skip


async def test_what_is_kept_outlasts_a_nack_of_what_is_below(running):
    """Of those in hand, another one is given back before anything has come again."""
    flow = await open_filled(running, credit=30)
    assert await flow.nack(flow.held, [(3, 4)], delay_ms=0, begun=22, keeps=True) == ""
    assert await flow.nack(flow.held, [(1, 2)], delay_ms=0, begun=22, keeps=True) == ""
    await flow.send(frames.Credit(100))
    assert await again(flow, 30) == [
        (1, 10, True), (10, 20, True), (20, 22, True), (22, 30, False),
    ]  # fmt: skip


async def test_what_comes_out_of_turn_comes_with_its_bytes(running):
    """Twice 3 to 9 are redelivered; of the second time the client drops what it has begun."""
    flow = await open_filled(running, credit=30)
    held = flow.held
    for begun in (10, 5):
        assert await flow.nack(held, [(3, 4)], delay_ms=0, begun=begun, keeps=True) == ""
        await flow.send(frames.Credit(7))
        assert await again(flow, 10) == [(3, 10, True)]
        held = flow.last
    await follow(running, "workers", nack={"order": "Free", "delaySeconds": 0.0, "backoff": None})
    assert await flow.nack(held, [(7, 8)], delay_ms=0, begun=10, keeps=True) == ""
    await flow.send(frames.Credit(1))
    assert await again(flow, 8) == [(7, 8, True)]
    await flow.send(frames.Credit(20))
    assert await again(flow, 30) == [(10, 20, False), (20, 30, False)]


async def test_after_a_nack_without_keeping_all_bytes_come(halfway):
    """Also of what was kept before, and did not come again."""
    assert await halfway.nack(halfway.last, [(7, 8)], delay_ms=0, begun=8) == ""
    await halfway.send(frames.Credit(100))
    assert all(has_bytes for *_, has_bytes in await again(halfway, 30))


async def test_after_a_release_all_bytes_come(halfway):
    """Also of what was kept before, and did not come again."""
    await halfway.release(halfway.last, 5)
    await halfway.send(frames.Credit(100))
    assert await again(halfway, 30) == [(5, 10, True), (10, 20, True), (20, 30, True)]


async def test_another_flow_has_kept_nothing_of_what_did_not_come_again(running, waiting):
    await waiting.close()
    other = await open_flow(running, credit=100)
    assert all(has_bytes for *_, has_bytes in await again(other, 30))


async def test_what_has_begun_comes_with_its_bytes(flow):
    """Kept once, and handed out: nobody has its bytes any more."""
    assert await flow.nack(flow.held, [(3, 4)], delay_ms=0, begun=5, keeps=True) == ""
    await again(flow, 30)
    assert await flow.nack(flow.last, [(7, 8)], delay_ms=0, begun=30, keeps=True) == ""
    assert all(has_bytes for *_, has_bytes in await again(flow, 30))


async def test_another_flow_has_kept_nothing(running, flow):
    assert await flow.nack(flow.held, [(3, 4)], delay_ms=86_400_000, begun=5, keeps=True) == ""
    await flow.close()
    book = running.broker.owned[1, 0].groups["workers"].book
    other = await open_flow(running, credit=100)
    assert await again(other, 3) == [(0, 3, True)]
    assert book.redeliveries == {0: 1, 3: 1}


@pytest.mark.parametrize("is_by_one", [True, False], ids=["by one", "by batch"])
async def test_a_nack_has_no_more_sent_again_than_was_in_hand(
    running, peers, monkeypatch, is_by_one
):
    """Three messages are given back; nothing else reaches the application twice, or is counted."""
    sent = Counter()
    send = FrameSocket.send

    async def counted(self, data):
        frame, payload = frames.decode(data)
        if isinstance(frame, frames.Deliver) and payload:
            sent["messages"] += frame.stop - frame.start
        await send(self, data)

    monkeypatch.setattr(FrameSocket, "send", counted)
    await running.assign("m", [0])
    producer = await peers.open_producer(running)
    for start in range(0, COUNT, BATCH):
        await producer.publish(*(str(value) for value in range(start, start + BATCH)))
    seen, done = Counter(), 0
    async with Consumer(
        running.url, queue="orders", group="workers", token=peers.CONSUME, member="m",
        handle_signals=False, leave_timeout_s=0.05,
    ) as consumer:  # fmt: skip
        (flow,) = consumer._flows
        await eventually(lambda: sent["messages"] == COUNT, "all of it is ready")
        await eventually(
            lambda: flow._ready._windows and flow._ready._windows[-1].stop == COUNT, "and here"
        )

        async def deliveries():
            if is_by_one:
                async for message in consumer:
                    yield message
            else:
                async for batch in consumer.batches():
                    for message in batch.deliveries():
                        yield message

        async for message in deliveries():
            assert int(message.value) == message.offset
            seen[message.offset] += 1
            if message.offset % 200 == 150 and not message.redeliveries:
                await consumer.nack(message, delay_s=0)
                continue
            assert message.cause is (Cause.NACK if seen[message.offset] > 1 else Cause.NONE)
            consumer.ack_nowait(message)
            done += 1
            if done == COUNT + (0 if is_by_one else 3 * (BATCH - 51)):
                break
        await consumer.flush()
    in_hand = 1 if is_by_one else BATCH - 50
    assert sent["messages"] <= COUNT + 3 * in_hand
    assert seen.total() == COUNT + 3 * in_hand
