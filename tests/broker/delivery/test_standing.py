"""Members of Failover and Exclusive groups: their priorities, and which partitions are theirs."""

import pytest

from partq.resources import group_document, queue_document, resources_of
from partq.wire import frames

P0, P1 = (1, 0), (1, 1)


@pytest.fixture
def resources():
    return resources_of(
        queue_document("orders", partitions=2),
        group_document("workers", "orders", type="Failover"),
    )


async def bind(peers, running, member, **more):
    flow = await peers.connect_flow(running)
    await flow.send(frames.Bind(member, "i", 100, **more))
    await flow.expect(frames.Bound)
    return flow


async def standing(flow):
    """Return what the next frame of this kind says."""
    frame, _ = await flow.find(frames.Standing)
    return (frame.generation, frame.partition), frame.is_active


@pytest.mark.req("PUL-108")
async def test_a_member_is_told_what_is_its_own_at_bind_and_at_each_change(running, peers):
    await running.claim_all()
    await running.assign("m", [0])
    master = await bind(peers, running, "m", wants_standing=True)
    told = {(await standing(master)) for _ in range(2)}
    assert told == {(P0, True), (P1, False)}
    other = await bind(peers, running, "n", wants_standing=True)
    assert {(await standing(other)) for _ in range(2)} == {(P0, False), (P1, False)}

    await running.assign("n", [1])
    assert await standing(other) == (P1, True)
    handoff = await peers.Handoff.begin(running)
    await handoff.pause()
    await handoff.drain()
    await handoff.commit()
    assert await standing(master) == (P0, False)
    assert await standing(other) == (P0, True)


async def change_type(broker, group_type):
    """Write another type into the config of the group, as a change of its resource does."""
    before = await broker.configs.read_group("workers")
    assert await broker.configs.write_group(
        "workers",
        {**before.spec, "type": group_type},
        resource_generation=before.resource_generation + 1,
        born=before.born,
    )
    queue = await broker.configs.read_queue()
    spec = {**queue.spec, "groups": ["workers"]}
    await broker.configs.write_queue(spec, resource_generation=queue.resource_generation + 1)
    await broker.refresh()


async def test_who_was_bound_before_the_type_was_changed_is_told_once_and_from_then_on(
    running, peers
):
    await change_type(running.broker, "Partitioned")
    await running.claim_all()
    await running.assign("m", [0])
    master = await bind(peers, running, "m", wants_standing=True)
    other = await bind(peers, running, "n", wants_standing=True)
    await master.expect(frames.Assigned)
    for flow in (master, other):
        await flow.send(frames.Ping(7))
        assert isinstance((await flow.receive())[0], frames.Pong), "this type ranks nobody"
    for _ in range(2):
        await change_type(running.broker, "Failover")
    assert {(await standing(master)) for _ in range(2)} == {(P0, True), (P1, False)}
    assert {(await standing(other)) for _ in range(2)} == {(P0, False), (P1, False)}
    await change_type(running.broker, "Partitioned")
    handoff = await peers.Handoff.begin(running)
    await handoff.pause()
    await handoff.drain()
    await handoff.commit()
    assert await standing(master) == (P0, False), "it would keep a standing that is over"
    assert await standing(other) == (P0, True)


async def test_who_does_not_ask_is_not_told(running, peers):
    """A client of an earlier version knows no such frame."""
    await running.claim_all()
    await running.assign("m", [0])
    flow = await bind(peers, running, "m")
    await flow.expect(frames.Assigned)
    await flow.send(frames.Ping(7))
    await flow.expect(frames.Pong)


@pytest.mark.req("PUL-111")
async def test_priorities_are_told_to_the_coordinator_also_of_a_flow_that_was_lost(running, peers):
    await running.claim_all()
    flow = await bind(peers, running, "m", priority=3)
    body = {"member": "n", "incarnation": "i", "wait_ms": 0, "priority": 9}
    path = "/v1/queues/orders/groups/workers/pull"
    status, _ = await running.call("POST", path, token=peers.CONSUME, json=body)
    assert status == 200
    _, state = await running.call("GET", "/admin/v1/queues/orders/state")
    assert {f["member"]: f["priority"] for f in state["flows"]} == {"m": 3, "n": 9}
    running.broker.flow_registry.lose(running.broker.flow_registry.find("workers", "m"))
    await flow.ended()
    _, state = await running.call("GET", "/admin/v1/queues/orders/state")
    assert [(f["member"], f["priority"]) for f in state["lost_flows"]] == [("m", 3)]


@pytest.mark.parametrize("priority", [-1, 10])
async def test_a_priority_out_of_range_is_refused(running, peers, priority):
    await running.claim_all()
    flow = await peers.connect_flow(running)
    await flow.send(frames.Bind("m", "i", 100, priority=priority))
    failed, _ = await flow.expect(frames.Failed)
    assert failed.code == "bad_request"
    assert f"priority {priority}; expected 0 (the highest) to 9" in failed.message
