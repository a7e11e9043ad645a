"""The fenced sink: right through a forced handoff, and wrong as soon as a check is left out."""

import asyncio
import json
import sqlite3
from collections import defaultdict
from contextlib import closing, suppress
from itertools import count
from types import SimpleNamespace

import pytest
import pytest_asyncio

from partq import Cause, Consumer, FencedError, Producer, SqlFence, Token
from partq.testing.local_broker import LocalBroker
from tests.examples.programs import WAIT_S, start
from tests.examples.test_patterns import load

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHANGES = 4
CENTS = 100
FOR_EVER = 2**50

fenced_sink = load("fenced_sink")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker():
    """A group for each test, the same changes of two accounts in two partitions for all of them.

    A handoff waits 0.2 s, and a lease is so long that no busy machine outlasts it.
    """
    async with LocalBroker(
        groups=["right", "without-owners", "without-places", "example"],
        partitions=2,
        spec={"rebalance": {"maxHandoffSeconds": 0.2}},
        lease_ttl_s=10.0,
    ) as local:
        async with Producer(local.url, queue="orders", token=local.tokens.produce) as producer:
            await publish(producer)
        yield local


async def publish(producer):
    names = [f"account-{number}" for number in range(100)]
    homes = {producer.partition_of(name): name for name in names}
    value = json.dumps({"cents": CENTS}).encode()
    for _ in range(CHANGES):
        for key in homes.values():
            await (await producer.send(value, key=key))


class WithoutOwners(SqlFence):
    """Told the same owner with every message, it refuses nobody."""

    def admits(self, cursor, message, **kwargs):
        generation, *_, offset = message.token
        told = SimpleNamespace(
            key=message.key,
            token=Token(generation, FOR_EVER, FOR_EVER, offset),
            append_broker_epoch=message.append_broker_epoch,
        )
        return super().admits(cursor, told, **kwargs)


class WithoutPlaces(SqlFence):
    """Told a new place with every message, it takes none for done."""

    places = count(1)

    def admits(self, cursor, message, **kwargs):
        told = SimpleNamespace(
            key=message.key, token=message.token, append_broker_epoch=next(self.places)
        )
        return super().admits(cursor, told, **kwargs)


async def take(consumer, messages):
    async with asyncio.timeout(WAIT_S):
        return [await anext(consumer) for _ in range(messages)]


@pytest.mark.req("HND-20")
@pytest.mark.parametrize(
    ("group", "kind", "cents"),
    [
        pytest.param("right", SqlFence, CHANGES * CENTS, id="as it is"),
        pytest.param("without-owners", WithoutOwners, 300, id="a late writer has stale memory"),
        pytest.param("without-places", WithoutPlaces, 500, id="a repeat counts twice"),
    ],
)
async def test_a_balance_is_right_through_a_forced_handoff(broker, tmp_path, group, kind, cents):
    def member(name):
        token = broker.tokens.consume
        return Consumer(broker.url, queue="orders", group=group, token=token, member=name)

    def process():
        fence = kind(f"orders/{group}", paramstyle=sqlite3.paramstyle)
        return fenced_sink.Balances(sqlite3.connect(tmp_path / "balances.db", timeout=30), fence)

    before, after = process(), process()
    with closing(before.database), closing(after.database):
        async with member("one") as one:
            in_hand = defaultdict(list)
            for message in await take(one, 2 * CHANGES):
                in_hand[message.key].append(message)
            for first, second, *_ in in_hand.values():
                before.apply(first)
                await one.ack(first, confirmed=True)
                before.apply(second)  # and no ack: it comes again
            async with member("two") as two:
                again, *rest = await take(two, CHANGES - 1)
                assert again.cause is Cause.FORCED_COMMIT
                after.apply(again)
                after.apply(rest[0])
                # Taken for dead, it wakes up and continues with what it has in hand.
                refused = 0
                for late in in_hand[again.key][2:]:
                    try:
                        before.apply(late)
                    except FencedError:
                        refused += 1
                assert refused == (0 if kind is WithoutOwners else 2)
                after.apply(rest[1])
                assert after.load(again.key) == cents


async def test_the_example_runs_as_it_says(broker, tmp_path):
    database = tmp_path / "balances.db"
    given = ("--url", broker.url, "--token", broker.tokens.consume, "--group", "example")
    process = await start("fenced_sink.py", *given, "--database", str(database))
    told = defaultdict(list)
    try:
        async with asyncio.timeout(WAIT_S):
            for _ in range(2 * CHANGES):
                account, outcome = (await process.stdout.readline()).decode().strip().split(": ")
                told[account].append(outcome)
            process.terminate()
            await process.wait()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    expected = [f"now {CENTS * number}" for number in range(1, CHANGES + 1)]
    assert list(told.values()) == [expected, expected]
    assert process.returncode == 0
