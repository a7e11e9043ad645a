"""The producer against a scripted peer: what it sends after which answer, on a real socket."""

import asyncio

import pytest

from partq import (
    Message,
    MessageTooLargeError,
    NotStoredError,
    OutcomeUnknownError,
    PartitionId,
    Producer,
    SettingsError,
    UnauthorizedError,
)
from partq.client.transport.liveness import boot_time
from partq.core.hashing import partition_index, slot_of
from partq.wire import frames

KEYS = {0: "k0", 1: "k1"}
"""A key of each of the peer's two partitions."""
while partition_index(slot_of(KEYS[0]), 2) != 0:
    KEYS[0] += "x"
while partition_index(slot_of(KEYS[1]), 2) != 1:
    KEYS[1] += "x"


@pytest.fixture
async def producer(peer):
    async with Producer(
        peer.url, queue="orders", linger_ms=0, max_batch_count=2, delivery_timeout_s=60
    ) as producer:
        yield producer


async def take(connection, count):
    """Take so many batches; return (request, first, partition, payload) of each."""
    batches = []
    for _ in range(count):
        frame, payload = await connection.next_with_payload(frames.Publish)
        batches.append((frame.request, frame.first, frame.partition, payload))
    return batches


async def send(producer, *contents, key=KEYS[0]):
    return [await producer.send(content, key=key) for content in contents]


@pytest.mark.req("AZR-17")
async def test_a_message_is_stored_where_the_broker_says(peer, producer, values):
    (future,) = await send(producer, b"a")
    broker = await peer.producer()
    [(request, first, partition, payload)] = await take(broker, 1)
    assert (first, partition, values(payload)) == (0, 0, [b"a"])
    await broker.send(frames.Published(request, 17))
    assert await future == (PartitionId(1, 0), 17)


async def test_a_list_is_one_future_in_its_order(peer, producer):
    keys = [KEYS[1], KEYS[0], KEYS[1]]
    future = await producer.send_many([Message(key, b"v") for key in keys])
    broker = await peer.producer()
    for request, _, partition, _ in await take(broker, 2):
        await broker.send(frames.Published(request, 10 * (partition + 1)))
    positions = await future
    assert [(p.partition.index, p.offset) for p in positions] == [(1, 20), (0, 10), (1, 21)]


async def test_a_lost_connection_repeats_the_unanswered_batches_byte_by_byte(peer, producer):
    futures = await send(producer, b"a", b"b", b"c", b"d")
    broker = await peer.producer()
    before = await take(broker, 2)
    await broker.drop()
    broker = await peer.producer()
    again = await take(broker, 2)
    assert [batch[1:] for batch in again] == [batch[1:] for batch in before]
    await broker.send(frames.Published(again[0][0], 5, True), frames.Published(again[1][0], 7))
    assert [(await future).offset for future in futures] == [5, 6, 7, 8]


async def test_a_moved_partition_goes_on_at_its_new_broker_in_order(peer, other_peer, producer):
    futures = await send(producer, b"a", b"b", b"c", b"d")
    broker = await peer.producer()
    before = await take(broker, 2)
    moved = frames.Moved(1, 0, "broker-1", other_peer.url)
    await broker.send(moved, moved)  # one for each batch
    new_broker = await other_peer.producer()
    assert new_broker.first.producer == broker.first.producer
    again = await take(new_broker, 2)
    assert [batch[1:] for batch in again] == [batch[1:] for batch in before]
    for request, first, _, _ in again:
        await new_broker.send(frames.Published(request, first))
    assert [(await future).offset for future in futures] == [0, 1, 2, 3]
    assert broker.is_quiet()


async def test_a_partition_without_an_owner_waits_for_one(peer, producer):
    (future,) = await send(producer, b"a")
    broker = await peer.producer()
    await take(broker, 1)
    await broker.send(frames.Moved(1, 0, "", ""))
    [(request, first, _, _)] = await take(broker, 1)  # the layout says: the same broker, again
    assert first == 0
    await broker.send(frames.Published(request, 3))
    assert (await future).offset == 3


