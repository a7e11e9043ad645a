"""The partition count of a live queue changes, up and down: nothing is lost, and keys keep order.

All processes are real. One group consumes as messages come, a second one alone and slowly, and a
third one begins when all changes are over: it reads what was published under four layouts.
"""

import asyncio
from collections import Counter, defaultdict
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from math import inf

import aiohttp
import pytest

from partq.client.consumer import Consumer
from partq.client.producer import Producer
from partq.core.model import Cause
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker

KEYS = [f"key-{number}" for number in range(48)]
COUNTS = (6, 3, 4)
GAP_S = 0.01
TURN = 8
"""Messages that are published at once."""
LAG = 2000
"""Publishing waits while so many messages lie before a group: a machine that is busy for long would
have ever more of them to consume at the end."""
FRESH = 200
"""Messages that have to be published, and consumed, before and after each change."""


class Group:
    """What the members of a group have processed."""

    def __init__(self):
        self.numbers = defaultdict(list)
        self.faults = []
        self.repeats = []
        self.count = 0

    def take(self, message):
        number, numbers = int(message.value), self.numbers[message.key]
        expected = numbers[-1] + 1 if numbers else 0
        if number < expected:
            self.repeats.append(message.cause)
            if message.cause is Cause.NONE:
                self.faults.append(f"{message.key} {number} again, without a cause")
            return
        if number > expected:
            self.faults.append(
                f"{message.key} {number} of {message.partition} came when {expected} was due"
            )
        numbers.append(number)
        self.count += 1


class Traffic:
    """A producer, and the members of the groups.

    `most_lag`: publishing waits while so many messages lie before a group that consumes.
    """

    def __init__(self, broker, most_lag=inf):
        self.broker = broker
        self.most_lag = most_lag
        self.groups = defaultdict(Group)
        self.consuming = set()
        self.published = dict.fromkeys(KEYS, 0)
        self.confirmed = 0
        self.stopped = asyncio.Event()
        self.errors = []

    async def publish(self):
        async with Producer(
            self.broker.url, queue="orders", token=self.broker.tokens.produce, linger_ms=2,
            max_batch_count=16,
        ) as producer:  # fmt: skip
            while not self.stopped.is_set():
                for _ in range(TURN):
                    key = KEYS[sum(self.published.values()) % len(KEYS)]
                    number = self.published[key]
                    self.published[key] += 1
                    answer = await producer.send(b"%d" % number, key=key)
                    answer.add_done_callback(self.answered)
                await self.pause()
                while self.lag() > self.most_lag and not self.stopped.is_set():
                    await self.pause()

    async def pause(self):
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopped.wait(), GAP_S)

    def lag(self):
        """Return how many messages the last of the groups has before it that consume."""
        counts = [self.groups[group].count for group in self.consuming]
        return sum(self.published.values()) - min(counts) if counts else 0

    def answered(self, answer):
        if answer.cancelled() or answer.exception() is not None:
            self.errors.append(repr(answer))
        else:
            self.confirmed += 1

    async def consume(self, group, member, work_s=0.0):
        self.consuming.add(group)
        async with Consumer(
            self.broker.url, queue="orders", group=group, token=self.broker.tokens.consume,
            member=member, handle_signals=False,
        ) as consumer:  # fmt: skip
            async for message in consumer:
                if work_s:
                    await asyncio.sleep(work_s)
                self.groups[group].take(message)
                consumer.ack_nowait(message)

    async def goes_on(self):
        """Wait until some more is published, and consumed."""
        published, consumed = self.confirmed + FRESH, self.groups["workers"].count + FRESH
        await eventually(
            lambda: self.confirmed >= published and self.groups["workers"].count >= consumed,
            "traffic goes on",
        )

    async def is_all_consumed(self, group, admin):
        """Wait for it. A fault ends the test at once, and what does not come is named."""
        taken = self.groups[group]

        def has_all():
            assert self.errors == []
            assert taken.faults == [], group
            return taken.count == sum(self.published.values())

        try:
            await eventually(has_all, f"{group} has all", timeout_s=90.0)
        except AssertionError as error:
            got = {key: len(taken.numbers[key]) for key in KEYS}
            missing = {key: (got[key], self.published[key]) for key in KEYS}
            missing = {key: pair for key, pair in missing.items() if pair[0] != pair[1]}
            error.add_note(f"of each key, taken and published: {missing}")
            error.add_note(f"the layout: {await admin.layout()}")
            error.add_note(f"the group: {await admin.states(group)}")
            raise


