"""In a group that the coordinator assigns, nobody chooses a partition."""

import pytest

from partq.resources import group_document, queue_document, resources_of


@pytest.fixture
def resources():
    queue = queue_document("orders", partitions=4)
    return resources_of(queue, group_document("workers", "orders"))


@pytest.mark.req("SOL-20")
async def test_to_ask_for_a_partition_is_refused(members, running):
    await running.assign("m", [0])
    shown = await members.look("1.1")
    assert not shown["is_subscribable"]
    assert "the coordinator assigns" in shown["reason"]
    assert await members.register("n", "1.1", epoch=shown["epoch"]) == "server_assigned"
    held = await members.look("1.0")
    assert await members.register("m", "1.0", epoch=held["epoch"]) == "server_assigned"
    assert await members.unregister("m", "1.0", epoch=held["epoch"]) == "server_assigned"
    assert await members.node("m", 1, 0) == "server_assigned"
    params = {"incarnation": "i"}
    assert await members.call("DELETE", "/members/m/node", params=params) == "server_assigned"
    assert (await members.look("1.0"))["member"] == "m"
