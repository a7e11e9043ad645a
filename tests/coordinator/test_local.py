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


async def until_moved(history, trigger, *counts):
    """Wait until rebalances, one or several, have moved so many partitions."""

    async def have_moved():
        last = await history.read("workers")
        return sum(each.moved for each in last if each.trigger == trigger) in counts

    await eventually(have_moved, f"{trigger}: {counts} partitions moved")


@pytest.mark.req("SOL-22", "SOL-23", "SOL-24", "TUB-01", "TUB-02")
async def test_members_come_and_go_and_the_coordinator_with_them():
    def sizes():
        return sorted(len(each.partitions) for each in members)

    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(
            LocalBroker(partitions=8, broker_count=2, spec={"rebalance": {"delaySeconds": 60}})
        )
        await even_shares(broker.queue)
        store = await Store.open(broker.runtime.redis_url, prefix="partq", timeout_s=60.0)
        stack.push_async_callback(store.close)
        history = Rebalances(store, Keys("partq", "default", "orders", broker.queue.uid))

        members = [await stack.enter_async_context(consumer(broker, name)) for name in ("a", "b")]
        await eventually(lambda: sizes() == [4, 4], "two members share")
        # Together: what joins while a rebalance is made ready is part of it.
        joining = [stack.enter_async_context(consumer(broker, name)) for name in ("c", "d")]
        members += await asyncio.gather(*joining)
        await eventually(lambda: sizes() == [2, 2, 2, 2], "four members share")
        await until_moved(history, "member_joined", 4, 8)  # 8: b came when a had all

        for child in broker.runtime.coordinators:
            await child.kill()
        leaver = members.pop(0)
        leaver.leave()
        await eventually(lambda: sizes() == [2, 3, 3], "the next coordinator hands over")
        assert leaver.partitions == frozenset()
        await until_moved(history, "member_left", 2)
