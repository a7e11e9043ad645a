"""Pause, drain, commit, cancel and lapse: who gets what, and what is refused."""

import asyncio

import pytest

from partq.core.model import Cause
from partq.wire import frames

# ---- the straight road --------------------------------------------------------------------------


@pytest.mark.req(
    "HND-08",
    "HND-10",
    "HND-09",
    "HND-12",
    "HND-13",
    "HND-14",
    "HND-15",
    "HND-30",
    "SOL-32",
    "PUL-119",
)
async def test_a_drained_handoff_repeats_nothing(scene):
    """The target gets what came meanwhile, in order, and only after the source has acked."""
    target = await scene.target()
    handoff = await scene.handoff()
    assert await handoff.pause() == {
        "code": "", "partition": "1.0", "in_flight": 3, "is_drained": False, "last_delivered": 2,
    }  # fmt: skip
    await scene.source.expect(frames.Paused)
    await scene.producer.publish("d", "e")  # confirmed while the partition is paused
    draining = asyncio.create_task(handoff.drain())
    assert await scene.source.ack(scene.held, 3) == ""
    assert (await draining)["is_drained"]
    committed = await handoff.commit()
    assert committed["was_forced"] is False

    revoked, _ = await scene.source.expect(frames.Revoked)
    assert (revoked.epoch, revoked.cause) == (scene.held.epoch, Cause.NONE)
    assigned, _ = await target.expect(frames.Assigned)
    assert (assigned.epoch, assigned.cursor) == (committed["epoch"], 3)
    assert assigned.epoch > revoked.epoch
    deliver, values = await target.deliver()
    assert (values, deliver.cause, deliver.start) == (["d", "e"], Cause.NONE, 3)


@pytest.mark.req("HND-12")
async def test_a_pause_of_an_idle_partition_is_drained_at_once(scene):
    assert await scene.source.ack(scene.held, 3) == ""
    handoff = await scene.handoff()
    assert (await handoff.pause())["is_drained"]


async def test_a_release_makes_a_drain_quick(scene):
    """What the application has not begun goes to the target, as a first delivery."""
    target = await scene.target()
    handoff = await scene.paused()
    await scene.source.release(scene.held, 1)
    assert await scene.source.ack(scene.held, 1) == ""
    assert (await handoff.drain())["is_drained"]
    assert (await handoff.commit())["was_forced"] is False
    deliver, values = await target.deliver()
    assert (values, deliver.cause) == (["b", "c"], Cause.NONE)


@pytest.mark.req("PUL-120")
async def test_a_target_begins_at_the_beginning_where_the_source_has_read_nothing(scene):
    target = await scene.target()
    handoff = await scene.paused()
    await scene.source.release(scene.held, 0)
    assert (await handoff.drain())["is_drained"]
    assert (await handoff.commit())["was_forced"] is False
    deliver, values = await target.deliver()
    assert (deliver.start, values, deliver.cause) == (0, ["a", "b", "c"], Cause.NONE)


@pytest.mark.req("SOL-33", "SOL-35", "FAIL-08")
async def test_the_target_may_bind_later(scene):
    handoff = await scene.paused()
    assert await scene.source.ack(scene.held, 3) == ""
    epoch = (await handoff.commit())["epoch"]
    state = await scene.running.state()
    assert (state["member"], state["state"], state["epoch"]) == ("n", "Unbound", epoch)
    await scene.producer.publish("d")
    target = await scene.target()
    assigned, _ = await target.expect(frames.Assigned)
    assert assigned.epoch > epoch
    assert (await target.deliver())[1] == ["d"]


@pytest.mark.req("SOL-30")
async def test_a_partition_may_be_left_to_nobody(scene):
    handoff = await scene.paused()
    assert await scene.source.ack(scene.held, 3) == ""
    assert (await handoff.commit(target=""))["code"] == ""
    assert (await scene.running.state())["state"] == "Unassigned"


async def test_a_repeated_commit_gets_the_same_answer(scene):
    handoff = await scene.paused()
    assert await scene.source.ack(scene.held, 3) == ""
    first = await handoff.commit()
    assert await handoff.commit() == first
    assert (await handoff.commit(target="m"))["code"] == "attempt_refused"


async def test_commits_of_one_attempt_at_once_go_through_once(scene):
    handoff = await scene.paused()
    assert await scene.source.ack(scene.held, 3) == ""
    first, second = await asyncio.gather(handoff.commit(), handoff.commit())
    assert first == second
    assert first["code"] == ""


# ---- what is refused ----------------------------------------------------------------------------


FENCED = [
    ({"broker_epoch": 1}, "fenced"),
    ({"epoch": 1}, "attempt_refused"),
    ({"attempt": 1}, "attempt_refused"),
    ({"partition": "1.9"}, "unknown_partition"),
    ({"partition": "nine"}, "bad_request"),
]


