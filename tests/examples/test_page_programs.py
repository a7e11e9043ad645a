"""The programs of docs/ run as they stand there, against a real queue."""

import ast
import asyncio
import inspect
import json
import re
import sqlite3
from collections import Counter
from dataclasses import dataclass

import pytest

import partq
from partq import Browser, Consumer, Message, Producer
from partq.core.numbering.scheduled_ids import ScheduledId
from partq.testing.local_broker import LocalBroker
from tests.examples.pages import program, programs

COUNT = 20
CLIENT = "client.md"


class EnoughError(Exception):
    """What a loop without an end is left by."""


@pytest.fixture
async def broker():
    async with LocalBroker(groups=["workers", "lake"], spec={"audit": True}) as local:
        yield local


@pytest.fixture
async def published(broker):
    """The broker, with messages."""
    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        await producer.send_many([Message(f"key-{n}", b"paid") for n in range(COUNT)])
        await producer.flush()
    return broker


async def run(text, /, **names):
    """Run a program; return the names that it leaves behind."""
    names = {**{name: getattr(partq, name) for name in partq.__all__}, **names}
    program = compile(text, "page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if inspect.isawaitable(ran := eval(program, names)):
        await ran
    return names


async def test_publishing(broker):
    text = program(CLIENT, "Publishing").replace("http://127.0.0.1:7411", broker.url)
    left = await run(text, token=broker.tokens.produce)
    assert left["offset"] == 0
    assert left["stored"].result().offset == 1
    assert [position.offset for position in left["positions"]] == [2]


async def test_deterministic_publishing(broker):
    messages = [Message(f"key-{n}", b"paid") for n in range(COUNT)]
    names = {"url": broker.url, "token": broker.tokens.produce, "Counter": Counter}
    # It is started again, with all messages: the rest is stored, and then nothing more.
    for known in (COUNT // 2, COUNT, COUNT):
        await run(program(CLIENT, "Deterministic producers"), messages=messages[:known], **names)
        token = broker.tokens.consume
        async with Browser(broker.url, queue="orders", token=token) as browser:
            assert len([each async for each in browser.messages(2 * COUNT)]) == known


def loops():
    """The ways to consume that one program of the page shows, each with its head."""
    head, body = program(CLIENT, "Consuming").split(") as consumer:\n")
    return [f"{head}) as consumer:\n{each}" for each in body.split("\n\n")]


@pytest.mark.parametrize("text", loops(), ids=["messages", "batches", "run"])
async def test_consuming(published, text):
    seen = []

    def take(*what):
        count = len(what[0]) if text.count("batches") else 1
        seen.extend([what] * count)
        if len(seen) == COUNT:
            raise EnoughError

    names = {"load": lambda _: None, "drop": lambda *_: None, "report": print}
    with pytest.raises(EnoughError):
        await run(
            text,
            **names,
            url=published.url,
            token=published.tokens.consume,
            process=take,
            process_all=take,
            callback=take,
        )
    assert len(seen) == COUNT


async def test_messages_in_lists(published):
    seen = []

    def insert(values):
        seen.extend(values)
        if len(seen) == COUNT:
            raise EnoughError

    shown = program(CLIENT, "Messages in lists")
    text = shown.replace("max_messages=200, t", f"max_messages={COUNT // 2}, t")
    assert text != shown
    names = {"url": published.url, "token": published.tokens.consume, "insert": insert}
    with pytest.raises(EnoughError):
        await run(text, **names)
    assert seen == [b"paid"] * COUNT


async def test_several_messages_at_once(published):
    seen = []

    async def handle(message):
        seen.append(message.key)
        await asyncio.sleep(0)
        if len(seen) == COUNT:
            raise EnoughError

    token = published.tokens.consume
    names = {"url": published.url, "token": token, "handle": handle}
    with pytest.raises(EnoughError):
        await run(program(CLIENT, "Several messages at once"), **names)
    assert sorted(seen) == sorted(f"key-{n}" for n in range(COUNT))


async def test_making_dead_letters(published):
    seen = []

    class InvalidOrderError(Exception):
        pass

    class TryAgainLaterError(Exception):
        pass

    def process(message):
        seen.append(message)
        if len(seen) == 1:
            raise InvalidOrderError("no such article")
        if len(seen) == 2:
            raise TryAgainLaterError
        raise EnoughError

    kinds = {"InvalidOrderError": InvalidOrderError, "TryAgainLaterError": TryAgainLaterError}
    token = published.tokens.consume
    async with Consumer(published.url, queue="orders", group="workers", token=token) as consumer:
        text = program(CLIENT, "Making dead letters")
        with pytest.raises(EnoughError):
            await run(text, consumer=consumer, process=process, **kinds)
        assert len({(each.partition, each.offset) for each in seen}) == 3
        assert consumer.stats().nacked == 2, "a dead letter, and one that comes again"


async def test_positions_and_lag(published, capsys):
    token = published.tokens.consume
    async with Consumer(published.url, queue="orders", group="workers", token=token) as consumer:
        first = await anext(consumer)
        await consumer.ack(first, confirmed=True)
        held = sorted(consumer.partitions)
        await run(program(CLIENT, "Positions and lag"), consumer=consumer)
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert [line[0] for line in lines] == [str(each) for each in held]
        ends = await consumer.end_offsets()
        assert {line[0]: int(line[2]) for line in lines} == {str(p): ends[p] for p in held}
        own = next(line for line in lines if line[0] == str(first.partition))
        assert int(own[1]) == 1
        assert int(own[3]) == int(own[2]) - 1, "the lag, without the acknowledged one"


async def test_pausing(published):
    seen = []

    async def store_is_up(partition):
        return partition != seen[0]

    def process(message):
        if len({*seen}) == 3:
            raise EnoughError
        seen.append(message.partition)

    token = published.tokens.consume
    async with Consumer(published.url, queue="orders", group="workers", token=token) as consumer:
        first = await anext(consumer)
        seen.append(first.partition)
        await consumer.nack(first, delay_s=0)
        text = program(CLIENT, "Pausing")
        with pytest.raises(EnoughError):
            await run(
                text, consumer=consumer, process=process, store_is_up=store_is_up, asyncio=asyncio
            )
        assert consumer.paused() <= {first.partition}
        assert seen.count(first.partition) == 1


async def test_seeking(published):
    text = program(CLIENT, "Seeking")
    token = published.tokens.consume
    async with Consumer(published.url, queue="orders", group="workers", token=token) as consumer:
        seen = [await anext(consumer) for _ in range(COUNT)]
        left = await run(text, consumer=consumer)
        assert left["begun"] == dict.fromkeys(
            {each.partition for each in seen} | consumer.partitions, 0
        )
        again = [await anext(consumer) for _ in range(COUNT - 2 * len(left["begun"]))]
    assert {each.offset for each in seen} - {each.offset for each in again} == {0, 1}


async def test_giving_back(published):
    class TryAgainLaterError(Exception):
        pass

    def process(message):
        if not message.redeliveries:
            raise TryAgainLaterError

    seen = []
    shown = program(CLIENT, "Giving back")
    text = shown.replace("delay_s=5", "delay_s=0.01")
    assert text != shown
    token = published.tokens.consume
    async with Consumer(published.url, queue="orders", group="workers", token=token) as consumer:
        async for message in consumer:
            seen.append(message.redeliveries)
            names = {"consumer": consumer, "message": message, "process": process}
            await run(text, **names, TryAgainLaterError=TryAgainLaterError)
            if seen.count(1) == COUNT:
                break
    assert seen.count(0) >= COUNT


async def test_values_that_are_not_bytes(broker):
    seen = []

    def process(order):
        seen.append((order.number, order.paid))
        raise EnoughError

    token = broker.tokens.produce
    async with Producer(broker.url, queue="orders", token=token) as producer:
        await producer.send_and_wait(b"no JSON", key="order-17")
    text = program(CLIENT, "Values that are not bytes")
    with pytest.raises(EnoughError):
        await run(
            text, url=broker.url, token=broker.tokens.admin, process=process, dataclass=dataclass
        )
    assert seen == [(17, False)], "behind what is not JSON, in the same partition"


async def test_work_that_takes_long(published):
    seen = []

    def steps(message):
        async def step():
            seen.append(message.key)
            if len(seen) == 2 * COUNT:
                raise EnoughError

        return [step, step]

    text = program(CLIENT, "Work that takes long")
    token = published.tokens.consume
    async with Consumer(published.url, queue="orders", group="workers", token=token) as consumer:
        with pytest.raises(EnoughError):
            await run(text, consumer=consumer, steps=steps)
    assert len(set(seen)) == COUNT


async def test_stats(published):
    text, shown = program(CLIENT, "What it has done so far"), []
    token = published.tokens.consume
    async with Consumer(published.url, queue="orders", group="workers", token=token) as consumer:
        await consumer.nack(await anext(consumer), delay_s=0)
        acked = 0
        async for message in consumer:
            await consumer.ack(message, confirmed=True)
            acked += 1
            if acked == COUNT:
                break
        await run(text, consumer=consumer, log=lambda *what: shown.append(what))
    (received, per_s, in_hand, p99_s), *causes = shown
    assert (received > COUNT, in_hand) == (True, 0)
    assert "nack" in dict(causes)
    assert per_s > 0
    assert p99_s > 0


async def test_unsubscribing(published):
    token = published.tokens.consume
    async with Consumer(published.url, queue="orders", group="workers", token=token) as consumer:
        text = program(CLIENT, "Unsubscribing")
        await run(text, consumer=consumer, admin_token=published.tokens.admin)
        with pytest.raises(StopAsyncIteration):
            await anext(consumer)


async def test_without_asyncio(broker):
    seen = []
    shown = program(CLIENT, "Without asyncio")
    text = shown.replace("timeout_s=10", "timeout_s=WAIT_S").replace(
        "        consumer.ack(message)\n", "        consumer.ack(message)\n        enough()\n"
    )

    def enough():
        if len(seen) == 2:
            raise EnoughError

    names = {
        "url": broker.url,
        "token": broker.tokens.admin,
        "process": lambda _, value: seen.append(value),
        "enough": enough,
        "WAIT_S": 60,
    }
    with pytest.raises(EnoughError):
        await asyncio.to_thread(exec, text, names)
    assert seen == [b"paid", b"packed"]


async def test_choosing_partitions():
    seen = []

    def process(batch):
        seen.extend(batch.offsets)
        return True

    groups = {"chosen": {"assignment": "Client"}}
    async with LocalBroker(groups=groups) as broker:
        async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
            await (await producer.send_many([Message(f"k{n}", b"") for n in range(COUNT)]))
        names = {"url": broker.url, "token": broker.tokens.consume, "process": process}
        left = await run(program(CLIENT, "Choosing partitions"), **names)
    configured = sorted(left["configured"].items())
    assert len(seen) == sum(each.end for _, each in configured[::3])
    assert left["consumer"].registered == frozenset()


async def test_several_queues(published, tmp_path):
    seen = []

    def process(queue, _):
        seen.append(queue)
        if len(seen) == COUNT:
            raise EnoughError

    fields = {"url": published.url, "token": published.tokens.consume}
    (tmp_path / "orders.json").write_text(json.dumps(fields))
    with pytest.raises(EnoughError):
        await run(program(CLIENT, "Several queues"), directory=tmp_path, process=process)
    assert seen == ["orders"] * COUNT


async def test_browsing(published, capsys):
    names = {"url": published.url, "token": published.tokens.consume, "since": 0}
    await run(program(CLIENT, "Browsing"), **names)
    assert len(capsys.readouterr().out.splitlines()) == COUNT


async def test_reading_without_a_group(published, capsys):
    seen = []

    def done(each):
        seen.append(each)
        return len(seen) == COUNT

    names = {"url": published.url, "token": published.tokens.consume, "done": done}
    left = await run(program(CLIENT, "Reading without a group"), **names)
    assert len(capsys.readouterr().out.splitlines()) == COUNT
    assert sum(each.offset for each in left["place"].values()) == COUNT


async def test_reading_the_log(published):
    stored = []
    names = {"url": published.url, "token": published.queue.tokens.admin}
    await run(
        program(CLIENT, "Reading the log as it is stored"),
        **names,
        store=lambda *what: stored.append(what),
    )
    assert sorted({partition for partition, _, _ in stored}) != []
    left = await run(
        program(CLIENT, "Reading the log as it is stored"),
        **names,
        store=lambda *what: stored.append(what),
    )
    assert left["begin"] == left["end"]


async def test_reading_the_audit_record(published):
    (text,) = programs("audit.md")
    left = await run(text, url=published.url, admin_token=published.tokens.admin)
    assert left["columns"]


async def test_a_fence(published):
    text = program("patterns.md", "Each effect once: SqlFence")
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE accounts (id TEXT PRIMARY KEY, cents INTEGER NOT NULL)")
    token, seen = published.tokens.consume, 0
    async with Consumer(published.url, queue="orders", group="workers", token=token) as consumer:
        async for message in consumer:
            with database:
                database.execute("INSERT INTO accounts VALUES (?, 0)", (message.key,))
            for _ in range(2):  # what is admitted once, is not a second time
                await run(
                    text,
                    sqlite3=sqlite3,
                    database=database,
                    consumer=consumer,
                    message=message,
                    cents=5,
                )
            seen += 1
            if seen == COUNT:
                break
    assert database.execute("SELECT sum(cents) FROM accounts").fetchone() == (5 * COUNT,)


async def test_measuring(monkeypatch, capsys):
    (text,) = programs("benchmark.md")
    for large, small in (("100_000", "2_000"), ("partitions=1000", "partitions=8")):
        assert large in text
        text = text.replace(large, small)
    text = text.replace("asyncio.run(main())", "await main()")
    await run(text)
    assert len(re.findall(r"\d{6,}", capsys.readouterr().out)) == 4


async def test_a_transaction(broker, capsys):
    left = await run(program("transactions.md", "Transactions"))
    await left["book"](broker.url, broker.tokens.produce)
    first, second = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (first[0], int(first[1]) + 1) == (second[0], int(second[1]))


async def test_scheduled_messages(broker, capsys):
    left = await run(program("scheduled.md", "Scheduled messages"))
    await left["remind"](broker.url, broker.tokens.produce)
    scheduled, end = capsys.readouterr().out.splitlines()
    assert ScheduledId.parse(scheduled).partition.generation == 1
    assert end == "it will not come"
