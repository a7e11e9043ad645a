"""What happens in the middle of a commit, a bind, a yield or a flush."""

import asyncio

import pytest

from partq.core.model import Cause, MemberId
from partq.errors import StoreUnavailableError
from partq.wire import frames
from tests.store.record import born


async def drained(scene, **changes):
    """Return a handoff that only lacks its commit."""
    handoff = await scene.paused(**changes)
    assert await scene.source.ack(scene.held, 3) == ""
    return handoff


async def commit_held(scene, peers, handoff, **changes):
    """Begin a commit whose script waits at a gate; return the gate and the call."""
    gate = peers.Gate(scene.running.broker.partitions, "commit")
    call = asyncio.create_task(handoff.commit(**changes))
    await gate.reached.wait()
    return gate, call


# ---- in the middle of a commit ------------------------------------------------------------------


async def test_a_pause_does_not_lapse_during_its_commit(scene, peers):
    """From the check to the script's answer nothing goes to the source, whatever the time."""
    handoff = await drained(scene)
    await scene.producer.publish("d")
    gate, call = await commit_held(scene, peers, handoff)
    assert (await handoff.pause(lease_ms=1))["code"] == ""
    timer = consumed(scene).pause.timer
    await peers.eventually(lambda: timer.when() < asyncio.get_running_loop().time(), "lapsed")
    await scene.running.state()  # the timer has had its turn
    gate.opened.set()
    assert (await call)["code"] == ""
    revoked, _ = await scene.source.expect(frames.Revoked)
    assert revoked.cause == Cause.NONE


@pytest.mark.req("FAIL-12")
async def test_acks_wait_for_the_commit_that_is_under_way(scene, peers):
    """They count for neither member before the record has spoken: then the token has ended."""
    handoff = await scene.paused(drain_ms=0)
    gate, call = await commit_held(scene, peers, handoff, cause="drain_timeout")
    ack = asyncio.create_task(scene.source.ack(scene.held, 3))
    await peers.eventually(lambda: consumed(scene).held_acks, "the ack is held")
    await scene.source.release(scene.held, 1)
    assert not ack.done()
    gate.opened.set()
    assert (await call)["was_forced"] is True
    assert await ack == "fenced"
    state = await scene.running.state()
    assert (state["cursor"], state["position"], state["in_flight"]) == (0, 0, 0)


async def test_a_commit_under_way_is_neither_cancelled_nor_overtaken(scene, peers):
    handoff = await drained(scene)
    gate, call = await commit_held(scene, peers, handoff)
    assert (await handoff.cancel())["code"] == "attempt_refused"
    gate.opened.set()
    assert (await call)["code"] == ""


@pytest.mark.req("HND-16")
async def test_a_target_that_binds_during_the_commit_gets_it_once(scene, peers):
    handoff = await drained(scene)
    gate, call = await commit_held(scene, peers, handoff)
    target = await scene.target()
    gate.opened.set()
    epoch = (await call)["epoch"]
    await scene.producer.publish("d")
    assigned, _ = await target.expect(frames.Assigned)
    deliver, values = await target.deliver()
    assert (values, deliver.epoch) == (["d"], assigned.epoch)
    assert assigned.epoch >= epoch
    assert (await scene.running.state())["epoch"] == assigned.epoch


@pytest.mark.req("HND-16")
async def test_a_source_that_binds_again_during_the_commit_gets_nothing(scene, peers):
    handoff = await drained(scene)
    gate, call = await commit_held(scene, peers, handoff)
    again = await peers.open_flow(scene.running, "m")
    gate.opened.set()
    assert (await call)["code"] == ""
    target = await scene.target()
    await scene.producer.publish("d")
    assert (await target.deliver())[1] == ["d"]
    await again.send(frames.Ping(1))
    await again.expect(frames.Pong)  # and no token before it


async def test_the_lost_answer_of_a_commit_is_asked_for_again(scene):
    """The script went through once; the repeat gets its epoch."""
    handoff = await drained(scene)
    partitions = scene.running.broker.partitions
    commit, epochs = partitions.commit, []

    async def lose_first(*args, **kwargs):
        epochs.append(await commit(*args, **kwargs))
        if len(epochs) == 1:
            raise StoreUnavailableError("the answer is lost")
        return epochs[-1]

    partitions.commit = lose_first
    assert (await handoff.commit())["epoch"] == epochs[0] == epochs[1]


async def test_memory_that_the_record_contradicts_is_dropped(scene, peers):
    """A bind whose answer was lost leaves a higher epoch on record: the record wins."""
    broker, partition = scene.running.broker, peers.partition_id(0)
    partitions, state = broker.partitions, await scene.running.state()
    began, writes = await born(partitions, partition, "workers"), broker.owned[partition].writes
    await partitions.bind(
        partition, "workers", number=next(writes), born=began, member=MemberId("m"),
        incarnation="x", broker_epoch=state["broker_epoch"],
    )  # fmt: skip
    handoff = await drained(scene)
    assert (await handoff.commit())["code"] == "attempt_refused"
    assigned, _ = await scene.source.find(frames.Assigned)  # claimed again, bound again
    assert assigned.epoch > state["epoch"]
    handoff = await scene.handoff()
    assert (await handoff.pause())["code"] == ""
    assert (await handoff.commit())["code"] == ""


