"""`run(callback, concurrency=N)`: several messages at once, each key in its order."""

import asyncio
import threading
from collections import Counter, defaultdict
from contextlib import AsyncExitStack

import pytest

from partq import Cause, Consumer, FencedError, Message, Producer, SettingsError
from partq.client.handout.concurrent_run import ConcurrentRun
from partq.client.handout.held_messages import HeldMessages
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from partq.wire import batch, frames
from tests.client.handout.test_held_messages import Target, message
from tests.client.member import P0, WAIT_S, Member, assigned, deliver


def stored(*keys):
    """Return a batch with a message of each key; its value is its place."""
    messages = [Message(key, str(place).encode()) for place, key in enumerate(keys)]
    return batch.encode(batch.encode_messages(messages), [0] * len(messages))


async def bound(peer, *keys):
    flow = await peer.flow()
    await flow.send(assigned())
    await flow.send(deliver(0, len(keys)), payload=stored(*keys))
    return flow


class Handler:
    """Ends the call of each message when it is told, and writes down what is under way."""

    def __init__(self):
        self.begun = []
        self.cancelled = []
        self._may_end = defaultdict(asyncio.Event)

    async def __call__(self, message):
        self.begun.append(message.offset)
        try:
            await self._may_end[message.offset].wait()
        except asyncio.CancelledError:
            self.cancelled.append(message.offset)
            raise
        if message.value == b"bad":
            raise ValueError(message.offset)

    def end(self, *offsets):
        for offset in offsets:
            self._may_end[offset].set()

    async def has_begun(self, *offsets):
        await eventually(lambda: self.begun == list(offsets), f"{offsets} have begun")


@pytest.fixture
async def running(peer):
    """A consumer that acknowledges by itself, and what runs with it."""
    tasks = []
    member = Member(peer, auto_ack=True)
    async with member.consumer as consumer:

        def run(handler, **options):
            tasks.append(asyncio.create_task(consumer.run(handler, **options)))
            return tasks[-1]

        yield member, run
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_key_has_one_call_at_a_time_and_others_pass_it(peer, running):
    _, run = running
    flow = await bound(peer, "a", "a", "b", None, "a", None, "c")
    handler = Handler()
    run(handler, concurrency=4)
    await handler.has_begun(0, 2, 3, 5)
    handler.end(3)  # the first free place is of the first message whose key is free
    await handler.has_begun(0, 2, 3, 5, 6)
    assert (await flow.next(frames.Ack)).ranges == [(3, 4)], "by itself, not with what is below"
    handler.end(0)
    await handler.has_begun(0, 2, 3, 5, 6, 1)
    assert (await flow.next(frames.Ack)).ranges == [(0, 1)]
    handler.end(1)
    await handler.has_begun(0, 2, 3, 5, 6, 1, 4)


async def test_a_call_that_ends_makes_room_for_the_next():
    """Nothing else happens to the consumer: neither an answer to an ack nor a pong wakes it."""
    changes, done = asyncio.Event(), []
    target = Target(may_hand_out=True)
    ready = [message(f"k{n}", target, n) for n in range(20)]

    async def until(attempt):
        while not ((result := attempt()) or len(done) == 20):
            changes.clear()
            await changes.wait()
        return result

    run = ConcurrentRun(
        lambda _: asyncio.sleep(0),
        concurrency=2,
        held=HeldMessages(),
        take=lambda: ready.pop(0) if ready else None,
        until=until,
        changed=changes.set,
        succeeded=done.append,
        handed_out=lambda _: None,
    )
    async with asyncio.timeout(WAIT_S):
        await run.run()
    assert [each.offset for each in done] == list(range(20))


async def test_what_waits_in_a_paused_partition_holds_up_no_other(peer, running):
    member, run = running
    flow = await bound(peer, *"aaaaaaaaaaaa")
    handler = Handler()
    run(handler, concurrency=2)
    await handler.has_begun(0)  # as many as may wait do so: their key is busy
    member.consumer.pause([P0])
    handler.end(0)
    await flow.send(assigned(partition=1))
    await flow.send(deliver(0, 1, partition=1), payload=stored("b"))
    await handler.has_begun(0, 0)
    member.consumer.resume([P0])
    await handler.has_begun(0, 0, 1)


class HotKey:
    """The calls of the key `a` end when they are told, all others at once."""

    def __init__(self, error=None):
        self.begun = defaultdict(list)
        self.may_end = asyncio.Event()
        self._error = error

    async def __call__(self, message):
        self.begun[message.key].append(message.offset)
        if message.key == "a":
            await self.may_end.wait()
            if self._error is not None:
                raise self._error


async def test_a_key_with_slow_calls_holds_up_no_other_partition(peer, running):
    _, run = running
    flow = await bound(peer, *"a" * 30)  # more than may wait
    handler = HotKey()
    run(handler, concurrency=2)
    await eventually(lambda: handler.begun["a"] == [0], "the first call of the key has begun")
    await flow.send(assigned(partition=1))
    for offset in range(20):
        await flow.send(deliver(offset, offset + 1, partition=1), payload=stored("b"))
    await eventually(lambda: handler.begun["b"] == [*range(20)], "the others are handled")
    handler.may_end.set()
    await eventually(lambda: len(handler.begun["a"]) == 30, "the key follows")
    assert handler.begun["a"] == [*range(30)]


