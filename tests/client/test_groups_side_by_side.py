"""Groups of one queue at the same time: each gets all messages, and shares them by its type."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from partq import Consumer, Message, Producer
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker

PARTITIONS = 4
COUNT = 200
WAIT_S = 120.0
TYPES = {"workers": {}, "auditors": {}, "alone": {"type": "Exclusive"}}


class Reading:
    """A member that acknowledges what it gets; which messages, and how many partitions it has."""

    def __init__(self, local, group, member):
        self.group, self.got, self.held = group, Counter(), set()
        self.consumer = Consumer(
            local.url,
            queue="orders",
            group=group,
            member=member,
            token=local.tokens.consume,
            on_assigned=self.held.add,
            on_revoked=lambda partition, cause: self.held.discard(partition),
            handle_signals=False,
        )

    async def run(self):
        async for message in self.consumer:
            self.got[message.value] += 1
            await self.consumer.ack(message)


@pytest.mark.req("PUL-01", "PUL-98", "PUL-100", "PUL-101", "PUL-102", "AZR-70")
@pytest.mark.req("PUL-105", "PUL-106")
async def test_each_group_gets_all_and_shares_it_among_its_members():
    names = [("workers", "w1"), ("workers", "w2"), ("auditors", "a1")]
    names += [("alone", "x1"), ("alone", "x2")]
    async with (
        asyncio.timeout(WAIT_S),
        LocalBroker(groups=TYPES, partitions=PARTITIONS) as local,
        AsyncExitStack() as stack,
    ):
        members = [Reading(local, group, member) for group, member in names]
        for each in members:
            await stack.enter_async_context(each.consumer)
        async with asyncio.TaskGroup() as tasks:
            reading = [tasks.create_task(each.run()) for each in members]

            def shares():
                return [len(each.held) for each in members]

            await eventually(
                lambda: (
                    shares()[:3] == [2, 2, PARTITIONS] and sorted(shares()[3:]) == [0, PARTITIONS]
                ),
                "every group has its shares",
            )
            async with Producer(local.url, queue="orders", token=local.tokens.produce) as producer:
                values = [str(number).encode() for number in range(COUNT)]
                await (await producer.send_many([Message(f"k{v!r}", v) for v in values]))

            def total(group):
                return sum((each.got for each in members if each.group == group), Counter())

            await eventually(
                lambda: all(total(group).total() >= COUNT for group in TYPES), "all is read"
            )
            for each in reading:
                each.cancel()
    once = Counter(values)
    assert {group: total(group) == once for group in TYPES} == dict.fromkeys(TYPES, True)
    first, second, _, *alone = (each.got for each in members)
    assert first, "both of the members that share have some of it"
    assert second
    assert sorted(each.total() for each in alone) == [0, COUNT]
