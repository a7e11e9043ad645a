"""The programs of docs/ run as they stand there, against a real queue."""

import ast
import inspect
import re
import sqlite3
from collections import Counter

import pytest

import partq
from partq import Browser, Consumer, Message, Producer
from partq.testing.local_broker import LocalBroker
from tests.examples.pages import programs

COUNT = 20
NEWER, DUE, CONSUMING, GIVING_BACK, TESTING, BROWSING, READING = programs("client.md")


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


async def run(text, **names):
    """Run a program; return the names that it leaves behind."""
    names = {**{name: getattr(partq, name) for name in partq.__all__}, **names}
    program = compile(text, "page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if inspect.isawaitable(ran := eval(program, names)):
        await ran
    return names


async def test_publishing(broker):
    text = NEWER.replace("http://127.0.0.1:7411", broker.url)
    left = await run(text, token=broker.tokens.produce)
    assert left["offset"] == 0
    assert left["stored"].result().offset == 1
    assert [position.offset for position in left["positions"]] == [2]


async def test_deterministic_publishing(broker):
    messages = [Message(f"key-{n}", b"paid") for n in range(COUNT)]
    names = {"url": broker.url, "token": broker.tokens.produce, "Counter": Counter}
    # It is started again, with all messages: the rest is stored, and then nothing more.
    for known in (COUNT // 2, COUNT, COUNT):
        await run(DUE, messages=messages[:known], **names)
        token = broker.tokens.consume
        async with Browser(broker.url, queue="orders", token=token) as browser:
            assert len([each async for each in browser.messages(2 * COUNT)]) == known


def loops():
    """The ways to consume that one program of the page shows, each with its head."""
    head, body = CONSUMING.split(") as consumer:\n")
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


async def test_giving_back(published):
    class TryAgainLaterError(Exception):
        pass

    def process(message):
        if not message.redeliveries:
            raise TryAgainLaterError

    seen = []
    text = GIVING_BACK.replace("delay_s=5", "delay_s=0.01")
    assert text != GIVING_BACK
    token = published.tokens.consume
    async with Consumer(published.url, queue="orders", group="workers", token=token) as consumer:
        async for message in consumer:
            seen.append(message.redeliveries)
            names = {"consumer": consumer, "message": message, "process": process}
            await run(text, **names, TryAgainLaterError=TryAgainLaterError)
            if seen.count(1) == COUNT:
                break
    assert seen.count(0) >= COUNT


async def test_testing():
    left = await run(TESTING)
    await left["test_orders"]()


async def test_browsing(published, capsys):
    names = {"url": published.url, "token": published.tokens.consume, "since": 0}
    await run(BROWSING, **names)
    assert len(capsys.readouterr().out.splitlines()) == COUNT


async def test_reading_the_log(published):
    stored = []
    names = {"url": published.url, "token": published.queue.tokens.admin}
    await run(READING, **names, store=lambda *what: stored.append(what))
    assert sorted({partition for partition, _, _ in stored}) != []
    left = await run(READING, **names, store=lambda *what: stored.append(what))
    assert left["begin"] == left["end"]


async def test_reading_the_audit_record(published):
    (text,) = programs("audit.md")
    left = await run(text, url=published.url, admin_token=published.tokens.admin)
    assert left["columns"]


async def test_a_fence(published):
    (text,) = programs("patterns.md")
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
