"""A consumer group is removed by an administrator, where no operator does it."""

import asyncio

import pytest

from partq.coordinator.record_sync import RecordSync
from partq.embedded.provision import provision
from partq.errors import StoreUnavailableError
from partq.resources import group_document
from tests.broker.conftest import UID, queue_and_group

REMOVE = "/v1/queues/orders/groups/slow/remove"
SEND = "/v1/queues/orders/messages"
DROP = "/v1/queues/orders/dead-letters/drop"


@pytest.fixture
def resources():
    return queue_and_group(group_document("slow", "orders"))


@pytest.fixture
def remove(running):
    async def remove(status=200, *, at=running, path=REMOVE, **body):
        got, answer = await at.call("POST", path, json=body)
        assert got == status, answer
        return answer if status == 200 else answer["error"]["message"]

    return remove


@pytest.fixture
def coordinate(running):
    """Look after the groups as a coordinator does."""

    async def coordinate():
        broker = running.broker
        config = await broker.configs.read_queue()
        record_sync = RecordSync(broker.partitions, None, broker.configs)
        starts = dict.fromkeys(config.groups, "Earliest")
        await record_sync.sync(broker.config.layout, starts, config.resource_generation)

    return coordinate


@pytest.fixture
def provision_again(running, resources):
    """Make the groups of the resources that are not there, as the next start does."""

    async def provision_again():
        broker = running.broker
        await provision(broker.store, resources.queues[0], resources, uid=UID)
        await broker.refresh()

    return provision_again


async def test_what_only_it_had_not_read_is_freed(running, peers, remove, coordinate, scene):
    """And it is shown before; when all of it is gone, nobody knows it."""
    await scene.source.ack(scene.held, 3)
    shown = await remove(is_dry_run=True)
    assert shown == {
        "is_removed": False, "partitions": 4, "lag": 3, "dead_letters": 0, "groups": ["workers"],
        "born": (await running.broker.configs.read_group("slow")).born,
    }  # fmt: skip
    assert "slow" in running.broker.config.groups
    done = await remove()
    assert (done["is_removed"], done["partitions"]) == (True, 4)
    assert "slow" not in running.broker.config.groups

    left = await remove(is_dry_run=True)
    assert (left["is_removed"], left["partitions"], left["lag"]) == (True, 4, 3), (
        "cursors are there"
    )
    await remove()  # as a repeat
    await coordinate()
    assert "nothing of this one is there" in await remove(404)

    async def is_freed():
        return (await running.broker.partitions.read(peers.partition_id(0))).trimmed == 3

    await peers.eventually(is_freed, "no group holds the log")


async def test_the_last_group_is_removed_and_what_it_kept_out_of_is_allowed(
    running, remove, coordinate, peers
):
    headers = {"partq-dead-letter-queue": "source"}
    await running.call("POST", SEND, json={"key": "k", "value": "v", "headers": headers})
    for group in ("slow", "workers"):
        _, refused = await running.call("POST", DROP, json={})
        errors = [row["error"] for row in refused["partitions"].values()]
        assert all("`partq groups remove` removes it" in error["message"] for error in errors)
        await remove(path=REMOVE.replace("slow", group))
        await coordinate()
    _, dropped = await running.call("POST", DROP, json={})
    rows = dropped["partitions"].values()
    assert sum(row["stop"] - row["start"] for row in rows) == 1, rows


async def test_another_broker_finishes_what_one_has_begun(
    running, start_broker, remove, coordinate, monkeypatch
):
    """The first one loses Redis between the group's spec and the queue's config."""
    other = await start_broker("orders-1")

    async def lost(*args, **kwargs):
        raise StoreUnavailableError("no answer")

    monkeypatch.setattr(other.broker.configs, "write_queue", lost)
    await remove(503, at=other)
    configs = running.broker.configs
    assert "slow" in (await configs.read_queue()).groups
    assert await configs.read_group("slow") is None
    status, shown = await running.call("GET", "/v1/queues/orders/status")
    assert (status, sorted(shown["groups"])) == (200, ["slow", "workers"]), "the queue continues"
    assert (await remove(is_dry_run=True))["is_removed"] is False
    assert (await remove())["is_removed"]
    await coordinate()
    await remove(404)


