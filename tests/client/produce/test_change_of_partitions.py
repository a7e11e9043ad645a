"""A producer whose queue gets more or fewer partitions, against a scripted peer."""

import asyncio

import pytest

from partq import Message, Producer
from partq.client.transport import layout_watch
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale.layout_steps import commit, prepare
from partq.wire import frames
from tests.client.member import WAIT_S

TWO = Layout.first(2)


def changed(layout, count):
    return commit(prepare(layout, count), 1_700_000_000_000)


THREE = changed(TWO, 3)
FIVE = changed(THREE, 5)
ONE = changed(TWO, 1)
OLD, OTHER, NEW = PartitionId(1, 0), PartitionId(1, 1), PartitionId(2, 2)


def key_of(*places):
    """Return a key that is in each of (layout, partition)."""
    return next(
        key
        for key in map(str, range(10_000))
        if all(layout.partition_for(key) == partition for layout, partition in places)
    )


STAYS = key_of((TWO, OLD), (THREE, OLD))
GOES = key_of((TWO, OLD), (THREE, NEW))


@pytest.fixture
async def producer(peer):
    async with (
        asyncio.timeout(WAIT_S),
        Producer(peer.url, queue="orders", linger_ms=0, delivery_timeout_s=WAIT_S) as producer,
    ):
        yield producer


async def published(connection, values):
    """Return the next batch that a producer sends: its frame, partition and values."""
    frame, payload = await connection.next_with_payload(frames.Publish)
    return frame, PartitionId(frame.generation, frame.partition), values(payload)


async def refuse(connection, frame, code="stale_generation", due=-1):
    await connection.send(frames.PublishRefused(frame.request, code, "slots have left", 0, due))


async def test_what_was_refused_goes_where_the_new_layout_says(peer, producer, values):
    result = await producer.send_many([Message(GOES, b"1"), Message(STAYS, b"2")])
    broker = await peer.producer()
    frame, partition, contents = await published(broker, values)
    assert (partition, frame.first, contents) == (OLD, 0, [b"1", b"2"])
    peer.layout = THREE
    await refuse(broker, frame)
    # In either order: they go to two partitions.
    found = [await published(broker, values) for _ in range(2)]
    by_partition = {each: (frame, contents) for frame, each, contents in found}
    assert {p: (f.first, contents) for p, (f, contents) in by_partition.items()} == {
        NEW: (0, [b"1"]),
        OLD: (0, [b"2"]),
    }
    await broker.send(frames.Published(by_partition[NEW][0].request, 40))
    await broker.send(frames.Published(by_partition[OLD][0].request, 9))
    assert [tuple(place) for place in await result] == [(NEW, 40), (OLD, 9)]
    assert producer.partition_of(GOES) == NEW


async def test_what_waits_for_its_answer_is_not_overtaken(peer, producer, values):
    """A new layout is known, and the old partition has not answered yet."""
    await producer.send(b"1", key=GOES)
    broker = await peer.producer()
    earlier, partition, _ = await published(broker, values)
    assert partition == OLD
    peer.layout = THREE
    while producer._sender._watch.queue_layout.layout.generation < 2:
        peer.was_asked.clear()
        producer._sender._watch.hurry()
        await peer.was_asked.wait()
    later = await producer.send(b"2", key=GOES)
    await producer.send(b"3", key=key_of((TWO, OTHER), (THREE, OTHER)))
    frame, partition, contents = await published(broker, values)
    assert (partition, contents) == (OTHER, [b"3"])
    await broker.send(frames.Published(frame.request, 0))
    await broker.send(frames.Published(earlier.request, 0))
    frame, partition, contents = await published(broker, values)
    assert (partition, frame.first, contents) == (NEW, 0, [b"2"])
    await broker.send(frames.Published(frame.request, 0))
    assert await later == (NEW, 0)


async def test_a_partition_that_is_not_open_yet_is_asked_again(peer, producer, values):
    peer.layout = THREE
    future = await producer.send(b"1", key=GOES)
    broker = await peer.producer()
    frame, _, _ = await published(broker, values)
    await refuse(broker, frame)
    for _ in range(2):
        frame, partition, contents = await published(broker, values)
        assert (partition, frame.first, contents) == (NEW, 0, [b"1"])
        refusal = frames.PublishRefused(frame.request, "not_stored", "opening", 1, -1)
        await broker.send(refusal)
    frame, _, _ = await published(broker, values)
    await broker.send(frames.Published(frame.request, 0))
    assert await future == (NEW, 0)


async def test_a_layout_that_is_older_is_no_way_back(peer, producer, values):
    peer.layout = THREE
    first = await producer.send(b"1", key=GOES)
    broker = await peer.producer()
    frame, _, _ = await published(broker, values)
    await refuse(broker, frame)
    frame, _, _ = await published(broker, values)
    await broker.send(frames.Published(frame.request, 0))
    await first
    peer.layout = TWO
    for _ in range(2):  # by a broker that has not read the change
        peer.was_asked.clear()
        producer._sender._watch.hurry()
        await peer.was_asked.wait()
    assert producer.partition_of(GOES) == NEW
    peer.layout = FIVE
    while producer._sender._watch.queue_layout.layout.generation < 3:
        peer.was_asked.clear()
        producer._sender._watch.hurry()
        await peer.was_asked.wait()
    assert producer.partition_of(GOES) == FIVE.partition_for(GOES)


