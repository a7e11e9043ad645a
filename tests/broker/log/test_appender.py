"""Publishing over a WebSocket: numbers of producers, the appender."""

import asyncio
import gc
from itertools import count

import pytest

from partq.broker.api.routes.publish_socket import ProducerConnection
from partq.errors import QuotaExceededError, StoreUnavailableError
from partq.testing.frame_peers import make_batch
from partq.wire import frames
from partq.wire.batch import read_outline

NONCES = count(1)


async def outcome(producer, first, *values):
    """Offer a batch; return its code, or "stored" or "duplicate", with the offset or due number."""
    await producer.offer(first, *values)
    answer, _ = await producer.expect((frames.Published, frames.PublishRefused))
    if isinstance(answer, frames.PublishRefused):
        return answer.code, answer.due
    return ("duplicate" if answer.is_duplicate else "stored"), answer.offset


async def answered_at_once(producer):
    """Return the next answer, which is that to this ping if nothing before it was answered."""
    nonce = next(NONCES)
    await producer.send(frames.Ping(nonce))
    while True:
        answer, _ = await producer.receive()
        if answer == frames.Pong(nonce) or isinstance(answer, frames.PublishRefused):
            return answer


# ---- numbers ------------------------------------------------------------------------------------


@pytest.mark.req("PUL-08", "PUL-11")
async def test_messages_are_numbered_by_their_producer(running, peers):
    """What is known is a duplicate, in its place; what is not due is refused with what is."""
    producer = await peers.open_producer(running)
    assert await outcome(producer, 5, "x") == ("unknown_producer", -1)
    assert await outcome(producer, 0, "a", "b", "c") == ("stored", 0)
    assert await outcome(producer, 0, "a", "b", "c") == ("duplicate", 0)
    assert await outcome(producer, 1, "b") == ("duplicate", 1)
    assert await outcome(producer, 2, "c", "d") == ("resend_from", 3)
    assert await outcome(producer, 4, "e") == ("out_of_sequence", 3)
    assert await outcome(producer, 3, "d") == ("stored", 3)
    other = await peers.open_producer(running, "q")
    assert await outcome(other, 0, "z") == ("stored", 4)
    for number in range(4, 10):
        assert (await outcome(producer, number, "x"))[0] == "stored"
    assert await outcome(producer, 0, "a", "b", "c") == ("duplicate", -1)  # too old to know where


async def test_a_producer_that_comes_back_asks_what_is_due(running, peers):
    producer = await peers.open_producer(running)
    await producer.publish("a", "b")
    await producer.publish("c", partition=2)
    path = "/v1/queues/orders/producers/p"
    status, answer = await running.call("GET", path, token=peers.PRODUCE)
    assert status == 200
    assert answer == {"due": {"1.0": 2, "1.1": 0, "1.2": 1, "1.3": 0}, "unavailable": []}


async def test_a_producer_sees_what_its_last_batches_look_like(running, peers):
    producer = await peers.open_producer(running)
    await producer.publish("a", "b")
    await producer.publish("c", "dd", "e")
    path = "/v1/queues/orders/producers/p?outlines=true"
    _, answer = await running.call("GET", path, token=peers.PRODUCE)
    found = answer["outlines"]
    stored = await running.broker.log.read(peers.partition_id(0), 2, max_bytes=1, max_entries=1)
    crc = read_outline(stored[0].data)
    assert found == {"1.0": {"first": 2, "count": 3, "crc32c": crc}}
    status, answer = await running.call("GET", path.replace("true", "1"), token=peers.PRODUCE)
    assert (status, answer["error"]["code"]) == (400, "bad_request")


async def test_a_producer_may_have_five_batches_on_their_way(running, peers):
    """A sixth is refused at once, and stored when it comes again."""
    appends = peers.Gate(running.broker.log, "append")
    producer = await peers.open_producer(running)
    for number in range(6):
        await producer.offer(number, str(number))
    refused = await answered_at_once(producer)
    assert isinstance(refused, frames.PublishRefused), "six are on their way"
    assert (refused.request, refused.code) == (5, "not_stored"), "a repeat may pass"
    appends.opened.set()
    for number in range(5):
        published, _ = await producer.expect(frames.Published)
        assert (published.request, published.offset) == (number, number)
    assert await outcome(producer, 5, "5") == ("stored", 5)


async def test_batches_that_are_refused_at_once_change_no_count(running, peers):
    """Neither lets one more on its way, nor is a partition that does not exist remembered."""
    appends = peers.Gate(running.broker.log, "append")
    producer = await peers.open_producer(running)
    await producer.offer(0, "0")
    for number in range(10):
        bad_age = frames.Publish(100 + number, 1, 0, 1, 0, -1)
        elsewhere = frames.Publish(200 + number, 1, 1000 + number, 0, 0, 0)
        for frame in (bad_age, elsewhere):
            await producer.send(frame, make_batch(["x"], "key"))
            refused, _ = await producer.expect(frames.PublishRefused)
            assert refused.request == frame.request
    for number in range(1, 6):
        await producer.offer(number, str(number))
    refused = await answered_at_once(producer)
    assert isinstance(refused, frames.PublishRefused), "six are on their way"
    assert "5 batches of partition 1.0 are without an answer" in refused.message
    appends.opened.set()
    for _ in range(5):
        await producer.expect(frames.Published)
    connections = [each for each in gc.get_objects() if type(each) is ProducerConnection]
    assert connections
    assert not any(each._in_flight for each in connections)


