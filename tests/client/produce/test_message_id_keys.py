"""Ids of messages and their keys: the same rules in Python and over plain HTTP."""

import asyncio
from dataclasses import dataclass, field

import pytest
from aiohttp import ClientSession

from partq import (
    BadRequestError,
    Consumer,
    KeyConflictError,
    Message,
    Producer,
    ProducerInterceptor,
    UnsupportedError,
)
from partq.core.hashing import slot_of
from partq.sync import Producer as BlockingProducer
from partq.testing.local_broker import LocalBroker

WAIT_S = 60.0


@dataclass(frozen=True)
class Case:
    """What a publisher gives, and what becomes of it."""

    id: str
    message_id: str | None = None
    session_id: str | None = None
    partition_key: str | None = None
    key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    """Of the message, not of the request."""
    place: str | None = None
    """What says in which partition it is; None: nothing does."""
    stored: str | None = None
    """The key that a consumer reads."""
    read: dict[str, str] = field(default_factory=dict)
    """The headers that a consumer reads."""
    refused: type[BadRequestError] | None = None
    told: tuple[str, ...] = ()
    """What the error names."""


BOTH = (
    Case("no key and no id"),
    Case("a session's id beside the id", message_id="m-1", session_id="a", place="a", stored="a",
         read={"message-id": "m-1"}),
    Case("a partition key beside the id", message_id="m-2", partition_key="a", place="a",
         stored="a", read={"message-id": "m-2"}),
    Case("a key beside the id", message_id="m-3", key="a", place="a", stored="a",
         read={"message-id": "m-3"}),
    Case("keys that agree beside another id", message_id="m-4", session_id="a", partition_key="a",
         key="a", place="a", stored="a", read={"message-id": "m-4"}),
    Case("the empty string is a key", message_id="m-5", key="", place="", stored="",
         read={"message-id": "m-5"}),
    Case("keys that differ", message_id="m-6", session_id="a", partition_key="b",
         refused=KeyConflictError, told=("is a", "is b")),
    Case("a key that differs from the session", message_id="m-7", session_id="a", key="b",
         refused=KeyConflictError, told=("is a", "key is b")),
    Case("headers stay", message_id="m-8", key="a", headers={"x": "y"}, place="a", stored="a",
         read={"x": "y", "message-id": "m-8"}),
    Case("a header that repeats the id", message_id="m-9", key="a",
         headers={"message-id": "m-9"}, place="a", stored="a", read={"message-id": "m-9"}),
    Case("a header with another id", message_id="m-10", headers={"message-id": "other"},
         refused=BadRequestError, told=("message-id is other", "message_id is m-10")),
    Case("an id in a header is a header", key="a", headers={"message-id": "x"}, place="a",
         stored="a", read={"message-id": "x"}),
    Case("the longest id", message_id="x" * 128, key="a", place="a", stored="a",
         read={"message-id": "x" * 128}),
    Case("an id that is too long", message_id="x" * 129, refused=BadRequestError,
         told=("129 characters", "1 to 128")),
    Case("an empty id", message_id="", refused=BadRequestError, told=("0 characters",)),
)  # fmt: skip
"""Whether or not the queue knows ids."""
KNOWING = (
    *BOTH,
    *(Case(f"the id is the place: {name}", message_id=name, place=name, read={"message-id": name})
      for name in ("i-1", "i-2", "i-3", "i-4", "é")),
)  # fmt: skip
UNKNOWING = (
    *BOTH,
    *(Case(f"the id is no key {n}", message_id="same", read={"message-id": "same"})
      for n in range(16)),
)  # fmt: skip


async def by_python(local, case):
    """Return what became of a message: its partition, or the error."""
    try:
        position = await local.producer.send_and_wait(
            case.id.encode(),
            key=case.key,
            session_id=case.session_id,
            partition_key=case.partition_key,
            headers=case.headers or None,
            message_id=case.message_id,
        )
    except BadRequestError as error:
        return error.code, error.message
    return str(position.partition)


async def by_header(local, case):
    """Return the same, of plain HTTP with the names in headers of the request."""
    names = {
        "SessionId": case.session_id,
        "PartitionKey": case.partition_key,
        "MessageId": case.message_id,
    }
    body = {"key": case.key, "value": case.id, "headers": case.headers}
    return await local.post(body, {k: v for k, v in names.items() if v is not None})


async def by_field(local, case):
    """Return the same, of plain HTTP with the id in the body."""
    names = {"SessionId": case.session_id, "PartitionKey": case.partition_key}
    body = {"key": case.key, "value": case.id, "headers": case.headers}
    if case.message_id is not None:
        body["message_id"] = case.message_id
    return await local.post(body, {k: v for k, v in names.items() if v is not None})


ROADS = (by_python, by_header, by_field)


@dataclass
class Publisher:
    """Publishes to a queue on each road."""

    local: LocalBroker
    producer: Producer
    http: ClientSession

    async def post(self, body, headers):
        url = f"{self.local.url.split(',')[0]}/v1/queues/orders/messages"
        headers = {"Authorization": f"Bearer {self.local.tokens.produce}", **headers}
        async with self.http.post(url, json=body, headers=headers) as response:
            answer = await response.json()
        if "error" in answer:
            return answer["error"]["code"], answer["error"]["message"]
        return answer["partition"]


async def read(local, count):
    """Return the key and the headers of so many messages, by their values."""
    found = {}
    url, token = local.url, local.tokens.consume
    async with Consumer(url, queue="orders", group="workers", token=token) as consumer:
        async for batch in consumer.batches():
            for each in batch.deliveries():
                found.setdefault(each.value.decode(), []).append((each.key, each.headers))
            consumer.ack_nowait(batch)
            if sum(map(len, found.values())) >= count:
                break
    return found


