"""Calls in threads: whatever the function does there, its call ends, and what it raises is told."""

import asyncio
import concurrent.futures
import sys
import threading

import pytest

from partq.client.handout.caller import Caller
from tests.client.member import WAIT_S, bound

MESSAGE = "orders/7"


def in_thread(handler, ended_late=lambda _: None):
    return Caller(handler, in_thread=True, ended_late=ended_late)


class Blocked:
    """A function that ends when it is told; then it raises an error, if it has one."""

    def __init__(self, error=None):
        self.begun, self.may_end = threading.Event(), threading.Event()
        self._error = error

    def __call__(self, _):
        self.begun.set()
        assert self.may_end.wait(WAIT_S)
        if self._error is not None:
            raise self._error


async def ended_after_cancel(blocked):
    """Cancel the call of a function that then ends; return what counts as done."""
    done = []
    with in_thread(blocked, ended_late=done.append) as call:
        task = asyncio.create_task(call(MESSAGE))
        assert await asyncio.to_thread(blocked.begun.wait, WAIT_S)
        task.cancel()
        await asyncio.sleep(0)
        blocked.may_end.set()
        async with asyncio.timeout(WAIT_S):
            await asyncio.wait([task])
        assert task.cancelled()
    return done


@pytest.mark.parametrize(
    "raised",
    [
        pytest.param(StopIteration("empty"), id="StopIteration"),
        pytest.param(asyncio.CancelledError("empty"), id="a cancellation that is not the call's"),
    ],
)
async def test_what_no_coroutine_can_raise_becomes_an_error(raised):
    def handle(_):
        raise raised

    told = r"orders/7.*the handler has raised .*empty"
    with in_thread(handle) as call, pytest.raises(RuntimeError, match=told) as caught:
        async with asyncio.timeout(WAIT_S):
            await call(MESSAGE)
    assert caught.value.__cause__ is raised


async def test_a_cancelled_future_in_the_function_is_no_cancelled_call():
    """The error is an Exception. As a cancellation it would end a TaskGroup without a word."""

    def handle(_):
        raise concurrent.futures.CancelledError("theirs")

    with in_thread(handle) as call, pytest.raises(concurrent.futures.CancelledError, match="their"):
        async with asyncio.timeout(WAIT_S):
            await call(MESSAGE)


async def test_a_call_that_fails_after_it_was_cancelled_is_told_and_does_not_count(caplog):
    assert await ended_after_cancel(Blocked(ValueError("too late"))) == []
    (told,) = [each for each in caplog.records if each.name == "partq.client"]
    assert MESSAGE in told.message
    assert "too late" in str(told.exc_info[1])


async def test_a_call_that_returns_after_it_was_cancelled_counts():
    assert await ended_after_cancel(Blocked()) == [MESSAGE]


async def test_an_exit_in_one_of_several_calls_ends_the_run(peer, member, stored_batch):
    await bound(peer, stored_batch, *(b"%d" % number for number in range(9)))
    begun = []

    def handle(message):
        begun.append(message)
        sys.exit(3)

    with pytest.raises(SystemExit):
        async with asyncio.timeout(WAIT_S):
            await member.consumer.run(handle, in_thread=True, concurrency=2)
    assert len(begun) <= 2, "no further call begins"
