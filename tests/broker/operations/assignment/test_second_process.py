"""Two processes with one member's name: after a loss the share goes to the one that had it."""

import asyncio

import pytest

from partq.broker.delivery.expected_returns import RETURN_S, return_s
from partq.resources import group_document, queue_document, resources_of
from partq.wire import frames

DELAY_S = 3.0


@pytest.fixture
def resources():
    rebalance = {"delaySeconds": DELAY_S}
    group = group_document("workers", "orders", assignment="Client", rebalance=rebalance)
    return resources_of(queue_document("orders", partitions=4), group)


async def refused(running, peers, incarnation):
    """Try to bind member m; return what is told."""
    peer = await peers.connect(running, "/v1/queues/orders/groups/workers/flow", peers.CONSUME)
    await peer.send(frames.Bind("m", incarnation, 100))
    failed, _ = await peer.expect(frames.Failed)
    await peer.close()
    return failed


async def test_when_redis_was_away_the_process_that_had_the_share_gets_it_again(
    running, peers, members, clock
):
    """Both wait for Redis, the other one first: it must not have what the brokers share out."""
    await members.register("m")
    first = await peers.open_flow(running, "m", "first")
    await first.find(frames.Assigned)
    await first.close()  # as a client does whose lease has run out
    look = peers.Gate(running.broker.flow_registry._members, "read")
    other = asyncio.create_task(refused(running, peers, "other"))
    await look.reached.wait()
    again = asyncio.create_task(peers.open_flow(running, "m", "first"))
    waits = running.broker.flow_registry._returns._expected
    await peers.eventually(lambda: waits["workers", "m"].waiting, "the first one waits, too")
    clock.ahead_s += 2 * RETURN_S  # for longer than it would be waited for
    look.opened.set()
    failed = await other
    assert (failed.code, failed.retry_after_ms > 0) == ("member_in_use", True)
    assert "got incarnation 'other', but 'first' is about to open its flow" in failed.message
    await (await again).find(frames.Assigned)
    assert (await refused(running, peers, "other")).code == "member_in_use"


async def test_it_also_keeps_its_number_and_who_waits_long_enough_follows(
    running, peers, members, clock
):
    await members.register("m")
    first = await peers.open_flow(running, "m", "first")
    assert await members.node("m", 2, 0, "first") == {"source_count": 2, "node_id": 0}
    await first.close()
    await peers.eventually(lambda: not [*running.broker.flow_registry.flows], "it is lost")
    assert await members.node("m", 2, 1, "other") == "member_in_use"
    assert (await refused(running, peers, "other")).code == "member_in_use"
    clock.ahead_s += RETURN_S
    assert await members.node("m", 2, 1, "other") == {"source_count": 2, "node_id": 1}
    other = await peers.open_flow(running, "m", "other")
    await other.find(frames.Assigned)


async def test_who_has_left_or_died_is_not_waited_for(running, peers, members):
    """The connection of a process that dies ends without a word."""
    await members.register("m")
    flow = await peers.open_flow(running, "m", "first")
    await flow.send(frames.Leave())
    await flow.close()
    await peers.eventually(lambda: not [*running.broker.flow_registry.flows], "it is lost")
    flow = await peers.open_flow(running, "m", "second")
    await flow.find(frames.Assigned)
    flow.cut()
    await peers.eventually(lambda: not [*running.broker.flow_registry.flows], "it is lost")
    flow = await peers.open_flow(running, "m", "third")
    await flow.find(frames.Assigned)


async def test_a_restart_has_its_place_before_the_rebalance_delay_is_over(
    running, peers, members, clock
):
    """Its earlier process closed without a word; what it had is free after the delay."""
    held = await members.register("m")
    first = await peers.open_flow(running, "m", "first")
    await first.find(frames.Assigned)
    await first.close()
    await peers.eventually(lambda: not [*running.broker.flow_registry.flows], "it is lost")
    failed = await refused(running, peers, "second")
    assert failed.code == "member_in_use"
    assert failed.retry_after_ms <= DELAY_S * 1000 / 2, "asked again then, it is not too late"
    clock.ahead_s += DELAY_S / 2
    second = await peers.open_flow(running, "m", "second")
    assigned, _ = await second.expect(frames.Assigned)
    assert assigned.epoch > held["epoch"], "what the first one still sends is fenced"
    assert (await refused(running, peers, "first")).code == "member_in_use"


@pytest.mark.parametrize(
    ("delay_s", "expected"), [(0, 0), (3, 1.5), (60, RETURN_S), (None, RETURN_S)]
)
def test_a_process_is_expected_for_half_of_the_delay_at_most(delay_s, expected):
    assert return_s(delay_s) == expected
