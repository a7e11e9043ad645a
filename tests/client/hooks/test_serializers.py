"""Values that are not bytes: a message whose value cannot be made stops and loses nothing."""

import asyncio
import json
from dataclasses import dataclass

import pytest

from partq import (
    BadRequestError,
    Consumer,
    DeserializationError,
    JsonDeserializer,
    JsonSerializer,
    Message,
    Producer,
    QueuesConsumer,
    Reader,
    SettingsError,
    sync,
)
from partq.client.transport.options import ConnectionOptions
from partq.testing.local_broker import LocalBroker
from tests.client.member import WAIT_S

GOOD = [{"n": n} for n in range(5)]
BAD = b"\xff no JSON"
BAD_AT = 2
GROUPS = ["one-by-one", "lists", "runs-1", "runs-3", "handoffs", "queues", "blocking"]


@dataclass
class Order:
    n: int


@pytest.fixture(scope="module")
def local():
    """One partition with five messages of JSON, and one that is not JSON at offset 2."""
    with asyncio.Runner() as runner:
        broker = LocalBroker(
            partitions=1, groups={g: {"deadLetter": {"create": True}} for g in GROUPS}
        )
        runner.run(broker.__aenter__())
        runner.run(publish(broker))
        yield broker
        runner.run(broker.__aexit__(None, None, None))


async def publish(broker):
    options = {"queue": "orders", "token": broker.tokens.produce}
    async with Producer(broker.url, **options, value_serializer=JsonSerializer()) as producer:
        for n in range(BAD_AT):
            await producer.send(GOOD[n], key="k")
        await producer.flush()
        async with Producer(broker.url, **options) as raw:
            await raw.send_and_wait(BAD, key="k")
        await (await producer.send_many([Message("k", each) for each in GOOD[BAD_AT:]]))


def consumer(local, group, **options):
    return Consumer(
        local.url, queue="orders", group=group, token=local.tokens.consume, handle_signals=False,
        **{"value_deserializer": JsonDeserializer(Order), **options},
    )  # fmt: skip


class Sorter:
    """Reads values; makes dead letters of what has none."""

    def __init__(self, consumer):
        self.consumer = consumer
        self.seen = []

    async def __call__(self, message):
        try:
            self.seen.append(message.value.n)
        except DeserializationError:
            assert (message.offset, message.raw_value) == (BAD_AT, BAD)
            await self.consumer.dead_letter(message, reason="deserialization")
            self.seen.append("bad")
        else:
            await self.consumer.ack(message)
        if len(self.seen) == len(GOOD) + 1:
            self.consumer.leave()


ALL = [0, 1, "bad", 2, 3, 4]


async def test_one_by_one(local):
    async with asyncio.timeout(WAIT_S), consumer(local, "one-by-one") as opened:
        handle = Sorter(opened)
        async for message in opened:
            await handle(message)
    assert handle.seen == ALL
    assert opened.stats().nacked == 1


async def test_in_lists_and_a_value_is_made_once_when_it_is_read(local):
    made = []

    def deserialize(data):
        made.append(data)
        return JsonDeserializer(Order)(data)

    options = {"value_deserializer": deserialize}
    async with asyncio.timeout(WAIT_S), consumer(local, "lists", **options) as opened:
        messages = await opened.getmany(6, timeout_s=WAIT_S)
        assert made == []
        assert messages[0].value is messages[0].value
        assert made == [b'{"n":0}']
        assert [each.raw_value for each in messages][BAD_AT] == BAD
        handle = Sorter(opened)
        for message in messages:
            await handle(message)
        assert handle.seen == ALL


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_handler_that_does_not_look_out_ends_its_run_and_the_next_one_goes_on(
    local, concurrency
):
    """As for whatever a handler raises: it is not acknowledged, and redelivered."""

    async def careless(message):
        assert message.value.n < BAD_AT
        await opened.ack(message, confirmed=True)

    group = f"runs-{concurrency}"
    async with asyncio.timeout(WAIT_S), consumer(local, group) as opened:
        with pytest.raises(DeserializationError) as caught:
            await opened.run(careless, concurrency=concurrency)
        assert isinstance(caught.value.__cause__, ValueError)
    async with asyncio.timeout(WAIT_S), consumer(local, group) as opened:
        handle = Sorter(opened)
        handle.seen += ALL[:BAD_AT]
        await opened.run(handle, concurrency=concurrency)
    assert handle.seen == ALL[:BAD_AT] + ALL[BAD_AT:]


