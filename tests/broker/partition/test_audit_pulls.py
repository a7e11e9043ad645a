"""Members that pull by plain HTTP, while what they pulled waits for its audit record."""

import asyncio

import pytest

from tests.broker.api.routes.test_pull import GROUP, Member, token_of
from tests.broker.conftest import Handoff
from tests.broker.partition.test_audit import P0, resources

__all__ = ["resources"]

A_MINUTE_MS = 60_000


@pytest.fixture
async def pulling(running, peers):
    """A pull that has taken a message, and waits for its record."""
    await running.assign("m", [0])
    member = Member(running, peers.CONSUME)
    await member.pull(wait_ms=0)
    await (await peers.open_producer(running)).publish("d")
    gate = peers.Gate(running.broker.audits, "write")
    pull = asyncio.create_task(member.pull())
    await gate.is_reached()
    return member, pull, gate


async def test_a_forced_commit_does_not_count_what_a_pull_was_not_answered_with(
    running, peers, pulling
):
    _, pull, gate = pulling
    (consumed,) = running.broker.flow_registry.find("workers", "m").partitions
    handoff = await Handoff.begin(running)
    pause = asyncio.create_task(handoff.pause(drain_ms=0))
    await peers.eventually(lambda: consumed.pause is not None, "paused")
    commit = asyncio.create_task(handoff.commit(cause="drain_timeout"))
    await peers.eventually(lambda: consumed.is_committing, "the commit waits")
    gate.opened.set()
    assert (await commit)["was_forced"]
    await pause
    status, answer = await pull
    assert (status, answer["messages"]) == (200, [])
    stored = await running.broker.partitions.read_cursor(P0, "workers")
    assert stored.redeliveries == {}


async def test_a_flow_that_is_lost_does_not_count_what_its_pull_was_not_answered_with(
    running, peers, pulling
):
    member, pull, gate = pulling
    running.broker.flow_registry.lose(running.broker.flow_registry.find("workers", "m"))
    gate.opened.set()
    status, answer = await pull
    assert (status, answer["error"]["code"]) == (409, "fenced")
    (message,) = await member.messages()
    assert (message["value"], message["redeliveries"]) == ("d", 0)


# ---- acks and nacks meanwhile -------------------------------------------------------------------


@pytest.fixture
async def held(running, peers):
    """A member that holds three messages, and what it knows of the first one."""
    await running.assign("m", [0])
    member = Member(running, peers.CONSUME)
    await member.pull(wait_ms=0)
    producer = await peers.open_producer(running)
    await producer.publish("a", "b", "c")
    messages = await member.messages()
    assert [each["value"] for each in messages] == ["a", "b", "c"]
    return member, producer, messages[0]


async def settled(member, call, entry):
    """Send one ack or nack; return the code of its refusal, or the empty text."""
    body = {"member": "m", "flow": member.flow, call: [entry]}
    path = f"{GROUP}/{call}"
    _, answer = await member.running.call("POST", path, token=member.token, json=body)
    return answer["results"][0].get("error", {}).get("code", "")


async def test_what_a_pull_waits_to_answer_with_cannot_be_acknowledged(running, peers, held):
    """Nobody has got it; what earlier answers had can be."""
    member, producer, first = held
    token = token_of(first)
    gate = peers.Gate(running.broker.audits, "write")
    pull = asyncio.create_task(member.pull())
    await producer.publish("d")
    await gate.is_reached()
    assert await settled(member, "acks", {**token, "upto": 4}) == "not_delivered"
    assert await settled(member, "acks", {**token, "offsets": [3]}) == "not_delivered"
    assert await settled(member, "nacks", {**token, "offsets": [3]}) == "not_delivered"
    assert await settled(member, "acks", {**token, "upto": 2, "offsets": [2]}) == ""
    gate.opened.set()
    status, answer = await pull
    assert (status, [each["value"] for each in answer["messages"]]) == (200, ["d"])
    assert await settled(member, "acks", {**token, "upto": 4}) == ""


async def test_a_redelivery_that_a_pull_waits_to_answer_with_is_not_acknowledged(
    running, peers, held
):
    """Nothing was sent under its delivery number; what was in hand before counts one by one."""
    member, _, first = held
    token = token_of(first)
    gate = peers.Gate(running.broker.audits, "write")
    nack = {**token, "offsets": [0], "delay_ms": 0}
    assert await settled(member, "nacks", nack) == ""
    pull = asyncio.create_task(member.pull())
    book = running.broker.owned[P0].groups["workers"].book
    await peers.eventually(lambda: book.position == 3, "the redelivery is taken")
    again = {**token, "delivery": token["delivery"] + 1}
    assert await settled(member, "acks", {**again, "upto": 3}) == "not_delivered"
    assert await settled(member, "acks", {**token, "offsets": [0]}) == ""
    gate.opened.set()
    status, answer = await pull
    assert (status, {each["delivery"] for each in answer["messages"]}) == (200, {again["delivery"]})
    while book.cursor < 3:
        assert await settled(member, "acks", {**again, "upto": book.position}) == ""
        if book.cursor < 3:
            await member.messages()


async def test_a_pull_is_not_answered_with_what_was_taken_back_meanwhile(running, peers, held):
    """Else its member would process that before the message that it has given back."""
    member, producer, first = held
    gate = peers.Gate(running.broker.audits, "write")
    pull = asyncio.create_task(member.pull())
    await producer.publish("d")
    await gate.is_reached()
    nack = {**token_of(first), "offsets": [0], "delay_ms": A_MINUTE_MS}
    assert await settled(member, "nacks", nack) == ""
    gate.opened.set()
    status, answer = await pull
    assert (status, answer["messages"]) == (200, [])
    assert running.broker.owned[P0].groups["workers"].book.in_flight == 0
