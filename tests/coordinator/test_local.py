"""The coordinator as a process, with real brokers, a real Redis and real consumers."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from partq import Consumer
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.rebalances import Rebalances
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.even_shares import even_shares


def consumer(broker, member):
    return Consumer(
        broker.url,
        queue="orders",
        group="workers",
        token=broker.tokens.consume,
        member=member,
        handle_signals=False,
    )


async def rebalance(history, trigger, *, moved):
    """Wait until a rebalance is on record."""
    async with asyncio.timeout(60):
        while True:
            last = await history.read("workers")
            if (trigger, moved) in [(each.trigger, each.moved) for each in last]:
                return
            await asyncio.sleep(0.05)


@pytest.mark.req("SOL-22", "SOL-23", "SOL-24")
async def test_members_come_and_go_and_the_coordinator_with_them():
    def sizes():
        return sorted(len(each.partitions) for each in members)

    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(
            LocalBroker(partitions=8, broker_count=2, spec={"rebalance": {"delaySeconds": 1}})
        )
        await even_shares(broker)
        store = await Store.open(broker.runtime.redis_url, prefix="partq", timeout_s=60.0)
        stack.push_async_callback(store.close)
        history = Rebalances(store, Keys("partq", "default", "orders", broker.queue.uid))

        members = [await stack.enter_async_context(consumer(broker, name)) for name in ("a", "b")]
        await eventually(lambda: sizes() == [4, 4], "two members share")
        # Together: what joins while a rebalance is made ready is part of it.
        joining = [stack.enter_async_context(consumer(broker, name)) for name in ("c", "d")]
        members += await asyncio.gather(*joining)
        await eventually(lambda: sizes() == [2, 2, 2, 2], "four members share")
        await rebalance(history, "member_joined", moved=4)

        for child in broker.runtime.coordinators:
            await child.kill()
        leaver = members.pop(0)
        leaver.leave()
        await eventually(lambda: sizes() == [2, 3, 3], "the next coordinator hands over")
        assert leaver.partitions == frozenset()
        await rebalance(history, "member_left", moved=2)
