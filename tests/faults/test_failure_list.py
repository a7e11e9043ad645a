"""What has gone wrong elsewhere, and is not in the crash table: each a test on real processes."""

import signal

import pytest

from partq.core.model import Cause
from partq.testing import eventually
from tests.faults import points
from tests.faults.traffic import MOVES, STAYS


@pytest.mark.req("FAIL-02")
async def test_a_member_that_restarts_at_once_is_another_life(stage):
    """Its name is known and its memory is empty: it is told what it has, and no partition moves."""
    stage.start_coordinator()
    before = await stage.until_state(member="b", state="Ready")
    await stage.hold("b")
    moved = len(await stage.commits())
    await stage.kill("b")
    stage.let_go("b")
    stage.start_member("b")

    async def is_another():
        at = await stage.state()
        return at if at["is_bound"] and at["incarnation"] != before["incarnation"] else None

    at = await eventually(is_another, "the new life is bound")
    assert (at["member"], at["epoch"] > before["epoch"]) == ("b", True)
    await stage.traffic.until_processed("b", Cause.FLOW_LOST)
    await stage.traffic.verdict(causes=[Cause.FLOW_LOST])
    assert len(await stage.commits()) == moved


@pytest.mark.req("FAIL-06")
async def test_nothing_comes_after_drained(stage):
    """What is published meanwhile is stored, and waits for the commit."""
    point = await points.drained(stage)
    drained = await stage.state()
    async with stage.renewing(stage.road.made("pause")[0]):
        await stage.traffic.once("meanwhile")
        await stage.traffic.stored()
        now = await stage.state()
        assert (now["state"], now["in_flight"]) == ("Paused", 0)
        assert now["position"] == drained["position"] < now["end"]
        point.go_on()
    await stage.handed_over(point, attempt_is_new=False)


@pytest.mark.req("FAIL-07")
async def test_a_handoff_that_is_stuck_holds_up_no_other(bare_stage):
    """While a works on 1.1 without an end, 1.0 goes from a to c, as a leaves."""
    stage = await bare_stage.open(members=("a", "b", "c"))
    stage.traffic.publish()
    point = await points.draining(stage)
    stage.processes["a"].signal(signal.SIGTERM)
    await stage.until_state(partition=STAYS, member="c", state="Ready")
    assert (await stage.state())["pause_attempt"] == point.attempt
    stage.let_go("a")
    await stage.handed_over(point, attempt_is_new=False)


@pytest.mark.req("FAIL-09")
async def test_a_coordinator_that_hears_of_nothing_sees_everything(stage):
    """The hints only hurry it: there are none any more."""
    stage.start_coordinator()
    await stage.until_state(member="b", state="Ready")
    await stage.take_hints_away()
    await stage.kill("b")
    await stage.until_state(member="a", state="Ready")
    stage.start_member("b")

    async def has_one():
        """Which of the two it gets depends on whether a was lost for a moment, too."""
        states = [await stage.state(partition) for partition in (STAYS, MOVES)]
        return any((each.get("member"), each.get("state")) == ("b", "Ready") for each in states)

    await eventually(has_one, "b has a partition again")
    await stage.traffic.verdict(causes=[Cause.FLOW_LOST])
