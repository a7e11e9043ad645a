"""Books that lie in many pieces are written at a pace, and say why nothing new is sent."""

import asyncio
import logging
from types import SimpleNamespace

import pytest

from partq.aio import Signal
from partq.broker.delivery import cursor_writer, flow_liveness
from partq.broker.delivery.cursor_writer import CursorWriter
from partq.core.cursor.cursor import GroupCursor
from partq.core.cursor.horizon import MAX_PIECES
from partq.core.model import Cause, PartitionId
from partq.errors import StoreUnavailableError
from partq.testing import eventually
from partq.testing.polling import TIMEOUT_S
from partq.wire import frames
from tests.broker.conftest import LIMITS, queue_and_group
from tests.broker.delivery.consumed import consumed

COUNT = 4 * MAX_PIECES
TOKEN = ("generation", "partition", "broker_epoch", "epoch", "delivery")


@pytest.fixture
def resources():
    return queue_and_group(limits={**LIMITS, "maxUnackedPerFlow": 10_000})


class CountedPartitions:
    """A store that counts what it writes, after so many calls that fail."""

    def __init__(self, failing=0):
        self.writes = []
        self.failing = failing
        self.may_fail = asyncio.Event()
        """Whether the last one that fails is answered."""

    async def flush(self, partition, *_, acked, **__):
        if self.failing:
            self.failing -= 1
            if not self.failing:
                await self.may_fail.wait()
            raise StoreUnavailableError("redis is gone")
        self.writes.append((partition.index, len(acked)))


async def test_large_books_wait_for_each_other_and_small_ones_for_none(monkeypatch):
    monkeypatch.setattr(
        cursor_writer, "BYTES_PER_S", 1
    )  # the next large one could be written in hours
    store = CountedPartitions()
    keeper = CursorWriter(
        store, on_lost=lambda *_: None, drain_signal=Signal(), read_ms=None, clock=None
    )
    running = asyncio.create_task(keeper.run())
    bound = SimpleNamespace(notice=lambda _: None)  # nobody waits for a book that is acked on
    large = consumed(0, GroupCursor(0, [(at, at + 1) for at in range(1, 2000, 2)]))
    large.flow = bound
    small = consumed(1, GroupCursor(0))
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


async def test_a_call_that_stores_nothing_takes_no_turn_of_other_large_books(monkeypatch):
    monkeypatch.setattr(cursor_writer, "BYTES_PER_S", 1)
    monkeypatch.setattr(cursor_writer, "WRITE_RETRY_S", 0.0)
    store = CountedPartitions(failing=5)
    keeper = CursorWriter(
        store, on_lost=lambda *_: None, drain_signal=Signal(), read_ms=None, clock=None
    )
    running = asyncio.create_task(keeper.run())
    pieces = [(at, at + 1) for at in range(1, 2000, 2)]
    urgent, paced = (consumed(index, GroupCursor(0, pieces)) for index in range(2))
    paced.flow = SimpleNamespace(notice=lambda _: None)
    answers = asyncio.Queue()
    async with asyncio.timeout(TIMEOUT_S):
        keeper.notice(urgent)
        await eventually(lambda: not store.failing, "its calls have failed")
        urgent.drop(Cause.BROKER_CHANGE)
        store.may_fail.set()
        await eventually(lambda: not urgent.is_flushing, "it is given up")
        keeper.notice(paced, answers.put_nowait)
        assert await answers.get() is None
    assert store.writes == [(1, 1000)]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def paced(running, scene, monkeypatch):
    """A consumed partition whose book counts as large, with an ack whose turn comes in hours."""
    held = running.broker.owned[PartitionId(1, 0)].groups["workers"]
    monkeypatch.setattr(cursor_writer, "LARGE_BYTES", 0)
    monkeypatch.setattr(cursor_writer, "BYTES_PER_S", 0.001)
    assert await scene.source.ack(scene.held, ranges=[(1, 2)]) == ""
    await send_ack(scene, 2)
    await eventually(lambda: held.is_flushing and held.is_dirty, "it waits")
    return held


async def send_ack(scene, offset):
    token = {name: getattr(scene.held, name) for name in TOKEN}
    await scene.source.send(frames.Ack(2, **token, upto=-1, ranges=[(offset, offset + 1)]))


async def stored_acks(running):
    return (await running.broker.partitions.read_cursor(PartitionId(1, 0), "workers")).acked


async def test_a_reset_waits_for_no_pace(running, paced):
    body = {"to": "latest", "partitions": ["1.0"], "is_forced": True}
    _, answer = await running.call("POST", "/v1/queues/orders/groups/workers/reset", json=body)
    assert answer["partitions"]["1.0"].get("to") == 3, answer


async def test_a_cursor_of_a_reader_waits_for_no_pace(running, scene, paced):
    await scene.source.close()
    await eventually(lambda: paced.flow is None, "the flow is gone")
    body = {
        "positions": {"1.0": {"offset": 1, "append_broker_epoch": scene.held.append_broker_epoch}}
    }
    _, answer = await running.call("POST", "/v1/queues/orders/groups/workers/cursors", json=body)
    assert answer["partitions"]["1.0"].get("cursor") == 3, answer


async def test_a_handoff_waits_for_no_pace(running, scene, paced):
    handoff = await scene.paused()
    await send_ack(scene, 0)
    assert (await handoff.drain())["is_drained"], "all is acknowledged, and to be stored at once"
    assert (await handoff.commit())["code"] == ""


async def test_a_drain_waits_for_no_pace_once_what_was_in_hand_is_released(scene, paced):
    handoff = await scene.paused()
    token = {name: getattr(scene.held, name) for name in TOKEN}
    await scene.source.send(frames.Release(**token, start=0))
    assert (await handoff.drain())["is_drained"]


async def test_a_pause_of_what_is_all_acked_waits_for_no_pace(running, scene, paced):
    await send_ack(scene, 0)
    await eventually(lambda: not paced.book.in_flight, "all is acknowledged")
    await eventually(lambda: not paced.to_hurry.is_set(), "its turn is waited for again")
    assert paced.is_dirty
    handoff = await scene.paused()
    assert (await handoff.drain())["is_drained"]


async def test_a_commit_that_is_forced_waits_for_no_pace(running, scene, paced):
    handoff = await scene.paused(drain_ms=0)
    async with asyncio.timeout(TIMEOUT_S):
        assert (await handoff.commit(cause="drain_timeout"))["code"] == ""
    assert await stored_acks(running) == [(1, 3)]


async def test_a_partition_is_given_up_without_a_pace(running, paced):
    """Else its acks are lost when that takes too long."""
    await running.broker.ownership.give_up(PartitionId(1, 0))
    assert await stored_acks(running) == [(1, 3)]


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
    monkeypatch.setattr(flow_liveness, "STUCK_S", -1.0)
    caplog.set_level(logging.WARNING, "partq.broker")
    await peers.eventually(
        lambda: f"partition 1.0 lies in more than {MAX_PIECES} pieces" in caplog.text, "it is told"
    )
    assert book.position == COUNT, "nothing new is sent"
    assert await flow.ack(header, ranges=[(at, at + 1) for at in range(0, 40, 2)]) == ""
    await peers.eventually(lambda: book.position == COUNT + 1, "the next one is sent")
