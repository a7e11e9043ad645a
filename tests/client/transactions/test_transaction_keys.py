"""Rules of the one key of a transaction: the same in Python and over plain HTTP."""

import asyncio
from dataclasses import dataclass, field

import pytest
from aiohttp import ClientSession

from partq import (
    BadRequestError,
    Consumer,
    KeyConflictError,
    Producer,
    SessionConsumer,
    TransactionOverKeysError,
    TransactionWithoutKeyError,
)
from partq.testing.local_broker import LocalBroker

GROUPS = {"workers": {}, "clerks": {"type": "Session", "session": {"lockSeconds": 5}}}
WAIT_S = 60.0


@dataclass(frozen=True)
class Case:
    """Two messages or more of a transaction, and what becomes of them."""

    id: str
    keys: tuple[str | None, ...] = (None, None)
    """Of each message."""
    names: dict[str, str] = field(default_factory=dict)
    """Of the transaction: arguments in Python, headers of the request over HTTP."""
    stored: str | None = None
    """The key that a consumer reads."""
    refused: type[BadRequestError] | None = None
    told: tuple[str, ...] = ()
    """What the error names."""


SESSION, PARTITION = "session_id", "partition_key"
HEADERS = {SESSION: "SessionId", PARTITION: "PartitionKey"}

CASES = (
    Case("AZR-26 a partition key, no session", names={PARTITION: "a"}, stored="a"),
    Case("AZR-38 a session", names={SESSION: "a"}, stored="a"),
    Case("AZR-38 a key of each message", keys=("a", "a", "a"), stored="a"),
    Case("AZR-39 one of the messages repeats the key", keys=(None, "a"), names={SESSION: "a"},
         stored="a"),
    Case("AZR-39 both names, equal", names={SESSION: "a", PARTITION: "a"}, stored="a"),
    Case("AZR-39 the empty string is a key", keys=("", ""), stored=""),
    Case("AZR-40 no key", refused=TransactionWithoutKeyError, told=("message 0 has no key",)),
    Case("AZR-40 the last message has none", keys=("a", "a", None),
         refused=TransactionWithoutKeyError, told=("message 2 has no key",)),
    Case("AZR-41 two keys", keys=("a", "b"), refused=TransactionOverKeysError,
         told=("message 1", "'b'", "'a'")),
    Case("AZR-41 two keys, one of them empty", keys=("", "b"), refused=TransactionOverKeysError,
         told=("message 1", "'b'")),
    Case("AZR-43 a key that lives elsewhere", keys=("b", "b"), stored="b"),
    Case("AZR-44 to sessions, without one", keys=(None, None, None),
         refused=TransactionWithoutKeyError, told=("session",)),
    Case("AZR-45 a session and another partition key", names={SESSION: "a", PARTITION: "b"},
         refused=KeyConflictError, told=("is a", "is b")),
    Case("AZR-46 two sessions", keys=(None, "b"), names={SESSION: "a"},
         refused=TransactionOverKeysError, told=("'b'", "'a'", "one transaction for each key")),
    Case("AZR-66 sessions in turn", keys=("a", "b", "a"), refused=TransactionOverKeysError,
         told=("message 1",)),
)  # fmt: skip


def values(road, case):
    return [f"{case.id}/{road}/{number}" for number in range(len(case.keys))]


async def by_python(local, cases):
    """Return what became of each transaction: its positions, or the error."""
    outcomes = []
    async with Producer(local.url, queue="orders", token=local.tokens.produce) as producer:
        for case in cases:
            try:
                async with producer.transaction(**case.names) as tx:
                    for key, value in zip(case.keys, values("python", case), strict=True):
                        tx.send(value.encode(), key=key)
            except BadRequestError as error:
                outcomes.append((error.code, error.message))
            else:
                outcomes.append([(str(partition), offset) for partition, offset in tx.positions])
    return outcomes


