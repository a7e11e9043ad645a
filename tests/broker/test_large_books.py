"""Books that lie in many pieces are written at a pace, and say why nothing new is sent."""

import asyncio
import logging

import pytest

from partq.broker import binder, flusher
from partq.broker.flusher import Flusher
from partq.broker.progress import Progress
from partq.broker.subscription import Subscription
from partq.core.delivery import Delivery
from partq.core.horizon import MAX_PIECES
from partq.core.model import BrokerEpoch, Epoch, MemberId, PartitionId
from partq.resources import parse_resources
from tests.broker.conftest import YAML

COUNT = 4 * MAX_PIECES


@pytest.fixture
def resources():
    return parse_resources(YAML.replace("maxUnackedPerFlow: 1000", "maxUnackedPerFlow: 10000"))


def subscription(index, book):
    return Subscription(
        partition=PartitionId(1, index),
        broker_epoch=BrokerEpoch(1),
        group="workers",
        member=MemberId("m"),
        incarnation="i",
        epoch=Epoch(1),
        closed_attempt=0,
        book=book,
    )


class CountedPartitions:
    """A store that counts what it writes."""

    def __init__(self):
        self.writes = []

    async def flush(self, partition, *_, acked, **__):
        self.writes.append((partition.index, len(acked)))


async def test_large_books_wait_for_each_other_and_small_ones_for_none(monkeypatch):
    monkeypatch.setattr(flusher, "BYTES_PER_S", 1)  # the next large one could be written in hours
    store = CountedPartitions()
    keeper = Flusher(store, on_lost=lambda *_: None, progress=Progress())
    running = asyncio.create_task(keeper.run())
    large = subscription(0, Delivery(0, [(at, at + 1) for at in range(1, 2000, 2)]))
    small = subscription(1, Delivery(0))
    answers = asyncio.Queue()
    async with asyncio.timeout(60):
        keeper.notice(large, answers.put_nowait)
        assert await answers.get() is None
        for at in range(3):
            large.book.discard([(2 * at + 2, 2 * at + 3)])
            keeper.notice(large)
            keeper.notice(small, answers.put_nowait)
            assert await answers.get() is None
    assert store.writes == [(0, 1000), (1, 0), (1, 0), (1, 0)]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_consumer_that_leaves_holes_gets_nothing_new_until_it_closes_some(
    running, peers, monkeypatch, caplog
):
    await running.assign("m", [0])
    producer = await peers.open_producer(running)
    for _ in range(COUNT // 500):
        await producer.publish(*["x"] * 500)
    flow = await peers.open_flow(running, "m", credit=10_000)
    header, _ = await flow.deliver()
    book = running.broker.owned[PartitionId(1, 0)].groups["workers"].book
    await peers.eventually(lambda: book.in_flight == COUNT, "all is sent")
    holes = MAX_PIECES + 10
    assert await flow.ack(header, ranges=[(at, at + 1) for at in range(1, 2 * holes, 2)]) == ""
    await producer.publish("new")
    cursor = await running.broker.partitions.read_cursor(PartitionId(1, 0), "workers")
    assert len(cursor.acked) == len(book.acked) == holes
    monkeypatch.setattr(binder, "STUCK_S", -1.0)
    caplog.set_level(logging.WARNING, "partq.broker")
    await peers.eventually(
        lambda: f"partition 1.0 lies in more than {MAX_PIECES} pieces" in caplog.text, "it is told"
    )
    assert book.position == COUNT, "nothing new is sent"
    assert await flow.ack(header, ranges=[(at, at + 1) for at in range(0, 40, 2)]) == ""
    await peers.eventually(lambda: book.position == COUNT + 1, "the next one is sent")