async def test_a_producer_that_repeats_all_before_the_answers_loses_and_doubles_nothing(
    running, peers
):
    """As the library does after a `Moved`: the refusals of the repeats are not final."""
    appends = peers.Gate(running.broker.log, "append")
    producer = await peers.open_producer(running)
    for number in range(5):
        await producer.offer(number, str(number))
    for number in range(5):
        await producer.offer(number, str(number))
        refused = await answered_at_once(producer)
        assert isinstance(refused, frames.PublishRefused)
        assert refused.code == "not_stored"
    appends.opened.set()
    for _ in range(5):
        await producer.expect(frames.Published)
    assert [(await outcome(producer, number, str(number)))[0] for number in range(5)] == [
        "duplicate"
    ] * 5


async def test_a_partition_that_is_elsewhere_is_answered_with_its_broker(
    running, peers, start_broker
):
    other = await start_broker("orders-1")
    await running.admin("/yield", {"partitions": ["1.0"]})
    producer = await peers.open_producer(running)
    await producer.offer(0, "a")
    moved, _ = await producer.expect(frames.Moved)
    assert (moved.generation, moved.partition, moved.broker, moved.url) == (1, 0, "", "")
    await other.admin("/claim", {"partitions": ["1.0"]})
    await peers.eventually(
        lambda: running.broker.claims.owner_url(peers.partition_id(0)), "the owner is known"
    )
    await producer.offer(0, "a")
    moved, _ = await producer.expect(frames.Moved)
    assert (moved.broker, moved.url) == ("orders-1", other.url)


# ---- the appender -------------------------------------------------------------------------------


@pytest.mark.req("SOL-03")
async def test_batches_of_many_producers_at_once_land_once_and_in_order(running, peers):
    """Each producer's in its order, whatever calls the appender makes of them."""
    await running.assign("m", [0])
    flow = await peers.open_flow(running, "m", credit=1000)
    producers = [await peers.open_producer(running, f"p{n}") for n in range(8)]

    async def work(name, producer):
        for first in range(0, 20, 2):
            await producer.publish(f"{name}-{first}", f"{name}-{first + 1}")

    await asyncio.gather(*(work(at, producer) for at, producer in enumerate(producers)))
    values = await flow.take(160)
    for name in range(8):
        mine = [value for value in values if value.startswith(f"{name}-")]
        assert mine == [f"{name}-{number}" for number in range(20)]


async def test_an_append_whose_answer_is_lost_is_stored_once(running, peers):
    log = running.broker.log
    append, calls = log.append, []

    async def lose_first(*args, **kwargs):
        appended = await append(*args, **kwargs)
        calls.append(kwargs["number"])
        if len(calls) == 1:
            raise StoreUnavailableError("the answer is lost")
        return appended

    log.append = lose_first
    producer = await peers.open_producer(running)
    assert await producer.publish("a") == 0
    assert await producer.publish("b") == 1
    assert calls == [0, 0, 1]


async def test_an_append_in_doubt_on_a_full_redis_is_not_mixed_up(running, peers):
    """The next call must not get the answer of the one that nobody knows the outcome of."""
    log = running.broker.log
    append, outcomes = log.append, [StoreUnavailableError("lost"), full(), None]

    async def fail(*args, **kwargs):
        appended = await append(*args, **kwargs)
        error = outcomes.pop(0) if outcomes else None
        if error is not None:
            raise error
        return appended

    log.append = fail
    producer = await peers.open_producer(running)
    assert await outcome(producer, 0, "a") == ("outcome_unknown", -1)
    await peers.eventually(lambda: peers.partition_id(0) in running.broker.owned, "claimed again")
    assert await outcome(producer, 0, "a") == ("duplicate", 0)
    assert await outcome(producer, 1, "b") == ("stored", 1)


def full():
    return QuotaExceededError("full")


async def test_an_append_on_a_full_redis_is_refused_and_may_come_again(running, peers):
    log = running.broker.log
    append, outcomes = log.append, [full()]

    async def fail_first(*args, **kwargs):
        if outcomes:
            raise outcomes.pop()
        return await append(*args, **kwargs)

    log.append = fail_first
    producer = await peers.open_producer(running)
    assert await outcome(producer, 0, "a") == ("quota_exceeded", -1)
    assert await outcome(producer, 0, "a") == ("stored", 0)
