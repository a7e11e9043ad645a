"""Members of a group with `hashRange: Sticky` say as they bind which slots they want."""

import asyncio

import pytest

from partq.testing import eventually
from partq.wire import frames
from tests.broker.api.routes.test_pull import GROUP
from tests.broker.conftest import CONSUME, connect_as
from tests.broker.delivery.keyed import follow
from tests.broker.parts.test_part_moves import PART, Shared, SharePeer


@pytest.fixture
async def scene(running):
    scene = await Shared.open(running)
    await follow(running, keyShared={"hashRange": "Sticky"})
    return scene


async def bind(scene, member, ranges):
    """Return the flow of a member that was taken, or the code and text of its refusal."""
    path = "/v1/queues/orders/groups/workers/flow"
    peer = await connect_as(SharePeer, scene.running, path, CONSUME)
    await peer.send(frames.Bind(member, f"of-{member}", 9, takes_lanes=True, ranges=ranges))
    answer, _ = await peer.receive()
    return (answer.code, answer.message) if isinstance(answer, frames.Failed) else peer


@pytest.mark.req("PUL-U05")
async def test_slots_that_another_member_has_are_refused_and_the_member_is_named(scene):
    m = await bind(scene, "m", [(0, 2 * PART)])
    code, message = await bind(scene, "n", [(PART, 3 * PART)])
    assert code == "conflict"
    assert "slots 4096 to 8192, which m has" in message
    flows = scene.running.broker.flow_registry.flows
    assert [(each.member, each.ranges) for each in flows] == [("m", ((0, 2 * PART),))]
    await m.close()
    await eventually(lambda: not list(flows), "m is lost")
    assert isinstance(await bind(scene, "n", [(PART, 3 * PART)]), SharePeer)


async def test_of_two_members_that_bind_at_once_one_is_refused(scene):
    registry, both_are_there = scene.running.broker.flow_registry, asyncio.Barrier(2)
    admit = registry.admit

    async def admit_together(*named):
        await both_are_there.wait()
        await admit(*named)

    registry.admit = admit_together
    found = await asyncio.gather(*(bind(scene, each, [(0, PART)]) for each in "mn"))
    refused = [each for each in found if not isinstance(each, SharePeer)]
    assert [code for code, _ in refused] == ["conflict"]


async def test_a_member_that_comes_back_is_not_in_its_own_way(scene):
    first = await bind(scene, "m", [(0, PART)])
    assert isinstance(first, SharePeer)
    assert isinstance(await bind(scene, "m", [(0, 2 * PART)]), SharePeer)


@pytest.mark.parametrize(
    ("ranges", "named"),
    [
        ([], "no ranges in group workers, whose keyShared.hashRange is Sticky"),
        ([(0, 1000)], "got 1000, which lies inside a part"),
        ([(PART, PART)], "got the range 4096 to 4096"),
        ([(0, PART)] * 2, "from 0 on twice"),
    ],
)
async def test_ranges_that_are_not_whole_parts_are_refused(scene, ranges, named):
    code, message = await bind(scene, "m", ranges)
    assert code == "bad_request"
    assert named in message


async def test_groups_of_another_kind_refuse_ranges(running):
    scene = await Shared.open(running)
    code, message = await bind(scene, "m", [(0, PART)])
    assert code == "bad_request"
    assert "hashRange Sticky alone" in message


async def test_the_coordinator_is_told_and_a_pull_may_declare_slots_too(scene):
    body = {"member": "m", "incarnation": "i", "ranges": [[0, PART], [2 * PART, 65_536]]}
    url = f"{GROUP}/pull"
    status, _ = await scene.running.call("POST", url, token=CONSUME, json={**body, "wait_ms": 0})
    assert status == 200
    status, state = await scene.running.call("GET", "/admin/v1/queues/orders/state")
    (flow,) = state["flows"]
    assert (status, flow["ranges"]) == (200, body["ranges"])
    status, refusal = await scene.running.call(
        "POST", url, token=CONSUME, json={**body, "member": "n", "ranges": [[0, PART]]}
    )
    assert (status, refusal["error"]["code"]) == (409, "conflict")
