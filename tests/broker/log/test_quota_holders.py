"""A publish that finds no room learns which group holds it, and what to do."""

import pytest

from partq.broker.log import holders
from partq.resources import group_document, queue_document, resources_of

SEND = "/v1/queues/orders/messages"
LIMITS = {"maxMessageBytes": 131_072, "maxSpoolBytes": 2**20}


@pytest.fixture(params=["workers slow", ""], ids=["with groups", "without"])
def resources(request):
    groups = (group_document(name, "orders") for name in request.param.split())
    return resources_of(queue_document("orders", partitions=4, limits=LIMITS), *groups)


async def test_a_refusal_names_the_group_that_holds_the_oldest_messages(
    running, peers, resources, monkeypatch
):
    has_groups = bool(resources.groups)
    body = {"key": peers.key_of(0), "value": "x" * 100_000}
    flow = None
    if has_groups:
        await running.assign("m", [0])
        flow = await peers.open_flow(running)
    stored, message = 0, ""

    async def is_refused():
        nonlocal stored, message
        status, answer = await running.call("POST", SEND, token=peers.PRODUCE, json=body)
        if status == 201:
            stored += 1
            if flow is not None:
                await flow.take(1)
            return False
        message = answer["error"]["message"]
        return status == 429 and stored > 0

    await peers.eventually(is_refused, "the quota is used up")
    if has_groups:

        async def is_told():
            await is_refused()
            return f"group slow ({stored} messages; in partition 1.0 from 0 on)" in message

        await peers.eventually(is_told, "the group that is behind is named")
        assert "group workers" not in message
        assert "`partq reset`" in message
    else:
        assert "no consumer group acknowledges" in message
        assert "messageTTLSeconds" in message
    looks = []
    monkeypatch.setattr(holders, "KEPT_S", 3600.0)
    running.broker.quota._holders._until = float("-inf")
    monkeypatch.setattr(
        holders, "describe_holders", lambda found, _: looks.append(list(found)) or ""
    )
    for _ in range(20):
        await is_refused()
    assert len(looks) == 1, "however many are refused"
