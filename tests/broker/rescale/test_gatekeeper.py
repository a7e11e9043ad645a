"""Gates: a group gets a new partition after it has done with what lies in its predecessors."""

import asyncio

from partq.core.model import PartitionId
from partq.core.rescale import layout_steps
from partq.testing import eventually
from partq.wire import frames
from tests.broker.conftest import CONSUME, open_producer
from tests.broker.queue_ttl import set_ttl
from tests.broker.rescale.change import ChangeByHand, give, keys_of, outcome

__all__ = ["set_ttl"]

OLD, NEW = PartitionId(1, 0), PartitionId(2, 4)
"""With one partition more, each of the four gives some slots to the new one."""


async def commit(rescaler):
    """Commit what is prepared, and have the broker learn it; return the layout."""
    layout = await rescaler.commit()
    await rescaler.running.broker.refresh()
    return layout


async def told(running, partition):
    """Return what the status and the group's snapshot say that a partition waits for."""
    _, status = await running.call("GET", "/v1/queues/orders/status")
    _, picture = await running.call("GET", "/v1/queues/orders/groups/workers/picture")
    row = status["groups"]["workers"]["partitions"][str(partition)]
    state = picture["brokers"][running.broker.id]["state"]
    detail = state["partitions"][str(partition)]["groups"]["workers"]
    assert detail.get("gated_by") == row.get("gated_by")
    return row.get("gated_by", ""), [problem["code"] for problem in row["problems"]]


async def test_a_group_gets_the_new_partition_after_what_it_has_in_the_old_ones(running, scene):
    """Nothing is delivered while one message below the seal is not acknowledged."""
    rescaler = ChangeByHand(running)
    await rescaler.prepare(5)
    await give(running, "m", NEW)
    await scene.source.find(frames.Assigned)
    layout = await commit(rescaler)
    consumed = running.broker.owned[NEW].groups["workers"]
    keys = keys_of((layout, NEW))
    producer = await open_producer(running, "q")
    owned = running.broker.owned[NEW]
    await eventually(lambda: owned.layout.is_open, "it takes messages")
    assert await outcome(producer, NEW, 0, *keys) == ("stored", 0)
    await eventually(
        lambda: [each.predecessor for each in consumed.holds] == [OLD], "the others are passed"
    )
    assert await told(running, NEW) == ("1.0: 3 messages before offset 3, at member m", ["held"])
    assert await scene.source.ack(scene.held, 2) == ""
    await eventually(lambda: consumed.holds[0].messages == 1, "the ack was seen")
    assert consumed.book.in_flight == 0
    assert await scene.source.ack(scene.held, 3) == ""
    frame, values = await scene.source.deliver()
    assert (frame.generation, frame.partition, values) == (2, 4, keys)
    assert await told(running, NEW) == ("", [])
    record = await running.broker.partitions.read_cursor(NEW, "workers")
    assert record.gate == "1"


async def test_every_broker_tells_the_same_of_a_gate(running, start_broker, scene):
    """Also where nothing waits behind it: its owner alone knows what holds it."""
    await ChangeByHand(running).change(5)
    await running.admin("/yield", {"partitions": ["2.4"]})
    other = await start_broker("orders-1")
    await other.admin("/claim", {"partitions": ["2.4"]})
    consumed = other.broker.owned[NEW].groups["workers"]
    await eventually(lambda: [h.predecessor for h in consumed.holds] == [OLD], "1.0 alone is left")
    await running.broker.claims.refresh()
    for each in (running, other):
        _, status = await each.call("GET", "/v1/queues/orders/status")
        row = status["groups"]["workers"]["partitions"]["2.4"]
        assert row["gated_by"] == "1.0: 3 messages before offset 3, at member m"


async def test_a_partition_that_is_only_prepared_has_closed_gates(running):
    """Its predecessors have no messages, and are not sealed."""
    rescaler = ChangeByHand(running)
    await rescaler.prepare(5)
    consumed = running.broker.owned[NEW].groups["workers"]
    await running.broker.refresh()
    assert consumed.is_gated
    await commit(rescaler)
    await eventually(lambda: not consumed.is_gated, "the gate is open")


async def test_a_closed_gate_closes_those_behind_it(running, scene):
    """5 partitions, then 4 again: what replaces 2.4 waits for the one before it, which is empty."""
    rescaler = ChangeByHand(running)
    await rescaler.change(5)
    layout = await rescaler.change(4)
    behind = [
        running.broker.owned[partition].groups["workers"]
        for partition, givers in layout.lineage.items()
        if NEW in givers
    ]

    def waits_for(consumed):
        return [hold.predecessor for hold in consumed.holds if hold.is_gated]

    await eventually(lambda: all(waits_for(each) == [NEW] for each in behind), "they wait for 2.4")
    assert await scene.source.ack(scene.held, 3) == ""
    await eventually(lambda: not any(each.is_gated for each in behind), "the gates are open")


