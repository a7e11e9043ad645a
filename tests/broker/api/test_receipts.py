"""Acks, nacks and extensions by receipts: any broker takes them, and the owner settles them."""

from aiohttp import ClientSession, TCPConnector

from partq.core.model import MemberId
from partq.store.records.members import Members
from partq.wire.calls.bodies import MAX_RECEIPTS

GROUP = "/v1/queues/orders/groups/workers"


async def test_a_receipt_is_all_that_an_ack_needs(caller, running, peers):
    """One of three is done with: the others stay in flight. A repeat changes nothing."""
    await caller.publish("a", "b", "c")
    first, second, third = await caller.pull()
    assert await caller.settle("acks", [second]) == [""]
    assert await caller.settle("acks", [second, third]) == ["", ""]
    state = await running.state()
    assert (state["cursor"], state["in_flight"]) == (0, 1)
    assert await caller.settle("acks", [first]) == [""]
    assert (await running.state())["cursor"] == 3


async def test_each_broken_or_stale_receipt_has_an_error_of_its_own(caller, running, peers):
    await caller.publish("a", "b")
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
    await caller.publish("a", "b", "c")
    _, second, third = await caller.pull()
    assert await caller.settle("nacks", [third, second], delay_ms=0) == ["", ""]
    again = await caller.pull(max_messages=2, last_answer=caller.last_answer)
    assert [(m["value"], m["redeliveries"], m["cause"]) for m in again] == [
        ("b", 1, "nack"), ("c", 1, "nack"),
    ]  # fmt: skip
    assert again[0]["receipt"] != second["receipt"], "another delivery"


async def test_receipts_make_dead_letters_and_extend(caller, running, peers):
    await caller.publish("a", "b")
    first, second = await caller.pull()
    assert await caller.settle("in-progress", [first, second]) == ["", ""]
    told = await caller.settle("nacks", [first], makes_dead_letters=True, reason="bad_address")
    assert told == [""]
    assert await caller.settle("acks", [second]) == [""]
    state = await running.state()
    assert state["in_flight"] == 0


async def test_a_receipt_counts_in_its_group_alone(caller, running, peers):
    """Another group's path or a token for another group does not settle it."""
    await caller.publish("a")
    (message,) = await caller.pull()
    body = {"receipts": [message["receipt"]]}
    status, _ = await running.call("POST", f"{GROUP}/acks", token=peers.OTHER_GROUP, json=body)
    assert status == 403
    assert (await running.state())["in_flight"] == 1


async def test_too_many_receipts_are_refused_as_a_whole(caller, running, peers):
    await caller.publish("a")
    (message,) = await caller.pull()
    body = {"receipts": [message["receipt"]] * (MAX_RECEIPTS + 1)}
    status, answer = await caller.call("acks", body)
    assert (status, answer["error"]["code"]) == (413, "batch_too_large")
    assert (await running.state())["in_flight"] == 1


async def test_any_broker_takes_receipts_of_all_partitions(caller, running, other, peers):
    """Each owner gets its own, in one call; the results are in the order of the receipts."""
    await caller.publish("a", "b")
    await caller.publish("c", partition=1)
    here, there = await caller.pull(), await caller.pull(at=other)
    mixed = [there[0], here[0], "nonsense", here[1]]
    assert await caller.settle("acks", mixed, at=other) == ["", "", "bad_request", ""]
    assert (await running.state())["cursor"] == 2
    assert (await other.state(1))["cursor"] == 1
    assert await caller.settle("acks", mixed, at=running) == ["", "", "bad_request", ""]


async def test_a_forwarded_call_goes_no_further(caller, running, other, peers):
    """Two brokers that each believe that the other owns a partition do not send it to and fro."""
    await caller.publish("a")
    (message,) = await caller.pull()
    body = {"receipts": [message["receipt"]]}
    headers = {"Partq-Forwarded": "orders-0"}
    _, answer = await caller.call("acks", body, at=other, headers=headers)
    assert answer["results"][0]["error"]["code"] == "not_owner"
    assert (await running.state())["in_flight"] == 1


async def test_an_owner_that_is_gone_costs_its_own_receipts_alone(caller, running, other, peers):
    await caller.publish("a")
    await caller.publish("b", partition=1)
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
    await caller.publish("a", partition=1)
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
