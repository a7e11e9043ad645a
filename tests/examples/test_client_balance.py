"""The example whose nodes choose their partitions: by number, whoever dies meanwhile."""

import asyncio
import re
from contextlib import AsyncExitStack

import pytest

from partq import ClientAssignedConsumer, Message, Producer
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import Session
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from partq.wire.calls.registration import Subscribable
from tests.even_shares import even_shares
from tests.examples.programs import start

PARTITIONS = 16
NODES = 3
GROUP = {"assignment": "Client", "rebalance": {"delaySeconds": 3}}


@pytest.fixture
async def broker(request):
    """Its leases are short only where a test kills a broker: a busy machine ends such a one."""
    lease_s = getattr(request, "param", 10.0)
    async with LocalBroker(
        groups={"workers": GROUP}, partitions=PARTITIONS, broker_count=2, lease_ttl_s=lease_s
    ) as local:
        await even_shares(local.queue)
        yield local


class Nodes:
    """The processes of the example, and what the group's partitions look like."""

    def __init__(self, broker, watcher, stack):
        self._broker = broker
        self._watcher = watcher
        self._stack = stack
        self._reading = []
        self.lines = {}

    async def run(self, node):
        """Start a node; it is killed at the end."""
        given = ("--url", self._broker.url, "--token", self._broker.tokens.consume)
        numbers = ("--nodes", str(NODES), "--node", str(node), "--every", "0.2")
        process = await start("client_balance.py", *given, *numbers)
        lines = self.lines[node] = []

        async def read():
            async for line in process.stdout:
                lines.append(line.decode().strip())

        reading = asyncio.create_task(read())

        async def end():
            if process.returncode is None:
                process.kill()
            await process.wait()
            await reading

        self._stack.push_async_callback(end)
        return process

    async def holders(self):
        """Return the member that holds each partition, by its number, and its epoch."""
        shown = await self._watcher.query_partitions()
        assert len(shown) == PARTITIONS, "the set is the configured one, whatever happens"
        return {key.partition.index: (each.member, each.epoch) for key, each in shown.items()}

    async def until(self, wanted, what):
        """Wait until the partitions are held so."""

        async def is_so():
            held = {index: member for index, (member, _) in (await self.holders()).items()}
            return held == wanted

        await eventually(is_so, what)
        return await self.holders()


def by_number(without=()):
    """Return what each partition's holder is: number i is of node i mod 3."""
    return {
        index: "" if index % NODES in without else f"node-{index % NODES}"
        for index in range(PARTITIONS)
    }


@pytest.fixture
async def nodes(broker):
    watcher = ClientAssignedConsumer(
        broker.url, queue="orders", group="workers", token=broker.tokens.consume,
        handle_signals=False, leave_timeout_s=1.0,
    )  # fmt: skip
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(watcher)
        yield Nodes(broker, watcher, stack)


@pytest.mark.req("TUB-09", "TUB-13", "TUB-19", "TUB-26", "TUB-28", "TUB-31")
async def test_a_node_that_is_killed_costs_nobody_else_a_partition(broker, nodes):
    processes = [await nodes.run(node) for node in range(NODES)]
    before = await nodes.until(by_number(), "number i is of node i mod 3")
    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        await (await producer.send_many([Message(f"k{n}", b"") for n in range(200)]))

    def are_read():
        shown = [each for lines in nodes.lines.values() for each in lines]
        return sum(bool(re.match(r"1\.\d+ \d+ k\d+", each)) for each in shown) == 200

    await eventually(are_read, "all messages are processed, each once")

    processes[1].kill()
    await processes[1].wait()
    after = await nodes.until(by_number(without={1}), "its partitions are nobody's")
    await nodes.run(1)
    again = await nodes.until(by_number(), "they are back with its restart")
    for held in (after, again):
        rest = {index for index in range(PARTITIONS) if index % NODES != 1}
        assert {i: held[i] for i in rest} == {i: before[i] for i in rest}, "no other has moved"
    others = [each for node in (0, 2) for each in nodes.lines[node]]
    assert not any(each.startswith("released") for each in others)


@pytest.mark.req("TUB-20", "TUB-21")
@pytest.mark.parametrize("broker", [pytest.param(3.0, id="short leases")], indirect=True)
async def test_a_broker_that_dies_and_a_mark_change_no_owner(broker, nodes):
    for node in range(NODES):
        await nodes.run(node)
    await nodes.until(by_number(), "number i is of node i mod 3")
    seen = []

    await broker.queue.brokers[0].kill()

    async def is_served():
        seen.append({i: member for i, (member, _) in (await nodes.holders()).items()})
        return await _is_bound(nodes)

    await eventually(is_served, "every partition is served and held")
    for held in seen:
        for index, member in held.items():
            assert member in ("", f"node-{index % NODES}"), "nobody else ever had it"

    # One that cannot be registered stays free, and goes to its own node once it can.
    options = ConnectionOptions(broker.url, "orders", token=broker.tokens.admin)
    async with Session(options) as admin:
        path = "/partitions/1.4/subscribable"
        await admin.ask("PUT", path, Subscribable, {"is_subscribable": False, "reason": "disk"})
        before = await nodes.holders()
        shown = await nodes._watcher.query_partitions()
        assert [key.partition.index for key, p in sorted(shown.items()) if not p.is_subscribable] \
            == [4]  # fmt: skip
        assert before[4][0] == "node-1", "who holds it keeps it"
        await admin.ask("PUT", path, Subscribable, {"is_subscribable": True})
    assert {i: m for i, (m, _) in (await nodes.holders()).items()} == by_number()


async def _is_bound(nodes):
    shown = await nodes._watcher.query_partitions()
    return all(each.is_subscribable and each.member for each in shown.values())