@pytest.mark.req("FAIL-03")
@pytest.mark.parametrize("name", ["pause", "drain", "commit", "cancel"])
async def test_every_call_is_fenced(scene, name):
    """Nothing of it happens, and the source continues."""
    handoff = await scene.paused()
    await handoff.cancel()
    await scene.source.expect(frames.Resumed)
    handoff.token["attempt"] += 1
    for changes, expected in FENCED:
        # To cancel what is over changes nothing, and may be repeated.
        is_late_cancel = name == "cancel" and expected == "attempt_refused"
        result = await getattr(handoff, name)(**changes)
        assert result["code"] == ("" if is_late_cancel else expected), changes
    await scene.producer.publish("d")
    assert (await scene.source.deliver())[1] == ["d"]


async def test_a_pause_of_an_older_attempt_does_not_end_a_newer_one(scene):
    """It is late: its coordinator began another attempt since, or was replaced."""
    older = await scene.handoff()
    newer = await scene.handoff(older.token["attempt"] + 2)
    assert (await newer.pause())["code"] == ""
    older.token["attempt"] += 1
    assert (await older.pause())["code"] == "attempt_refused"
    assert await scene.source.ack(scene.held, 3) == ""
    assert (await newer.commit())["code"] == ""


async def test_a_pause_that_arrives_after_its_cancel_is_refused(scene):
    handoff = await scene.handoff()
    assert (await handoff.cancel())["code"] == ""
    assert (await handoff.pause())["code"] == "attempt_refused"
    assert (await scene.running.state())["state"] == "Ready"


async def test_a_drain_is_not_over_before_its_acks_are_stored(scene, peers):
    """Also while their flush is under way: its answer may never come."""
    handoff = await scene.paused()
    gate = peers.Gate(scene.running.broker.partitions, "flush")
    ack = asyncio.create_task(scene.source.ack(scene.held, 3))
    await gate.reached.wait()
    assert not (await handoff.drain(wait_ms=0))["is_drained"]
    gate.opened.set()
    assert await ack == ""
    assert (await handoff.drain())["is_drained"]


@pytest.mark.req("HND-16")
async def test_a_commit_without_a_pause_is_refused(scene):
    assert (await (await scene.handoff()).commit())["code"] == "attempt_refused"


@pytest.mark.req("HND-02", "HND-11")
@pytest.mark.parametrize("cause", ["", "source_lost", "source_unbound", "drain_timeout"])
async def test_a_bound_source_is_not_cut_off_before_its_drain_is_over(scene, cause):
    handoff = await scene.paused()
    assert (await handoff.commit(cause=cause))["code"] == "attempt_refused"
    assert await scene.source.ack(scene.held, 3) == ""
    assert (await handoff.commit(cause=cause))["code"] == ""


async def test_a_cause_that_nobody_knows_is_refused(scene):
    handoff = await scene.paused()
    assert (await handoff.commit(cause="boredom"))["code"] == "bad_request"


@pytest.mark.parametrize("changes", [{"lease_ms": 0}, {"lease_ms": 60_001}, {"drain_ms": -1}])
async def test_a_pause_has_bounds(scene, changes):
    assert (await (await scene.handoff()).pause(**changes))["code"] == "bad_request"
    assert (await scene.running.state())["state"] == "Ready"


async def test_a_commit_from_another_member_is_refused(scene):
    handoff = await scene.paused()
    assert await scene.source.ack(scene.held, 3) == ""
    assert (await handoff.commit(source="n", target="m"))["code"] == "attempt_refused"


async def test_an_unbound_source_needs_a_cause_or_its_pause(scene, peers):
    """A source that was drained and then died leaves a pause that stands for the cause."""
    without, with_pause = await scene.handoff(), await scene.paused()
    assert await scene.source.ack(scene.held, 3) == ""
    await scene.source.close()
    await peers.eventually(lambda: not is_bound(scene), "unbound")
    assert (await without.commit(attempt=with_pause.token["attempt"] + 1))[
        "code"
    ] == "attempt_refused"
    assert (await with_pause.commit())["was_forced"] is False


@pytest.mark.req("HND-27")
async def test_a_lost_source_is_handed_over_by_its_cause(scene, peers):
    """Its messages come again: the flow was lost, which is their cause; nothing was forced."""
    target = await scene.target()
    await scene.source.close()
    await peers.eventually(lambda: not is_bound(scene), "unbound")
    handoff = await scene.handoff()
    assert (await handoff.commit(cause="source_lost"))["was_forced"] is False
    deliver, values = await target.deliver()
    assert (values, deliver.cause) == (["a", "b", "c"], Cause.FLOW_LOST)
    assert deliver.redeliveries == [(0, 1)]


def is_bound(scene):
    return scene.running.broker.flow_registry.find("workers", "m") is not None


# ---- forced -------------------------------------------------------------------------------------