@pytest.mark.parametrize("road", ROADS, ids=lambda road: road.__name__)
@pytest.mark.parametrize("is_knowing", [True, False], ids=["detection", "no detection"])
@pytest.mark.req("AZR-21", "AZR-23", "AZR-24", "AZR-25", "AZR-27", "AZR-30")
async def test_ids_and_keys(is_knowing, road):
    spec = {"duplicateDetection": {"windowSeconds": 60}} if is_knowing else {}
    cases = KNOWING if is_knowing else UNKNOWING
    async with (
        asyncio.timeout(WAIT_S),
        LocalBroker(queue="orders", partitions=4, spec=spec) as local,
        Producer(local.url, queue="orders", token=local.tokens.produce) as producer,
        ClientSession() as http,
    ):
        publisher = Publisher(local, producer, http)
        outcomes = [await road(publisher, case) for case in cases]
        stored = [case for case in cases if case.refused is None]
        found = await read(local, len(stored))
        layout = producer._sender._watch.queue_layout.layout
    free = []
    for case, outcome in zip(cases, outcomes, strict=True):
        if case.refused is not None:
            code, message = outcome
            assert code == case.refused.code, (case.id, outcome)
            assert all(told in message for told in case.told), (case.id, message)
        elif case.place is not None:
            assert outcome == str(layout.partition_of(slot_of(case.place))), case.id
        else:
            assert isinstance(outcome, str), (case.id, outcome)
            free.append(outcome)
    assert found == {case.id: [(case.stored, case.read)] for case in stored}
    if not is_knowing:
        assert len(set(free)) > 1, "one id, and any partition"


@pytest.mark.req("AZR-28")
async def test_a_message_without_an_id_gets_none(brokers):
    async with asyncio.timeout(WAIT_S):
        async with Producer(brokers.url, queue="orders", token=brokers.tokens.produce) as producer:
            await producer.send_and_wait(b"x", key="a")
        assert await read(brokers, 1) == {"x": [("a", {})]}


async def test_ids_that_cannot_be_sent(brokers):
    async with Producer(brokers.url, queue="orders", token=brokers.tokens.produce) as producer:
        with pytest.raises(BadRequestError, match="message_id: got int, expected str or None"):
            await producer.send(b"1", message_id=7)
        with pytest.raises(BadRequestError, match="got a lone surrogate at character 1"):
            await producer.send(b"1", message_id="a\ud800")
    async with Producer(
        brokers.url, queue="orders", token=brokers.tokens.produce, producer_id="p"
    ) as producer:
        with pytest.raises(BadRequestError, match="this producer has a producer_id"):
            await producer.send(b"1", key="a", message_id="m")


async def test_a_message_with_an_id_keeps_its_place_in_the_order(brokers):
    """It is a batch for itself, and those before and behind it are others."""
    async with asyncio.timeout(WAIT_S):
        async with Producer(brokers.url, queue="orders", token=brokers.tokens.produce) as producer:
            many = await producer.send_many([Message("a", b"0"), Message("a", b"1")])
            one = await producer.send(b"2", key="a", message_id="m")
            last = await producer.send(b"3", key="a")
            first, second = await many
            offsets = [first.offset, second.offset, (await one).offset, (await last).offset]
            assert offsets == [0, 1, 2, 3]
            assert not (await one).is_duplicate


class Told(ProducerInterceptor):
    """Learns where messages are."""

    def __init__(self):
        self.positions = []

    def on_send_result(self, queue, message, position, error):
        self.positions.append((message.headers, position, position.is_duplicate))


@pytest.mark.req("AZR-29")
async def test_a_producer_learns_that_its_message_was_there():
    """Whoever sent the first one, and also without a key."""
    told = Told()
    spec = {"duplicateDetection": {}}
    async with (
        asyncio.timeout(WAIT_S),
        LocalBroker(queue="orders", partitions=4, spec=spec) as local,
        Producer(local.url, queue="orders", token=local.tokens.produce) as first,
        Producer(
            local.url, queue="orders", token=local.tokens.produce, interceptors=[told]
        ) as second,
    ):
        place = await first.send_and_wait(b"1", message_id="m")
        assert (place.offset, place.is_duplicate) == (0, False)
        answers = [await second.send(b"2", message_id=each) for each in ("m", "n", "m", "n")]
        places = [await each for each in answers]
        assert [each.is_duplicate for each in places] == [True, False, True, True]
        partition, offset = places[0]
        assert (partition, offset) == (place.partition, -1)
        assert told.positions[0] == ({"message-id": "m"}, (place.partition, -1), True)
        assert second.stats().in_flight == 0

        def blocking():
            with BlockingProducer(local.url, queue="orders", token=local.tokens.produce) as third:
                return third.send_and_wait(b"3", message_id="m").is_duplicate

        assert await asyncio.to_thread(blocking)
        found = await read(local, 2)
    assert found == {"1": [(None, {"message-id": "m"})], "2": [(None, {"message-id": "n"})]}


async def test_a_broker_that_knows_no_ids_gets_no_message_with_one():
    """Of an earlier version, in a queue whose other brokers know them: nothing is stored unseen."""
    spec = {"duplicateDetection": {}}
    async with (
        asyncio.timeout(WAIT_S),
        LocalBroker(queue="orders", partitions=1, spec=spec) as local,
        Producer(local.url, queue="orders", token=local.tokens.produce) as producer,
    ):
        await producer.send_and_wait(b"1", message_id="m")
        for connection in producer._sender._connections.values():
            connection.features = frozenset()
        with pytest.raises(UnsupportedError, match="without message-ids"):
            await producer.send_and_wait(b"2", message_id="n")
        assert (await producer.send_and_wait(b"3")).offset == 1
