"""The crash table, rows of those who call the brokers: the coordinator, and the two members.

The coordinator stands for the operator, which runs the same one.
"""

import pytest

from partq.core.model import Cause
from partq.lab.verdict.journal import in_order
from partq.lab.verdict.judge import find_duplicates
from tests.faults import points
from tests.faults.stage import GROUP
from tests.faults.traffic import MOVES, STAYS


async def lapsed(stage, point):
    """Wait until the pause has lapsed: a continues, under the same epoch."""
    at = await stage.until_state(pause_attempt=0, attempt=point.attempt)
    assert (at["member"], at["epoch"], at["state"]) == ("a", point.before["epoch"], "Ready")


# ---- the coordinator ----------------------------------------------------------------------------


@pytest.mark.req("CRASH-01", "CRASH-02", "FAIL-11", "FAIL-12")
async def test_the_next_coordinator_goes_on_under_a_pause_in_force(stage):
    """It finds the attempt on record, and its pause at the broker."""
    point = await points.draining(stage)
    await stage.kill("coordinator")
    (pause, *_) = stage.road.made("pause")
    async with stage.renewing(pause):
        stage.start_coordinator()
        await stage.until_made("drain", point.attempt, anew=True)
    stage.let_go("a")
    await stage.handed_over(point, attempt_is_new=False)


@pytest.mark.req("CRASH-01", "FAIL-10")
async def test_a_plan_whose_pause_never_came_is_made_once_more(stage):
    """Nobody can tell such an attempt from one that was paused at a broker which has died."""
    point = await points.planned(stage, in_hand=False)
    await stage.kill("coordinator")
    stage.lose(point)
    assert (await stage.state())["epoch"] == point.before["epoch"]
    stage.start_coordinator()
    await stage.handed_over(point, attempt_is_new=True)


@pytest.mark.req("CRASH-02")
async def test_without_a_coordinator_the_pause_lapses(stage):
    point = await points.draining(stage)
    await stage.kill("coordinator")
    await lapsed(stage, point)
    stage.let_go("a")
    await stage.traffic.until_processed("a")
    stage.start_coordinator()
    await stage.handed_over(point, attempt_is_new=True)


@pytest.mark.req("CRASH-03")
async def test_a_commit_that_comes_after_the_lapse_is_refused(stage):
    point = await points.drained(stage)
    await stage.kill("coordinator")
    stage.lose(point)
    await lapsed(stage, point)
    (late,) = await stage.road.replay(point.call)
    assert late["error"]["code"] == "attempt_refused"
    await stage.traffic.until_processed("a")
    stage.start_coordinator()
    await stage.handed_over(point, attempt_is_new=True)


@pytest.mark.req("CRASH-04")
async def test_the_next_coordinator_copies_what_is_recorded(stage):
    point = await points.committed(stage)
    await stage.kill("coordinator")
    stage.lose(point)
    assert (await stage.assignments.read(GROUP))[MOVES].member == "a"
    await stage.traffic.until_processed("b")  # nobody has to copy anything for that
    stage.start_coordinator()
    await stage.handed_over(point, attempt_is_new=False)
    copied = (await stage.assignments.read(GROUP))[MOVES]
    assert copied.epoch == (await stage.state())["epoch"]
    assert len(stage.made("commit")) == 1


# ---- a, from whom the partition moves -----------------------------------------------------------


@pytest.mark.req("CRASH-09", "CRASH-10")
@pytest.mark.parametrize("reach", [points.planned, points.draining])
async def test_nobody_waits_for_a_member_that_dies_while_its_partition_moves(stage, reach):
    """It is on its way to b already; what stays at a waits for the delay, and follows then."""
    point = await reach(stage)
    await stage.kill("a")
    point.go_on()
    await stage.traffic.until_processed("b", Cause.FLOW_LOST)
    (commit,) = await stage.commits()
    assert commit["cause"] in ("source_lost", "")  # without a flow nothing is in flight either
    await stage.until_state(partition=STAYS, member="b", state="Ready")
    await stage.handed_over(point, attempt_is_new=False, causes=[Cause.FLOW_LOST])


@pytest.mark.req("CRASH-11", "CRASH-12")
@pytest.mark.parametrize("reach", [points.drained, points.committed])
async def test_a_member_that_dies_when_it_has_drained_leaves_nothing_to_repeat(stage, reach):
    point = await reach(stage)
    await stage.kill("a")
    point.go_on()
    await stage.until_state(partition=STAYS, member="b", state="Ready")
    await stage.handed_over(point, attempt_is_new=False, causes=[Cause.FLOW_LOST])
    assert [commit["cause"] for commit in await stage.commits()] == [""]
    repeats = find_duplicates(in_order(stage.traffic.look().deliveries))
    assert {row.partition for _, row in repeats} <= {str(STAYS)}


# ---- b, to whom it moves ------------------------------------------------------------------------


@pytest.mark.req("CRASH-13", "CRASH-14")
@pytest.mark.parametrize("reach", [points.planned, points.draining])
async def test_a_target_that_dies_is_replaced_under_a_new_attempt(three, reach):
    point = await reach(three)
    await three.kill("b")
    await three.until_made("cancel", point.attempt)
    point.go_on()
    three.let_go("a")
    await three.handed_over(point, to="c", attempt_is_new=True)
    (commit,) = await three.commits()
    assert (commit["source"], commit["target"]) == ("a", "c")


@pytest.mark.req("CRASH-15", "CRASH-16")
@pytest.mark.parametrize("reach", [points.drained, points.committed])
async def test_a_target_that_dies_late_gets_the_partition_and_is_waited_for(three, reach):
    """It is on record; what it left is unbound, until the delay is over."""
    point = await reach(three)
    await three.kill("b")
    point.go_on()
    await three.handed_over(point, to="c", attempt_is_new=True, causes=[Cause.FLOW_LOST])
    first, second = await three.commits()
    assert (first["attempt"], first["target"], first["cause"]) == (point.attempt, "b", "")
    assert (second["source"], second["target"], second["cause"]) == ("b", "c", "source_lost")
