"""Consuming by plain HTTP: pull, ack, leave."""

import asyncio

import pytest

from partq.broker.operations.pull import pull_answer
from partq.broker.operations.pull import pulls as pull_module
from partq.core.hashing import slot_of
from partq.wire import batch, frames
from tests.broker.conftest import Gate

GROUP = "/v1/queues/orders/groups/workers"


class Member:
    """A member that pulls."""

    def __init__(self, running, token, incarnation="i"):
        self.running = running
        self.token = token
        self.incarnation = incarnation
        self.last_answer = None

    async def pull(self, **changes):
        """Pull; return status and body, and note which answer it was."""
        body = {
            "member": "m", "incarnation": self.incarnation, "max_messages": 100,
            "wait_ms": 10_000, "last_answer": self.last_answer, **changes,
        }  # fmt: skip
        status, answer = await self.running.call(
            "POST", f"{GROUP}/pull", token=self.token, json=body
        )
        if status == 200:
            self.last_answer, self.flow = answer["answer"], answer["flow"]
        return status, answer

    async def messages(self, **changes):
        status, answer = await self.pull(**changes)
        assert status == 200, answer
        return answer["messages"]

    async def ack(self, *acks):
        body = {"member": "m", "flow": self.flow, "acks": list(acks)}
        return await self.running.call("POST", f"{GROUP}/acks", token=self.token, json=body)


def token_of(message):
    return {name: message[name] for name in ("partition", "broker_epoch", "epoch", "delivery")}


@pytest.fixture
async def member(running, peers):
    await running.assign("m", [0])
    return Member(running, peers.CONSUME)


@pytest.mark.req("SOL-35")
async def test_pull_then_ack(member, producer, running):
    """Everything about a message, then its end, stored."""
    await producer.publish("a", "b", "c")
    status, answer = await member.pull()
    assert (status, answer["held"], answer["paused"], answer["others"]) == (200, ["1.0"], [], [])
    assert answer["lease_ms"] == 30_000
    first = answer["messages"][0]
    assert [m["value"] for m in answer["messages"]] == ["a", "b", "c"]
    assert (first["offset"], first["cause"], first["redeliveries"]) == (0, "", 0)
    assert first["append_broker_epoch"] == first["broker_epoch"]
    token = token_of(first)
    status, answer = await member.ack({**token, "upto": 1}, {**token, "offsets": [2]})
    assert (status, answer) == (200, {"results": [{}, {}]})
    state = await running.state()
    assert (state["cursor"], state["lag"], state["in_flight"]) == (1, 1, 1)


async def test_an_answer_that_is_not_named_comes_again(member, producer):
    """It was lost on its way: the same messages, under the same token, and none skipped."""
    await producer.publish("a", "b", "c")
    first = await member.messages(max_messages=2)
    again = await member.messages(max_messages=2, last_answer=None)
    assert again == first
    assert [m["value"] for m in await member.messages()] == ["c"]


async def test_a_pull_that_never_names_an_answer_goes_on(member, producer):
    """A line of curl that is run again and again: nothing is in hand that could be lost."""
    assert await member.messages(wait_ms=0, last_answer=None) == []
    await producer.publish("a", "b", "c")
    first = await member.messages(max_messages=2, last_answer=None)
    assert [m["value"] for m in first] == ["a", "b"]
    status, _ = await member.ack({**token_of(first[0]), "upto": 1})
    assert status == 200
    assert await member.messages(last_answer=None) == first, "b is still in hand"
    status, _ = await member.ack({**token_of(first[1]), "upto": 2})
    assert status == 200
    assert [m["value"] for m in await member.messages(last_answer=None)] == ["c"]


async def test_a_late_copy_of_a_pull_takes_nothing_away(member, producer):
    """What it was answered, and nobody got, is answered again."""
    old = (await member.pull(wait_ms=0))[1]["answer"]
    await member.messages(wait_ms=0)
    newest = member.last_answer
    await producer.publish("a")
    late = await member.messages(last_answer=old)
    assert [m["value"] for m in late] == ["a"]
    assert await member.messages(last_answer=newest) == late


async def test_a_pull_waits_for_a_message(member, producer):
    pulling = asyncio.create_task(member.messages())
    await producer.publish("a")
    assert [m["value"] for m in await pulling] == ["a"]
    assert await member.messages(wait_ms=0) == []


