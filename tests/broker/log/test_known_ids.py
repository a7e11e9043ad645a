"""Messages whose id is known are not stored, whichever way they come."""

import asyncio

import pytest
from redis import Redis

from partq.broker.operations.gauges import render_metrics
from partq.core.hashing import slot_of
from partq.core.model import PartitionId
from partq.core.numbering.message_ids import id_digest
from partq.embedded.provision import provision
from partq.errors import StoreUnavailableError
from partq.wire import frames
from tests.broker.conftest import UID, make_batch, open_producer, queue_and_group

P = PartitionId(1, 0)
MESSAGES = "/v1/queues/orders/messages"
MAX_IDS = 1000
WINDOW_S = 600


@pytest.fixture
def resources():
    return queue_and_group(
        duplicateDetection={"windowSeconds": WINDOW_S, "maxIdsPerPartition": MAX_IDS}
    )


@pytest.fixture
def redis(redis_server):
    with Redis.from_url(redis_server.url) as client:
        yield client


@pytest.fixture
def send(running, peers):
    """Publish by plain HTTP; return the status, and the offset or the code of the error."""

    async def send(message_id=None, *, partition=0, value="v", **headers):
        body = {"key": peers.key_of(partition), "value": value}
        if message_id is not None:
            body["message_id"] = message_id
        status, answer = await running.call(
            "POST", MESSAGES, token=peers.PRODUCE, json=body, headers=headers
        )
        if "error" in answer:
            return status, answer["error"]["code"]
        return status, answer["offset"], answer.get("is_duplicate", False)

    return send


def fill(redis, running, count):
    """Have partition 1.0 know ids, as if they had just come."""
    now_s, now_us = redis.time()
    now_ms = now_s * 1000 + now_us // 1000
    ids = {bytes.fromhex(id_digest(f"old-{n}")): now_ms for n in range(count)}
    redis.zadd(running.broker.keys.ids(P), ids)


def age(redis, running):
    """Have all ids of partition 1.0 be known for longer than the window."""
    key = running.broker.keys.ids(P)
    known = redis.zrange(key, 0, -1, withscores=True)
    redis.zadd(key, {member: score - WINDOW_S * 1000 - 1 for member, score in known})


@pytest.mark.req("AZR-29")
async def test_a_known_id_is_not_stored(send, running):
    assert await send("a") == (201, 0, False)
    assert await send("a", value="other") == (200, None, True)
    assert await send("b") == (201, 1, False)
    assert await send() == (201, 2, False)
    assert await send("a", partition=1) == (201, 0, False), "another key is another message"
    assert (await running.broker.partitions.read(P)).next == 3


async def test_copies_that_come_at_once(send):
    """Whoever is first is stored, and all others learn that they are not."""
    found = await asyncio.gather(*(send("a") for _ in range(20)))
    assert sorted(found, key=str) == [(200, None, True)] * 19 + [(201, 0, False)]


async def test_messages_of_an_array(running, peers):
    key = peers.key_of(0)
    body = [
        {"key": key, "value": "0"},
        {"key": key, "value": "1", "message_id": "a"},
        {"key": key, "value": "2", "message_id": "a"},
        {"key": key, "value": "3"},
        {"key": key, "value": "4"},
        {"key": key, "value": "5", "message_id": "b"},
    ]
    status, answer = await running.call("POST", MESSAGES, token=peers.PRODUCE, json=body)
    assert status == 201
    places = [(each["offset"], each.get("is_duplicate", False)) for each in answer["results"]]
    assert places == [(0, False), (1, False), (None, True), (2, False), (3, False), (4, False)]
    status, answer = await running.call(
        "POST", MESSAGES, token=peers.PRODUCE, json=body, headers={"MessageId": "a"}
    )
    assert (status, answer["error"]["code"]) == (400, "bad_request")
    body = [{"value": "v", "message_id": str(n)} for n in range(1001)]
    status, answer = await running.call("POST", MESSAGES, token=peers.PRODUCE, json=body)
    assert (status, answer["error"]["code"]) == (413, "batch_too_large")


async def test_numbers_of_messages_with_ids(send):
    """A known id uses up its number, and a repeat has the same answer."""
    numbered = {"Partq-Producer": "p"}
    assert await send("a") == (201, 0, False)
    assert await send("a", **numbered, **{"Partq-Sequence": "0"}) == (200, None, True)
    assert await send("b", **numbered, **{"Partq-Sequence": "1"}) == (201, 1, False)
    assert await send("a", **numbered, **{"Partq-Sequence": "0"}) == (200, None, True)
    assert await send("b", **numbered, **{"Partq-Sequence": "1"}) == (200, 1, True)
    assert await send("c", **numbered, **{"Partq-Sequence": "3"}) == (409, "out_of_sequence")
    assert await send("c") == (201, 2, False), "its id was not entered"