async def by_http(local, cases):
    """Return the same, of plain HTTP."""
    outcomes = []
    url = f"{local.url.split(',')[0]}/v1/queues/orders/messages?atomic=true"
    async with ClientSession() as session:
        for case in cases:
            given = {HEADERS[name]: value for name, value in case.names.items()}
            headers = {"Authorization": f"Bearer {local.tokens.produce}", **given}
            body = [
                {"key": key, "value": value}
                for key, value in zip(case.keys, values("http", case), strict=True)
            ]
            async with session.post(url, json=body, headers=headers) as response:
                answer = await response.json()
            if "error" in answer:
                assert response.status == 400
                outcomes.append((answer["error"]["code"], answer["error"]["message"]))
            else:
                assert response.status == 201
                outcomes.append([(each["partition"], each["offset"]) for each in answer["results"]])
    return outcomes


async def read(local, count):
    """Return the key of so many messages, by their values, in the order of their arrival."""
    found = {}
    async with Consumer(
        local.url, queue="orders", group="workers", token=local.tokens.consume
    ) as consumer:
        async for batch in consumer.batches():
            found |= {each.value.decode(): each.key for each in batch.deliveries()}
            consumer.ack_nowait(batch)
            if len(found) >= count:
                return found
    return found


@pytest.fixture
async def brokers():
    async with LocalBroker(queue="orders", partitions=4, broker_count=2, groups=GROUPS) as local:
        yield local


@pytest.mark.req(
    "AZR-26", "AZR-38", "AZR-39", "AZR-40", "AZR-41", "AZR-42", "AZR-43", "AZR-44", "AZR-45",
    "AZR-46", "AZR-66",
)  # fmt: skip
async def test_a_transaction_has_one_key_in_python_and_over_http(brokers):
    async with asyncio.timeout(WAIT_S):
        async with Producer(brokers.url, queue="orders", token=brokers.tokens.produce) as producer:
            outside = {}
            for key in ("a", "b", ""):  # outside of a transaction
                position = await producer.send_and_wait(f"alone/{key}".encode(), key=key)
                outside[key] = str(position.partition)
        roads = {"python": await by_python(brokers, CASES), "http": await by_http(brokers, CASES)}
        stored = [case for case in CASES if case.refused is None]
        expected = {f"alone/{key}": key for key in outside} | {
            value: case.stored for road in roads for case in stored for value in values(road, case)
        }
        found = await read(brokers, len(expected))
    assert found == expected, "what was refused is nowhere, what was stored is complete"
    for road, outcomes in roads.items():
        for case, outcome in zip(CASES, outcomes, strict=True):
            if case.refused is not None:
                code, message = outcome
                assert code == case.refused.code, (road, case.id, outcome)
                assert all(told in message for told in case.told), (road, case.id, message)
                continue
            (partition,) = {partition for partition, _ in outcome}
            assert partition == outside[case.stored], (road, case.id)
            first = outcome[0][1]
            assert outcome == [(partition, first + step) for step in range(len(case.keys))]


@pytest.mark.req("AZR-04", "AZR-13", "AZR-44")
async def test_a_transaction_of_a_session_is_read_in_order_by_the_member_that_locks_it(brokers):
    async with (
        Producer(brokers.url, queue="orders", token=brokers.tokens.produce) as producer,
        producer.transaction(session_id="s") as tx,
    ):
        for number in range(5):
            tx.send(b"%d" % number)
    async with (
        asyncio.timeout(WAIT_S),
        SessionConsumer(
            brokers.url, queue="orders", group="clerks", token=brokers.tokens.consume,
            member="m", handle_signals=False, idle_s=0.3,
        ) as clerks,
        await clerks.accept(timeout_s=30) as session,
    ):  # fmt: skip
        assert session.session_id == "s"
        read = []
        async for message in session:
            read.append(message.value)
            await session.ack(message, confirmed=True)
    assert read == [b"0", b"1", b"2", b"3", b"4"]