async def test_what_is_looked_at_and_not_sent_holds_no_memory(member, producer, running):
    """A message that waits after a nack is looked at again with each publish behind it."""
    await producer.publish("a" * 4000)
    (message,) = await member.messages()
    nack = {**token_of(message), "offsets": [0], "delay_ms": 3_600_000}
    body = {"member": "m", "flow": member.flow, "nacks": [nack]}
    _, answer = await running.call("POST", f"{GROUP}/nacks", token=member.token, json=body)
    assert answer == {"results": [{"rewound_from": 0}]}
    pulling = asyncio.create_task(member.messages(wait_ms=1500))
    for _ in range(40):
        await producer.publish("b")
        assert running.guard.memory.used_bytes < 30_000
    assert await pulling == []
    assert running.guard.memory.used_bytes == 0


async def test_parts_of_a_batch_come_without_waiting(member, producer):
    """A pull that asks for less than a batch holds gets so much, again and again."""
    await producer.publish(*map(str, range(10)))
    got = [m["value"] for _ in range(5) for m in await member.messages(max_messages=2, wait_ms=0)]
    assert got == list(map(str, range(10)))


async def test_a_pause_is_answered_at_once(member, producer, running, peers):
    """So the member acks what it holds, and the partition moves on."""
    await producer.publish("a")
    (message,) = await member.messages()
    pulling = asyncio.create_task(member.pull())
    handoff = await peers.Handoff.begin(running)
    await handoff.pause()
    _, answer = await pulling
    assert (answer["paused"], answer["messages"]) == (["1.0"], [])
    status, _ = await member.ack({**token_of(message), "upto": 1})
    assert status == 200
    assert (await handoff.commit())["code"] == ""
    _, answer = await member.pull(wait_ms=0)
    assert answer["held"] == []


async def test_acks_wait_while_too_many_states_are_not_stored(
    member, producer, running, monkeypatch
):
    await producer.publish("a", "b")
    first, second = await member.messages()
    monkeypatch.setattr("partq.broker.delivery.key_states.MAX_UNSTORED_BYTES", 0)
    gate = Gate(running.broker.partitions, "flush")
    state = {"key": "k", "state": "MQ=="}
    acks = [{**token_of(each), "offsets": [each["offset"]], **state} for each in (first, second)]
    began = asyncio.create_task(member.ack(acks[0]))
    await gate.is_reached()
    monkeypatch.setattr("partq.broker.operations.pull.acks.ANSWER_TIMEOUT_S", 0.01)
    _, refused = await member.ack(acks[1])
    assert refused["results"][0]["error"]["code"] == "unavailable"
    gate.opened.set()
    assert (await began)[0] == 200
    monkeypatch.undo()
    assert (await member.ack(acks[1]))[0] == 200


async def test_acks_are_judged_one_by_one(member, producer):
    await producer.publish("a", "b")
    first, _ = await member.messages()
    token = token_of(first)
    status, answer = await member.ack(
        {**token, "upto": 1},
        {**token, "upto": 9},
        {**token, "epoch": 1, "upto": 2},
        {**token, "partition": "nine", "upto": 2},
    )
    codes = [result.get("error", {}).get("code", "") for result in answer["results"]]
    assert (status, codes) == (207, ["", "not_delivered", "fenced", "bad_request"])


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ({}, "acks[1]: got neither upto nor offsets, expected"),
        ({"offsets": []}, "acks[1]: got neither upto nor offsets, expected"),
        ({"upto": None}, "acks[1]: got neither upto nor offsets, expected"),
        ({"upto": -1}, "acks[1].upto: got -1, expected 0 or more"),
        ({"upto": -1, "offsets": [0]}, "acks[1].upto: got -1, expected 0 or more"),
        ({"offsets": [0, -3]}, "acks[1].offsets[1]: got -3, expected 0 or more"),
    ],
)
async def test_an_ack_that_acknowledges_nothing_is_refused(member, producer, running, item, says):
    """Who left the field out would believe that the messages are done with."""
    await producer.publish("a", "b")
    first, _ = await member.messages()
    token = token_of(first)
    status, answer = await member.ack({**token, "upto": 1}, {**token, **item})
    assert (status, answer["error"]["code"]) == (400, "bad_json")
    assert says in answer["error"]["message"]
    state = await running.state()
    assert (state["cursor"], state["in_flight"]) == (0, 2), "nothing of the call was counted"


