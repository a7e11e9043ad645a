"""A client-assigned group, and the calls of its members."""

import pytest

from partq.resources import group_document, queue_document, resources_of

GROUP = "/v1/queues/orders/groups/workers"


@pytest.fixture
def resources():
    queue = queue_document("orders", partitions=4)
    return resources_of(queue, group_document("workers", "orders", assignment="Client"))


class Members:
    """Calls that members make at a broker; `at`: another one than the first."""

    def __init__(self, running, peers):
        self.running = running
        self.peers = peers

    async def call(self, method, path, *, at=None, **kwargs):
        kwargs.setdefault("token", self.peers.CONSUME)
        status, answer = await (at or self.running).call(method, GROUP + path, **kwargs)
        return answer["error"]["code"] if status >= 400 else answer

    async def look(self, partition="1.0", **kwargs):
        return (await self.call("GET", "/partitions", **kwargs))["partitions"][partition]

    async def register(
        self, member, partition="1.0", *, epoch=None, offset=-1, incarnation="i", at=None
    ):
        if epoch is None:
            epoch = (await self.look(partition))["epoch"]
        body = {"incarnation": incarnation, "epoch": epoch, "offset": offset}
        return await self.call("PUT", f"/members/{member}/partitions/{partition}", json=body, at=at)

    async def unregister(self, member, partition="1.0", *, epoch, at=None, **query):
        params = {"incarnation": "i", "epoch": str(epoch), **query}
        path = f"/members/{member}/partitions/{partition}"
        return await self.call("DELETE", path, params=params, at=at)

    async def node(self, member, count, node_id, incarnation="i"):
        body = {"incarnation": incarnation, "source_count": count, "node_id": node_id}
        return await self.call("PUT", f"/members/{member}/node", json=body)

    async def mark(self, what, is_subscribable, reason=""):
        status, answer = await self.running.call(
            "PUT",
            f"/v1/queues/orders/{what}/subscribable",
            json={"is_subscribable": is_subscribable, "reason": reason},
        )
        assert status == 200, answer
        return answer


@pytest.fixture
def members(running, peers):
    return Members(running, peers)
