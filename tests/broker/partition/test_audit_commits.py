"""Forced commits of partitions with deliveries that wait for their audit record."""

import asyncio

import pytest

from partq.broker.delivery import unrecorded_deliveries
from partq.testing.frame_peers import values_of
from partq.wire import frames
from tests.broker.conftest import Handoff
from tests.broker.partition.test_audit import P0, of_kind, resources, told

__all__ = ["resources"]


@pytest.fixture
async def gate(scene, peers):
    """Member m has acknowledged what it got; one more message waits for its record."""
    assert await scene.source.ack(scene.held, 3) == ""
    gate = peers.Gate(scene.running.broker.audits, "write")
    await scene.producer.publish("d")
    await gate.is_reached()
    return gate


async def begin_forced_commit(scene, peers):
    """Commit after a drain that was over at once; return the call, which waits for the record."""
    flow = scene.running.broker.flow_registry.find("workers", "m")
    (consumed,) = flow.partitions
    handoff = await Handoff.begin(scene.running)
    pause = asyncio.create_task(handoff.pause(drain_ms=0))
    await peers.eventually(lambda: consumed.pause is not None, "paused")
    commit = asyncio.create_task(handoff.commit(cause="drain_timeout"))
    await peers.eventually(lambda: consumed.is_committing, "the commit waits")
    return pause, commit


async def test_a_forced_commit_does_not_count_what_its_member_never_got(scene, peers, gate):
    """No message of its partition is sent while a commit is under way."""
    pause, commit = await begin_forced_commit(scene, peers)
    target = await scene.target()
    gate.opened.set()
    assert (await commit)["was_forced"]
    assert (await pause)["code"] == ""
    await scene.source.expect((frames.Paused, frames.Revoked))  # in either order, and no message
    await scene.source.expect((frames.Paused, frames.Revoked))
    frame, payload = await target.find(frames.Deliver)
    assert values_of(frame, payload) == ["d"]
    assert frame.redeliveries == []
    stored = await scene.running.broker.partitions.read_cursor(P0, "workers")
    assert stored.redeliveries == {}
    (commit,) = [r for r in of_kind(await told(scene.running), "commit") if r.target == "n"]
    assert commit.cause == "drain_timeout"


async def test_a_member_has_the_credit_of_what_it_never_got(scene, peers, gate, monkeypatch):
    """Else the room of each such message is gone for as long as its flow lasts."""
    flow = scene.running.broker.flow_registry.find("workers", "m")
    credit = flow.credit
    messages, out_bytes = credit.messages, credit.out_bytes
    pause, commit = await begin_forced_commit(scene, peers)
    gate.opened.set()
    assert (await commit)["was_forced"]
    await pause
    assert credit.messages == messages + 1
    assert 0 < credit.out_bytes < out_bytes
    monkeypatch.setattr(unrecorded_deliveries, "MAX_UNRECORDED_BYTES", 1)
    assert not flow.unrecorded.is_full, "no byte of it is counted any more"


async def test_a_forced_commit_counts_what_its_member_has_got(scene, peers):
    """The lowest one in flight may be what it cannot process."""
    handoff = await scene.paused(drain_ms=0)
    assert (await handoff.commit(cause="drain_timeout"))["was_forced"]
    target = await scene.target()
    frame, payload = await target.find(frames.Deliver)
    assert values_of(frame, payload) == ["a", "b", "c"]
    assert frame.redeliveries == [(0, 1)]
