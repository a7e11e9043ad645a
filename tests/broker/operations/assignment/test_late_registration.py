"""Registrations beside binds, restarts, late calls and lost answers: one holder, one truth."""

import asyncio

from partq.core.model import Cause, MemberId
from partq.errors import StoreUnavailableError
from partq.wire import frames


async def put_letters(running, store, peers, **fields):
    """Store fields in the record of the group, as its broker finds them with its next claim."""
    partition = peers.partition_id(0)
    key = running.broker.keys.cursor(partition, "workers")
    await running.admin("/yield", {"partitions": [str(partition)]})
    flat = [each for pair in fields.items() for each in pair]
    await store.run("write_fields", [key], [len(fields), *flat])
    await peers.eventually(lambda: partition in running.broker.owned, "it is claimed again")
    return consumed_of(running, peers)


def consumed_of(running, peers):
    return running.broker.find(peers.partition_id(0)).find("workers")


async def test_an_offset_counts_also_after_a_bind_whose_answer_was_lost(
    running, members, producer, peers
):
    """The record has a newer epoch than memory: what the member is told is what it gets."""
    await producer.publish("a", "b", "c")
    await members.register("m")
    partitions, bind = running.broker.partitions, running.broker.partitions.bind

    async def lose_the_answer(*args, **kwargs):
        await bind(*args, **kwargs)
        raise StoreUnavailableError("no answer")

    partitions.bind = lose_the_answer
    flow = await peers.connect_flow(running)
    consumed = consumed_of(running, peers)
    await flow.send(frames.Bind("m", "i", 1000, []))

    async def is_newer():
        return (await members.look())["epoch"] > consumed.epoch

    await peers.eventually(is_newer, "a bind is stored")
    await flow.close()
    await peers.eventually(
        lambda: running.broker.flow_registry.find("workers", MemberId("m")) is None, "it is gone"
    )
    partitions.bind = bind

    async def registered():
        found = await members.register("m", offset=2)
        return found if isinstance(found, dict) else None

    taken = await peers.eventually(registered, "a repeat of the call counts")
    assert taken["cursor"] == 2
    flow = await peers.open_flow(running, "m")
    assert (await flow.deliver())[1] == ["c"]


async def test_what_the_record_alone_knows_is_read_again(running, members, peers):
    """The member asks for what it has; its answer names the epoch that is stored."""
    taken = await members.register("m")
    consumed = consumed_of(running, peers)
    partition = peers.partition_id(0)
    newer = await running.broker.partitions.bind(
        partition, "workers", member=MemberId("m"), incarnation="i", **consumed.next_write()
    )
    assert newer > consumed.epoch == taken["epoch"]
    assert (await members.register("m", epoch=newer))["epoch"] == newer
    assert consumed.is_dropped
    await peers.eventually(lambda: partition in running.broker.owned, "it is claimed again")
    assert (await members.unregister("m", epoch=newer))["is_free"]


async def test_a_late_unregister_does_not_take_what_was_confirmed_since(
    running, members, producer, peers
):
    await producer.publish("a")
    flow = await peers.open_flow(running, "m")
    taken = await members.register("m")
    await flow.deliver()
    refused = await members.unregister("m", epoch=taken["epoch"], wait_ms="0")
    assert not refused["is_free"]
    assert await members.register("m", epoch=taken["epoch"]) == "conflict", "it is under way"
    # It gives that up, and asks for the partition once the pause is over.
    consumed = consumed_of(running, peers)
    running.broker.handoffs._lapse(consumed, consumed.pause)
    assert await members.register("m", epoch=0) == "fenced"
    kept = await members.register("m", epoch=taken["epoch"])
    assert kept["epoch"] > taken["epoch"]
    held, values = await flow.deliver()
    assert (held.epoch, values) == (kept["epoch"], ["a"])
    assert await members.unregister("m", epoch=taken["epoch"], wait_ms="0") == "fenced", "late"
    assert await flow.ack(held, 1) == ""
    assert (await members.look())["member"] == "m"
    again = await members.register("m", epoch=kept["epoch"])
    assert (again["epoch"], again["is_new"]) == (kept["epoch"], False)
    assert (await members.unregister("m", epoch=kept["epoch"]))["is_free"]


async def test_a_member_may_unregister_while_it_binds(running, members, peers):
    taken = await members.register("m")
    gate = peers.Gate(running.broker.partitions, "bind")
    flow = await peers.connect_flow(running)
    await flow.send(frames.Bind("m", "i", 1000, []))
    await gate.reached.wait()
    waiting = asyncio.create_task(members.unregister("m", epoch=taken["epoch"]))
    gate.opened.set()
    assert (await waiting)["is_free"]


async def test_a_bind_that_comes_before_the_end_of_an_unregister_is_told(running, members, peers):
    """The commit waits for the bind, and finds its attempt over: a repeat gives it back."""
    taken = await members.register("m")
    consumed = consumed_of(running, peers)
    gate = peers.Gate(running.broker.handoffs, "commit")
    waiting = asyncio.create_task(members.unregister("m", epoch=taken["epoch"]))
    await gate.reached.wait()
    flow = await peers.open_flow(running, "m")
    await flow.expect(frames.Assigned)
    assert consumed.pause is None
    gate.opened.set()
    assert await waiting == "unavailable"
    assert (await members.unregister("m", epoch=taken["epoch"]))["is_free"]


