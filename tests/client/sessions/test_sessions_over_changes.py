"""Sessions of real brokers while their queue gets more partitions, and then fewer."""

import asyncio

import pytest

from partq import NoSessionError, Producer, SessionConsumer, SessionLockedError, SessionLostError
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.client.test_change_with_brokers import change

GROUPS = {"clerks": {"type": "Session", "session": {"lockSeconds": 60}}}
KEYS = ["k0", "k1", "k3"]
WAIT_S = 60.0


@pytest.fixture
async def local():
    async with LocalBroker(queue="orders", partitions=2, broker_count=2, groups=GROUPS) as local:
        yield local


def clerk(local, member="m"):
    return SessionConsumer(
        local.url, queue="orders", group="clerks", token=local.tokens.consume, member=member,
        handle_signals=False, idle_s=0.02,
    )  # fmt: skip


def open_producer(local):
    return Producer(local.url, queue="orders", token=local.tokens.produce)


async def publish(local, value):
    """Publish a message of each session; return which partitions have them."""
    async with open_producer(local) as producer:
        return {
            key: (await producer.send_and_wait(value.encode(), key=key)).partition for key in KEYS
        }


async def changed(local, count, before):
    """Change the number of partitions; return once new messages go by it."""
    await change(local, count)

    async def is_in_force():
        async with open_producer(local) as producer:
            return {producer.partition_of(key) for key in KEYS} - before

    await eventually(is_in_force, "the change is in force")


async def drain(clerks, key):
    """Accept a session by its name, and acknowledge what it has; return its messages' values."""
    values = []
    try:
        async with await clerks.accept(key, timeout_s=0.1) as session:
            async for message in session:
                values.append(message.value.decode())
                await session.ack(message, confirmed=True)
    except (NoSessionError, SessionLockedError, SessionLostError):
        pass  # another partition has to be done with first, or the one before has just been
    return values


@pytest.mark.req("AZR-04")
async def test_accepts_by_names_alone_get_all_in_order_over_changes(local):
    async with clerk(local) as clerks, asyncio.timeout(WAIT_S):
        places = [await publish(local, "one")]
        for count, value in ((3, "two"), (2, "three")):
            await changed(local, count, set(places[-1].values()))
            places.append(await publish(local, value))
        moved = max(KEYS, key=lambda key: len({each[key] for each in places}))
        assert len({each[moved] for each in places}) > 1
        got = {key: [] for key in KEYS}
        while any(len(values) < 3 for values in got.values()):
            for key in KEYS:
                got[key] += await drain(clerks, key)
    assert got == {key: ["one", "two", "three"] for key in KEYS}
