"""The assignment of a group changes while its members are connected, with real processes."""

import asyncio
from contextlib import asynccontextmanager

from partq import AuditReader, Consumer, Message, Producer
from partq.embedded.provision import provision
from partq.resources import group_document, queue_document, resources_of
from partq.store.connection import Store
from partq.testing import eventually
from tests.audit_record import decode_group
from tests.embedded.client_group import PREFIX
from tests.even_shares import even_shares

COUNT = 200
NAMES = [f"1.{index}" for index in range(4)]
LONG_S = 300
"""No handoff is over by itself meanwhile."""


async def change(runtime, group, assignment, handoff_s=3):
    """Have the running processes follow another `assignment` of the group."""
    rebalance = {"delaySeconds": 10, "maxHandoffSeconds": handoff_s}
    queue = {"partitions": len(NAMES), "audit": True, "rebalance": rebalance}
    resources = resources_of(
        queue_document("orders", **queue, brokers={"replicas": 2}),
        group_document("workers", "orders", assignment=assignment),
    )
    store = await Store.open(runtime.redis_url)
    try:
        await provision(store, resources.queues[0], resources, uid=runtime.queue("orders").uid)
    finally:
        await store.close()

    async def is_followed():
        told = await group.call("GET", "/v1/queues/orders/status")
        shown = await group.call("GET", f"{PREFIX}/partitions")
        return told["groups"]["workers"]["assignment"] == shown["assignment"] == assignment

    await eventually(is_followed, f"the assignment is {assignment}")


async def publish(group, batch):
    queue = group.queue
    async with Producer(queue.url, queue="orders", token=queue.tokens.produce) as producer:
        await (
            await producer.send_many(
                [Message(f"k{n}", b"%d" % n) for n in range(batch * COUNT, (batch + 1) * COUNT)]
            )
        )


async def all_done(group):
    async def is_done():
        rows = await group.look()
        return not any(row["lag"] for row in rows.values())

    await eventually(is_done, "all is acknowledged")


async def test_assignment_changes_while_members_are_connected(started):
    """Each keeps what it has, then the coordinator gives what is free; nothing is lost or twice."""
    async with (
        started(brokers=2, partitions=4, delay_s=10, audit=True, assignment="Server") as (
            runtime,
            group,
        ),
        group.process_of("a"),
        group.process_of("b"),
    ):
        await even_shares(group.queue)
        held = await eventually(lambda: _evenly_held(group), "each member has its share")
        before = await group.settled(held)
        await publish(group, 0)
        name = NAMES[0]
        holder = held[name]
        other = "b" if holder == "a" else "a"

        await change(runtime, group, "Client")
        await publish(group, 1)
        kept = await group.settled(held)
        epochs = {each: before[each]["epoch"] for each in NAMES}
        assert {each: kept[each]["epoch"] for each in NAMES} == epochs, "each keeps what it has"
        refused = await register(group, other, name, epochs[name])
        assert refused["error"]["code"] == "partition_in_use"

        # As if it had registered it: it gives it back, and the other member may have it.
        await unregister(group, holder, name, epochs[name])
        assert (await group.holders())[name] == ""
        await group.register(other, name)
        chosen = await group.settled({**held, name: other})
        await unregister(group, other, name, chosen[name]["epoch"])
        free = (await group.look())[name]
        assert free["member"] == ""
        await publish(group, 2)

        await change(runtime, group, "Server")
        refused = await register(group, holder, name, free["epoch"])
        assert refused["error"]["code"] == "server_assigned"
        held = await eventually(lambda: _evenly_held(group), "what was free is assigned")
        await group.settled(held)
        await publish(group, 3)
        await all_done(group)

        # A call from before the changes arrives now.
        await change(runtime, group, "Client")
        now = await group.settled(held)
        late = await register(group, held[name], name, free["epoch"])
        assert late.get("is_new") is False, "it holds it: nothing is written"
        assert (await group.look())[name]["epoch"] == now[name]["epoch"]
        await unregister(group, held[name], name, now[name]["epoch"])
        late = await register(group, holder, name, free["epoch"])
        assert late["error"]["code"] == "fenced"
        assert (await group.holders())[name] == ""

        assert await _deliveries(group) == 4 * COUNT


@asynccontextmanager
async def consumer_of(group, member):
    urls, token = group.queue.url, group.queue.tokens.consume
    options = {"token": token, "member": member, "handle_signals": False}
    async with Consumer(urls, queue="orders", group="workers", **options) as consumer:
        yield consumer


async def one_of_each(consumer):
    """Take messages until one of each partition is in hand."""
    taken = []
    while len({each.partition for each in taken}) < len(NAMES):
        taken.append(await anext(consumer))
    return taken


async def ack_all(consumer, taken=()):
    for each in taken:
        await consumer.ack(each)
    async for each in consumer:
        await consumer.ack(each)