@pytest.mark.req("AZR-58")
async def test_a_silent_member_is_lost_after_its_lease(member, producer, clock, peers, running):
    """Thirty seconds; what it held comes again to its next flow, with the cause."""
    await producer.publish("a")
    (message,) = await member.messages()
    clock.ahead_s += 18
    status, _ = await member.ack({**token_of(message), "upto": 0})  # renews it
    assert status == 200
    clock.ahead_s += 18
    await peers.eventually(lambda: running.broker.lease.is_valid, "the lease is renewed")
    assert running.broker.flow_registry.find("workers", "m") is not None
    clock.ahead_s += 12
    await peers.eventually(
        lambda: running.broker.flow_registry.find("workers", "m") is None, "lost"
    )
    status, answer = await member.ack({**token_of(message), "upto": 1})
    assert (status, answer["error"]["code"]) == (409, "fenced")
    await peers.eventually(lambda: running.broker.lease.is_valid, "the lease is renewed")
    (again,) = await member.messages()
    assert (again["cause"], again["redeliveries"]) == ("flow_lost", 1)


@pytest.mark.parametrize("kind", ["acks", "nacks"])
@pytest.mark.parametrize(
    ("partition", "code"),
    [("1.0", "fenced"), ("1.99", "unknown_partition"), ("first", "bad_request")],
)
async def test_a_partition_that_does_not_exist_is_named_even_when_the_flow_has_ended(
    running, peers, kind, partition, code
):
    """Another flow would not help."""
    item = {"partition": partition, "broker_epoch": 1, "epoch": 1, "offsets": [0]}
    _, answer = await running.call(
        "POST",
        f"/v1/queues/orders/groups/workers/{kind}",
        token=peers.CONSUME,
        json={"member": "m", "flow": 7, kind: [item]},
    )
    assert answer["error"]["code"] == code
    if code != "fenced":
        assert partition in answer["error"]["message"]


async def test_the_last_answer_of_a_flow_that_ended_is_none_of_the_next_one(
    member, producer, running
):
    """Or the first answer of the new flow, when it is lost on its way, would never come again."""
    await producer.publish("a", "b")
    old = (await member.pull(max_messages=1))[1]["answer"]
    running.broker.flow_registry.lose(running.broker.flow_registry.find("workers", "m"))
    lost = await member.messages(last_answer=old)
    assert [m["value"] for m in lost] == ["a", "b"]
    assert await member.messages(last_answer=old, wait_ms=0) == lost


async def test_a_leaving_member_goes_on_until_it_is_relieved(member, producer, running):
    await producer.publish("a")
    await member.messages()
    path = f"{GROUP}/members/m?flow={member.flow}"
    status, answer = await running.call("DELETE", path, token=member.token)
    assert (status, answer) == (200, {"held": ["1.0"]})
    _, state = await running.call("GET", "/admin/v1/queues/orders/state")
    assert [flow["is_leaving"] for flow in state["flows"]] == [True]
    status, answer = await running.call("DELETE", f"{GROUP}/members/m?flow=x", token=member.token)
    assert (status, answer["error"]["code"]) == (400, "bad_request")


@pytest.mark.req("AZR-12", "AZR-54", "AZR-56")
async def test_the_other_brokers_are_named(member, start_broker, peers):
    """A pull covers one broker's partitions: the member pulls from the others, too."""
    other = await start_broker("orders-1")

    async def named():
        _, answer = await member.pull(wait_ms=0)
        return answer["others"] == [other.url]

    await peers.eventually(named, "the other broker is listed")


async def test_a_second_life_of_a_member_waits(member, running, peers):
    await member.pull(wait_ms=0)
    status, answer = await Member(running, peers.CONSUME, "second").pull(wait_ms=0)
    assert (status, answer["error"]["code"]) == (409, "member_in_use")


async def test_first_pulls_at_once_bind_one_flow(member, running, peers):
    """They wait for the listing together: one of them wins, none fails otherwise."""
    twin = Member(running, peers.CONSUME)
    outcomes = await asyncio.gather(member.pull(wait_ms=0), twin.pull(wait_ms=0))
    assert {status for status, _ in outcomes} <= {200, 409}
    assert len(list(running.broker.flow_registry.flows)) == 1