async def test_the_pause_of_an_unregister_ends_with_its_process(running, members, producer, peers):
    await producer.publish("a")
    flow = await peers.open_flow(running, "m")
    taken = await members.register("m")
    await flow.deliver()
    await members.unregister("m", epoch=taken["epoch"], wait_ms="0")
    assert consumed_of(running, peers).pause is not None
    flow.cut()
    await peers.eventually(lambda: not [*running.broker.flow_registry.flows], "it is lost")
    flow = await peers.open_flow(running, "m", "j")
    assert consumed_of(running, peers).pause is None
    assert (await flow.deliver())[1] == ["a"]


async def test_what_another_process_binds_meanwhile_is_recorded_as_its_own(running, members, peers):
    gate = peers.Gate(running.broker.partitions, "register")
    registering = asyncio.create_task(members.register("m", incarnation="x"))
    await gate.reached.wait()
    flow = await peers.open_flow(running, "m", "y")
    gate.opened.set()
    await registering
    assigned, _ = await flow.expect(frames.Assigned)
    record = await running.broker.partitions.read_cursor(peers.partition_id(0), "workers")
    assert (record.epoch, record.incarnation) == (assigned.epoch, "y")


async def test_an_offset_leaves_the_book_as_it_is_stored(running, members, producer, peers, store):
    """Dead letters that wait count as done: the stored book is to say so, without an ack."""
    await producer.publish("a", "b", "c")
    consumed = await put_letters(running, store, peers, outbox="11:1:1:3", outbox_lowest="1")
    taken = await members.register("m", offset=0)
    assert taken["cursor"] == 0
    await peers.eventually(lambda: not consumed.is_dirty, "the book is stored")
    assert (await members.unregister("m", epoch=taken["epoch"]))["is_free"]


# ---- what a registration and its end take care of ----------------------------------------------


async def test_an_epoch_that_was_never_is_refused(members):
    taken = await members.register("m")
    assert await members.unregister("m", epoch=taken["epoch"] + 1) == "fenced"
    assert (await members.look())["member"] == "m"


async def test_another_process_than_the_one_that_is_connected_gives_nothing_back(
    running, members, peers
):
    await peers.open_flow(running, "m", "j")
    taken = await members.register("m", incarnation="j")
    assert await members.unregister("m", epoch=taken["epoch"]) == "fenced"
    assert (await members.look())["member"] == "m"


async def test_a_handoff_of_the_coordinator_goes_first(running, members, peers):
    taken = await members.register("m")
    consumed = consumed_of(running, peers)
    running.broker.handoffs.pause(
        consumed,
        broker_epoch=consumed.broker_epoch,
        epoch=consumed.epoch,
        attempt=consumed.closed_attempt + 1,
        lease_s=60.0,
        drain_s=60.0,
    )
    pause = consumed.pause
    assert await members.unregister("m", epoch=taken["epoch"]) == "conflict"
    assert consumed.pause is pause
    assert (await members.look())["member"] == "m"


async def test_an_offset_forgets_acks_and_the_cause_of_before(
    running, members, producer, peers, store
):
    await producer.publish("a", "b", "c")
    cause = str(int(Cause.FORCED_COMMIT))
    await put_letters(running, store, peers, acked="1-2", cause=cause)
    await members.register("m", offset=0)
    key = running.broker.keys.cursor(peers.partition_id(0), "workers")
    assert await store.read("HMGET", key, "acked", "cause") == [b"", b"0"]


async def test_an_offset_waits_for_acks_that_are_being_stored(running, members, producer, peers):
    """A flush that is under way would undo the offset; from then on none begins."""
    await producer.publish("a", "b", "c")
    await members.register("m")
    flow = await peers.open_flow(running, "m")
    held, _ = await flow.deliver()
    order = []
    partitions = running.broker.partitions
    flush = partitions.flush

    async def note_flush(*args, **kwargs):
        try:
            return await flush(*args, **kwargs)
        finally:
            order.append("flushed")

    partitions.flush = note_flush
    flushes = peers.Gate(partitions, "flush")
    acking = asyncio.create_task(flow.ack(held, 2))
    await flushes.reached.wait()
    acking.cancel()
    await flow.close()
    settles = peers.Gate(running.broker.cursor_writer, "settle")
    settles.opened.set()
    registers = peers.Gate(partitions, "register")
    registering = asyncio.create_task(members.register("m", offset=0))
    waits = [asyncio.create_task(gate.reached.wait()) for gate in (settles, registers)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    assert not registers.reached.is_set(), "it waits for the flush first"
    flushes.opened.set()
    await registers.reached.wait()
    assert order, "a flush that was under way has ended"
    consumed = consumed_of(running, peers)
    assert consumed.is_held
    assert not consumed.is_flushing
    registers.opened.set()
    await asyncio.gather(*waits)
    assert (await registering)["cursor"] == 0
