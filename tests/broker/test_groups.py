"""Groups come and go while messages flow."""

import asyncio

import pytest

from partq.core.model import MemberId
from partq.store.members import Members

GROUPS = {"early": "Earliest", "late": "Latest"}


@pytest.fixture
def make_group(running, peers):
    """Make groups as a coordinator does: the specs, the cursors, the queue's list of them last."""
    broker = running.broker

    async def make_group(groups):
        spec = (await broker.layouts.read_group_config("workers")).spec
        for name, start in groups.items():
            await broker.layouts.write_group_config(name, spec, resource_generation=1)
            for partition in broker.config.layout.partitions():
                await broker.partitions.add_group(partition, name, start=start)
            members = Members(broker.store, broker.keys)
            await members.list_member(name, MemberId("m"), "127.0.0.1")
        stored = await broker.layouts.read_config()
        spec = {**stored.spec, "groups": sorted({*stored.spec["groups"], *groups})}
        number = stored.resource_generation + 1
        assert await broker.layouts.write_config(spec, resource_generation=number)
        await broker.refresh()
        for name in groups:
            await assign(name)

    async def assign(name):
        _, state = await running.call("GET", "/admin/v1/queues/orders/state")
        row = state["partitions"]["1.0"]
        token = {"partition": "1.0", "broker_epoch": row["broker_epoch"], "epoch": 0, "attempt": 1}
        commit = {**token, "source": "", "target": "m", "cause": "unassigned"}
        (result,) = await running.admin(f"/groups/{name}/commit", {"commits": [commit]})
        assert "error" not in result, result

    return make_group


async def pulled(running, peers, group, last):
    """Return the offsets that a member of a group gets, up to the last one."""
    offsets, answer = [], None
    async with asyncio.timeout(30):
        while not offsets or offsets[-1] < last:
            body = {"member": "m", "incarnation": "i", "wait_ms": 100, "last_answer": answer}
            path = f"/v1/queues/orders/groups/{group}/pull"
            status, got = await running.call("POST", path, json=body)
            assert status == 200, got
            answer = got["answer"]
            offsets += [each["offset"] for each in got["messages"]]
    return offsets


async def test_new_groups_begin_where_they_shall_while_messages_flow(running, peers, make_group):
    """Earliest: with all that is stored. Latest: with all that is confirmed from then on."""
    producer = await peers.open_producer(running)
    ends = [0]
    is_over = asyncio.Event()

    async def publish():
        while not is_over.is_set():
            ends.append(await producer.publish("x") + 1)

    publishing = asyncio.create_task(publish())
    await peers.eventually(lambda: ends[-1] >= 50, "messages flow")
    before = ends[-1]
    await make_group(GROUPS)
    after = ends[-1] + 1  # one may be stored, and not be confirmed yet
    await peers.eventually(lambda: ends[-1] >= after + 50, "they go on")
    is_over.set()
    await publishing
    last = ends[-1] - 1

    assert await pulled(running, peers, "early", last) == list(range(last + 1))
    late = await pulled(running, peers, "late", last)
    assert before <= late[0] <= after
    assert late == list(range(late[0], last + 1))
