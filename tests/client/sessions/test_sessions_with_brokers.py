"""Sessions with real brokers: locks, order, states, over restarts of consumers and brokers."""

import asyncio

import pytest

from partq import (
    Consumer,
    FencedError,
    NoSessionError,
    Producer,
    SessionConsumer,
    SessionLockedError,
)
from partq.errors import UpgradeRequiredError
from partq.testing.local_broker import LocalBroker

GROUPS = {"clerks": {"type": "Session", "session": {"lockSeconds": 5}}}
WAIT_S = 60.0


@pytest.fixture
async def brokers():
    async with LocalBroker(queue="orders", partitions=4, broker_count=2, groups=GROUPS) as local:
        yield local


def clerk(local, member="m", **settings):
    return SessionConsumer(
        local.url, queue="orders", group="clerks", token=local.tokens.consume, member=member,
        handle_signals=False, **{"idle_s": 0.3, **settings},
    )  # fmt: skip


async def publish(local, *keys):
    async with Producer(local.url, queue="orders", token=local.tokens.produce) as producer:
        for at, key in enumerate(keys):
            await producer.send_and_wait(f"{key}/{at}".encode(), key=key)


async def drain(session):
    """Return the values of a session's messages; each is counted in its state."""
    values = []
    async for message in session:
        values.append(message.value.decode())
        state = int(await session.state() or b"0") + 1
        await session.ack(message, state=str(state).encode(), confirmed=True)
    return values


@pytest.mark.req("AZR-04", "AZR-22")
async def test_each_session_has_one_consumer_its_order_and_its_state(brokers):
    await publish(brokers, "a", "b", "a", "c", "a")
    seen = {}
    async with clerk(brokers) as clerks, asyncio.timeout(WAIT_S):
        for _ in range(3):
            async with await clerks.accept(timeout_s=30) as session:
                seen[session.session_id] = await drain(session)
                assert await session.state() == str(len(seen[session.session_id])).encode()
        with pytest.raises(NoSessionError):
            await clerks.accept(timeout_s=0)
    assert seen == {"a": ["a/0", "a/2", "a/4"], "b": ["b/1"], "c": ["c/3"]}


async def test_a_named_session_is_locked_for_others_until_it_is_closed(brokers):
    await publish(brokers, "a")
    async with clerk(brokers) as one, clerk(brokers, "n") as other, asyncio.timeout(WAIT_S):
        async with await one.accept("a") as session:
            with pytest.raises(SessionLockedError):
                await other.accept("a", timeout_s=0)
            assert await drain(session) == ["a/0"]
        async with await other.accept("a", timeout_s=30) as session:
            assert await session.state() == b"1"
        async with await other.accept("without-messages", timeout_s=30) as session:
            assert await session.receive(timeout_s=0) is None


async def fail(clerks):
    """Fail with the first message of a session in hand."""
    async with await clerks.accept() as session:
        await anext(session)
        1 // 0  # noqa: B018


async def test_what_a_consumer_had_in_hand_comes_again_first_and_counts(brokers):
    await publish(brokers, "a", "a", "a")
    async with clerk(brokers) as clerks, asyncio.timeout(WAIT_S):
        with pytest.raises(ZeroDivisionError):
            await fail(clerks)
        async with await clerks.accept(timeout_s=30) as session:
            message = await anext(session)
            assert (message.value, message.redeliveries) == (b"a/0", 1)
            await session.ack(message)
            assert await drain(session) == ["a/1", "a/2"]


@pytest.fixture
async def short_leases():
    """One broker of two is killed."""
    groups = {"clerks": {"type": "Session", "session": {"lockSeconds": 60}}}
    async with LocalBroker(
        queue="orders", partitions=2, broker_count=2, groups=groups, lease_ttl_s=2
    ) as local:
        yield local


@pytest.mark.req("AZR-22", "AZR-50")
async def test_a_session_goes_on_under_its_lock_when_its_broker_is_killed(short_leases):
    """Nobody else gets it meanwhile; an ack that was not stored is refused, and asked for again."""
    local = short_leases
    await publish(local, "a", "a")
    lost = []
    async with clerk(local, idle_s=30, on_lost=lost.append) as clerks, asyncio.timeout(WAIT_S):
        session = await clerks.accept()
        await session.ack(await anext(session), state=b"1", confirmed=True)
        lock = session.lock
        url = session.assigned.flow.url
        await next(each for each in local.runtime.brokers if each.url == url).kill()
        async with clerk(local, "n") as others:
            with pytest.raises((SessionLockedError, NoSessionError)):
                await others.accept("a", timeout_s=5)
        while True:
            message = await anext(session)
            if message.value == b"a/1":
                try:
                    await session.ack(message, state=b"2", confirmed=True)
                except FencedError:
                    continue  # it was handed out before the broker died
                break
        assert (session.lock, await session.state()) == (lock, b"2")
        await session.close()
        async with await clerks.accept("a", timeout_s=30) as again:
            assert await again.state() == b"2"
            assert again.lock > lock
    assert lost == []


@pytest.mark.req("AZR-57", "AZR-58")
async def test_the_lock_of_a_killed_consumer_ends_when_its_time_is_over(brokers):
    await publish(brokers, "a")
    lost_one = clerk(brokers)
    async with clerk(brokers, "n") as other, asyncio.timeout(WAIT_S):
        await lost_one.__aenter__()
        session = await lost_one.accept()
        await anext(session)
        for flow in lost_one._flows.values():
            await flow.connection.close()
        with pytest.raises(NoSessionError):
            await other.accept(timeout_s=0)
        async with await other.accept(timeout_s=30) as again:
            message = await anext(again)
            assert (message.value, message.is_redelivered) == (b"a/0", True)
            await again.ack(message)
        await lost_one.close()


async def test_the_plain_consumer_is_refused_and_told_what_to_use(brokers):
    consumer = Consumer(
        brokers.url, queue="orders", group="clerks", token=brokers.tokens.consume,
        handle_signals=False,
    )  # fmt: skip
    async with consumer, asyncio.timeout(WAIT_S):
        with pytest.raises(UpgradeRequiredError, match="SessionConsumer"):
            await anext(consumer)