async def test_what_a_key_with_slow_calls_had_ready_comes_after_the_run(peer, running):
    member, run = running
    await bound(peer, *"a" * 30)
    handler = HotKey(ValueError("bad"))
    task = run(handler, concurrency=2)
    await eventually(lambda: handler.begun["a"] == [0], "the first call of the key has begun")
    handler.may_end.set()
    with pytest.raises(ValueError, match="bad"):
        await asyncio.wait_for(task, WAIT_S)
    assert [(await member.next()).offset for _ in range(29)] == [*range(1, 30)]


@pytest.mark.parametrize(
    ("bound_name", "most", "held"),
    [
        pytest.param("MAX_HELD_OF_PARTITION", 5, 5, id="messages of a partition"),
        pytest.param("MAX_HELD", 6, 6, id="messages"),
        pytest.param("MAX_HELD_BYTES_OF_PARTITION", 7, 7, id="bytes of a partition"),
        pytest.param("MAX_HELD_BYTES", 8, 8, id="bytes"),
    ],
)
async def test_what_waits_is_bounded(peer, running, monkeypatch, bound_name, most, held):
    """The values of the messages that are held have a byte each."""
    member, run = running
    monkeypatch.setattr(f"partq.client.handout.concurrent_run.{bound_name}", most)
    await bound(peer, *"a" * 10)
    handler = HotKey()
    run(handler, concurrency=50)
    await eventually(lambda: handler.begun["a"] == [0], "the first call of the key has begun")
    assert len(member.consumer._held) == held


async def test_what_waits_behind_a_nacked_message_is_handed_out_once_it_is_redelivered(
    peer, running
):
    """In an ordered group: the broker says from where on it delivers again."""
    member, run = running
    flow = await bound(peer, "a", "a", "b")
    begun, may_end = [], asyncio.Event()

    async def handle(message):
        begun.append((message.offset, message.cause))
        if message.key == "b":
            await may_end.wait()
        elif message.cause is Cause.NONE:
            await member.consumer.nack(message, delay_s=0)

    run(handle, concurrency=2)
    nack = await flow.next(frames.Nack)
    await flow.send(frames.Rewound(1, 0, 5, 9, 1, 0, Cause.NACK))
    await flow.send(frames.AckConfirmed(nack.request))
    await flow.send(deliver(0, 3, delivery=1, cause=Cause.NACK), payload=stored("a", "a", "b"))
    await eventually(lambda: len(begun) == 4, "the redelivered messages of a are handled")
    first = [(0, Cause.NONE), (2, Cause.NONE)]
    assert begun == [*first, (0, Cause.NACK), (1, Cause.NACK)], "the copy of b waits for the first"
    may_end.set()
    await eventually(lambda: begun[4:] == [(2, Cause.NACK)], "the copy follows")


