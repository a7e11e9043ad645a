"""Acks are answered, whatever happens to the partition while they are being stored."""

import asyncio

from partq.aio import Signal
from partq.broker.delivery.cursor_writer import CursorWriter
from partq.core.cursor.cursor import GroupCursor
from partq.core.model import Cause
from partq.errors import FencedError, StoreUnavailableError, SupersededError
from tests.broker.delivery.consumed import consumed


class SlowPartitions:
    """A store whose flushes answer when the test says so."""

    def __init__(self):
        self.asked = asyncio.Event()
        self.answer = asyncio.get_running_loop().create_future()

    async def flush(self, *_, **__):
        self.asked.set()
        await self.answer


async def test_an_ack_is_refused_when_its_flush_fails_after_the_partition_was_dropped():
    store = SlowPartitions()
    cursor_writer = CursorWriter(
        store, on_lost=lambda *_: None, drain_signal=Signal(), read_ms=None, clock=None
    )
    running = asyncio.create_task(cursor_writer.run())
    partition = consumed(0, GroupCursor(0))
    answers = asyncio.Queue()
    cursor_writer.notice(partition, answers.put_nowait)
    async with asyncio.timeout(60):
        await store.asked.wait()
        partition.drop(Cause.BROKER_CHANGE)
        store.answer.set_exception(StoreUnavailableError("redis is gone"))
        assert isinstance(await answers.get(), FencedError)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_acks_are_written_again_where_a_later_write_of_the_book_was_faster():
    """A bind, a commit: the flush was refused, and what they wrote may lack the acks."""
    numbers = []

    class Partitions:
        async def flush(self, *_, number, **__):
            numbers.append(number)
            if len(numbers) == 1:
                raise SupersededError("a later write is stored")

    cursor_writer = CursorWriter(
        Partitions(), on_lost=lambda *_: None, drain_signal=Signal(), read_ms=None, clock=None
    )
    running = asyncio.create_task(cursor_writer.run())
    partition = consumed(0, GroupCursor(0))
    answers = asyncio.Queue()
    cursor_writer.notice(partition, answers.put_nowait)
    async with asyncio.timeout(60):
        assert await answers.get() is None
    assert numbers == [0, 1]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