async def test_a_handoff_passes_it_on(local):
    """One member leaves with the message in its hands; the other has the same bytes."""
    async with asyncio.timeout(WAIT_S):
        async with consumer(local, "handoffs") as first:
            messages = await first.getmany(3, timeout_s=WAIT_S)
            with pytest.raises(DeserializationError):
                messages[BAD_AT].value  # noqa: B018  reading it fails
            await first.ack(messages[0])
            await first.ack(messages[1], confirmed=True)
        async with consumer(local, "handoffs") as second:
            handle = Sorter(second)
            async for message in second:
                await handle(message)
                if handle.seen == ALL[BAD_AT:]:
                    break
        assert handle.seen == ALL[BAD_AT:]


async def test_of_several_queues(local):
    options = ConnectionOptions(local.url, "orders", token=local.tokens.consume)
    async with (
        asyncio.timeout(WAIT_S),
        QueuesConsumer(
            queues=["orders"], group="queues", find=lambda: [options], handle_signals=False,
            value_deserializer=JsonDeserializer(),
        ) as opened,
    ):  # fmt: skip
        assert (await anext(opened)).value == GOOD[0]


async def test_a_reader_goes_on_behind_it(local):
    seen = []
    async with Reader(
        local.url, "orders", token=local.tokens.consume, value_deserializer=json.loads
    ) as reader:
        for _ in ALL:
            each = await anext(reader)
            try:
                seen.append(each.value["n"])
            except DeserializationError:
                assert each.raw_value == each.message.value == BAD
                seen.append("bad")
    assert seen == ALL


def test_blocking_clients_take_the_same(local):
    options = {"queue": "orders", "group": "blocking", "token": local.tokens.consume}
    with sync.Consumer(local.url, **options, value_deserializer=JsonDeserializer()) as opened:
        assert [each.raw_value for each in opened.getmany(3, timeout_s=WAIT_S)][2] == BAD
    options = {"queue": "orders", "token": local.tokens.produce}
    with (
        sync.Producer(local.url, **options, value_serializer=JsonSerializer()) as producer,
        pytest.raises(BadRequestError, match="value_serializer has failed"),
    ):
        producer.send({1j})


class NoReprError(Exception):
    def __repr__(self):
        raise ZeroDivisionError


async def test_what_cannot_even_be_shown_is_refused(local):
    def serialize(value):
        raise value

    options = {"queue": "orders", "token": local.tokens.produce, "value_serializer": serialize}
    async with Producer(local.url, **options) as producer:
        with pytest.raises(BadRequestError, match="has failed for <NoReprError without a repr>"):
            await producer.send(NoReprError(), key="k")


@pytest.mark.parametrize(("serialize", "says"), [
    (JsonSerializer(), "the value_serializer has failed for 1j: TypeError"),
    (lambda value: value, "the value_serializer has returned complex, expected bytes"),
])  # fmt: skip
async def test_what_has_no_bytes_is_refused_and_nothing_is_taken(local, serialize, says):
    options = {"queue": "orders", "token": local.tokens.produce, "value_serializer": serialize}
    async with Producer(local.url, **options) as producer:
        with pytest.raises(BadRequestError, match=says):
            await producer.send(1j, key="k")
        with pytest.raises(BadRequestError, match=f"element 0: value: {says}"):
            await producer.send_many([Message("k", 1j)])


@pytest.mark.parametrize(
    ("client", "argument", "given"),
    [
        (Consumer, "value_deserializer", JsonDeserializer),
        (Producer, "value_serializer", JsonSerializer),
    ],
)
def test_a_class_in_the_place_of_its_instance_is_refused(client, argument, given):
    group = {"group": "workers"} if client is Consumer else {}
    with pytest.raises(SettingsError, match=f"{argument}: got the class {given.__name__}; .* inst"):
        client("http://127.0.0.1:9", queue="orders", **group, **{argument: given})


def test_a_class_that_makes_values_of_bytes_is_a_deserializer():
    Consumer("http://127.0.0.1:9", queue="orders", group="workers", value_deserializer=bytearray)
