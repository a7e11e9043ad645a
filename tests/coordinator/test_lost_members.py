"""Members that are killed, come back in time or too late, and stand by: real processes."""

import asyncio
import json
import os
import sys
import time
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from http import HTTPStatus
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import ClientSession

from partq import Consumer, Message, Producer
from partq.embedded.runtime import EmbeddedRuntime
from partq.resources import group_document, queue_document, resources_of
from partq.testing import eventually
from tests.faults.standstill import repeated_if_still

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONSUME = Path(__file__).parents[2] / "examples" / "consume.py"
WAIT_S = 60.0
LOOK_S = 0.05
DELAY_S = 1.5


class Group:
    """One group of the queue, and what its members are told."""

    def __init__(self, runtime, session, name):
        self.queue = runtime.queue("orders")
        self.session = session
        self.name = name
        self.told = {}
        """member → (instant, what, partition), as it comes"""
        self.processes = []

    def member(self, name):
        """Return a consumer in this process."""
        told = self.told.setdefault(name, [])

        def note(what):
            return lambda partition, *_: told.append((time.monotonic(), what, str(partition)))

        return Consumer(
            self.queue.url,
            queue="orders",
            group=self.name,
            token=self.queue.tokens.consume,
            member=name,
            on_assigned=note("assigned"),
            on_revoked=note("revoked"),
            handle_signals=False,
        )

    async def start(self, name):
        """Start a consumer as a process of its own, the same member each time."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(CONSUME), "--url", self.queue.url, "--group", self.name),
            *("--token", self.queue.tokens.consume),
            stdout=asyncio.subprocess.DEVNULL,
            env=os.environ | {"PARTQ_MEMBER": name},
        )
        self.processes.append(process)
        return process

    async def kill(self, process):
        """End a process with -9; return the instant before."""
        instant = time.monotonic()
        process.kill()
        await process.wait()
        return instant

    async def status(self):
        """Return (member, state) of each partition, and the state of each member."""
        headers = {"Authorization": f"Bearer {self.queue.tokens.consume}"}
        url = f"{self.queue.url}/v1/queues/orders/status"

        async def answer():
            async with self.session.get(url, headers=headers) as response:
                # A Redis that takes long to answer costs the answer, and nothing else.
                return await response.json() if response.status == HTTPStatus.OK else None

        group = (await eventually(answer, "an answer", interval_s=LOOK_S))["groups"][self.name]
        partitions = {p: (each["member"], each["state"]) for p, each in group["partitions"].items()}
        return partitions, {each["member"]: each["state"] for each in group["members"]}

    async def shared(self, names):
        """Wait until these members share the partitions, all Ready; return who holds which.

        It is seen twice: an answer may show one partition before a move and another one after it.
        """
        last = None

        async def holders():
            nonlocal last
            before, last = last, await even_holders()
            return last if last == before else None

        async def even_holders():
            partitions, _ = await self.status()
            sizes = Counter(member for member, state in partitions.values() if state == "Ready")
            is_even = not sizes or max(sizes.values()) - min(sizes.values()) <= 1
            if set(sizes) == set(names) and sizes.total() == 4 and is_even:
                return {p: member for p, (member, _) in partitions.items()}
            return None

        return await eventually(holders, f"{names} share the partitions", interval_s=LOOK_S)

    async def reaches(self, name, state):
        """Wait until a member is in a state."""

        async def is_so():
            _, members = await self.status()
            return members.get(name) == state

        await eventually(is_so, f"{name} is {state}", interval_s=LOOK_S)

    async def stands_by(self, name):
        """Wait until a member can take over: it is listed before its flow is there."""
        await self.reaches(name, "Standby")
        headers = {"Authorization": f"Bearer {self.queue.tokens.admin}"}
        url = f"{self.queue.url}/admin/v1/queues/orders/state"

        async def has_flow():
            async with self.session.get(url, headers=headers) as response:
                flows = (await response.json())["flows"] if response.ok else []
            return (self.name, name) in [(each["group"], each["member"]) for each in flows]

        await eventually(has_flow, f"the flow of {name} is there", interval_s=LOOK_S)

    async def unbound(self, name, held):
        """Wait until exactly the partitions of a member have no consumer, and are still its own."""
        wanted = {
            p: (member, "Unbound" if member == name else "Ready") for p, member in held.items()
        }

        async def is_so():
            partitions, _ = await self.status()
            return partitions == wanted

        await eventually(is_so, f"the partitions of {name} have no consumer", interval_s=LOOK_S)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runtime(tmp_path_factory):
    """The queue, with a group for each test; a lease so long that no busy machine outlasts it."""
    data_dir = tmp_path_factory.mktemp("lost_members")
    resources = resources_of(
        queue_document("orders", partitions=4, rebalance={"delaySeconds": 600}),
        group_document("patient", "orders"),
        group_document(
            "hasty", "orders", rebalance={"delaySeconds": DELAY_S, "standby": "AfterDelay"}
        ),
        group_document("covered", "orders"),
        group_document("crowded", "orders"),
    )
    async with EmbeddedRuntime(resources, data_dir, broker_count=1, lease_ttl_s=10.0) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def groups(runtime):
    """Return the maker of groups; their processes end with the test."""
    made = []
    async with ClientSession() as session:

        def make(name):
            for process in (process for group in made for process in group.processes):
                if process.returncode is None:  # of this test, which begins again
                    process.kill()
            made.append(Group(runtime, session, name))
            return made[-1]

        yield make
    for process in (process for group in made for process in group.processes):
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.req("SOL-37", "SOL-33", "SOL-43", "SOL-U03", "SOL-42")
@repeated_if_still
async def test_a_member_that_is_back_in_time_gets_the_same_and_nobody_notices(groups):
    group = groups("patient")
    async with group.member("a"):
        process = await group.start("b")
        held = await group.shared("ab")
        told = list(group.told["a"])
        await group.kill(process)
        await group.unbound("b", held)
        await group.start("b")
        assert await group.shared("ab") == held
        assert group.told["a"] == told


@pytest.mark.req("SOL-26", "SOL-38", "SOL-39", "SOL-41", "SOL-42")
@repeated_if_still
async def test_a_member_that_is_back_too_late_joins_again(groups):
    """Somebody new comes meanwhile, and waits, too: nothing moves before the delay is over."""
    group = groups("hasty")
    async with group.member("a"):
        process = await group.start("b")
        await group.shared("ab")
        told = len(group.told["a"])
        killed_at = await group.kill(process)
        async with group.member("c"):
            await group.shared("ac")
            instants = [at for at, _, _ in group.told["a"][told:] + group.told["c"]]
            assert min(instants) >= killed_at + DELAY_S
            await group.start("b")
            await group.shared("abc")


@pytest.mark.req("SOL-29", "SOL-U07", "SOL-U03")
@repeated_if_still
async def test_a_standby_takes_over_at_once_and_a_newcomer_restores_the_count(groups):
    """The delay is ten minutes: what moves does not wait for it. Nobody else's partitions move."""
    group = groups("covered")
    async with group.member("a"), AsyncExitStack() as stack:
        process = await group.start("b")
        held = await group.shared("ab")
        told = list(group.told["a"])
        await group.kill(process)
        await stack.enter_async_context(group.member("c"))  # it comes after the loss
        taken = await group.shared("ac")
        assert taken == {p: "c" if member == "b" else member for p, member in held.items()}
        assert group.told["a"] == told

        async with AsyncExitStack() as others:
            for name in "ef":
                await others.enter_async_context(group.member(name))
            before = await group.shared("acef")
            process = await group.start("s")
            await group.stands_by("s")
            await group.kill(process)  # it held nothing
            spare = await group.start("t")
            await group.stands_by("t")
            told = {name: list(group.told[name]) for name in "acef"}
            victim = await group.start("u")
            await group.stands_by("u")
            await group.kill(victim)
            assert await group.shared("acef") == before
            assert {name: group.told[name] for name in "acef"} == told
            await group.kill(spare)


