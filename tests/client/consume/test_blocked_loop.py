"""A handler that blocks the event loop: the process lives, and keeps its partitions for a time."""

import asyncio
import json
import threading
import time
import urllib.request

import pytest

from partq import Cause, Consumer, FencedError, Producer, SettingsError
from partq.client.transport.liveness import PeerLease
from partq.testing import eventually, eventually_blocking
from partq.testing.local_broker import LocalBroker
from partq.wire import frames
from tests.client.member import LEASE_MS, P0, Member, assigned, bound, deliver
from tests.faults.standstill import StandstillWatch

WAIT_S = 60.0
BLOCKED_S = 5.0
"""Longer than a broker waits for a sign of life, which is 3 s."""


def until_lost(local):
    """Block the event loop until the broker has given the flow up."""
    url = f"{local.url}/admin/v1/queues/orders/state"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {local.tokens.admin}"})

    def is_lost():
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return not json.load(answer)["flows"]

    eventually_blocking(is_lost, "the broker gives the flow up")


@pytest.fixture
async def local():
    # A lease so long that a machine that is busy breaks none: what it does here, the clock shows.
    async with LocalBroker(partitions=2, lease_ttl_s=60) as running:
        async with Producer(running.url, queue="orders", token=running.tokens.produce) as producer:
            for number in range(2):
                await producer.send_and_wait(b"%d" % number, key="k")
        yield running


@pytest.mark.parametrize(
    ("max_processing_s", "is_kept"),
    [
        pytest.param(300, True, id="within the bound"),
        pytest.param(1.5, False, id="beyond the bound"),
        pytest.param(0, False, id="without the thread"),
    ],
)
async def test_a_handler_that_blocks_the_event_loop(local, caplog, max_processing_s, is_kept):
    """A flow may be lost that is to be kept: if no thread of this process ran meanwhile."""
    revoked, standstills = [], []
    watch = StandstillWatch(standstills.append).start()
    async with (
        asyncio.timeout(WAIT_S),
        Consumer(
            local.url,
            queue="orders",
            group="workers",
            token=local.tokens.consume,
            on_revoked=lambda partition, cause: revoked.append(cause),
            max_processing_s=max_processing_s,
        ) as consumer,
    ):
        message = await anext(consumer)
        # This is the handler that blocks.
        if is_kept:
            time.sleep(BLOCKED_S)  # noqa: ASYNC251
        else:
            until_lost(local)
        watch.close()
        try:
            await consumer.ack(message, confirmed=True)
            was_kept = True
        except FencedError:
            was_kept = False
        assert was_kept == is_kept or (is_kept and standstills), standstills
        again = await anext(consumer)
        if was_kept:
            assert (again.value, again.cause) == (b"1", Cause.NONE)
            assert again.token[:3] == message.token[:3], "its token continues"
            assert revoked == []
        else:
            assert (again.value, again.cause) == (b"0", Cause.FLOW_LOST)
        await consumer.ack(again, confirmed=True)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    if standstills:
        return  # the thread may have come too late to say something, or have said another cause
    assert any("stands" in line or "stood still for" in line for line in told) == (
        max_processing_s > 0
    )
    if is_kept:
        assert any(f"at {__file__}:" in line for line in told), "it names the place"
        assert any("MainThread continues after" in line for line in told), "and the length"


async def test_after_a_block_nothing_goes_out_before_what_came_meanwhile_is_read(
    peer, clock, stored_batch
):
    """The broker has kept the flow, and has taken the partition: only its frames say so."""
    member = Member(peer, clock=clock)
    async with asyncio.timeout(WAIT_S), member.consumer:
        flow = await bound(peer, stored_batch, b"a", b"b")
        assert (await member.next()).value == b"a"
        flow.answers_pings = False
        clock.now += 10 * LEASE_MS / 1000
        waiting = asyncio.create_task(member.next())
        flow.pinged.clear()
        await flow.pinged.wait()
        assert not waiting.done(), "b is in memory, and its token may be over"
        assert member.told == [("assigned", P0)], "but the flow is not given up"
        await flow.send(frames.Revoked(1, 0, 5, 9, Cause.FORCED_COMMIT))
        await flow.send(assigned((5, 11)))
        await flow.send(deliver(1, 2, (5, 11)), payload=stored_batch(b"again"))
        flow.answers_pings = True
        message = await waiting
        assert (message.value, message.token[2]) == (b"again", 11)