async def test_a_predecessor_that_is_settled_holds_no_gate(running, scene):
    """Its record is not asked: it may be removed by then."""
    rescaler = ChangeByHand(running)
    layout = await rescaler.change(5)
    consumed = running.broker.owned[NEW].groups["workers"]
    await eventually(
        lambda: [each.predecessor for each in consumed.holds] == [OLD], "a message is in hand"
    )
    await rescaler.layouts.write(layout_steps.settle(layout, *layout.lineage[NEW]))
    await running.broker.refresh()
    await eventually(lambda: not consumed.is_gated, "the gate is open")


async def test_a_partition_that_gives_slots_to_many_changes_keeps_few_seals(running):
    """It keeps those that something may still wait for."""
    rescaler = ChangeByHand(running)
    await rescaler.change(5)
    unsettled = await rescaler.change(6)
    assert running.broker.owned[OLD].layout.seals == {2: 0, 3: 0}
    while givers := {giver for found in unsettled.lineage.values() for giver in found}:
        unsettled = layout_steps.settle(unsettled, *givers.difference(unsettled.lineage))
        await rescaler.layouts.write(unsettled)
    await running.broker.refresh()
    await rescaler.change(7)
    for _ in range(2):  # the second time as the next owner reads them
        assert running.broker.owned[OLD].layout.seals == {4: 0}
        assert (await running.broker.partitions.read(OLD)).layout.seals == {4: 0}
        await running.admin("/yield", {"partitions": ["1.0"]})
        await running.admin("/claim", {"partitions": ["1.0"]})


async def test_memory_follows_the_record_after_another_claim(running, start_broker, scene):
    await ChangeByHand(running).change(5)
    consumed = running.broker.owned[NEW].groups["workers"]
    assert consumed.is_gated
    await running.admin("/yield", {"partitions": ["2.4"]})
    other = await start_broker("orders-1")
    await other.admin("/claim", {"partitions": ["2.4"]})
    claimed = other.broker.owned[NEW].groups["workers"]
    assert claimed.is_gated
    assert await scene.source.ack(scene.held, 3) == ""
    await eventually(lambda: not claimed.is_gated, "another broker has opened it")
    await other.admin("/yield", {"partitions": ["2.4"]})
    await running.admin("/claim", {"partitions": ["2.4"]})
    assert not running.broker.owned[NEW].groups["workers"].is_gated


async def test_a_pull_holds_the_partition_and_waits_until_the_gate_opens(running):
    """A pull that waits is answered with what the group may have by then."""

    async def call(path, **body):
        path = f"/v1/queues/orders/groups/workers/{path}"
        status, answer = await running.call("POST", path, token=CONSUME, json=body)
        assert status == 200, answer
        return answer

    async def pull(**changes):
        return await call("pull", member="m", incarnation="i", **changes)

    old = running.broker.config.layout
    await give(running, "m", OLD)
    keys = keys_of((old, OLD))
    assert await outcome(await open_producer(running), OLD, 0, *keys) == ("stored", 0)
    first = await pull(wait_ms=0)
    assert [each["value"] for each in first["messages"]] == keys
    layout = await ChangeByHand(running).change(5)
    await give(running, "m", NEW)
    new = keys_of((layout, NEW))
    assert await outcome(await open_producer(running, "q"), NEW, 0, *new) == ("stored", 0)
    held = await pull(wait_ms=0, last_answer=first["answer"])
    assert (held["held"], held["messages"]) == (["1.0", "2.4"], [])
    pulling = asyncio.create_task(pull(wait_ms=20_000, last_answer=held["answer"]))
    await call("acks", receipts=[each["receipt"] for each in first["messages"]])
    last = await pulling
    assert [each["value"] for each in last["messages"]] == new


async def test_messages_that_outlive_their_time_to_live_hold_no_gate(running, set_ttl):
    """Nobody consumes the group; what has expired in the predecessors is done with."""
    producer = await open_producer(running)
    await producer.publish("a", "b")
    await ChangeByHand(running).change(5)
    consumed = running.broker.owned[NEW].groups["workers"]
    await eventually(lambda: consumed.holds, "the messages hold the gate")
    await set_ttl(1.0)
    await eventually(lambda: not consumed.is_gated, "they have expired")


async def test_a_pin_of_a_reader_holds_messages_and_no_gate(running, scene):
    """What it reads is stored below the seal, and acknowledged."""
    await running.broker.pins.set(
        OLD, "reader", 0, broker_epoch=running.broker.owned[OLD].broker_epoch
    )
    await ChangeByHand(running).change(5)
    assert await scene.source.ack(scene.held, 3) == ""
    consumed = running.broker.owned[NEW].groups["workers"]
    await eventually(lambda: not consumed.is_gated, "the group is past the seal")
    assert (await running.broker.partitions.read(OLD)).trimmed == 0