@pytest.mark.req("SOL-06", "SOL-25", "SOL-28", "SOL-29")
@repeated_if_still
async def test_a_member_in_excess_gets_nothing_until_one_leaves(groups):
    group = groups("crowded")
    got, came = defaultdict(list), asyncio.Event()
    async with AsyncExitStack() as stack:

        async def join(name):
            member = await stack.enter_async_context(group.member(name))
            work = member.run(lambda message: take(name, member, message))
            tasks.append(asyncio.create_task(work))
            return member

        def take(name, member, message):
            got[name].append(json.loads(message.value)["order"])
            came.set()
            member.ack_nowait(message)

        async def publish(numbers):
            """Publish what the processes of the other groups can read: they get it, too."""
            async with Producer(
                group.queue.url, queue="orders", token=group.queue.tokens.produce
            ) as producer:
                messages = [Message(f"key-{n}", b'{"order": %d}' % n) for n in numbers]
                await (await producer.send_many(messages))
            async with asyncio.timeout(WAIT_S):
                while not {n for some in got.values() for n in some}.issuperset(numbers):
                    came.clear()
                    await came.wait()

        tasks = []
        first, *_ = [await join(name) for name in "abcd"]
        held = await group.shared("abcd")
        told = {name: list(some) for name, some in group.told.items()}
        await join("e")
        await group.stands_by("e")
        await publish(range(40))
        assert group.told == told | {"e": []}
        assert set(got) == set("abcd")

        first.leave()
        now = await group.shared("bcde")
        assert now == {p: "e" if member == "a" else member for p, member in held.items()}
        assert {name: group.told[name] for name in "bcd"} == {name: told[name] for name in "bcd"}
        await publish(range(40, 80))
        assert set(got) == set("abcde")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
