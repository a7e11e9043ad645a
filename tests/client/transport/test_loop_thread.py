"""No call is waited for without end when the thread of its loop ends."""

import asyncio
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from partq.client.transport.loop_thread import LoopThread


async def answer():
    return 7


def test_a_call_that_is_under_way_is_cancelled():
    thread, begun = LoopThread("calls"), threading.Event()

    async def wait():
        begun.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(thread.run, wait())
        begun.wait()
        thread.end()
        assert isinstance(waiting.exception(), CancelledError)


def test_a_thread_that_has_ended_refuses_calls():
    thread = LoopThread("calls")
    assert thread.run(answer()) == 7
    thread.end()
    with pytest.raises(RuntimeError, match="'calls' has ended"):
        thread.run(answer())