async def test_a_refused_batch_is_repeated_before_the_later_ones(peer, producer, values):
    await send(producer, b"a", b"b", b"c", b"d")
    broker = await peer.producer()
    (one, *_), (two, *_) = await take(broker, 2)
    await broker.send(
        frames.PublishRefused(one, "not_stored", "redis is away"),
        frames.PublishRefused(two, "out_of_sequence", "wait", due=0),
    )
    again = await take(broker, 2)
    assert [(first, values(data)) for _, first, _, data in again] == [
        (0, [b"a", b"b"]),
        (2, [b"c", b"d"]),
    ]
    for request, first, _, _ in again:
        await broker.send(frames.Published(request, first))
    await producer.flush()


async def test_a_final_refusal_fails_its_messages_only(peer, producer, values):
    *lost, kept = await send(producer, b"a", b"b", b"c")
    broker = await peer.producer()
    (one, *_), (two, *_) = await take(broker, 2)
    await broker.send(
        frames.PublishRefused(one, "message_too_large", "too large"),
        frames.PublishRefused(two, "out_of_sequence", "wait", due=0),
    )
    [(request, first, _, data)] = await take(broker, 1)
    assert (first, values(data)) == (0, [b"c"])
    await broker.send(frames.Published(request, 0))
    assert (await kept).offset == 0
    for future in lost:
        with pytest.raises(MessageTooLargeError):
            await future


async def test_an_unknown_producer_takes_a_new_id(peer, producer):
    (first,) = await send(producer, b"a")
    broker = await peer.producer()
    [(request, *_)] = await take(broker, 1)
    await broker.send(frames.Published(request, 0))
    await first
    (second,) = await send(producer, b"b")
    [(request, number, _, _)] = await take(broker, 1)
    assert number == 1
    await broker.send(frames.PublishRefused(request, "unknown_producer", "idle for too long"))
    renewed = await peer.producer()
    assert renewed.first.producer != broker.first.producer
    [(request, number, _, _)] = await take(renewed, 1)
    assert number == 0
    await renewed.send(frames.Published(request, 1))
    assert (await second).offset == 1


async def test_a_silent_broker_is_left_when_its_lease_is_over(peer, producer):
    (future,) = await send(producer, b"a")
    silent = await peer.raw_producer()
    silent.answers_pings = False
    await silent.send(frames.ProducerWelcome("broker-0", 100, 10_000, 5))
    await take(silent, 1)
    broker = await peer.producer()
    [(request, *_)] = await take(broker, 1)
    await broker.send(frames.Published(request, 0))
    assert (await future).offset == 0


async def test_no_answer_in_time_is_an_unknown_outcome(peer):
    ahead_s = 0.0
    async with Producer(
        peer.url,
        queue="orders",
        linger_ms=0,
        delivery_timeout_s=60,
        clock=lambda: boot_time() + ahead_s,
    ) as producer:
        (future,) = await send(producer, b"a")
        broker = await peer.producer()
        await take(broker, 1)
        ahead_s = 60.0
        with pytest.raises(OutcomeUnknownError):
            await future


async def test_a_broker_that_is_back_under_its_old_url_is_used_again(peer, producer):
    (future,) = await send(producer, b"a")
    broker = await peer.producer()
    await take(broker, 1)
    peer.owners = {}  # its lease is over
    await broker.drop()
    for _ in range(2):  # a second time: the first answer has been taken up by then
        peer.was_asked.clear()
        async with asyncio.timeout(60):
            await peer.was_asked.wait()
    broker = await peer.producer()
    peer.owners = None
    [(request, first, *_)] = await take(broker, 1)
    assert first == 0
    await broker.send(frames.Published(request, 5))
    assert (await future).offset == 5


async def test_without_an_owner_in_time_it_is_not_stored(peer):
    peer.owners = {}
    async with Producer(peer.url, queue="orders", linger_ms=0, delivery_timeout_s=0.2) as producer:
        (future,) = await send(producer, b"a")
        with pytest.raises(NotStoredError):
            await future


async def test_send_waits_when_too_much_is_pending(peer):
    async with Producer(
        peer.url, queue="orders", linger_ms=0, max_pending_messages=1, delivery_timeout_s=60
    ) as producer:
        (first,) = await send(producer, b"a")
        second = asyncio.create_task(producer.send(b"b", key=KEYS[0]))
        broker = await peer.producer()
        [(request, *_)] = await take(broker, 1)
        assert not second.done()
        await broker.send(frames.Published(request, 0))
        await first
        future = await second
        [(request, *_)] = await take(broker, 1)
        await broker.send(frames.Published(request, 1))
        assert (await future).offset == 1