@pytest.mark.req("HND-20", "HND-21", "HND-22", "HND-25", "HND-27", "HND-30")
async def test_a_forced_commit_cuts_the_source_off(scene):
    """Only the lowest message can have been in hand: only it counts as delivered again."""
    target = await scene.target()
    handoff = await scene.paused(drain_ms=0)
    assert await scene.source.ack(scene.held, ranges=[(0, 1)]) == ""
    assert (await handoff.commit(cause="drain_timeout"))["was_forced"] is True
    revoked, _ = await scene.source.expect(frames.Revoked)
    assert revoked.cause == Cause.FORCED_COMMIT
    deliver, values = await target.deliver()
    assert (values, deliver.cause, deliver.redeliveries) == (
        ["b", "c"], Cause.FORCED_COMMIT, [(1, 1)],
    )  # fmt: skip
    assert await scene.source.ack(scene.held, 3) == "fenced"
    assert (await scene.running.state())["cursor"] == 1


@pytest.mark.req("HND-11")
async def test_a_drain_that_is_over_by_time_is_answered(scene):
    handoff = await scene.paused(drain_ms=50)
    result = await handoff.drain()
    assert (result["is_drained"], result["in_flight"]) == (False, 3)
    assert (await handoff.commit(cause="drain_timeout"))["code"] == ""


async def test_a_repeated_pause_does_not_restart_the_drain(scene):
    handoff = await scene.paused(drain_ms=0)
    assert (await handoff.pause(drain_ms=3_600_000))["code"] == ""
    assert (await handoff.commit(cause="drain_timeout"))["code"] == ""


# ---- cancelled, lapsed, overtaken ---------------------------------------------------------------


async def test_a_cancelled_handoff_lets_the_source_go_on(scene):
    """What it released comes again to it, under a higher delivery number."""
    handoff = await scene.paused()
    await scene.source.release(scene.held, 1)
    assert (await handoff.cancel())["code"] == ""
    await scene.source.expect(frames.Resumed)
    deliver, values = await scene.source.deliver()
    assert (values, deliver.epoch, deliver.delivery) == (["b", "c"], scene.held.epoch, 1)
    assert (await handoff.pause())["code"] == "attempt_refused"
    assert (await handoff.commit())["code"] == "attempt_refused"
    assert (await handoff.cancel())["code"] == ""


async def test_a_pause_lapses_by_itself(scene):
    """A coordinator that is gone stops nothing for longer than its lease."""
    handoff = await scene.paused(lease_ms=50)
    await scene.producer.publish("d")
    await scene.source.expect(frames.Resumed)
    assert (await scene.source.deliver())[1] == ["d"]
    for call in (handoff.pause, handoff.drain, handoff.commit):
        assert (await call())["code"] == "attempt_refused"


async def test_a_newer_attempt_takes_over(scene):
    older = await scene.paused()
    newer = await scene.handoff(attempt=older.token["attempt"] + 5)
    assert (await newer.pause())["code"] == ""
    await scene.source.expect(frames.Paused)
    assert (await older.pause())["code"] == "attempt_refused"
    assert await scene.source.ack(scene.held, 3) == ""
    assert (await older.commit())["code"] == "attempt_refused"
    assert (await newer.commit())["code"] == ""


async def test_a_pause_survives_a_bind_and_its_commit_does_not(scene, peers):
    """The new flow gets nothing while the pause lasts; the handoff starts anew, by the epoch."""
    handoff = await scene.paused()
    await scene.source.close()
    again = await peers.open_flow(scene.running, "m")
    await again.expect(frames.Assigned)
    await again.expect(frames.Paused)
    assert (await handoff.commit(cause="source_lost"))["code"] == "attempt_refused"
    current = await scene.handoff(attempt=handoff.token["attempt"])
    assert (await current.pause())["code"] == "attempt_refused"
    assert (await current.commit(cause="drain_timeout"))["code"] == "attempt_refused"
    assert (await handoff.cancel())["code"] == ""
    await again.expect(frames.Resumed)
    deliver, values = await again.deliver()
    assert (values, deliver.cause) == (["a", "b", "c"], Cause.FLOW_LOST)


async def test_a_new_broker_knows_no_pause(scene, peers, start_broker):
    """The pause was memory: the handoff's commit is refused, the source stays at the new one."""
    handoff = await scene.paused()
    other = await start_broker("orders-1")
    source = await peers.open_flow(other, "m")
    assert "error" not in (await scene.running.admin("/yield", {"partitions": ["1.0"]}))[0]
    assert "error" not in (await other.admin("/claim", {"partitions": ["1.0"]}))[0]
    await source.expect(frames.Assigned)
    assert (await handoff.commit())["code"] == "not_owner"
    handoff.running = other
    assert (await handoff.commit(cause="drain_timeout"))["code"] == "fenced"
    deliver, values = await source.deliver()
    assert (values, deliver.cause) == (["a", "b", "c"], Cause.BROKER_CHANGE)