@pytest.mark.parametrize("left", [TWO, THREE], ids=["none", "another change of its number"])
async def test_a_layout_that_all_brokers_go_back_to_is_followed(
    peer, producer, values, monkeypatch, left
):
    """The store has forgotten the change. The old partition knows numbers of the producer's id."""
    monkeypatch.setattr(layout_watch, "OLDER_S", 0.0)
    first = await producer.send(b"1", key=STAYS)
    broker = await peer.producer()
    earlier, _, _ = await published(broker, values)
    await broker.send(frames.Published(earlier.request, 0))
    await first
    for layout in (ONE, left):
        peer.layout = layout
        while producer._sender._watch.queue_layout.layout.table != layout.table:
            peer.was_asked.clear()
            producer._sender._watch.hurry()
            await peer.was_asked.wait()
    assert producer.partition_of(STAYS) == OLD
    future = await producer.send(b"2", key=STAYS)
    again = await peer.producer()
    assert again.first.producer != broker.first.producer
    frame, partition, contents = await published(again, values)
    assert (partition, frame.first, contents) == (OLD, 0, [b"2"])
    await again.send(frames.Published(frame.request, 1))
    assert await future == (OLD, 1)


async def test_a_refusal_asks_for_the_layout_at_once(peer, values, monkeypatch):
    """And not only when its turn comes."""
    monkeypatch.setattr(layout_watch, "REFRESH_S", 10 * WAIT_S)
    async with (
        asyncio.timeout(WAIT_S),
        Producer(peer.url, queue="orders", linger_ms=0, delivery_timeout_s=WAIT_S) as producer,
    ):
        future = await producer.send(b"1", key=GOES)
        broker = await peer.producer()
        frame, _, _ = await published(broker, values)
        for _ in range(2):  # the second is asked for once the first has been followed
            peer.was_asked.clear()
            producer._sender._watch.hurry()
            await peer.was_asked.wait()
        peer.layout = THREE
        await refuse(broker, frame)
        frame, partition, _ = await published(broker, values)
        assert partition == NEW
        await broker.send(frames.Published(frame.request, 0))
        assert await future == (NEW, 0)


async def test_all_partitions_may_be_replaced_by_one(peer, producer, values):
    """Two at once, of which one has lost its connection with a batch in doubt."""
    keys = [key_of((TWO, each)) for each in TWO.partitions()]
    futures = [await producer.send(key.encode(), key=key) for key in keys]
    broker = await peer.producer()
    for _ in keys:
        await published(broker, values)
    peer.layout = ONE
    await broker.drop()
    broker = await peer.producer()
    seen = [await published(broker, values) for _ in keys]
    assert sorted(partition for _, partition, _ in seen) == list(TWO.partitions())
    assert all(frame.first == 0 for frame, _, _ in seen)
    await broker.send(frames.Published(seen[0][0].request, 5))  # the first try was stored
    await refuse(broker, seen[1][0])
    frame, partition, contents = await published(broker, values)
    assert (partition, frame.first, contents) == (PartitionId(2, 0), 0, seen[1][2])
    await broker.send(frames.Published(frame.request, 0))
    places = {tuple(await future) for future in futures}
    assert places == {(seen[0][1], 5), (PartitionId(2, 0), 0)}
    sender = producer._sender
    assert list(sender._partition_senders) == list(sender._routes) == [PartitionId(2, 0)]
    assert list(sender._connection_of) == [PartitionId(2, 0)]


async def test_closing_waits_for_what_moves(peer, values):
    async with asyncio.timeout(WAIT_S):
        producer = Producer(peer.url, queue="orders", linger_ms=0, delivery_timeout_s=WAIT_S)
        await producer.__aenter__()
        future = await producer.send(b"1", key=GOES)
        broker = await peer.producer()
        frame, _, _ = await published(broker, values)
        closing = asyncio.create_task(producer.close())
        peer.layout = THREE
        await refuse(broker, frame)
        frame, _, _ = await published(broker, values)
        await broker.send(frames.Published(frame.request, 0))
        await closing
        assert await future == (NEW, 0)


async def test_a_refusal_that_the_layout_does_not_explain_is_tried_again(peer, producer, values):
    """A broker is ahead of the one that was asked for the layout."""
    future = await producer.send(b"1", key=GOES)
    broker = await peer.producer()
    for _ in range(2):
        frame, partition, _ = await published(broker, values)
        assert partition == OLD
        await refuse(broker, frame)
    frame, _, _ = await published(broker, values)
    await broker.send(frames.Published(frame.request, 3))
    assert await future == (OLD, 3)


async def test_a_producer_of_a_given_id_asks_how_far_it_is_before_it_goes_on(peer, values):
    """Nothing has changed, so it sends the same again."""
    async with (
        asyncio.timeout(WAIT_S),
        Producer(
            peer.url, queue="orders", linger_ms=0, delivery_timeout_s=WAIT_S, producer_id="job"
        ) as producer,
    ):
        future = await producer.send(b"1", key=GOES)
        broker = await peer.producer()
        for _ in range(2):
            frame, partition, contents = await published(broker, values)
            assert (partition, frame.first, contents) == (OLD, 0, [b"1"])
            await refuse(broker, frame)
        frame, _, _ = await published(broker, values)
        await broker.send(frames.Published(frame.request, 3))
        assert await future == (OLD, 3)
