"""Failover and Exclusive groups beside real brokers: masters are killed with -9, others take over.

The rebalance delay is ten minutes, so that nothing that is seen here has waited for it.
"""

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from partq import Consumer, Message, Producer
from partq.aio import cancel_and_wait
from partq.embedded.runtime import EmbeddedRuntime
from partq.errors import BadRequestError
from partq.resources import group_document, queue_document, resources_of
from partq.testing import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

MEMBER = Path(__file__).with_name("failover_member.py")
COUNTS = {"pair": 2, "four": 4, "nine": 9, "changing": 4}


class Members:
    """The processes of one group's members, and what they have printed."""

    def __init__(self, runtime, queue, group):
        self.queue = runtime.queue(queue)
        self.names = queue, group
        self.partitions = [f"1.{index}" for index in range(COUNTS[queue])]
        self.processes = {}
        self.told = {}
        self._readers = []

    async def start(self, names, priority=0):
        for name in names:
            process = self.processes[name] = await asyncio.create_subprocess_exec(
                *(sys.executable, str(MEMBER), self.queue.url, *self.names),
                *(self.queue.tokens.consume, name, str(priority)),
                stdout=asyncio.subprocess.PIPE,
            )
            told = self.told[name] = []
            self._readers.append(asyncio.create_task(self._read(process, told)))

    async def _read(self, process, told):
        async for line in process.stdout:
            told.append(json.loads(line))

    async def kill(self, names):
        for name in names:
            process = self.processes.pop(name)
            process.kill()
            await process.wait()

    def standings(self, name):
        """Return what a member was told last of each partition."""
        return {p: what for what, p, _ in self.told[name] if what in ("active", "inactive")}

    async def masters(self, expected):
        """Wait until each living member knows that it has these partitions, and not the others.

        `expected`: the name of the master of each partition, by its index.
        """
        wanted = {
            name: {
                p: "active" if master == name else "inactive"
                for p, master in zip(self.partitions, expected, strict=True)
            }
            for name in self.processes
        }
        await eventually(
            lambda: {name: self.standings(name) for name in self.processes} == wanted,
            f"the masters are {expected}",
        )

    async def publish(self, numbers):
        queue, _ = self.names
        async with Producer(self.queue.url, queue=queue, token=self.queue.tokens.produce) as made:
            messages = [Message(f"key-{n}", str(n).encode()) for n in numbers]
            await (await made.send_many(messages))

    def messages(self, name):
        """Return (cause, partition, number) of what a member has got, in order."""
        return [
            (what, p, int(value))
            for what, p, value in self.told[name]
            if what not in ("active", "inactive")
        ]

    async def close(self):
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        await asyncio.gather(*self._readers)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runtime(tmp_path_factory):
    rebalance = {"delaySeconds": 600}
    queues = [queue_document(q, partitions=n, rebalance=rebalance) for q, n in COUNTS.items()]
    groups = [group_document(f"{q}-readers", q, type="Failover") for q in COUNTS]
    resources = resources_of(
        *queues,
        *groups,
        group_document("alone", "pair", type="Exclusive"),
        group_document("shared", "pair"),
    )
    directory = tmp_path_factory.mktemp("failover")
    made = EmbeddedRuntime(
        resources, directory, broker_count=2, lease_ttl_s=10.0, retire_after_s=0.2
    )
    async with made as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def members(runtime):
    made = []

    def make(queue, group=None):
        made.append(Members(runtime, queue, group or f"{queue}-readers"))
        return made[-1]

    yield make
    for each in made:
        await each.close()


@pytest.mark.req("PUL-108", "PUL-109", "PUL-114", "PUL-115", "PUL-119", "PUL-120")
async def test_two_masters_of_four_are_killed_and_the_next_two_continue(members):
    group = members("pair")
    await group.start("abcd")
    await group.masters("ab")
    await group.publish(range(20))
    await eventually(
        lambda: len(group.messages("a")) + len(group.messages("b")) == 20, "all is processed"
    )
    await group.kill("ab")
    await group.publish(range(20, 40))
    await group.masters("cd")

    def later():
        return [each for name in "cd" for each in group.messages(name)]

    await eventually(lambda: {n for *_, n in later()} >= set(range(20, 40)), "all goes on")
    for name, partition in (("c", "1.0"), ("d", "1.1")):
        got = [n for _, p, n in group.messages(name) if p == partition]
        assert got == sorted(got), "in the order of publishing"
        assert {p for _, p, _ in group.messages(name)} == {partition}
    # Of what the masters had finished at most the last one was not confirmed yet.
    repeated = [(cause, n) for cause, _, n in later() if n < 20]
    assert len(repeated) <= 2
    assert {cause for cause, _ in repeated} <= {"FLOW_LOST"}


