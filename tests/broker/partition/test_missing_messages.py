"""Messages that a group's record speaks of and the log does not hold stop nobody else."""

import asyncio

import pytest

from partq.broker.operations.gauges import render_metrics
from partq.cli.queues import explain
from partq.coordinator.group_snapshot import read_snapshot
from partq.core.group.partition_wait import PartitionWait, WaitsFor
from partq.embedded.provision import provision
from partq.testing import eventually
from partq.wire.calls.replies import convert
from partq.wire.calls.state import Picture
from tests.audit_record import decode_group
from tests.broker.conftest import UID, Gate, open_flow, open_producer, partition_id
from tests.broker.dead_letters.test_dead_letters import consumed, stop_at
from tests.broker.queue_ttl import set_ttl

__all__ = ["set_ttl"]

P = partition_id(0)
NOTHING = PartitionWait(what=WaitsFor.NOTHING)


@pytest.fixture
def spoil(running, store):
    """Change the group's record by hand, as a backup that was put back does."""

    async def spoil(**fields):
        flat = [each for field in fields.items() for each in field]
        key = running.broker.keys.cursor(P, "workers")
        await store.run("write_fields", [key], [len(fields), *flat])

    return spoil


@pytest.fixture
async def audited(store, resources, running):
    """The queue keeps an audit record from the next claim on."""
    queue = resources.queues[0]
    spec = queue.spec.model_copy(update={"audit": True})
    await provision(store, queue.model_copy(update={"spec": spec}), resources, uid=UID)
    await running.broker.refresh()


@pytest.fixture
async def trimmed(running, scene):
    """Nine messages were stored and acknowledged, each in a batch, and are gone but for some."""
    assert await scene.source.ack(scene.held, 3) == ""
    for number in range(6):
        await scene.producer.publish(f"{number}")
    frame, _ = await scene.source.deliver()
    while frame.stop < 9:
        frame, _ = await scene.source.deliver()
    assert await scene.source.ack(frame, 9) == ""

    async def is_trimmed():
        return (await running.broker.partitions.read(P)).trimmed == 9

    await eventually(is_trimmed, "it is trimmed")
    return scene


async def claim_again(running):
    """Lose the partition, as by a restart of the broker, and have it claimed again."""
    owned = running.broker.owned[P]
    running.broker.ownership.drop_all()
    await running.claim_all()
    assert running.broker.owned[P] is not owned
    return running.broker.owned[P]


async def test_a_cursor_below_the_log_interrupts_nobody(running, trimmed, spoil, caplog):
    await spoil(cursor=3, acked="5-6")
    owned = await claim_again(running)
    assert owned.groups["workers"].book.cursor == 9
    await eventually(lambda: owned.groups["workers"].flow is not None, "bound again")
    for value in "xy":
        await trimmed.producer.publish(value)
        while (await trimmed.source.deliver())[1] != [value]:
            pass
    assert running.broker.owned[P] is owned, "claimed once"
    assert "moved from 3 to 9" in caplog.text
    metrics = render_metrics(running.broker).decode()
    (line,) = [x for x in metrics.splitlines() if x.startswith("partq_messages_skipped_total{")]
    assert line.endswith(" 6.0")
    told = (await running.state())["mended"]
    assert told == (
        "its record spoke of messages that the log does not hold; its cursor was moved from 3 to 9"
    )
    assert await explained(running) == f"     when its broker claimed it, {told}"


async def test_a_dead_letter_below_the_log_interrupts_nobody(running, trimmed, spoil, caplog):
    await spoil(outbox="11:2:1:3", outbox_lowest=2)
    owned = await claim_again(running)
    consumed = owned.groups["workers"]
    assert consumed.outbox.letters == []
    await eventually(lambda: consumed.flow is not None, "bound again")
    await trimmed.producer.publish("x")
    while (await trimmed.source.deliver())[1] != ["x"]:
        pass
    assert running.broker.owned[P] is owned, "claimed once"
    assert "1 dead letter is dropped" in caplog.text
    assert (await explained(running)).endswith("; 1 dead letter is dropped")


async def explained(running):
    """Return what `partq explain` says of records that were mended."""
    _, body = await running.call("GET", "/v1/queues/orders/groups/workers/picture")
    snapshot = read_snapshot("workers", convert(body, Picture))
    (line,) = [each for each in explain.lines(P, snapshot, NOTHING) if "claimed it" in each]
    assert explain.to_json(P, "workers", snapshot, NOTHING)["mended"] in line
    return line


async def stopped(running, scene, store):
    """Stop the group at a hole in the log; return the partition and the member's flow."""
    await scene.producer.publish("x")
    await scene.source.close()
    await store.read("XDEL", running.broker.keys.log(P), "0-1")
    await claim_again(running)
    flow = await open_flow(running, "m", "j")

    def found():
        owned = running.broker.owned.get(P)
        return owned is not None and owned.groups["workers"].missing and owned

    return await eventually(found, "the group is stopped"), flow


def measured(running, name):
    """Return the value of a metric of the partition and the group."""
    labels = '{group="workers",namespace="default",partition="1.0",queue="orders"} '
    lines = render_metrics(running.broker).decode().splitlines()
    (line,) = [each for each in lines if each.startswith(name + labels)]
    return float(line.removeprefix(name + labels))


