"""Every call of a handoff, and every answer, is lost, late or repeated."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from partq.core.model import Cause
from partq.testing import eventually
from tests.faults import points
from tests.faults.proxy import LoseFirst
from tests.faults.stage import GROUP
from tests.faults.traffic import MOVES

CALLS = ["pause", "drain", "commit"]


async def ended_well(stage, *, to="b", causes=()):
    """Wait until the partition is with its target, by one commit."""
    at = await stage.until_state(member=to, state="Ready")
    await stage.until_assigned(to)
    await stage.traffic.until_processed(to)
    await stage.traffic.verdict(causes=causes)
    (commit,) = await stage.commits()
    assert (commit["attempt"], commit["target"]) == (at["attempt"], to)


@asynccontextmanager
async def handing_over(stage, name):
    """Start the coordinator; while a has a message in hand it asks for the drain."""
    if name == "drain":
        await stage.hold("a")
    stage.start_coordinator()
    yield
    if name == "drain":
        stage.let_go("a")


async def until_asked(stage, name, times):
    """Wait until a call was let through so many times."""

    async def is_asked():
        return len(stage.road.made(name)) >= times

    await eventually(is_asked, f"{times} calls of {name}")


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_is_lost_and_then_an_answer(stage, name):
    """It is repeated under the same attempt, and finds what it has done."""
    call = stage.road.points[f"before:{name}"] = LoseFirst(1)
    answer = stage.road.points[f"after:{name}"] = LoseFirst(1)
    async with handing_over(stage, name):
        await eventually(answer.was_met, f"an answer of {name} that is lost")
    assert await call.was_met()
    await ended_well(stage)
    stage.see_one_attempt(name)


@pytest.mark.req("FAIL-03")
@pytest.mark.parametrize("name", CALLS)
async def test_a_call_comes_twice_and_once_more_when_all_is_over(stage, name):
    """A repeat finds what was done; of an attempt that is over it is refused."""
    stage.road.repeated.add(name)
    async with handing_over(stage, name):
        await until_asked(stage, name, 1)
    at = await stage.until_state(member="b", state="Ready")
    (late,) = await stage.road.replay(stage.road.made(name)[0])
    if name == "commit":
        assert late["epoch"] <= at["epoch"]  # b may have bound again
    else:
        assert late["error"]["code"] == "attempt_refused"
    await ended_well(stage)


@pytest.mark.parametrize("name", ["pause", "drain"])
async def test_an_answer_comes_later_than_a_pause_holds(stage, name):
    """What is not answered is asked again, which keeps the pause in force."""
    gate = stage.road.gate(f"after:{name}")
    async with handing_over(stage, name):
        await stage.reached(gate)
        # Renewals come each second; of calls without an answer one each two.
        await until_asked(stage, "pause", 3 if name == "pause" else 5)
        gate.open()
    await ended_well(stage)
    stage.see_one_attempt("pause")


async def test_the_record_answers_for_a_commit(stage):
    """The states of the brokers tell of it; its own answer comes when all is over."""
    gate = stage.road.gate("after:commit")
    stage.start_coordinator()
    await stage.reached(gate)

    async def is_over():
        return MOVES not in await stage.handoffs.read(GROUP)

    await eventually(is_over, "the handoff is off the record")
    await ended_well(stage)
    gate.open()
    assert (await stage.state())["member"] == "b"


async def test_a_target_does_not_wait_for_the_answer_to_its_commit(stage):
    """The broker delivers to it at once; who counts the commits waits for the answer."""
    gate = stage.road.gate("answered:commit")
    stage.start_coordinator()
    await stage.reached(gate)
    await stage.traffic.until_processed("b")
    counting = asyncio.create_task(stage.commits())
    await asyncio.sleep(0)
    assert not counting.done()
    gate.open()
    (commit,) = await counting
    assert (commit["source"], commit["target"]) == ("a", "b")


@pytest.mark.req("FAIL-08")
async def test_a_commit_comes_when_its_pause_has_lapsed(stage):
    """The source went on meanwhile; it is paused again, under another attempt."""
    point = await points.drained(stage)
    await stage.until_state(pause_attempt=0, attempt=point.attempt)
    await stage.traffic.until_processed("a")
    point.go_on()
    await ended_well(stage)
    assert [commit["attempt"] for commit in await stage.commits()] != [point.attempt]


@pytest.mark.parametrize("fate", ["lost", "answer lost", "repeated", "late"])
async def test_a_cancel_goes_astray(three, fate):
    """The source is paused by the next attempt, which no cancel of this one ends."""
    stage = three
    point = await points.draining(stage)
    gate = None
    match fate:
        case "lost":
            stage.road.points["before:cancel"] = LoseFirst(1)
        case "answer lost":
            stage.road.points["after:cancel"] = LoseFirst(1)
        case "repeated":
            stage.road.repeated.add("cancel")
        case _:
            gate = stage.road.gate("before:cancel")
    await stage.kill("b")

    async def is_paused_anew():
        at = await stage.state()
        return at if at["pause_attempt"] > point.attempt else None

    paused = await eventually(is_paused_anew, "a new attempt's pause")
    if gate is not None:
        await stage.reached(gate)
        gate.open()
        await until_asked(stage, "cancel", 1)
    assert (await stage.state())["pause_attempt"] == paused["pause_attempt"]
    stage.let_go("a")
    await ended_well(stage, to="c", causes=[Cause.FLOW_LOST])