@asynccontextmanager
async def going_on(*works):
    """Let members work beside the test."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
        assert not [task for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def paused(group, count):
    """Wait until nothing is delivered of so many partitions; return them."""

    async def are_paused():
        rows = await group.look()
        found = {name for name, row in rows.items() if row["state"] == "Paused"}
        return found if len(found) == count else None

    return await eventually(are_paused, f"{count} partitions are paused")


async def test_handoffs_under_way_end_as_planned_when_members_choose_from_then_on(started):
    options = {"brokers": 2, "partitions": 4, "delay_s": 10, "handoff_s": LONG_S, "audit": True}
    async with (
        started(**options, assignment="Server") as (runtime, group),
        consumer_of(group, "a") as a,
    ):
        await even_shares(group.queue)
        await publish(group, 0)
        taken = await one_of_each(a)
        async with consumer_of(group, "b") as b:
            moving = await paused(group, 2)
            await change(runtime, group, "Client", LONG_S)
            assert await paused(group, 2) == moving
            assert set((await group.holders()).values()) == {"a"}, "it has not finished them"
            first = min(moving)
            epoch = (await group.look())[first]["epoch"]

            async def is_refused():  # its broker may follow the change last
                answer = await register(group, "b", first, epoch)
                return answer["error"]["code"] == "partition_in_use"

            await eventually(is_refused, "a has it still")
            async with going_on(ack_all(a, taken), ack_all(b)):
                held = {name: "b" if name in moving else "a" for name in NAMES}
                rows = await group.settled(held)
                # Each has what it has as if it had registered it, and nothing more moves.
                await unregister(group, "b", first, rows[first]["epoch"])
                await publish(group, 1)
                await group.register("b", first)
                await group.settled(held)
                await all_done(group)
            assert await _deliveries(group) == 2 * COUNT


async def test_what_is_being_unregistered_goes_on_when_the_coordinator_assigns_from_then_on(
    started,
):
    options = {"brokers": 2, "partitions": 4, "delay_s": 10, "handoff_s": LONG_S, "audit": True}
    async with (
        started(**options, assignment="Client") as (runtime, group),
        consumer_of(group, "a") as a,
        consumer_of(group, "b") as b,
    ):
        await even_shares(group.queue)
        await group.register("a", *NAMES)
        await group.settled(dict.fromkeys(NAMES, "a"))
        await publish(group, 0)
        taken = await one_of_each(a)
        name = NAMES[0]
        epoch = (await group.look())[name]["epoch"]
        params = {"incarnation": await group.incarnation("a"), "epoch": str(epoch), "wait_ms": "0"}
        path = f"{PREFIX}/members/a/partitions/{name}"
        begun = await group.call("DELETE", path, params=params)
        assert (begun["is_free"], begun["in_flight"] > 0) == (False, True)
        assert await paused(group, 1) == {name}
        await change(runtime, group, "Server", LONG_S)

        async def is_refused():  # its broker may follow the change last
            repeated = await group.call("DELETE", path, params=params)
            return repeated.get("error", {}).get("code") == "server_assigned"

        await eventually(is_refused, "the coordinator assigns it")
        async with going_on(ack_all(a, taken), ack_all(b)):
            held = await eventually(lambda: _evenly_held(group), "each has its share")
            await group.settled(held)
            await publish(group, 1)
            await all_done(group)
        assert await _deliveries(group) == 2 * COUNT


async def _evenly_held(group):
    held = await group.holders()
    return held if sorted(held.values()) == ["a", "a", "b", "b"] else None


async def register(group, member, name, epoch):
    body = {"incarnation": await group.incarnation(member), "epoch": epoch}
    return await group.call("PUT", f"{PREFIX}/members/{member}/partitions/{name}", json=body)


async def unregister(group, member, name, epoch):
    params = {"incarnation": await group.incarnation(member), "epoch": str(epoch)}
    path = f"{PREFIX}/members/{member}/partitions/{name}"

    async def is_free():
        answer = await group.call("DELETE", path, params=params)
        return answer.get("is_free")

    await eventually(is_free, f"{member} gives {name} back")


async def _deliveries(group):
    """Return how many messages members had: each one once, who held its partition then."""
    queue, total = group.queue, 0
    async with AuditReader(queue.url, queue="orders", token=queue.tokens.admin) as reader:
        for partition in await reader.partitions():
            holder, position = "", 0
            rows = [
                row
                async for each in reader.groups(partition, 0)
                for row in decode_group(partition, each)
                if row.group == "workers"
            ]
            for row in rows:
                if row.kind in ("bind", "register"):
                    holder = row.member
                elif row.kind == "commit":
                    holder = row.target
                elif row.kind == "release":  # not begun: it goes to the next holder
                    position = row.first
                elif row.kind == "deliver":
                    assert (row.member, row.first) == (holder, position), row
                    position = row.stop
            total += position
    return total