async def test_a_call_that_fails_ends_the_run_and_loses_nothing(peer, running):
    member, run = running
    flow = await peer.flow()
    await flow.send(assigned())
    messages = [Message("a", b"bad"), Message("a", b""), Message("b", b""), Message("c", b"")]
    payload = batch.encode(batch.encode_messages(messages), [0] * 4)
    await flow.send(deliver(0, 4), payload=payload)
    handler = Handler()
    run_ = run(handler, concurrency=2)
    await handler.has_begun(0, 2)
    handler.end(0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not run_.done(), "what is under way is waited for"
    handler.end(2)
    with pytest.raises(ValueError, match="0"):
        await asyncio.wait_for(run_, WAIT_S)
    assert handler.begun == [0, 2]
    assert (await flow.next(frames.Ack)).ranges == [(2, 3)]
    left = [(await member.next()).offset for _ in range(2)]
    assert left == [1, 3], "what had been taken and not begun"


async def test_a_cancelled_run_cancels_its_calls(peer, running):
    _, run = running
    await bound(peer, "a", "b")
    handler = Handler()
    task = run(handler, concurrency=2)
    await handler.has_begun(0, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(handler.cancelled) == [0, 1]


async def test_a_partition_that_is_taken_away_takes_what_waits(peer, running):
    member, run = running
    flow = await bound(peer, "a", "a")
    handler = Handler()
    run(handler, concurrency=2)
    await handler.has_begun(0)
    await flow.send(frames.Revoked(1, 0, 5, 9, 0))
    await member.has_been_told(2)
    await flow.send(assigned((5, 10)))
    await flow.send(deliver(0, 2, (5, 10), cause=Cause.FLOW_LOST), payload=stored("a", "a"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert handler.begun == [0], "the key has a call under way, whatever its token is"
    handler.end(0)
    await handler.has_begun(0, 0, 1)  # the event of 0 is set for good
    assert member.errors == []


async def test_threads_call_several_functions_at_once(peer, running):
    _, run = running
    flow = await bound(peer, *(f"k{n}" for n in range(3)))
    together = threading.Barrier(3)
    run(lambda _: together.wait(WAIT_S), concurrency=3, in_thread=True)
    acked = Counter()
    while acked.total() < 3:
        for first, stop in (await flow.next(frames.Ack)).ranges:
            acked.update(range(first, stop))
    assert acked == {0: 1, 1: 1, 2: 1}


@pytest.mark.parametrize("concurrency", [0, 1001, True, 2.5])
async def test_a_concurrency_out_of_range_is_refused(running, concurrency):
    member, _ = running
    with pytest.raises(SettingsError, match="run: concurrency"):
        await member.consumer.run(print, concurrency=concurrency)


# ---- against real brokers ----

KEYS, PER_KEY = 20, 15


class Seen:
    """What the members of a group have handled, and whether a key ever had two calls."""

    def __init__(self):
        self.last = defaultdict(lambda: -1)
        self.wrong = []
        self.under_way = Counter()
        self.most = 0

    async def handle(self, consumer, message):
        number = int(message.value)
        place = (consumer.member, message.key)
        self.under_way[place] += 1
        self.most = max(self.most, self.under_way.total())
        if self.under_way[place] > 1:
            self.wrong.append((message, "two at once"))
        await asyncio.sleep(0.005)
        self.under_way[place] -= 1
        if number > self.last[message.key] + 1:
            self.wrong.append((message, "before its turn"))
        try:
            if number % 7 == 3 and not message.redeliveries:
                await consumer.nack(message, delay_s=0)
                return
            self.last[message.key] = max(number, self.last[message.key])
            await consumer.ack(message)
        except FencedError:
            return  # of a handoff that was forced: it is redelivered

    @property
    def is_done(self):
        return [*self.last.values()] == [PER_KEY - 1] * KEYS


GROUPS = {"workers": {}, "standing-by": {"type": "Failover"}, "one": {"type": "Exclusive"}}


async def test_order_is_kept_over_nacks_and_handoffs_in_every_type_of_group():
    """In each group a second member comes half-way, and the first one leaves."""
    async with LocalBroker(partitions=4, groups=GROUPS, broker_count=2) as local:
        token = local.tokens.produce
        async with Producer(local.url, queue="orders", token=token) as producer:
            for number in range(PER_KEY):
                value = str(number).encode()
                await producer.send_many([Message(f"k{key}", value) for key in range(KEYS)])
        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as groups:
            seen = [groups.create_task(_consume(local, group)) for group in GROUPS]
    assert [each.result().wrong for each in seen] == [[]] * 3
    assert min(each.result().most for each in seen) > 1


async def _consume(local, group):
    seen = Seen()

    def member():
        token = local.tokens.consume
        return Consumer(local.url, queue="orders", group=group, token=token, handle_signals=False)

    async def run(consumer):
        await consumer.run(lambda message: seen.handle(consumer, message), concurrency=8)

    async with asyncio.TaskGroup() as runs, AsyncExitStack() as stack:
        async with member() as first:
            first_run = runs.create_task(run(first))
            await eventually(lambda: seen.last, "the first member has begun")
            second = await stack.enter_async_context(member())
            second_run = runs.create_task(run(second))
            # Whoever leaves the block while calls are under way has their acks refused.
            first.leave()
            await first_run
        await eventually(lambda: seen.is_done, "every message is handled")
        second.leave()
        await second_run
    return seen


OTHER_USES = {
    "run": lambda consumer: consumer.run(print, concurrency=2),
    "async for": anext,
    "getmany": lambda consumer: consumer.getmany(1, timeout_s=WAIT_S),
    "batches": lambda consumer: anext(consumer.batches()),
    "batches with max_messages": lambda consumer: anext(consumer.batches(max_messages=2)),
}


@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("use", OTHER_USES)
async def test_beside_a_run_nothing_else_takes_messages(peer, member, use, concurrency):
    await bound(peer, "k", "k")
    handler = Handler()
    running = asyncio.create_task(member.consumer.run(handler, concurrency=concurrency))
    await eventually(lambda: handler.begun == [0], "the first call has begun")
    with pytest.raises(RuntimeError, match="hands out messages to run, which has not ended"):
        await OTHER_USES[use](member.consumer)
    handler.end(0, 1)
    await eventually(lambda: handler.begun == [0, 1], "the run goes on")
    running.cancel()
    await asyncio.wait([running])
    assert await member.consumer.getmany(1, timeout_s=0) == [], "a run that has ended is none"


@pytest.mark.parametrize("use", [each for each in OTHER_USES if each != "run"])
async def test_a_run_does_not_begin_beside_a_call_that_waits(peer, member, use):
    flow = await bound(peer)
    waiting = asyncio.create_task(OTHER_USES[use](member.consumer))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match=f"to {use.split(' with')[0]}, which has not ended"):
        await member.consumer.run(print)
    waiting.cancel()
    await asyncio.wait([waiting])
    await flow.send(deliver(0, 1), payload=stored("k"))
    handler = Handler()
    running = asyncio.create_task(member.consumer.run(handler))
    await eventually(lambda: handler.begun == [0], "after a cancelled call a run begins")
    running.cancel()
    await asyncio.wait([running])