async def test_a_producer_of_batches(running, send):
    """As the library does: the broker says that the id was known, also to a repeat."""
    assert await send("a") == (201, 0, False)
    producer = await open_producer(running)

    async def publish(request, first, digest, values=("x",)):
        frame = frames.Publish(request, 1, 0, first, message_id=digest)
        await producer.send(frame, make_batch(values))
        return (await producer.receive())[0]

    known = id_digest("a")
    assert await publish(1, 0, known) == frames.Published(1, -1, True, is_known=True)
    assert await publish(2, 1, id_digest("b")) == frames.Published(2, 1)
    assert await publish(3, 0, known) == frames.Published(3, -1, True, is_known=True)
    assert await publish(4, 1, id_digest("b")) == frames.Published(4, 1, True)
    refused = await publish(5, 2, known, ("x", "y"))
    assert (refused.code, "expected a batch of one" in refused.message) == ("bad_request", True)
    refused = await publish(6, 2, "no digest")
    assert (refused.code, "32 hexadecimal digits" in refused.message) == ("bad_request", True)


async def test_when_too_many_are_known(send, running, redis, peers):
    """Nothing is forgotten early: a new id is refused until the oldest is over."""
    fill(redis, running, MAX_IDS)
    assert await send("old-7") == (200, None, True)
    body = {"key": peers.key_of(0), "value": "v", "message_id": "new"}
    status, answer = await running.call("POST", MESSAGES, token=peers.PRODUCE, json=body)
    assert (status, answer["error"]["code"]) == (429, "quota_exceeded")
    assert 1000 < answer["error"]["retry_after_ms"] <= WINDOW_S * 1000
    assert "duplicateDetection.maxIdsPerPartition" in answer["error"]["message"]
    producer = await open_producer(running)
    await producer.send(frames.Publish(1, 1, 0, 0, message_id=id_digest("new")), make_batch(["x"]))
    refused = (await producer.receive())[0]
    assert (refused.code, refused.due) == ("quota_exceeded", 0)
    assert 1000 < refused.retry_after_ms <= WINDOW_S * 1000
    assert await send() == (201, 0, False), "what has no id is not touched"
    assert await send("new", partition=1) == (201, 0, False), "nor another partition"
    age(redis, running)
    assert await send("new") == (201, 1, False)
    assert await send("old-7") == (201, 2, False), "it was known for long enough"


async def test_old_ids_are_forgotten_while_nobody_publishes(send, running, redis):
    fill(redis, running, 2500)
    await running.broker.trimmer.trim()
    assert running.broker.owned[P].ids.count == 2500
    assert "partq_known_ids{" in render_metrics(running.broker).decode()
    age(redis, running)
    assert await send("a") == (201, 0, False)
    await running.broker.trimmer.trim()
    assert redis.zcard(running.broker.keys.ids(P)) == 1, "in several calls of one look"
    assert (await running.broker.partitions.read(P)).known_ids == 1


async def test_ids_end_with_the_detection(send, running, redis, store, resources):
    """Without it an id is a header, and what was known is no more."""
    assert await send("a") == (201, 0, False)
    await running.broker.trimmer.trim()
    queue = resources.queues[0]
    spec = queue.spec.model_copy(update={"duplicate_detection": None})
    await provision(store, queue.model_copy(update={"spec": spec}), resources, uid=UID)
    await running.broker.refresh()
    assert await send("a") == (201, 1, False)
    await running.broker.trimmer.trim()
    assert not redis.exists(running.broker.keys.ids(P))
    assert not redis.hexists(running.broker.keys.meta(P), "ids")
    assert "partq_known_ids{" not in render_metrics(running.broker).decode()


async def test_an_id_that_nobody_can_judge_is_refused(send, running, peers, monkeypatch):
    """A predecessor does not answer: what has no id is stored, the rest is tried again."""

    async def unanswered(*_):
        raise StoreUnavailableError("no answer")

    owned = running.broker.owned[P]
    monkeypatch.setattr(owned.appender, "_adopt_ids", unanswered)
    assert await send("a") == (503, "not_stored")
    assert await send() == (201, 0, False)
    monkeypatch.undo()
    assert await send("a") == (201, 1, False)


def test_digests_and_slots_stay():
    """They are in the store, and clients of other languages compute them."""
    assert id_digest("order-17/paid") == "87e733b787e16a774c252f010af571af"
    assert slot_of("order-17/paid") == 57668
