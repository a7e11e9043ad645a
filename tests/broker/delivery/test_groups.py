"""Groups come and go while messages flow."""

import asyncio

import pytest

from partq.coordinator.provision import provision as make_records
from partq.core.model import MemberId, PartitionId
from partq.embedded.store_ports import queue_records
from partq.store.records.members import Members
from tests.broker.conftest import UID

GROUPS = {"early": "Earliest", "late": "Latest"}


@pytest.fixture
def make_group(running, peers):
    """Make groups as a coordinator does: the specs, the cursors, the queue's list of them last."""
    broker = running.broker

    async def make_group(groups):
        spec = (await broker.configs.read_group("workers")).spec
        for name, start in groups.items():
            await broker.configs.write_group(name, spec, resource_generation=1)
            for partition in broker.config.layout.partitions():
                await broker.partitions.add_group(partition, name, start=start)
            members = Members(broker.store, broker.keys)
            await members.list_member(name, MemberId("m"), "127.0.0.1")
        stored = await broker.configs.read_queue()
        spec = {**stored.spec, "groups": sorted({*stored.spec["groups"], *groups})}
        number = stored.resource_generation + 1
        assert await broker.configs.write_queue(spec, resource_generation=number)
        await broker.refresh()
        for name in groups:
            await assign(name)

    async def assign(name):
        _, state = await running.call("GET", "/admin/v1/queues/orders/state")
        row = state["partitions"]["1.0"]
        epoch = row["groups"][name]["epoch"]
        token = {"partition": "1.0", "broker_epoch": row["broker_epoch"], "epoch": epoch}
        token["attempt"] = 1
        commit = {**token, "source": "", "target": "m", "cause": "unassigned"}
        (result,) = await running.admin(f"/groups/{name}/commit", {"commits": [commit]})
        assert "error" not in result, result

    return make_group


async def pulled(running, peers, group, last):
    """Return the offsets that a member of a group gets, up to the last one."""
    offsets, answer = [], None
    async with asyncio.timeout(60):
        while not offsets or offsets[-1] < last:
            body = {"member": "m", "incarnation": "i", "wait_ms": 100, "last_answer": answer}
            path = f"/v1/queues/orders/groups/{group}/pull"
            status, got = await running.call("POST", path, json=body)
            assert status == 200, got
            answer = got["answer"]
            offsets += [each["offset"] for each in got["messages"]]
    return offsets


@pytest.mark.req("PUL-98", "PUL-100", "PUL-102", "PUL-134", "AZR-70")
async def test_new_groups_begin_where_their_start_says_while_messages_flow(
    running, peers, make_group
):
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
    await peers.eventually(lambda: ends[-1] >= after + 50, "they continue")
    is_over.set()
    await publishing
    last = ends[-1] - 1

    assert await pulled(running, peers, "early", last) == list(range(last + 1))
    late = await pulled(running, peers, "late", last)
    assert before <= late[0] <= after
    assert late == list(range(late[0], last + 1))


@pytest.mark.req("PUL-134")
async def test_a_new_group_begins_at_a_time(running, peers, make_group):
    producer = await peers.open_producer(running)
    for _ in range(3):
        await producer.publish("before")
    partition = PartitionId(1, 0)
    now_ms, _ = await running.broker.log.read_times(partition, [0])

    async def clock_has_passed():
        return (await running.broker.log.read_times(partition, [0]))[0] > now_ms

    await peers.eventually(clock_has_passed, "Redis's clock has passed the messages")
    (start_ms, _) = await running.broker.log.read_times(partition, [0])
    for _ in range(2):
        await producer.publish("after")
    await make_group({"timed": start_ms})
    assert await pulled(running, peers, "timed", 4) == [3, 4]


async def make_again(running):
    """Remove the group and make it again, with nothing in between."""
    configs = running.broker.configs
    config, spec = await configs.read_queue(), (await configs.read_group("workers")).spec
    for groups in ({}, {"workers": spec}):
        await make_records(
            queue_records(running.broker.store, running.broker.keys),
            name="default/orders",
            uid=UID,
            partition_count=4,
            spec={name: value for name, value in config.spec.items() if name != "groups"},
            groups=groups,
            keeps_others=False,
            repairs=False,
        )


async def test_acks_of_a_group_do_not_count_for_one_that_was_made_again_unseen(
    running, scene, peers
):
    """The broker looks at its config before and after, and not in between."""
    partition = peers.partition_id(0)
    await nothing_is_trimmed(running, peers)
    assert await scene.source.ack(scene.held, 2) == ""
    look = peers.Gate(running.broker, "refresh")
    await look.reached.wait()
    await make_again(running)
    assert await scene.source.ack(scene.held, 3) == "fenced"
    assert (await running.broker.partitions.read_cursor(partition, "workers")).cursor == 0
    look.opened.set()
    await knows_the_new_one(running, peers)
    await running.assign("m", [0])
    frame, values = await scene.source.deliver()
    assert (values, frame.epoch > scene.held.epoch) == (["a", "b", "c"], True)
    assert await scene.source.ack(frame, 3) == ""
    assert (await running.broker.partitions.read_cursor(partition, "workers")).cursor == 3


async def test_a_group_at_the_end_that_was_made_again_unseen_begins_again(running, scene, peers):
    """Nothing is written for it that the store could refuse."""
    await nothing_is_trimmed(running, peers)
    assert await scene.source.ack(scene.held, 3) == ""
    look = peers.Gate(running.broker, "refresh")
    await look.reached.wait()
    await make_again(running)
    look.opened.set()
    await knows_the_new_one(running, peers)
    assert running.broker.owned[peers.partition_id(0)].groups["workers"].book.cursor == 0
    await running.assign("m", [0])
    assert (await scene.source.deliver())[1] == ["a", "b", "c"]


async def nothing_is_trimmed(running, peers):
    """Have what is acknowledged stay stored: the new group begins with it."""
    trimming = peers.Gate(running.broker.trimmer, "trim")
    await trimming.reached.wait()


async def knows_the_new_one(running, peers):
    """Wait until the broker serves the group as it is on record: at nobody, from the beginning."""

    async def is_new():
        for owned in running.broker.owned.values():
            consumed = owned.groups.get("workers")
            if consumed is None or consumed.member is not None:
                return False
        return True

    await peers.eventually(is_new, "the broker serves the group that was created again")