@pytest.mark.req("PUL-109", "PUL-111", "PUL-112", "SOL-29", "SOL-U07")
async def test_masters_of_the_first_priority_are_killed_then_those_of_the_second_have_all(members):
    group = members("four")
    await group.start("dc", priority=1)
    await group.masters("cdcd")
    await group.start("ba")
    await group.masters("abab")  # who comes with a higher priority takes over
    await group.kill("a")
    await group.masters("bbbb")
    await group.kill("b")
    await group.masters("cdcd")
    await group.start("ab")  # back: they are of the first priority again
    await group.masters("abab")


@pytest.mark.req("PUL-113", "PUL-116", "PUL-110")
async def test_nine_partitions_of_three_masters(members):
    group = members("nine")
    await group.start("bca")
    await group.masters("abcabcabc")
    await group.kill("a")
    await group.masters("bbccbcbbc")  # a's at once; those of the healthy ones wait for a
    await group.start("a")
    await group.masters("abcabcabc")


@pytest.mark.req("PUL-105", "PUL-106", "PUL-109", "PUL-111")
async def test_one_of_an_exclusive_group_has_all_and_the_next_by_priority_follows(members):
    group = members("pair", "alone")
    await group.start("b", priority=1)
    await group.start("c")
    await group.masters("cc")
    await group.start("a", priority=2)
    await group.masters("cc")
    await group.kill("c")
    await group.masters("bb")


async def test_a_group_of_another_type_refuses_a_priority(runtime):
    queue = runtime.queue("pair")
    made = Consumer(
        queue.url, queue="pair", group="shared", token=queue.tokens.consume, priority=3,
        handle_signals=False,
    )  # fmt: skip
    with pytest.raises(BadRequestError, match="priority 3 in group shared, whose type is Part"):
        async with made as consumer:
            await anext(consumer)


async def change(runtime, count):
    """Change the partition count of the queue `changing`; return its partitions once it settles."""
    queue = runtime.queue("changing")
    url = f"{queue.brokers[0].url}/admin/v1/queues/changing/partitions"
    headers = {"Authorization": f"Bearer {queue.tokens.admin}"}
    async with aiohttp.ClientSession(headers=headers) as http:
        async with http.post(url, json={"partitions": count, "is_dry_run": False}) as answer:
            answer.raise_for_status()

        async def is_settled():
            async with http.get(f"{queue.brokers[0].url}/v1/queues/changing/status") as answer:
                rescale = (await answer.json()).get("rescale", {})
            return (rescale.get("to_count"), rescale.get("phase")) == (count, "Settled")

        await eventually(is_settled, f"{count} partitions", timeout_s=60.0)


async def test_the_first_priority_has_all_partitions_while_their_number_changes(runtime):
    """From 4 to 6 to 3; a member of the second priority gets none before those of the first go."""
    queue = runtime.queue("changing")
    active, sent = {}, 0
    got = {}
    """The key of each message, in the order of their first deliveries."""

    async def consume(name, priority):
        mine = active[name] = set()
        async with Consumer(
            queue.url, queue="changing", group="changing-readers", token=queue.tokens.consume,
            member=name, priority=priority, handle_signals=False,
            on_active=mine.add, on_inactive=mine.discard,
        ) as consumer:  # fmt: skip
            async for message in consumer:
                got.setdefault(int(message.value), message.key)
                await consumer.ack(message)

    async def publish():
        nonlocal sent
        sent += 40
        messages = [Message(f"key-{n % 20}", str(n).encode()) for n in range(sent - 40, sent)]
        await (await producer.send_many(messages))

    async def masters(expected):
        """Wait until these members have the partitions, by index, and all was processed."""
        await eventually(
            lambda: (
                {p.index: name for name, mine in active.items() for p in mine}
                == dict(enumerate(expected))
            ),
            f"the masters are {expected}",
        )
        await eventually(lambda: len(got) == sent, "all is processed")
        for key in {*got.values()}:
            numbers = [number for number, each in got.items() if each == key]
            assert numbers == sorted(numbers), key

    tasks = {n: asyncio.create_task(consume(n, p)) for n, p in [("c", 1), ("b", 0), ("a", 0)]}
    try:
        async with Producer(queue.url, queue="changing", token=queue.tokens.produce) as producer:
            await masters("abab")
            for count, expected in ((6, "ababab"), (3, "aba")):
                changing = asyncio.create_task(change(runtime, count))
                while not changing.done():
                    await publish()
                    await asyncio.wait({changing}, timeout=0.05)
                await changing
                await masters(expected)
            for name, expected in (("a", "bbb"), ("b", "ccc")):
                await cancel_and_wait(tasks[name])
                await publish()
                await masters(expected)
    finally:
        await cancel_and_wait(*tasks.values())
