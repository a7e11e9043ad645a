"""Callbacks: coroutines are awaited before the first message; what one raises stops all."""

import asyncio

import pytest

from partq import Cause, UndecodableError
from partq.client.consume.callbacks import Callbacks
from partq.testing import eventually
from partq.wire import frames
from tests.client.member import P0, P1, WAIT_S, Member, assigned, bound, deliver


class Loading:
    """An `on_assigned` that loads something, as long as the test lets it."""

    def __init__(self):
        self.begun = []
        self.told = []
        self.may_end = {P0: asyncio.Event(), P1: asyncio.Event()}

    async def assigned(self, partition):
        self.begun.append(partition)
        await self.may_end[partition].wait()
        self.told.append(("assigned", partition))

    async def revoked(self, partition, cause):
        await asyncio.sleep(0)
        self.told.append((cause.name, partition))


@pytest.fixture
async def loading(peer):
    loading = Loading()
    member = Member(peer, on_assigned=loading.assigned, on_revoked=loading.revoked)
    async with asyncio.timeout(WAIT_S), member.consumer:
        loading.next = member.next
        yield loading
        for event in loading.may_end.values():
            event.set()


async def test_no_message_comes_before_on_assigned_is_done(peer, loading, stored_batch):
    flow = await bound(peer, stored_batch, b"a")
    await flow.send(assigned(partition=1))
    await flow.send(deliver(0, 1, partition=1), payload=stored_batch(b"other"))
    loading.may_end[P1].set()
    assert (await loading.next()).value == b"other", "partitions do not wait for each other"
    waiting = asyncio.create_task(loading.next())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    loading.may_end[P0].set()
    assert (await waiting).value == b"a"
    assert loading.told == [("assigned", P1), ("assigned", P0)]


async def test_those_of_one_partition_come_one_after_the_other(peer, loading, stored_batch):
    flow = await bound(peer, stored_batch, b"old")
    await flow.send(frames.Revoked(1, 0, 5, 9, Cause.FORCED_COMMIT))
    await flow.send(assigned((5, 11)))
    await flow.send(deliver(0, 1, (5, 11)), payload=stored_batch(b"new"))
    waiting = asyncio.create_task(loading.next())
    await eventually(lambda: loading.begun, "on_assigned is called")
    loading.may_end[P0].set()
    assert (await waiting).value == b"new"
    assert loading.begun == [P0, P0]
    assert loading.told == [("assigned", P0), ("FORCED_COMMIT", P0), ("assigned", P0)]


async def failing(*_):
    raise LookupError("the state is gone")


def failing_at_once(*_):
    raise LookupError("the state is gone")


@pytest.mark.parametrize("callback", [failing, failing_at_once])
async def test_an_on_assigned_that_raises_stops_the_consumer(peer, stored_batch, callback):
    member = Member(peer, on_assigned=callback)
    async with asyncio.timeout(WAIT_S), member.consumer:
        await bound(peer, stored_batch, b"a")
        with pytest.raises(LookupError, match="the state is gone"):
            await member.next()


@pytest.mark.parametrize("callback", [failing, failing_at_once])
async def test_closing_does_not_raise_what_iterating_has_raised_for_another_partition(
    peer, stored_batch, callback
):
    member = Member(peer, on_assigned=callback)
    async with asyncio.timeout(WAIT_S), member.consumer:
        flow = await bound(peer, stored_batch, b"a")
        with pytest.raises(LookupError):
            await member.next()
        await flow.send(assigned(partition=1))
        await eventually(lambda: P1 in member.consumer.partitions, "the second one is assigned")


@pytest.mark.parametrize("callback", [failing, failing_at_once])
async def test_a_callback_that_fails_for_many_partitions_is_told_once(caplog, callback):
    """The same trace a thousand times hides what else is to be read."""
    failed = []
    callbacks = Callbacks(failed.append)
    async with asyncio.timeout(WAIT_S):
        for partition in (P0, P1):
            callbacks.call(partition, callback, partition)
        await callbacks.close(WAIT_S)
        other = Callbacks(failed.append)
        other.call(P0, callback, P0)
        await other.close(WAIT_S)
    assert len(failed) == 2
    told = [record for record in caplog.records if "has failed" in record.getMessage()]
    assert len(told) == 2, "once for each consumer"
    assert all(record.exc_info for record in told)


@pytest.mark.parametrize("callback", [failing, failing_at_once])
async def test_an_on_revoked_that_raises_while_leaving_is_raised_by_it(
    peer, stored_batch, callback
):
    member = Member(peer, on_revoked=callback)
    consumer = await member.consumer.__aenter__()
    async with asyncio.timeout(WAIT_S):
        await bound(peer, stored_batch, b"a")
        await member.next()
        with pytest.raises(LookupError):
            await consumer.close()
        await consumer.close()


async def test_an_on_error_may_be_a_coroutine(peer, stored_batch):
    errors = []

    async def note(error):
        errors.append(error)

    member = Member(peer, on_error=note)
    async with asyncio.timeout(WAIT_S), member.consumer:
        flow = await peer.flow()
        await flow.send(assigned(), assigned(partition=1))
        await flow.send(deliver(0, 1), payload=stored_batch(b"a")[:-1] + b"\xc1")
        await flow.send(deliver(0, 1, partition=1), payload=stored_batch(b"other"))
        assert (await member.next()).value == b"other"
        await eventually(lambda: errors, "on_error is called")
    assert isinstance(errors[0], UndecodableError)


async def test_a_callback_that_never_ends_does_not_hold_up_leaving_for_ever(caplog):
    callbacks = Callbacks(lambda error: None)
    callbacks.call(P0, asyncio.Event().wait)
    async with asyncio.timeout(WAIT_S):
        await callbacks.close(0.01)
    assert "is not done after 0.01 s" in caplog.text


class Failing:
    """A callback that is a bound method: another object each time that it is named."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name

    def call(self):
        raise LookupError("the state is gone")


def test_each_callback_that_fails_is_told_once(caplog):
    failures = []
    callbacks = Callbacks(failures.append)
    names = [f"number {at}" for at in range(5)]
    for name in names:
        failing = Failing(name)
        callbacks.call(None, failing.call)
        callbacks.call(None, failing.call)
    assert len(failures) == len(names)
    told = [record.getMessage() for record in caplog.records]
    assert [[name in line for line in told].count(True) for name in names] == [1] * len(names)