@pytest.mark.parametrize("length_s", [1.0, 3.0, 60.0])  # the bounds of the setting, its default
def test_the_time_in_which_this_side_stood_still_is_not_the_brokers_silence(length_s):
    """It has asked nothing, and has read no answer; until it has, nothing is handed out."""
    lease = PeerLease(length_s, now=0.0)
    lease.answered(lease.ping(0.0))
    asked_before = lease.ping(length_s / 3)
    block_s = 5 * length_s
    lease.stood_still(block_s)
    assert not lease.is_valid(length_s / 3 + block_s)
    assert not lease.is_over(length_s + block_s - 0.01)
    assert lease.is_over(length_s + block_s), "the broker had its time"
    lease.answered(asked_before)
    assert not lease.is_valid(length_s + block_s), "the answer is as old as its question"
    assert not lease.is_over(length_s / 3 + length_s + block_s - 0.01)
    lease.answered(lease.ping(length_s + block_s))
    assert lease.is_valid(2 * length_s + block_s - 0.01)
    assert lease.is_over(2 * length_s + block_s), "a block counts once"


async def test_a_broker_that_is_silent_is_given_up_though_the_loop_is_late_each_time(
    peer, clock, stored_batch
):
    """Each round of the connection comes late by ten leases; three without an answer are enough."""
    member = Member(peer, clock=clock)
    async with asyncio.timeout(WAIT_S), member.consumer:
        flow = await bound(peer, stored_batch, lease_ms=300)
        assert await member.has_been_told(1) == [("assigned", P0)]
        flow.answers_pings = False

        def is_told():
            clock.now += 3.0
            return len(member.told) == 2

        await eventually(is_told, "the flow is given up")
        assert member.told[1] == ("FLOW_LOST", P0)


async def test_the_thread_ends_with_the_consumer(peer):
    before = threading.enumerate()
    async with Member(peer).consumer:
        new = [thread for thread in threading.enumerate() if thread not in before]
        (heartbeat,) = [thread for thread in new if thread.name == "partq-heartbeat"]
    await asyncio.to_thread(heartbeat.join, WAIT_S)
    assert not heartbeat.is_alive()


# ---- run(in_thread=True) ----


async def test_a_handler_in_a_thread_leaves_the_event_loop_alone(peer, stored_batch):
    """It waits for the event loop, which would never come if it stood still."""
    member = Member(peer, auto_ack=True)
    loop, seen, order = asyncio.get_running_loop(), threading.Event(), []

    def handle(message):
        loop.call_soon_threadsafe(seen.set)
        assert seen.wait(WAIT_S)
        order.append((message.value, threading.current_thread().name))

    async with asyncio.timeout(WAIT_S), member.consumer as consumer:
        flow = await bound(peer, stored_batch, b"a", b"b")
        running = asyncio.create_task(consumer.run(handle, in_thread=True))
        assert (await flow.next(frames.Ack)).ranges == [(0, 1)]
        await eventually(lambda: len(order) == 2, "both are handled")
        running.cancel()
        await asyncio.wait([running])
    assert [value for value, _ in order] == [b"a", b"b"]
    assert {name for _, name in order} == {"partq-run"}


async def test_what_a_handler_in_a_thread_raises_ends_the_run(peer, member, stored_batch):
    await bound(peer, stored_batch, b"a")

    def handle(message):
        raise ValueError(message.value)

    with pytest.raises(ValueError, match="b'a'"):
        await member.consumer.run(handle, in_thread=True)


async def test_a_cancelled_run_waits_for_its_handler(peer, member, stored_batch):
    await bound(peer, stored_batch, b"a")
    begun, may_end, has_ended = threading.Event(), threading.Event(), []

    def handle(_):
        begun.set()
        may_end.wait(WAIT_S)
        has_ended.append(True)

    running = asyncio.create_task(member.consumer.run(handle, in_thread=True))
    assert await asyncio.to_thread(begun.wait, WAIT_S)
    running.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not running.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert has_ended


async def test_a_coroutine_function_runs_in_no_thread(member):
    async def handle(_):
        return

    with pytest.raises(TypeError, match="coroutine function"):
        await member.consumer.run(handle, in_thread=True)


@pytest.mark.parametrize("max_processing_s", [-1, 86_401])
def test_a_bound_out_of_range_is_refused(max_processing_s):
    with pytest.raises(SettingsError, match="max_processing_s"):
        Consumer("http://h:1", queue="q", group="g", max_processing_s=max_processing_s)
