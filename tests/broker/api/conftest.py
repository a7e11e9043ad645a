"""A member that pulls by plain HTTP, at two brokers."""

import pytest

from partq.broker.api import owner_pulls, receipts

GROUP = "/v1/queues/orders/groups/workers"
PATIENCE_S = 30.0


class Caller:
    """Pulls and settles; `at`: another broker than the first."""

    def __init__(self, running, peers):
        self.running = running
        self.peers = peers
        self.token = peers.CONSUME

    async def publish(self, *values, partition=0):
        """Publish by the first broker, which sends on what is not its own."""
        body = [{"key": self.peers.key_of(partition), "value": value} for value in values]
        status, answer = await self.running.call(
            "POST", "/v1/queues/orders/messages", token=self.peers.PRODUCE, json=body
        )
        assert status == 201, answer

    async def call(self, path, body, *, at=None, **kwargs):
        return await (at or self.running).call(
            "POST", f"{GROUP}/{path}", token=self.token, json=body, **kwargs
        )

    async def pull(self, *, at=None, member="m", **changes):
        body = {"member": member, "incarnation": "i", "wait_ms": 10_000, **changes}
        status, answer = await self.call("pull", body, at=at)
        assert status == 200, answer
        self.last_answer = answer["answer"]
        return answer["messages"]

    async def pull_all(self, *, at=None, **changes):
        """Pull from all brokers through one; return the whole answer."""
        body = {"member": "m", "incarnation": "i", "wait_ms": 0, "all_brokers": True, **changes}
        status, answer = await self.call("pull", body, at=at)
        assert status == 200, answer
        return answer

    async def settle(self, path, messages, *, at=None, **fields):
        """Make a call by receipts; return its status and the code of each result."""
        receipts = [each if isinstance(each, str) else each["receipt"] for each in messages]
        status, answer = await self.call(path, {"receipts": receipts, **fields}, at=at)
        codes = [each.get("error", {}).get("code", "") for each in answer["results"]]
        assert status == (207 if any(codes) else 200)
        return codes


@pytest.fixture
async def caller(running, peers, monkeypatch):
    """Member m, which has two partitions; brokers wait for each other as long as a test needs."""
    monkeypatch.setattr(owner_pulls, "OWNER_ANSWER_S", PATIENCE_S)
    monkeypatch.setattr(receipts, "OWNER_TIMEOUT_S", PATIENCE_S)
    await running.assign("m", [0, 1])
    return Caller(running, peers)


@pytest.fixture
async def other(running, start_broker, peers):
    """Another broker, which owns partition 1.1; each knows of what is the other's."""
    started = await start_broker("orders-1")
    await running.admin("/yield", {"partitions": ["1.1"]})
    await started.admin("/claim", {"partitions": ["1.1"]})
    for broker, index in ((running, 1), (started, 0)):
        partition = peers.partition_id(index)
        await peers.eventually(
            lambda b=broker, p=partition: b.broker.claims.owner_url(p), "it knows the owner"
        )
    return started
