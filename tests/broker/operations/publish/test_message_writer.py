"""Publishing by plain HTTP: keys, arrays, refusals, forwarding."""

import base64
from dataclasses import replace

import pytest

from partq.broker.operations.publish import message_writer
from partq.core.layout import Layout

MESSAGES = "/v1/queues/orders/messages"


async def post(running, peers, body, **kwargs):
    return await running.call("POST", MESSAGES, token=peers.PRODUCE, json=body, **kwargs)


async def delivered(running, peers, number):
    """Return the messages of all partitions, as pulls tell them."""
    await running.assign("m", [0, 1, 2, 3])
    path = "/v1/queues/orders/groups/workers/pull"
    last, messages = None, []
    while len(messages) < number:
        body = {"member": "m", "incarnation": "i", "last_answer": last}
        status, answer = await running.call("POST", path, token=peers.CONSUME, json=body)
        assert status == 200, answer
        last = answer["answer"]
        messages += answer["messages"]
    return messages


@pytest.mark.req("SOL-02", "SOL-18", "AZR-11", "PUL-05", "PUL-06", "PUL-07", "PUL-14")
async def test_one_message_by_plain_http(running, peers):
    key = peers.key_of(3)
    status, answer = await post(
        running, peers, {"key": key, "value": "é", "headers": {"a": "b"}, "event_time_ms": 5}
    )
    assert (status, answer) == (201, {"partition": "1.3", "offset": 0})
    await post(running, peers, {"key": key, "value": "no time"})
    message, timeless = await delivered(running, peers, 2)
    assert (message["key"], message["value"], message["headers"], message["event_time_ms"]) == (
        key, "é", {"a": "b"}, 5,
    )  # fmt: skip
    assert (timeless["value"], timeless["event_time_ms"]) == ("no time", 0)


@pytest.mark.req("AZR-30")
async def test_a_message_id_is_no_key(running, peers):
    """Repeats are recognised by their numbers, so equal ids go to any partition."""
    answers = [
        await post(running, peers, {"value": "a"}, headers={"MessageId": "same"}) for _ in range(60)
    ]
    assert {answer["partition"] for _, answer in answers} == {f"1.{p}" for p in range(4)}
    assert {message["key"] for message in await delivered(running, peers, 60)} == {None}


@pytest.mark.req("SOL-13", "SOL-14", "AZR-21", "AZR-23", "AZR-24", "AZR-25")
async def test_the_key_may_stand_in_a_header(running, peers):
    key = peers.key_of(2)
    names = ("SessionId", "PartitionKey", "QUEUE_PARTITION_KEY", "JMSXGroupID")
    for name in names:
        for body in ({"value": name}, {"key": key, "value": name}):
            status, answer = await post(running, peers, body, headers={name: key})
            assert (status, answer["partition"]) == (201, "1.2")
        body = {"key": "other", "value": "a"}
        status, answer = await post(running, peers, body, headers={name: key})
        assert (status, answer["error"]["code"]) == (400, "key_conflict")
        assert name in answer["error"]["message"]
    equal = dict.fromkeys(names, key)
    status, answer = await post(running, peers, [{"value": "a"}] * 3, headers=equal)
    assert (status, {r["partition"] for r in answer["results"]}) == (201, {"1.2"})
    status, answer = await post(running, peers, {"value": "a"}, headers={**equal, names[1]: "b"})
    assert (status, answer["error"]["code"]) == (400, "key_conflict")
    got = await delivered(running, peers, 11)
    assert {message["key"] for message in got} == {key}, "a consumer reads it as the key"


async def test_an_empty_string_is_a_key(running, peers):
    expected = str(Layout.first(4).partition_for(""))
    for _ in range(3):
        _, answer = await post(running, peers, {"key": "", "value": "a"})
        assert answer["partition"] == expected


@pytest.mark.req("PUL-05")
async def test_values_of_any_bytes_go_as_base64(running, peers):
    value = base64.b64encode(b"\xff\x00").decode()
    status, _ = await post(running, peers, {"key": "k", "value_base64": value})
    assert status == 201
    (message,) = await delivered(running, peers, 1)
    assert message["value_base64"] == value


async def test_an_array_is_stored_in_its_order(running, peers):
    body = [{"key": peers.key_of(n % 2), "value": str(n)} for n in range(6)]
    status, answer = await post(running, peers, body)
    assert status == 201
    assert [(r["partition"], r["offset"]) for r in answer["results"]] == [
        ("1.0", 0), ("1.1", 0), ("1.0", 1), ("1.1", 1), ("1.0", 2), ("1.1", 2),
    ]  # fmt: skip


