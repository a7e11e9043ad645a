"""One partition key by several names: the same rules in Python and over plain HTTP."""

import asyncio
from dataclasses import dataclass, field

import pytest
from aiohttp import ClientSession

from partq import BadRequestError, Consumer, KeyConflictError, Message, Producer

WAIT_S = 60.0


@dataclass(frozen=True)
class Case:
    """What a publisher gives, and what becomes of it."""

    id: str
    key: str | None = None
    session_id: str | None = None
    partition_key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    """Of the message, not of the request."""
    stored: str | None = None
    """The key that a consumer reads."""
    refused: type[BadRequestError] | None = None
    told: tuple[str, ...] = ()
    """What the error names."""


CASES = (
    Case("no key"),
    Case("a session", session_id="a", stored="a"),
    Case("a partition key, no session", partition_key="a", stored="a"),
    Case("both, equal", session_id="a", partition_key="a", stored="a"),
    Case("all three, equal", key="a", session_id="a", partition_key="a", stored="a"),
    Case("the empty string is a key", session_id="", stored=""),
    Case("both, different", session_id="a", partition_key="b", refused=KeyConflictError,
         told=("is a", "is b")),
    Case("a session and another key", key="b", session_id="a", refused=KeyConflictError,
         told=("is a", "key is b")),
    Case("a partition key and another key", key="b", partition_key="a", refused=KeyConflictError,
         told=("is a", "key is b")),
    Case("an empty session and a key", key="b", session_id="", refused=KeyConflictError,
         told=("key is b",)),
    Case("a header alone", headers={"SessionId": "a"}, refused=BadRequestError,
         told=("SessionId is a",)),
    Case("a header of JMS alone", headers={"JMSXGroupID": "a"}, refused=BadRequestError,
         told=("JMSXGroupID is a",)),
    Case("a header of Solace alone", headers={"QUEUE_PARTITION_KEY": "a"},
         refused=BadRequestError, told=("QUEUE_PARTITION_KEY is a",)),
    Case("a header in other letters", headers={"partitionkey": "a"}, refused=BadRequestError,
         told=("partitionkey is a",)),
    Case("a header and another key", key="b", headers={"PartitionKey": "a"},
         refused=KeyConflictError, told=("PartitionKey is a", "key is b")),
    Case("a header that repeats the key", key="a", headers={"SessionId": "a", "x": "y"},
         stored="a"),
    Case("a header that repeats the session", session_id="a", headers={"JMSXGroupID": "a"},
         stored="a"),
    Case("other headers", headers={"Session": "a"}),
)  # fmt: skip


async def by_python(local, cases):
    """Return what became of each message: its key and partition, or the error."""
    outcomes = []
    async with Producer(local.url, queue="orders", token=local.tokens.produce) as producer:
        for case in cases:
            try:
                position = await producer.send_and_wait(
                    case.id.encode(),
                    key=case.key,
                    session_id=case.session_id,
                    partition_key=case.partition_key,
                    headers=case.headers or None,
                )
            except BadRequestError as error:
                outcomes.append((error.code, error.message))
            else:
                outcomes.append(str(position.partition))
    return outcomes


async def by_http(local, cases):
    """Return the same, of plain HTTP."""
    outcomes = []
    url = f"{local.url.split(',')[0]}/v1/queues/orders/messages"
    async with ClientSession() as session:
        for case in cases:
            names = {"SessionId": case.session_id, "PartitionKey": case.partition_key}
            given = {name: value for name, value in names.items() if value is not None}
            body = {"key": case.key, "value": case.id, "headers": case.headers}
            headers = {"Authorization": f"Bearer {local.tokens.produce}", **given}
            async with session.post(url, json=body, headers=headers) as response:
                answer = await response.json()
            if "error" in answer:
                outcomes.append((answer["error"]["code"], answer["error"]["message"]))
            else:
                outcomes.append(answer["partition"])
    return outcomes


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
                return found
    return found


@pytest.mark.req("SOL-13", "SOL-14", "AZR-21", "AZR-23", "AZR-24", "AZR-25")
async def test_a_key_by_any_name_means_the_same_in_python_and_over_http(brokers):
    async with asyncio.timeout(WAIT_S):
        async with Producer(brokers.url, queue="orders", token=brokers.tokens.produce) as producer:
            home = {key: str(producer.partition_of(key)) for key in ("a", "")}
        roads = {"python": await by_python(brokers, CASES), "http": await by_http(brokers, CASES)}
        stored = [case for case in CASES if case.refused is None]
        found = await read(brokers, 2 * len(stored))
    for road, outcomes in roads.items():
        for case, outcome in zip(CASES, outcomes, strict=True):
            if case.refused is not None:
                code, message = outcome
                assert code == case.refused.code, (road, case.id, outcome)
                assert all(told in message for told in case.told), (road, case.id, message)
            elif case.stored is not None:
                assert outcome == home[case.stored], (road, case.id)
            else:
                assert isinstance(outcome, str), (road, case.id, outcome)
    assert found == {case.id: [(case.stored, case.headers)] * 2 for case in stored}


async def test_a_list_is_refused_whole_for_a_header_that_names_another_key(brokers):
    messages = [Message("a", b"1"), Message(None, b"2", {"SessionId": "s"})]
    async with Producer(brokers.url, queue="orders", token=brokers.tokens.produce) as producer:
        with pytest.raises(BadRequestError, match="element 1: headers: SessionId is s, and the"):
            await producer.send_many(messages)
        with pytest.raises(BadRequestError, match="session_id: got int, expected str or None"):
            await producer.send(b"3", session_id=7)
        assert await producer.send_and_wait(b"4", key="a"), "nothing else was stopped by it"


async def test_what_was_received_can_be_sent_on_with_its_headers(brokers):
    """Also to a dead-letter queue and back: whoever stored it gave the header and the key alike."""
    async with asyncio.timeout(WAIT_S):
        async with Producer(brokers.url, queue="orders", token=brokers.tokens.produce) as producer:
            await producer.send_and_wait(b"x", session_id="s", headers={"SessionId": "s"})
            ((key, headers),) = (await read(brokers, 1))["x"]
            await producer.send_and_wait(b"y", key=key, headers=headers)
            assert (await read(brokers, 1))["y"] == [("s", {"SessionId": "s"})]
