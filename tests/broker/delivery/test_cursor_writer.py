"""Acks are answered, whatever happens to the partition while they are being stored."""

import asyncio

from partq.broker.delivery.cursor_writer import CursorWriter
from partq.broker.delivery.progress import ProgressSignal
from partq.broker.partition.group_partition import ConsumedPartition
from partq.core.cursor.cursor import GroupCursor
from partq.core.model import BrokerEpoch, Cause, Epoch, MemberId, PartitionId
from partq.errors import FencedError, StoreUnavailableError


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
    cursor_writer = CursorWriter(store, on_lost=lambda *_: None, progress=ProgressSignal())
    running = asyncio.create_task(cursor_writer.run())
    subscription = ConsumedPartition(
        partition=PartitionId(1, 0),
        broker_epoch=BrokerEpoch(1),
        group="workers",
        member=MemberId("m"),
        incarnation="i",
        epoch=Epoch(1),
        closed_attempt=0,
        book=GroupCursor(0),
    )
    answers = asyncio.Queue()
    cursor_writer.notice(subscription, answers.put_nowait)
    async with asyncio.timeout(60):
        await store.asked.wait()
        subscription.drop(Cause.BROKER_CHANGE)
        store.answer.set_exception(StoreUnavailableError("redis is gone"))
        assert isinstance(await answers.get(), FencedError)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