async def test_after_a_refused_message_the_later_ones_of_its_partition_are_refused(running, peers):
    """Order is kept: the caller sends again from there. Other partitions are not touched."""
    here, there = peers.key_of(0), peers.key_of(1)
    body = [
        {"key": here, "value": "a"},
        {"key": here, "value": "x" * 5000},
        {"key": here, "value": "c"},
        {"key": there, "value": "d"},
        {"key": there},
        {"key": there, "value": "f"},
    ]
    status, answer = await post(running, peers, body)
    codes = [result.get("error", {}).get("code", "") for result in answer["results"]]
    assert status == 207
    assert codes == ["", "message_too_large", "not_stored", "", "bad_request", "not_stored"]
    got = await delivered(running, peers, 2)
    assert sorted(message["value"] for message in got) == ["a", "d"]


@pytest.mark.parametrize("policy", ["Random", "RoundRobin"])
async def test_keyless_messages_go_where_somebody_serves(running, peers, policy, monkeypatch):
    monkeypatch.setattr(running.broker, "_config", replace_policy(running.broker.config, policy))
    await running.admin("/yield", {"partitions": ["1.3"]})
    status, answer = await post(running, peers, [{"value": str(n)} for n in range(60)])
    assert status == 201, answer
    counts = [sum(r["partition"] == f"1.{p}" for r in answer["results"]) for p in range(4)]
    assert counts[3] == 0
    assert counts[:3] == [20, 20, 20] if policy == "RoundRobin" else all(counts[:3])
    assert {message["key"] for message in await delivered_of(running, peers, 60)} == {None}


def replace_policy(config, policy):
    return replace(config, keyless_policy=policy)


async def delivered_of(running, peers, number):
    await running.admin("/claim", {"partitions": ["1.3"]})
    return await delivered(running, peers, number)


@pytest.mark.req("AZR-20", "AZR-22", "AZR-32", "AZR-33")
async def test_a_broker_forwards_to_the_owner_once(running, peers, start_broker):
    """The client need not know who owns what; the answer is the owner's."""
    other = await start_broker("orders-1")
    await running.admin("/yield", {"partitions": ["1.0"]})
    key = peers.key_of(0)
    status, answer = await post(running, peers, {"key": key, "value": "a"})
    assert (status, answer["error"]["code"]) == (503, "not_stored")
    await other.admin("/claim", {"partitions": ["1.0"]})
    await peers.eventually(
        lambda: running.broker.claims.owner_url(peers.partition_id(0)), "the owner is known"
    )
    body = [{"key": key, "value": "a"}, {"key": peers.key_of(1), "value": "b"}]
    status, answer = await post(running, peers, body)
    assert (status, answer["results"][0]) == (201, {"partition": "1.0", "offset": 0})
    status, answer = await post(
        running, peers, {"key": key, "value": "a"}, headers={"Partq-Forwarded": "x"}
    )
    assert (status, answer["error"]["code"]) == (421, "not_owner")
    assert answer["error"]["retry_after_ms"] == 1000, "as where nobody serves the partition"
    for number, broker in enumerate((running, other, running), start=1):  # whoever is asked
        status, answer = await post(broker, peers, {"value": "s"}, headers={"SessionId": key})
        assert (status, answer) == (201, {"partition": "1.0", "offset": number})

    # The owner answers nobody, and keeps its lease. What has a key waits for it; the rest does not.
    await other.runner.cleanup()

    async def is_refused():
        _, answer = await post(running, peers, {"key": key, "value": "a"})
        return answer["error"]["code"] == "not_stored"  # over an old connection nobody knows

    await peers.eventually(is_refused, "the owner's connections have ended")
    body = [{"key": key, "value": "a"}, *({"value": str(n)} for n in range(12))]
    for _ in range(3):
        status, answer = await post(running, peers, body)
        codes = [result.get("error", {}).get("code", "") for result in answer["results"]]
        assert (status, codes[0]) == (207, "not_stored")
        assert not any(codes[1:])
        assert not any(result["partition"] == "1.0" for result in answer["results"][1:])
    ends = [(await running.broker.partitions.read(peers.partition_id(p))).next for p in range(4)]
    assert (ends[0], sum(ends[1:])) == (4, 37), "with a key: stored nowhere else"


async def test_publishing_waits_no_longer_than_its_limit(running, peers, monkeypatch):
    monkeypatch.setattr(message_writer, "ANSWER_TIMEOUT_S", 0.05)
    gate = peers.Gate(running.broker.log, "append")
    status, answer = await post(running, peers, {"key": peers.key_of(0), "value": "a"})
    assert (status, answer["error"]["code"]) == (504, "outcome_unknown")
    gate.opened.set()
