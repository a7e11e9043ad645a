"""The crash table, rows of those who keep the partition: its broker, and Redis."""

import pytest

from partq.core.model import Cause
from tests.faults import points


async def kill_broker(stage):
    """The other broker claims when the lease is over."""
    await stage.kill("orders-1")
    return "orders-0"


async def kill_redis(stage):
    """It comes back with all that it has confirmed; the same broker claims again."""
    await stage.redis.restart()
    return "orders-1"


STRIKES = [pytest.param(kill_broker, id="broker"), pytest.param(kill_redis, id="redis")]


@pytest.mark.req("CRASH-05", "CRASH-06", "CRASH-17", "CRASH-18")
@pytest.mark.parametrize("strike", STRIKES)
@pytest.mark.parametrize("reach", [points.planned, points.draining])
async def test_a_claim_ends_the_attempt_and_repeats_what_was_in_flight(stage, reach, strike):
    """Pause and drain are the broker's memory: they are void with it."""
    point = await reach(stage)
    broker = await strike(stage)
    point.go_on()
    at = await stage.until_claimed(point.before, broker)
    assert at["epoch"] >= point.before["epoch"]
    stage.let_go("a")
    verdict = await stage.handed_over(point, attempt_is_new=True, causes=[Cause.BROKER_CHANGE])
    assert verdict.duplicates  # what a had in hand, at the least
    assert point.attempt not in [commit["attempt"] for commit in await stage.commits()]


@pytest.mark.req("CRASH-07", "CRASH-19")
@pytest.mark.parametrize("strike", STRIKES)
async def test_a_commit_of_before_a_claim_is_refused(stage, strike):
    point = await points.drained(stage)
    broker = await strike(stage)
    stage.lose(point)
    await stage.until_claimed(point.before, broker)
    (late,) = await stage.proxies[broker].replay(point.call)
    assert late["error"]["code"] == "fenced"
    await stage.handed_over(point, attempt_is_new=True, causes=[Cause.BROKER_CHANGE])
    assert point.attempt not in [commit["attempt"] for commit in await stage.commits()]


@pytest.mark.req("CRASH-08", "CRASH-20")
@pytest.mark.parametrize("strike", STRIKES)
async def test_a_broker_that_claims_after_the_commit_serves_the_target(stage, strike):
    point = await points.committed(stage)
    broker = await strike(stage)
    stage.lose(point)
    at = await stage.until_claimed(point.before, broker)
    assert (at["member"], at["attempt"]) == ("b", point.attempt)
    await stage.handed_over(point, attempt_is_new=False, causes=[Cause.BROKER_CHANGE])
    assert len(await stage.commits()) == 1


# ---- a Redis that has lost what it had confirmed ------------------------------------------------


@pytest.fixture
async def forgetful(bare_stage):
    """A copy of Redis's files is kept: messages are stored, and a works on one of them.

    What is published from then on has keys that begin with `window`: it will be lost.
    """
    stage = await bare_stage.open()
    stage.traffic.publish("kept")
    await stage.hold("a")
    await stage.traffic.quiet()
    stage.copy = stage.redis.back_up()
    stage.let_go("a")
    await stage.traffic.all_processed()
    stage.traffic.publish("window")
    return stage


async def roll_back(stage):
    """Put the older file under the server; no new handoff begins until the gate is opened."""
    await stage.traffic.quiet()
    gate = stage.road.gate("before:pause")
    await stage.redis.roll_back(stage.copy)
    stage.traffic.publish("after")
    return gate


ROLLED_BACK = [Cause.STORE_ROLLED_BACK, Cause.BROKER_CHANGE]


@pytest.mark.req("CRASH-21", "CRASH-22", "CRASH-23")
@pytest.mark.parametrize("reach", [points.planned, points.draining, points.drained])
async def test_a_store_that_forgets_costs_what_it_forgot(forgetful, reach):
    stage = forgetful
    point = await reach(stage)
    stage.lose(point)
    gate = await roll_back(stage)
    at = await stage.until_claimed(point.before, "orders-1")
    assert at["epoch"] >= point.before["epoch"]
    if reach is not points.drained:
        stage.let_go("a")
    await stage.traffic.until_processed("a", Cause.STORE_ROLLED_BACK)
    gate.open()
    verdict = await stage.handed_over(point, attempt_is_new=True, causes=ROLLED_BACK, lost="window")
    assert "store_rolled_back" in verdict.duplicates


@pytest.mark.req("CRASH-24")
async def test_a_store_that_forgets_a_commit_has_the_source_recorded(forgetful):
    """The source continues under a newer token; what the target acknowledges does not count."""
    stage = forgetful
    point = await points.committed(stage)
    await stage.hold("b")
    committed = await stage.state()
    stage.lose(point)
    gate = await roll_back(stage)
    at = await stage.until_state(member="a", state="Ready")
    assert at["broker_epoch"] > committed["broker_epoch"]
    assert at["epoch"] > committed["epoch"]
    stage.let_go("b")
    await stage.traffic.until_processed("a", Cause.STORE_ROLLED_BACK)
    gate.open()
    verdict = await stage.handed_over(point, attempt_is_new=True, causes=ROLLED_BACK, lost="window")
    assert "store_rolled_back" in verdict.duplicates
