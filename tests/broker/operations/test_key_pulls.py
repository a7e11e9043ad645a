"""Consuming by plain HTTP in a group of order Key."""

import pytest

from tests.broker.api.routes.test_pull import GROUP, Member, token_of
from tests.broker.conftest import CONSUME, open_producer
from tests.broker.delivery.keyed import DAY_MS, KEY_ORDER, follow, publish


@pytest.fixture
async def producer(running):
    return await open_producer(running)


@pytest.fixture
async def member(running, producer):
    """A member that pulls, and has a0, b0, a1."""
    await follow(running, nack=KEY_ORDER)
    await running.assign("m", [0])
    await publish(producer, "a0", "b0", "a1")
    member = Member(running, CONSUME)
    member.held = await member.messages()
    assert values(member.held) == ["a0", "b0", "a1"]
    return member


def values(messages):
    return [message["value"] for message in messages]


async def nack(member, message, delay_ms=0):
    item = {**token_of(message), "offsets": [message["offset"]], "delay_ms": delay_ms}
    body = {"member": "m", "flow": member.flow, "nacks": [item]}
    status, answer = await member.running.call("POST", f"{GROUP}/nacks", token=CONSUME, json=body)
    assert status == 200
    (result,) = answer["results"]
    return result


async def test_the_key_waits_and_the_others_are_answered(member, producer):
    """All that was answered has begun, so that a1 may be acknowledged."""
    assert await nack(member, member.held[0], DAY_MS) == {}
    await publish(producer, "b1", "a2", "c0")
    more = await member.messages()
    assert values(more) == ["b1", "c0"]
    acks = [{**token_of(each), "offsets": [each["offset"]]} for each in (*member.held[1:], *more)]
    _, answer = await member.ack(*acks)
    assert answer["results"] == [{}] * 4
    row = await member.running.state()
    assert (row["cursor"], row["in_flight"], row["lag"]) == (0, 0, 2)


async def test_the_key_comes_again_with_its_cause(member):
    assert await nack(member, member.held[0]) == {}
    (again,) = await member.messages()
    assert (again["value"], again["cause"], again["redeliveries"]) == ("a0", "nack", 1)
    assert again["delivery"] == 0


async def test_each_message_has_its_own_cause(member, producer):
    """A batch is answered as the mask says, and each of its messages says why it came."""
    await publish(producer, "b1", "a2", "b2")
    more = await member.messages()
    assert await nack(member, more[0]) == {}
    assert await nack(member, more[1]) == {}
    again = await member.messages()
    assert [(each["value"], each["cause"]) for each in again] == [("b1", "nack"), ("a2", "nack")]


async def test_a_cumulative_ack_is_refused(member):
    _, answer = await member.ack({**token_of(member.held[0]), "upto": 2})
    assert answer["results"][0]["error"]["code"] == "bad_request"
    assert "order Key" in answer["results"][0]["error"]["message"]


async def test_an_ack_of_what_was_given_back_counts_for_the_rest(member):
    assert await nack(member, member.held[0], DAY_MS) == {}
    _, answer = await member.ack({**token_of(member.held[0]), "offsets": [0, 1, 2]})
    assert answer["results"][0]["error"]["code"] == "not_delivered"
    row = await member.running.state()
    assert (row["cursor"], row["lag"]) == (0, 1)