async def test_a_bind_that_fails_half_way_leaves_no_flow(member, producer, running, peers):
    """The next pull binds again: else the member would hold nothing for ever."""
    partitions = running.broker.partitions
    bind, partitions.bind = partitions.bind, failing_bind
    status, answer = await member.pull(wait_ms=0)
    assert (status, answer["error"]["code"]) == (503, "store_unavailable")
    partitions.bind = bind
    await producer.publish("a")
    assert len(await member.messages()) == 1


async def failing_bind(*_, **__):
    raise pull_module.StoreUnavailableError("no answer")


async def test_a_broker_without_its_lease_does_not_answer(member, producer, running, peers):
    """Somebody else may own the partitions; when it is back, the same answer comes."""
    await producer.publish("a")
    renewals = peers.Gate(running.broker.leases, "renew")
    await renewals.reached.wait()
    status, answer = await member.pull(wait_ms=0)
    assert (status, answer["error"]["code"]) == (503, "store_unavailable")
    renewals.opened.set()
    await peers.eventually(lambda: running.broker.lease.is_valid, "renewed")
    assert [m["value"] for m in await member.messages()] == ["a"]


async def test_what_does_not_decode_stays_in_its_place(member, producer, running, peers):
    """The member sees that it is there, acks it, and continues: nothing behind it overtakes."""
    key = peers.key_of(0)
    bad = batch.encode([b"\xc1"], [slot_of(key)])
    await producer.publish("a")
    await producer.send(frames.Publish(9, 1, 0, 1), bad)
    await producer.expect(frames.Published)
    producer.due[0] = 2
    await producer.publish("c")
    messages = await member.messages()
    assert [m.get("value") for m in messages] == ["a", None, "c"]
    assert messages[1]["error"]["code"] == "undecodable"


async def test_values_that_are_no_text_come_as_base64(member, producer, peers):
    key = peers.key_of(0)
    message = batch.Message(key, b"\xff\x00", {"h": "1"}, 7)
    data = batch.encode([batch.encode_message(message)], [slot_of(key)])
    await producer.send(frames.Publish(9, 1, 0, 0), data)
    (got,) = await member.messages()
    assert (got["value_base64"], got["key"], got["headers"], got["event_time_ms"]) == (
        "/wA=", key, {"h": "1"}, 7,
    )  # fmt: skip


async def test_an_answer_is_bounded_by_what_it_expands_to(member, producer, peers, monkeypatch):
    """Small batches that expand to much do not make an answer without end."""
    monkeypatch.setattr(pull_answer, "MAX_ANSWER_BYTES", 5000)
    key = peers.key_of(0)
    for number in range(4):
        large = [batch.encode_message(batch.Message(key, bytes(3000)))]
        data = batch.encode(large, [slot_of(key)], batch.Codec.ZSTD)
        await producer.send(frames.Publish(9, 1, 0, number), data)
        await producer.expect(frames.Published)
    counts = [len(await member.messages()) for _ in range(4)]
    assert counts == [1, 1, 1, 1], "as JSON each takes 18,000"


@pytest.mark.parametrize(
    "changes",
    [
        {"max_messages": 0},
        {"max_messages": 10_001},
        {"wait_ms": -1},
        {"wait_ms": 20_001},
        {"member": ""},
        {"incarnation": "x" * 254},
    ],
)
async def test_a_pull_has_bounds(member, changes):
    status, answer = await member.pull(**changes)
    assert (status, answer["error"]["code"]) == (400, "bad_request")


@pytest.mark.parametrize("name", ["1.4", "2.0", "0.0"])
async def test_an_ack_of_a_partition_that_does_not_exist(member, producer, name):
    """No token of it can have ended: a wrong number is the caller's mistake."""
    await producer.publish("a")
    (first,) = await member.messages()
    wrong = {**token_of(first), "partition": name}
    status, answer = await member.ack({**wrong, "upto": 0})
    assert_unknown(status, answer["results"], name)
    body = {"member": "m", "flow": member.flow, "nacks": [{**wrong, "offsets": [0]}]}
    status, answer = await member.running.call(
        "POST", f"{GROUP}/nacks", token=member.token, json=body
    )
    assert_unknown(status, answer["results"], name)
    status, _ = await member.ack({**token_of(first), "upto": 0})
    assert status == 200, "the flow continues"


def assert_unknown(status, results, name):
    (result,) = results
    error = result["error"]
    assert (status, error["code"]) == (207, "unknown_partition"), error
    for words in (f"partition {name}: ", "4 partitions, 1.0 to 1.3", "/layout"):
        assert words in error["message"], error["message"]