async def test_a_hole_in_the_log_stops_its_group_alone_until_it_is_reset(
    running, scene, store, caplog
):
    owned, flow = await stopped(running, scene, store)
    text = "message 0 is not in the log, which continues at 3"
    state = await running.state()
    assert text in state["blocked"]
    assert state["missing"] == state["blocked"]
    assert measured(running, "partq_messages_missing") == 1
    assert measured(running, "partq_dead_letters_blocked") == 0
    _, status = await running.call("GET", "/v1/queues/orders/status")
    assert text in status["groups"]["workers"]["partitions"]["1.0"]["blocked"]
    assert caplog.text.count("partition 1.0 lost") == 1, "claimed again once"
    producer = await open_producer(running, "another")
    await producer.publish("y")
    assert running.broker.owned[P] is owned

    path = "/v1/queues/orders/groups/workers/reset"
    body = {"partitions": ["1.0"], "offset": 3, "is_forced": True}
    _, answer = await running.call("POST", path, json=body)
    assert answer["partitions"]["1.0"]["to"] == 3
    assert (await flow.deliver())[1] == ["x"]
    assert (await running.state())["blocked"] == ""
    assert measured(running, "partq_messages_missing") == 0


async def test_a_cursor_that_is_moved_beyond_a_hole_lets_the_group_go_on(running, scene, store):
    owned, flow = await stopped(running, scene, store)
    await flow.close()
    consumed = owned.groups["workers"]
    await eventually(lambda: consumed.flow is None, "unbound")
    path = "/v1/queues/orders/groups/workers/cursors"
    body = {"positions": {"1.0": {"offset": 3, "append_broker_epoch": 0}}}
    await running.call("POST", path, json=body)
    flow = await open_flow(running, "m", "k")
    assert (await flow.deliver())[1] == ["x"]
    assert (await running.state())["blocked"] == ""


async def test_a_hole_that_has_expired_lets_the_group_go_on(running, scene, store, set_ttl):
    owned, flow = await stopped(running, scene, store)
    await set_ttl(1.0)
    await eventually(lambda: owned.groups["workers"].book.cursor >= 3, "expired")
    await set_ttl(None)
    await scene.producer.publish("y")
    while (await flow.deliver())[1] != ["y"]:
        pass  # x may have been faster than its time to live
    assert (await running.state())["blocked"] == ""


class Road:
    """A way to other queues that takes every dead letter."""

    async def send(self, queue, slot, data, producer, number):
        return True


async def test_a_dead_letter_in_a_hole_is_dropped_and_stops_nobody(
    running, scene, store, spoil, audited, caplog
):
    running.broker.dead_letters.connect(Road())
    assert await scene.source.ack(scene.held, 3) == ""
    await scene.producer.publish("x")
    await spoil(outbox="11:1:1:3", outbox_lowest=1)
    await store.read("XDEL", running.broker.keys.log(P), "0-1")
    await claim_again(running)

    async def is_dropped():
        return (await running.broker.partitions.read_cursor(P, "workers")).outbox == []

    await eventually(is_dropped, "it is dropped")
    assert caplog.text.count("partition 1.0 lost") == 1, "claimed again once"
    await eventually(lambda: "; it is dropped" in caplog.text, "it is told")
    while (await scene.source.deliver())[1] != ["x"]:
        pass
    groups = await running.broker.audits.read(P, 0, max_bytes=1 << 20)
    records = [record for group in groups for record in decode_group(P, group)]
    (told,) = [record for record in records if record.kind == "dead_letter"]
    assert (told.first, told.number, told.cause, told.flags) == (1, 11, "not_in_log", "lost")


@pytest.fixture
async def dead_in_a_hole(running, spoil, store):
    """The log does not hold the first message, a dead letter that no stored book says is done."""
    await running.assign("m", [0])
    producer = await open_producer(running)
    for value in ("gone", "x"):
        await producer.publish(value)
    await producer.close()
    await spoil(outbox="11:0:1:3", outbox_lowest=0)
    await store.read("XDEL", running.broker.keys.log(P), "0-1")


async def test_a_dead_letter_in_a_hole_stops_nobody_wherever_its_broker_dies(
    running, start_broker, dead_in_a_hole
):
    """The broker stands still before it stores its book, or before that in the step it waits in."""
    stop_at(running.broker.partitions, "flush", is_done=False)
    reached = [
        stop_at(running.broker.cursor_writer, "store", is_done=False),
        stop_at(running.broker.dead_letters._outboxes, "remove", is_done=True),
    ]
    await claim_again(running)
    await eventually(lambda: any(each.is_set() for each in reached), "it is about to drop it")
    second = await start_broker("orders-1")
    await second.broker.ownership.claim(P, await second.broker.partitions.read(P))
    flow = await open_flow(second)
    assert await flow.take(1) == ["x"]

    def is_dropped():  # between two claims nobody owns it
        return P in second.broker.owned and not consumed(second).outbox.letters

    await eventually(is_dropped, "the second has dropped it")
    assert (await second.state())["blocked"] == ""


async def test_a_broker_that_lost_the_partition_takes_no_dead_letter_out(running, dead_in_a_hole):
    """Its book is stored too late: whoever claims it next reads the outbox and book together."""
    flush = Gate(running.broker.partitions, "flush")
    storing = asyncio.Event()
    store = running.broker.cursor_writer.store

    def store_and_tell(consumed):
        storing.set()
        return store(consumed)

    running.broker.cursor_writer.store = store_and_tell
    removed = stop_at(running.broker.dead_letters._outboxes, "remove", is_done=True)
    await claim_again(running)
    await eventually(storing.is_set, "it waits for the book")
    working = running.broker.owned[P].groups["workers"].outbox
    running.broker.ownership.drop_all()
    flush.opened.set()
    await eventually(lambda: not working.is_working, "it has given up")
    assert not removed.is_set()
    assert len((await running.broker.partitions.read_cursor(P, "workers")).outbox) == 1
