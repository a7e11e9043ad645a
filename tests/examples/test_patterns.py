"""The patterns for handoffs: what comes out is right, and wrong as soon as one is left out."""

import asyncio
import importlib.util
import json
import sqlite3
from contextlib import AsyncExitStack, closing
from types import SimpleNamespace

import pytest
from aiohttp import ClientSession

from partq import Consumer, Message, Producer, Token
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.examples.programs import EXAMPLES, WAIT_S, output, start

ORDERS = [f"order-{number}" for number in range(12)]
LINES = 6
HALF = LINES // 2
CENTS = 100


@pytest.fixture
async def broker():
    """Two groups, and a lease so long that no busy machine outlasts it."""
    async with LocalBroker(
        groups=["with", "without"],
        partitions=2,
        spec={"rebalance": {"maxHandoffSeconds": 0.2}},
        lease_ttl_s=10.0,
    ) as local:
        yield local


def load(name):
    """Import an example."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


shared_state, ack_last = load("shared_state"), load("ack_last")


async def publish(broker, lines):
    """Publish some of the lines of every order."""
    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        for line in lines:
            value = json.dumps({"line": line, "lines": LINES, "cents": CENTS}).encode()
            await (await producer.send_many([Message(order, value) for order in ORDERS]))


async def shared(broker, group):
    """Wait until two members have a partition each."""
    headers = {"Authorization": f"Bearer {broker.tokens.consume}"}
    url = f"{broker.url}/v1/queues/orders/status"
    async with ClientSession(headers=headers) as session:

        async def are_two():
            async with session.get(url) as response:
                partitions = (await response.json())["groups"][group]["partitions"].values()
            return len({each["member"] for each in partitions if each["state"] == "Ready"}) == 2

        await eventually(are_two, f"two members share {group}", interval_s=0.05)


# ---- the worked example -------------------------------------------------------------------------


@pytest.mark.req("HND-17", "HND-03")
async def test_a_partition_passes_in_the_middle_of_its_messages(broker):
    tokens = broker.tokens
    given = ("--url", broker.url, "--publish", tokens.produce, "--consume", tokens.consume)
    process = await start("handoff.py", *given, "--group", "with")
    got = {"one": {}, "two": {}}
    for line in await output(process):
        member, _, key, number = line.split(" ")  # "again" would be a part too many
        got[member].setdefault(key, []).append(int(number))
    (moved,) = got["two"]
    (other,) = got["one"].keys() - {moved}
    assert got == {"one": {moved: [1, 2], other: [1, 2, 3, 4, 5]}, "two": {moved: [3, 4, 5]}}


# ---- state in a shared database -----------------------------------------------------------------


class Pair:
    """Two processes of one group, each with what it has written."""

    def __init__(self, broker, group):
        self.broker, self.group = broker, group
        self.processes = []
        self.lines = []

    async def start(self, database):
        """Start one of them."""
        given = ("--url", self.broker.url, "--token", self.broker.tokens.consume)
        process = await start(
            "shared_state.py", *given, "--group", self.group, "--database", str(database)
        )
        lines = []
        self.processes.append((process, asyncio.create_task(self._read(process, lines))))
        self.lines.append(lines)

    async def _read(self, process, lines):
        async for line in process.stdout:
            lines.append(line.decode().strip())

    async def have_written(self, count):
        """Wait until both have told of so many messages, without those that came again."""

        def are_told():
            told = [line for lines in self.lines for line in lines if "known" not in line]
            return sum(line.startswith("order-") for line in told) >= count

        await eventually(are_told, f"{count} messages are told of")

    async def stop(self):
        """End them, as Kubernetes would."""
        for process, _ in self.processes:
            process.terminate()
        for process, reading in self.processes:
            async with asyncio.timeout(WAIT_S):
                await asyncio.gather(process.wait(), reading)
            assert process.returncode == 0


def complete(database):
    """Return the sums of the orders that are complete."""
    with closing(sqlite3.connect(database)) as connection:
        return dict(connection.execute("SELECT id, cents FROM orders WHERE is_complete"))


@pytest.mark.req("HND-23", "HND-03", "HND-29")
async def test_sums_go_on_where_the_last_owner_has_left_them(broker, tmp_path):
    """With one database for both. With one for each, the second cannot continue with anything."""
    one, two, own = (tmp_path / f"{name}.db" for name in ("one", "two", "own"))
    pairs = [Pair(broker, "with"), Pair(broker, "without")]
    databases = {"with": (one, one), "without": (own, two)}
    await publish(broker, range(HALF))
    for pair in pairs:
        await pair.start(databases[pair.group][0])
    for pair in pairs:
        await pair.have_written(HALF * len(ORDERS))
        await pair.start(databases[pair.group][1])
    for pair in pairs:
        await shared(broker, pair.group)
    await publish(broker, range(HALF, LINES))
    for pair in pairs:
        await pair.have_written(LINES * len(ORDERS))
        await pair.stop()

    assert complete(one) == dict.fromkeys(ORDERS, LINES * CENTS)
    assert pairs[0].lines[1], "some orders were moved in the middle"
    moved = {line.partition(":")[0] for line in pairs[1].lines[1]}
    assert complete(own).keys() == set(ORDERS) - moved
    assert complete(two) == {}
    assert f"{min(moved)}: refused: line 0 is missing" in pairs[1].lines[1]


def line(number, epoch=7):
    """Return a message as an owner of this epoch gets it."""
    value = json.dumps({"line": number, "lines": LINES, "cents": CENTS}).encode()
    return SimpleNamespace(key="order-0", value=value, token=Token(1, 5, epoch, number))


@pytest.mark.req("HND-23", "HND-29")
def test_a_line_counts_once_and_not_for_a_former_owner(tmp_path):
    """What comes again changes nothing, nor does a process that was taken for dead."""
    outcomes = []
    with closing(shared_state.open_database(tmp_path / "sums.db")) as database:
        for message in (line(0), line(0), line(2), line(1, epoch=9), line(2), line(2, epoch=9)):
            outcomes.append(shared_state.add(database, message).partition(":")[0])
        sums = database.execute("SELECT next_line, cents FROM orders").fetchall()
    assert outcomes == ["added", "known", "refused", "added", "refused", "added"]
    assert sums == [(3, 3 * CENTS)]


# ---- ack last -----------------------------------------------------------------------------------


def ack_each():
    """Return the same without the pattern: every line is acknowledged as it comes."""

    class AckEach(ack_last.Orders):
        def add(self, message):
            super().add(message)
            return [message]

    return AckEach()


async def in_halves(broker, group, kind, is_over):
    """Have two consumers process all orders; the second one joins in the middle of each."""
    both = [kind(), kind()]
    async with AsyncExitStack() as stack:
        tasks = []

        async def join(orders):
            consumer = Consumer(
                broker.url, queue="orders", group=group, token=broker.tokens.consume,
                on_revoked=orders.forget, handle_signals=False, leave_timeout_s=0.1,
            )  # fmt: skip
            await stack.enter_async_context(consumer)
            tasks.append(asyncio.create_task(ack_last.process(consumer, orders)))

        def gathered():
            return [len(lines) for some in both[0].open.values() for lines in some.values()]

        await publish(broker, range(HALF))
        await join(both[0])
        await eventually(lambda: gathered() == [HALF] * len(ORDERS))
        await join(both[1])
        await shared(broker, group)
        await publish(broker, range(HALF, LINES))
        await eventually(lambda: is_over(both))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return both


@pytest.mark.req("HND-24", "HND-03")
async def test_an_order_is_redelivered_complete_when_it_is_acknowledged_last(broker):
    def is_over(both):
        return sum(len(orders.complete) for orders in both) >= len(ORDERS)

    first, second = await in_halves(broker, "with", ack_last.Orders, is_over)
    assert sorted(first.complete + second.complete) == sorted(ORDERS)
    assert second.complete, "some orders were moved in the middle"
    assert first.headless + second.headless == []


@pytest.mark.req("HND-24", "HND-26", "HND-29")
async def test_an_order_without_its_first_lines_is_noticed(broker):
    """The pattern left out: what the first consumer had in memory is lost with its partition."""

    def is_over(both):
        complete = sum(len(orders.complete) for orders in both)
        return complete + len({key for orders in both for key in orders.headless}) == len(ORDERS)

    first, second = await in_halves(broker, "without", ack_each, is_over)
    assert second.complete == []
    assert set(second.headless) == set(ORDERS) - set(first.complete)
    assert second.headless