class Admin:
    """Changes the count, and looks at the layout."""

    def __init__(self, broker, http):
        self.broker = broker
        self.http = http

    async def call(self, method, path, token, body=None, urls=None):
        for url in urls or self.broker.url.split(","):
            try:
                headers = {"Authorization": f"Bearer {token}"}
                async with self.http.request(
                    method, url + path, headers=headers, json=body
                ) as answer:
                    return answer.status, await answer.json()
            except aiohttp.ClientError:
                continue
        return 0, None

    async def change(self, count):
        async def accepted():
            status, answer = await self.call(
                "POST", "/admin/v1/queues/orders/partitions", self.broker.tokens.admin,
                {"partitions": count, "is_dry_run": False},
            )  # fmt: skip
            assert status in (0, 200, 202, 503), answer
            return status in (200, 202)

        await eventually(accepted, f"the count {count} is accepted")

    async def layout(self):
        _, answer = await self.call("GET", "/v1/queues/orders/layout", self.broker.tokens.consume)
        return answer or {}

    async def states(self, group):
        """What each broker says of its partitions."""
        path, token = f"/v1/queues/orders/groups/{group}/state", self.broker.tokens.admin
        return [
            await self.call("GET", path, token, urls=[url]) for url in self.broker.url.split(",")
        ]

    async def is_spread(self):
        """Wait until each broker has as many partitions: what moves later is delivered again."""

        async def spread():
            counts = Counter((await self.layout()).get("owners", {}).values())
            return len(counts) == 2 and len(set(counts.values())) == 1

        await eventually(spread, "each broker has as many partitions")

    async def has(self, count):
        async def committed():
            return len((await self.layout()).get("table", {})) == count

        await eventually(committed, f"the layout has {count} partitions", timeout_s=60.0)


@asynccontextmanager
async def running(work):
    """Run tasks meanwhile; what ends one of them ends the block."""
    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(each) for each in work]
        yield made
        for each in made:
            each.cancel()


async def go(broker, strike):
    timeout = aiohttp.ClientTimeout(10)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        admin, traffic = Admin(broker, http), Traffic(broker, LAG)
        consumers = [
            traffic.consume("workers", "one"), traffic.consume("workers", "two"),
            traffic.consume("slow", "single", work_s=0.002),
        ]  # fmt: skip
        await admin.is_spread()
        async with running(consumers):
            publishing = asyncio.create_task(traffic.publish())
            await traffic.goes_on()
            for count in COUNTS:
                await strike(admin, count)
                await admin.has(count)
                await traffic.goes_on()
            traffic.stopped.set()
            await publishing
            async with running([traffic.consume("late", "single")]):
                for group in ("workers", "slow", "late"):
                    await traffic.is_all_consumed(group, admin)
    return traffic


def judge(traffic):
    assert traffic.errors == []
    for name, group in traffic.groups.items():
        assert group.faults == [], name
        got = {key: len(group.numbers[key]) for key in KEYS}
        assert got == traffic.published, name


def started(lease_ttl_s=10.0):
    groups = {name: {} for name in ("workers", "slow", "late")}
    spec = {"rebalance": {"delaySeconds": 1, "maxHandoffSeconds": 2}}
    return LocalBroker(
        partitions=4, groups=groups, broker_count=2, spec=spec, lease_ttl_s=lease_ttl_s
    )


async def test_four_to_six_to_three_to_four_partitions():
    async with started() as broker:
        traffic = await go(broker, Admin.change)
    judge(traffic)
    for group in traffic.groups.values():
        assert group.repeats == [], "nobody was killed, and no member left"


@pytest.mark.chaos
async def test_the_layout_is_set_back_in_each_change():
    """The node of a Redis Cluster that has it forgets that the change came into force."""
    async with started() as broker, AsyncExitStack() as stack:
        queue = broker.queue
        store = await Store.open(broker.runtime.redis_url)
        stack.push_async_callback(store.close)
        name = Keys(store.prefix, "default", "orders", queue.uid).layout()

        async def set_back(admin, count):
            # Both are read before the request, for a change may be in force a moment after it.
            fields = await store.read("HGETALL", name)
            before = await store.read("HGET", name, "generation")
            await admin.change(count)

            async def is_in_force():
                return await store.read("HGET", name, "generation") != before

            await eventually(is_in_force, f"the change to {count} is in force")
            await store.read("HSET", f"{name}:old", *fields)
            await store.read("RENAME", f"{name}:old", name)
            await eventually(is_in_force, f"the change to {count} is in force again")

        traffic = await go(broker, set_back)
    judge(traffic)
    for group in traffic.groups.values():
        assert group.repeats == [], "nobody was killed, and no member left"


@pytest.mark.chaos
@pytest.mark.parametrize("what", ["coordinator", "broker", "redis"])
async def test_a_process_is_killed_during_each_change(what):
    async with started(lease_ttl_s=3.0) as broker:
        runtime = broker.runtime
        child = {
            "coordinator": runtime.coordinators[0],
            "broker": runtime.brokers[0],
            "redis": runtime.redis,
        }[what]

        async def kill(admin, count):
            await admin.change(count)
            await child.kill()

        traffic = await go(broker, kill)
    judge(traffic)
