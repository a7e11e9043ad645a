"""Acks, nacks and extensions by receipts: any broker takes them, and the owner settles them."""

import pytest
from aiohttp import ClientSession, TCPConnector

from partq.core.model import MemberId
from partq.store.records.members import Members
from partq.wire.calls.bodies import MAX_RECEIPTS

GROUP = "/v1/queues/orders/groups/workers"


class Caller:
    """Pulls and settles; `at`: another broker than the first."""

    def __init__(self, running, token):
        self.running = running
        self.token = token

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

    async def settle(self, path, messages, *, at=None, **fields):
        """Make a call by receipts; return its status and the code of each result."""
        receipts = [each if isinstance(each, str) else each["receipt"] for each in messages]
        status, answer = await self.call(path, {"receipts": receipts, **fields}, at=at)
        codes = [each.get("error", {}).get("code", "") for each in answer["results"]]
        assert status == (207 if any(codes) else 200)
        return codes


@pytest.fixture
async def caller(running, peers):
    await running.assign("m", [0, 1])
    return Caller(running, peers.CONSUME)


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


async def publish(running, peers, *values, partition=0):
    body = [{"key": peers.key_of(partition), "value": value} for value in values]
    status, answer = await running.call(
        "POST", "/v1/queues/orders/messages", token=peers.PRODUCE, json=body
    )
    assert status == 201, answer


async def test_a_receipt_is_all_that_an_ack_needs(caller, running, peers):
    """One of three is done with: the others stay in flight. A repeat changes nothing."""
    await publish(running, peers, "a", "b", "c")
    first, second, third = await caller.pull()
    assert await caller.settle("acks", [second]) == [""]
    assert await caller.settle("acks", [second, third]) == ["", ""]
    state = await running.state()
    assert (state["cursor"], state["in_flight"]) == (0, 1)
    assert await caller.settle("acks", [first]) == [""]
    assert (await running.state())["cursor"] == 3


async def test_each_broken_or_stale_receipt_has_an_error_of_its_own(caller, running, peers):
    await publish(running, peers, "a", "b")
    first, second = await caller.pull()
    changed = first["receipt"][:-4] + second["receipt"][-4:]
    assert await caller.settle("acks", ["nonsense", first, changed]) == [
        "bad_request", "", "bad_request",
    ]  # fmt: skip
    handoff = await peers.Handoff.begin(running)
    await handoff.pause(drain_ms=0)
    assert (await handoff.commit(cause="drain_timeout"))["code"] == ""
    assert await caller.settle("acks", [second, first]) == ["fenced", "fenced"]
    assert await caller.settle("nacks", [second]) == ["fenced"]
    assert (await running.state())["cursor"] == 1


async def test_nacked_receipts_are_redelivered_and_count_once_each(caller, running, peers):
    """Two of one partition are given back together: neither is void because of the other."""
    await publish(running, peers, "a", "b", "c")
    _, second, third = await caller.pull()
    assert await caller.settle("nacks", [third, second], delay_ms=0) == ["", ""]
    again = await caller.pull(max_messages=2, last_answer=caller.last_answer)
    assert [(m["value"], m["redeliveries"], m["cause"]) for m in again] == [
        ("b", 1, "nack"), ("c", 1, "nack"),
    ]  # fmt: skip
    assert again[0]["receipt"] != second["receipt"], "another delivery"


async def test_receipts_make_dead_letters_and_extend(caller, running, peers):
    await publish(running, peers, "a", "b")
    first, second = await caller.pull()
    assert await caller.settle("in-progress", [first, second]) == ["", ""]
    told = await caller.settle("nacks", [first], makes_dead_letters=True, reason="bad_address")
    assert told == [""]
    assert await caller.settle("acks", [second]) == [""]
    state = await running.state()
    assert state["in_flight"] == 0


async def test_a_receipt_counts_in_its_group_alone(caller, running, peers):
    """Another group's path or a token for another group does not settle it."""
    await publish(running, peers, "a")
    (message,) = await caller.pull()
    body = {"receipts": [message["receipt"]]}
    status, _ = await running.call("POST", f"{GROUP}/acks", token=peers.OTHER_GROUP, json=body)
    assert status == 403
    assert (await running.state())["in_flight"] == 1


async def test_too_many_receipts_are_refused_as_a_whole(caller, running, peers):
    await publish(running, peers, "a")
    (message,) = await caller.pull()
    body = {"receipts": [message["receipt"]] * (MAX_RECEIPTS + 1)}
    status, answer = await caller.call("acks", body)
    assert (status, answer["error"]["code"]) == (413, "batch_too_large")
    assert (await running.state())["in_flight"] == 1


async def test_any_broker_takes_receipts_of_all_partitions(caller, running, other, peers):
    """Each owner gets its own, in one call; the results are in the order of the receipts."""
    await publish(running, peers, "a", "b")
    await publish(other, peers, "c", partition=1)
    here, there = await caller.pull(), await caller.pull(at=other)
    mixed = [there[0], here[0], "nonsense", here[1]]
    assert await caller.settle("acks", mixed, at=other) == ["", "", "bad_request", ""]
    assert (await running.state())["cursor"] == 2
    assert (await other.state(1))["cursor"] == 1
    assert await caller.settle("acks", mixed, at=running) == ["", "", "bad_request", ""]


async def test_a_forwarded_call_goes_no_further(caller, running, other, peers):
    """Two brokers that each believe that the other owns a partition do not send it to and fro."""
    await publish(running, peers, "a")
    (message,) = await caller.pull()
    body = {"receipts": [message["receipt"]]}
    headers = {"Partq-Forwarded": "orders-0"}
    _, answer = await caller.call("acks", body, at=other, headers=headers)
    assert answer["results"][0]["error"]["code"] == "not_owner"
    assert (await running.state())["in_flight"] == 1


async def test_an_owner_that_is_gone_costs_its_own_receipts_alone(caller, running, other, peers):
    await publish(running, peers, "a")
    await publish(other, peers, "b", partition=1)
    here, there = await caller.pull(), await caller.pull(at=other)
    await other.runner.cleanup()  # it is not reached any more, and its lease goes on
    assert await caller.settle("acks", [*there, *here]) == ["unavailable", ""]
    assert (await running.state())["cursor"] == 1


async def test_the_owner_judges_where_the_caller_is(
    caller, running, other, peers, store, monkeypatch
):
    """A member is bound from its own address; what a broker forwards comes from another one."""
    records = Members(store, running.broker.keys)
    await records.list_member("workers", MemberId("m"), "127.0.0.2")
    await publish(other, peers, "a", partition=1)
    async with ClientSession(connector=TCPConnector(local_addr=("127.0.0.2", 0))) as far:
        with monkeypatch.context() as patch:
            patch.setattr(other, "session", far)
            (message,) = await caller.pull(at=other)
        body = {"receipts": [message["receipt"]]}
        forged = {"Partq-Forwarded": "orders-0", "Partq-Forwarded-Address": "127.0.0.2"}
        for headers in ({}, forged, {**forged, "Partq-Forward-Token": peers.CONSUME}):
            _, answer = await caller.call("acks", body, at=other, headers=dict(headers))
            assert answer["results"][0]["error"]["code"] == "forbidden", headers
        assert await caller.settle("acks", [message], at=running) == ["forbidden"]
        with monkeypatch.context() as patch:
            patch.setattr(running, "session", far)
            assert await caller.settle("acks", [message], at=running) == [""]