@pytest.mark.req("PUL-67", "PUL-68", "PUL-78")
@pytest.mark.parametrize(
    ("linger_ms", "max_batch_count", "sizes"),
    [
        pytest.param(10_000, 2, [2, 2], id="full, long before the delay is over"),
        pytest.param(20, 100, [5], id="the delay is over, long before it is full"),
    ],
)
async def test_a_batch_leaves_when_it_is_full_or_has_waited_enough(
    peer, values, linger_ms, max_batch_count, sizes
):
    async with Producer(
        peer.url, queue="orders", linger_ms=linger_ms, max_batch_count=max_batch_count,
        delivery_timeout_s=60,
    ) as producer:  # fmt: skip
        future = await producer.send_many([Message(KEYS[0], b"v") for _ in range(5)])
        broker = await peer.producer()
        taken = await take(broker, len(sizes))
        assert [len(values(payload)) for *_, payload in taken] == sizes
        closing = asyncio.create_task(producer.close())
        taken += await take(broker, int(sum(sizes) < 5))
        for request, first, *_ in taken:
            await broker.send(frames.Published(request, first))
        await closing
        assert [position.offset for position in await future] == list(range(5))


async def test_closing_flushes(peer):
    producer = await Producer(peer.url, queue="orders", linger_ms=10_000).__aenter__()
    (future,) = await send(producer, b"a")
    broker = await peer.producer()
    closing = asyncio.create_task(producer.close())
    [(request, *_)] = await take(broker, 1)
    await broker.send(frames.Published(request, 4))
    await closing
    assert (await future).offset == 4
    with pytest.raises(RuntimeError, match="was closed"):
        await producer.send(b"b")


async def test_a_deterministic_producer_goes_on_from_what_is_known(peer):
    peer.due = {"1.0": 40}
    async with Producer(
        peer.url, queue="orders", producer_id="replay-7", linger_ms=0, delivery_timeout_s=60
    ) as producer:
        assert await producer.due() == {PartitionId(1, 0): 40, PartitionId(1, 1): 0}
        assert producer.partition_of(KEYS[1]) == (1, 1)
        (future,) = await send(producer, b"a")
        broker = await peer.producer()
        assert broker.first.producer == "replay-7"
        [(request, first, _, _)] = await take(broker, 1)
        assert first == 40
        await broker.send(frames.Published(request, 40))
        await future


async def test_a_deterministic_producer_gives_no_number_to_another_message(peer):
    async with Producer(
        peer.url, queue="orders", producer_id="replay-7", linger_ms=0, max_batch_count=1
    ) as producer:
        futures = [await producer.send(value, key=KEYS[0]) for value in (b"a", b"b")]
        broker = await peer.producer(max_in_flight=1)
        [(request, *_)] = await take(broker, 1)
        await broker.send(frames.PublishRefused(request, "message_too_large", "too large"))
        for future in futures:
            with pytest.raises(MessageTooLargeError):
                await future
        with pytest.raises(MessageTooLargeError):
            await (await producer.send(b"c", key=KEYS[0]))
        assert broker.is_quiet()


async def test_messages_are_checked_before_anything_is_taken(peer, producer):
    with pytest.raises(MessageTooLargeError):
        await producer.send(b"x" * 10_001)
    with pytest.raises(MessageTooLargeError):
        await producer.send_many([Message(None, b"fine"), Message(None, b"x" * 10_001)])
    await producer.flush()  # nothing is pending


async def test_a_broker_that_refuses_the_connection_for_good_stops_the_producer(peer, producer):
    (future,) = await send(producer, b"a")
    broker = await peer.raw_producer()
    await broker.send(frames.Failed("unauthorized", "the token was rotated away"))
    with pytest.raises(UnauthorizedError):
        await future
    with pytest.raises(UnauthorizedError):
        await producer.send(b"b")


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "127.0.0.1:7411"},
        {"url": ""},
        {"linger_ms": -1},
        {"max_batch_count": 0},
        {"max_batch_bytes": 2**30},
        {"compression": "gzip"},
        {"delivery_timeout_s": 0},
        {"producer_id": ""},
        {"producer_id": "two\nlines"},
    ],
)
def test_unusable_settings_are_refused(settings):
    with pytest.raises(SettingsError):
        Producer(**{"url": "http://127.0.0.1:7411", "queue": "orders", **settings})