async def test_a_partition_lost_during_a_commit_is_served_by_its_record(scene, peers):
    """The script may have gone through: whoever the record names is served after the claim."""
    handoff = await drained(scene)
    gate, call = await commit_held(scene, peers, handoff)
    target = await scene.target()
    broker = scene.running.broker
    broker.ownership.lose(broker.owned[peers.partition_id(0)], StoreUnavailableError("test"))
    gate.opened.set()
    await call
    assigned, _ = await target.find(frames.Assigned)
    record = await broker.partitions.read_cursor(peers.partition_id(0), "workers")
    assert (record.member, record.epoch) == ("n", assigned.epoch)


# ---- in the middle of a flush, a bind, a yield --------------------------------------------------


async def test_acks_of_a_partition_that_is_lost_before_their_flush_are_refused(scene, peers):
    """Nobody waits for ever, and what was not stored comes again."""
    gate = peers.Gate(scene.running.broker.partitions, "flush")
    await scene.source.send(ack_frame(scene, 1, request=1))
    await gate.reached.wait()
    await scene.source.send(ack_frame(scene, 2, request=2))
    await peers.eventually(lambda: consumed(scene).confirmations, "a second ack waits")
    broker, partition = scene.running.broker, peers.partition_id(0)
    broker.ownership.lose(broker.owned[partition], StoreUnavailableError("test"))
    refused = await scene.source.pick(frames.AckRefused)
    assert (refused.request, refused.code) == (2, "fenced")
    await peers.eventually(lambda: partition in broker.owned, "claimed again")
    gate.opened.set()
    refused = await scene.source.pick(frames.AckRefused)
    assert (refused.request, refused.code) == (1, "fenced")
    deliver, values = await scene.source.deliver()
    assert (values, deliver.cause) == (["a", "b", "c"], Cause.BROKER_CHANGE)


async def test_counts_are_stored_before_their_redelivery_is_sent(scene, peers):
    """A flush that was under way when the flow was lost does not hold them."""
    gate = peers.Gate(scene.running.broker.partitions, "flush")
    await scene.source.send(ack_frame(scene, 1))
    await gate.reached.wait()
    await scene.source.close()
    await peers.eventually(lambda: consumed(scene).must_flush_first, "counts to store")
    again = await peers.open_flow(scene.running, "m")
    await again.expect(frames.Assigned)
    gate.opened.set()
    deliver, values = await again.deliver()
    record = await scene.running.broker.partitions.read_cursor(peers.partition_id(0), "workers")
    assert (values, deliver.redeliveries) == (["b", "c"], [(1, 1)])
    assert record.redeliveries == {1: 1}


async def test_a_group_that_is_removed_ends_its_flows_and_nothing_else(scene, peers):
    """The flush learns it from the record; publishing continues."""
    broker = scene.running.broker
    began = await born(broker.partitions, peers.partition_id(0), "workers")
    await broker.partitions.remove_group(peers.partition_id(0), "workers", born=began)
    assert await scene.source.ack(scene.held, 3) == "fenced"
    await scene.source.find(frames.Revoked)
    assert await scene.producer.publish("d") == 3
    handoff = await scene.running.admin(
        "/groups/workers/cancel",
        {"cancels": [{"partition": "1.0", "broker_epoch": 1, "epoch": 1, "attempt": 1}]},
    )
    assert handoff[0]["error"]["code"] == "unknown_group"


async def test_a_flow_that_binds_during_a_yield_loses_nothing(scene, peers, start_broker):
    other = await start_broker("orders-1")
    gate = peers.Gate(scene.running.broker.partitions, "yield_")
    call = asyncio.create_task(scene.running.admin("/yield", {"partitions": ["1.0"]}))
    await gate.reached.wait()
    again = await peers.open_flow(scene.running, "m")
    elsewhere = await peers.open_flow(other, "m")
    await scene.producer.offer(3, "d")
    await scene.producer.expect(frames.Moved)
    gate.opened.set()
    assert "error" not in (await call)[0]
    assert "error" not in (await other.admin("/claim", {"partitions": ["1.0"]}))[0]
    producer = await peers.open_producer(other)
    producer.due[0] = 3
    assert await producer.publish("d") == 3
    assert await elsewhere.take(4) == ["a", "b", "c", "d"]
    await again.close()


async def test_claims_at_once_end_with_one_owner(running, peers, start_broker):
    """On one broker they are one claim; of two brokers one is refused."""
    other = await start_broker("orders-1")
    await running.admin("/yield", {"partitions": ["1.0"]})
    partition = peers.partition_id(0)
    record = await running.broker.partitions.read(partition)
    outcomes = await asyncio.gather(
        running.broker.ownership.claim(partition, record),
        running.broker.ownership.claim(partition, record),
        other.broker.ownership.claim(partition, record),
        return_exceptions=True,
    )
    assert sum(outcome is not None for outcome in outcomes) == 1
    owners = [b for b in (running.broker, other.broker) if partition in b.owned]
    (owner,) = owners
    record = await owner.partitions.read(partition)
    assert (record.owner, record.broker_epoch) == (owner.id, owner.owned[partition].broker_epoch)


def consumed(scene):
    return next(o.groups["workers"] for p, o in scene.running.broker.owned.items() if p.index == 0)


def ack_frame(scene, upto, request=9):
    held = scene.held
    return frames.Ack(request, 1, 0, held.broker_epoch, held.epoch, held.delivery, upto)
