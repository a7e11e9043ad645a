"""Members that choose their partitions pull them through one broker, whoever owns them."""

from partq.broker.api import owner_pulls
from tests.broker.operations.assignment.conftest import GROUP


async def test_chosen_partitions_of_two_brokers_come_through_one(
    running, start_broker, members, peers, monkeypatch
):
    """Only what the member registered comes; acks by receipts reach both owners."""
    monkeypatch.setattr(owner_pulls, "OWNER_ANSWER_S", 30.0)
    other = await start_broker("orders-1")
    await running.admin("/yield", {"partitions": ["1.1"]})
    await other.admin("/claim", {"partitions": ["1.1"]})
    await peers.eventually(
        lambda: running.broker.claims.owner_url(peers.partition_id(1)), "it knows the owner"
    )
    for index in range(3):
        body = {"key": peers.key_of(index), "value": f"of {index}"}
        status, _ = await running.call(
            "POST", "/v1/queues/orders/messages", token=peers.PRODUCE, json=body
        )
        assert status == 201
    for name in ("1.0", "1.1"):
        assert (await members.register("m", name))["is_new"]
    pull = {"member": "m", "incarnation": "i", "wait_ms": 0, "all_brokers": True}
    status, answer = await running.call("POST", f"{GROUP}/pull", token=peers.CONSUME, json=pull)
    assert (status, answer["held"]) == (200, ["1.0", "1.1"])
    assert sorted(each["value"] for each in answer["messages"]) == ["of 0", "of 1"]
    acks = {"receipts": [each["receipt"] for each in answer["messages"]]}
    status, told = await running.call("POST", f"{GROUP}/acks", token=peers.CONSUME, json=acks)
    assert (status, told) == (200, {"results": [{}, {}]})
