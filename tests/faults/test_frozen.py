"""Processes that stand still for longer than a lease, and roads on which nothing arrives.

What is frozen does not know it; what is cut off sees every connection open. Both wake up with what
they believed, while others have gone on without them.
"""

from contextlib import asynccontextmanager

import pytest

from partq.core.model import Cause
from partq.lab.verdict.journal_rows import REVOKED
from partq.testing import eventually
from tests.faults import points
from tests.faults.traffic import MOVES


@asynccontextmanager
async def revoked(stage, member):
    """See that a member learns meanwhile, or then, that it has lost the partition that moves."""
    seen = len(stage.traffic.look().held)
    yield

    async def is_revoked():
        return any(
            (row.member, row.partition, row.change) == (member, str(MOVES), REVOKED)
            for row in stage.traffic.look().held[seen:]
        )

    await eventually(is_revoked, f"{member} knows that it has lost {MOVES}")


# ---- frozen -------------------------------------------------------------------------------------


@pytest.mark.req("FAIL-01", "PUL-110")
async def test_a_frozen_member_wakes_up_after_another_has_taken_over(stage):
    """It ends what it has in hand, under a token that is over, and begins nothing else."""
    stage.start_coordinator()
    await stage.until_state(member="b", state="Ready")
    await stage.hold("b")
    stage.processes["b"].freeze()
    await stage.until_state(member="a", state="Ready")
    await stage.traffic.until_processed("a", Cause.FLOW_LOST)
    stage.let_go("b")
    async with revoked(stage, "b"):
        stage.processes["b"].thaw()
    verdict = await stage.traffic.verdict(causes=[Cause.FLOW_LOST])
    assert verdict.duplicates  # what b had in hand


@pytest.mark.req("FAIL-01")
async def test_a_frozen_broker_wakes_up_with_a_commit(stage):
    """It has come while another broker claimed: the record refuses it."""
    point = await points.drained(stage)
    stage.processes["orders-1"].freeze()
    point.go_on()
    stage.road.points.clear()
    await stage.until_claimed(point.before, "orders-0")
    await stage.until_state(member="b", state="Ready")
    stage.processes["orders-1"].thaw()

    async def is_answered():
        return all(call.answer for call in stage.road.made("commit"))

    await eventually(is_answered, "the late commits are answered")
    await stage.handed_over(point, attempt_is_new=True, causes=[Cause.BROKER_CHANGE])
    assert point.attempt not in [commit["attempt"] for commit in await stage.commits()]


@pytest.mark.req("FAIL-05")
async def test_two_coordinators_move_a_partition_once(stage):
    """One is frozen in the middle of a handoff; it wakes up when another has done it."""
    point = await points.draining(stage)
    stage.processes["coordinator"].freeze()
    stage.start_coordinator("second coordinator")
    stage.let_go("a")
    await stage.until_state(member="b", state="Ready")
    stage.processes["coordinator"].thaw()
    seen = len(stage.road.made("state"))

    async def has_looked():
        return len(stage.road.made("state")) > seen + 4

    await eventually(has_looked, "both coordinators look")
    await stage.traffic.verdict()
    assert [commit["target"] for commit in await stage.commits()] == ["b"]
    assert (await stage.state())["attempt"] >= point.attempt


async def test_a_frozen_redis_stops_everything_for_a_while(stage):
    """No broker delivers by a lease that it cannot renew; what was believed is read again."""
    stage.start_coordinator()
    await stage.until_state(member="b", state="Ready")
    stage.redis.freeze()
    try:

        async def is_over():
            return not await stage.is_ready("orders-1")

        async with revoked(stage, "b"):
            await eventually(is_over, "the lease is over")
    finally:
        stage.redis.thaw()
    await stage.traffic.until_processed("b")
    await stage.traffic.verdict(causes=[Cause.BROKER_CHANGE, Cause.FLOW_LOST])


# ---- cut off ------------------------------------------------------------------------------------


@pytest.mark.parametrize("only_back", [False, True], ids=["both ways", "answers only"])
async def test_a_member_is_cut_off_from_a_broker_that_lives(stage, only_back):
    """It knows by its own clock; the broker may hear it still."""
    async with revoked(stage, "a"):
        stage.road.stall(only_back=only_back)
    stage.road.heal()
    stage.start_coordinator()
    await stage.until_state(member="b", state="Ready")
    await stage.traffic.until_processed("b")
    await stage.traffic.verdict(causes=[Cause.FLOW_LOST])


@pytest.mark.req("FAIL-01")
@pytest.mark.parametrize("end", ["late", "never"])
async def test_a_broker_is_cut_off_from_redis(bare_stage, end):
    """What it has sent arrives when another broker owns the partition, or not at all."""
    stage = await bare_stage.open(redis_road=True)
    stage.traffic.publish()
    before = await stage.state()
    stage.redis_road.stall()
    await stage.until_claimed(before, "orders-0")
    await stage.traffic.until_processed("a")
    stage.redis_road.go_on() if end == "late" else stage.redis_road.heal()

    async def is_back():
        return await stage.is_ready("orders-1")

    await eventually(is_back, "the broker is back")
    at = await stage.state()
    assert at["broker"] == "orders-0"
    await stage.traffic.verdict(causes=[Cause.BROKER_CHANGE])


@pytest.mark.req("FAIL-01")
async def test_a_broker_cut_off_from_redis_does_not_hide_the_others(bare_stage):
    """It would tell a layout without them to clients that lose the connection to one that lives."""
    stage = await bare_stage.open(redis_road=True)
    before = await stage.state()
    stage.redis_road.stall()
    await stage.until_claimed(before, "orders-0")
    stage.proxies["orders-0"].stall()

    async def has_no_layout():
        log = (stage.directory / "a.log").read_text()
        return "the layout could not be read: no broker answers" in log

    await eventually(has_no_layout, "nobody tells a the layout")
    stage.proxies["orders-0"].heal()
    stage.traffic.publish()
    await stage.traffic.until_processed("a")
    stage.redis_road.heal()
    await stage.traffic.verdict(causes=[Cause.BROKER_CHANGE, Cause.FLOW_LOST])