async def test_a_late_removal_spares_the_group_that_was_made_again_under_the_name(
    running, peers, remove, coordinate, provision_again
):
    """Also while members of the later one are connected: they are none of the caller's."""
    shown = await remove(is_dry_run=True)
    await remove(born=shown["born"])
    assert "born" not in await remove(born=shown["born"], is_dry_run=True)
    await coordinate()
    await provision_again()
    made = await remove(is_dry_run=True)
    assert made["born"] > shown["born"]
    for is_dry_run in (True, False):
        told = await remove(404, born=shown["born"], is_dry_run=is_dry_run)
        assert f"the group that was made at {shown['born']}" in told
    assert "slow" in (await running.broker.configs.read_queue()).groups
    await remove(400, born=-1)
    await remove()  # who names none means whichever has the name
    assert "slow" not in (await running.broker.configs.read_queue()).groups


async def test_it_is_refused_while_a_member_is_connected_to_any_broker(
    running, start_broker, peers, remove
):
    path = REMOVE.replace("slow", "workers")
    other = await start_broker("orders-1")
    first = await peers.open_flow(running, "m")
    await peers.open_flow(other, "n", "j")

    assert "members m, n are connected; stop them" in await remove(409, path=path)
    assert "m, n" in await remove(409, path=path, at=other, is_dry_run=True)
    await first.close()

    async def sees_one():
        return "member n is connected; stop it" in await remove(409, path=path)

    await peers.eventually(sees_one, "the other is there still")
    assert "workers" in (await running.broker.configs.read_queue()).groups
    assert await running.broker.configs.read_group("workers") is not None
    assert (await remove(path=REMOVE))["is_removed"], "members of another group are in no way"


async def test_a_broker_that_does_not_answer_may_have_members(running, start_broker, remove):
    """While its lease is valid nobody knows; afterwards its flows are over."""
    other = await start_broker("orders-1")
    await other.runner.cleanup()
    assert "orders-1: " in await remove(503)
    assert "slow" in (await running.broker.configs.read_queue()).groups


async def test_the_group_of_a_resource_on_kubernetes_is_left_to_it(running, remove):
    configs = running.broker.configs
    stored = await configs.read_group("slow")
    await configs.write_group("slow", {**stored.spec, "uid": "u1"}, resource_generation=2)
    for is_dry_run in (True, False):
        assert "kubectl delete consumergroup slow" in await remove(409, is_dry_run=is_dry_run)
    assert "slow" in (await configs.read_queue()).groups


async def test_who_may_not_remove(running, peers, remove):
    for token, status in ((peers.CONSUME, 403), (peers.PRODUCE, 403), (None, 401)):
        got, _ = await running.call("POST", REMOVE, json={}, token=token)
        assert got == status
    unknown = await remove(404, path=REMOVE.replace("slow", "slower"))
    assert unknown.startswith("group slower: queue orders has slow, workers; nothing of this one")
    got, _ = await running.call("POST", REMOVE, json={"is_forced": True})
    assert got == 400


async def test_acks_that_come_late_bring_nothing_back(running, peers, remove, coordinate, scene):
    """A member binds after the look for members, and acknowledges while the group goes."""
    path = REMOVE.replace("slow", "workers")
    await scene.source.close()
    await peers.eventually(lambda: not list(running.broker.flow_registry.flows), "the flow is gone")
    look = peers.Gate(running.broker.configs, "erase_group")
    removal = asyncio.create_task(remove(path=path))
    await look.reached.wait()
    flow = await peers.open_flow(running, "m", "other")
    frame, values = await flow.deliver()
    assert values == ["a", "b", "c"]
    look.opened.set()
    await removal
    await coordinate()
    assert await flow.ack(frame, 3) != ""
    records = await running.broker.partitions.read_many(running.broker.config.layout.partitions())
    assert {group for record in records.values() for group in record.groups} == {"slow"}
