"""What does not decode becomes a dead letter, by default, and holds nobody up."""

import asyncio

import pytest

from partq import Consumer
from partq.broker.delivery.decode_check import DecodeCheck
from partq.broker.operations.gauges import render_metrics
from partq.cli.queues.problems import parked_lines
from partq.core.cursor.unreadable import MAX_RUNS
from partq.core.hashing import slot_of
from partq.core.model import Offset, PartitionId
from partq.embedded.provision import provision
from partq.resources import Resources, group_document, queue_document, resources_of
from partq.store.keys import Keys
from partq.store.records.log import Log
from partq.testing import eventually
from partq.wire import batch, frames
from partq.wire.calls.replies import convert
from partq.wire.calls.status import GroupStatus
from tests.broker.conftest import ADMIN, CONSUME, UID, Gate, key_of, open_flow, open_producer
from tests.broker.dead_letters import test_dead_letters
from tests.broker.dead_letters.test_dead_letters import TARGET, TARGET_UID, P, consumed

start_target, target = test_dead_letters.start_target, test_dead_letters.target
WAIT_S = 60.0
GARBAGE = b"\xc1" * 1000


@pytest.fixture
def resources():
    return resources_of(
        queue_document("orders", partitions=4),
        queue_document(TARGET, partitions=2, limits={"maxMessageBytes": 100_000}),
        group_document("workers", "orders"),
    )


@pytest.fixture
def stored(store, key_prefix):
    """Read all messages of the dead-letter queue, however large they are."""
    log = Log(store, Keys(key_prefix, "default", TARGET, TARGET_UID))

    async def stored():
        found = []
        for index in range(2):
            entries = await log.read_within(
                PartitionId(1, index), Offset(0), Offset(10**6), max_bytes=2**30, max_entries=10**4
            )
            found += [message for entry in entries for message in batch.decode(entry.data)]
        return found

    return stored


async def publish(running, *messages, producer="p"):
    """Publish one batch to partition 1.0: texts, and bytes that are no message."""
    key = key_of(0)
    bodies = [
        each if isinstance(each, bytes) else batch.encode_message(batch.Message(key, each.encode()))
        for each in messages
    ]
    data = batch.encode(bodies, [slot_of(key)] * len(bodies))
    peer = await open_producer(running, producer)
    await peer.send(frames.Publish(1, 1, 0, 0, 0), data)
    published, _ = await peer.expect(frames.Published)
    await peer.close()
    return published.offset, data


async def consume(running, *wanted, **settings):
    """Return what a consumer gets until it has all it wants, and the errors that it was told."""
    got, errors = [], []
    consumer = Consumer(
        running.url, queue="orders", group="workers", token=CONSUME, member="m",
        on_error=errors.append, handle_signals=False, leave_timeout_s=0.05, **settings,
    )  # fmt: skip
    async with consumer, asyncio.timeout(WAIT_S):
        async for message in consumer:
            got.append(message.value.decode())
            await consumer.ack(message)
            if set(wanted) <= set(got):
                break
    return got, errors


async def letters(stored, count):
    async def all_found():
        found = await stored()
        return found if len(found) >= count else None

    return await eventually(all_found, f"{count} dead letters", interval_s=0.1)


def told(message):
    prefix = "partq-dead-letter-"
    return {name.removeprefix(prefix): text for name, text in (message.headers or {}).items()}


async def test_a_batch_is_stored_once_as_a_dead_letter_and_the_others_go_on(
    running, target, stored
):
    await running.assign("m", [0])
    _, data = await publish(running, *[GARBAGE] * 50)
    await publish(running, "next", producer="q")
    got, errors = await consume(running, "next")
    assert got == ["next"]
    assert [error.code for error in errors] == ["undecodable"]
    dead = await letters(stored, 50)
    assert sum(len(message.value) for message in dead) == len(data)
    carriers = [message for message in dead if message.value]
    assert [message.value for message in carriers] == [data]
    epoch = (await running.state())["broker_epoch"]
    assert told(carriers[0]) == {
        "reason": "undecodable", "queue": "orders", "group": "workers", "partition": "1.0",
        "offset": "0", "position": f"1.{epoch}.0", "redeliveries": "0", "undecodable": "0",
    }  # fmt: skip
    others = [told(message) for message in dead if not message.value]
    assert [(each["offset"], each["undecodable"], each["batch"]) for each in others] == [
        (str(at), str(at), f"1.{epoch}.0") for at in range(1, 50)
    ]
    await eventually(lambda: not consumed(running).outbox.has_work, "all is sent")
    metrics = render_metrics(running.broker).decode()
    assert 'partq_messages_undecodable_total{group="workers"' in metrics
    assert 'reason="undecodable"} 50.0' in metrics


async def test_a_batch_that_its_queue_does_not_take_is_left_out(running, target, stored):
    await running.assign("m", [0])
    _, data = await publish(running, GARBAGE * 60, *[GARBAGE] * 60)
    await publish(running, "next", producer="q")
    assert (await consume(running, "next"))[0] == ["next"]
    dead = await letters(stored, 61)
    assert {message.value for message in dead} == {b""}
    assert [told(message).get("omitted") for message in dead[:2]] == [str(len(data)), None]
    await eventually(lambda: not consumed(running).outbox.has_work, "all is sent")


@pytest.mark.parametrize("order", ["Ordered", "Free"])
@pytest.mark.parametrize("credit", [3, 1000])
async def test_what_does_decode_of_a_batch_comes_in_order_and_counts_for_nothing(
    running, target, stored, resources, store, order, credit
):
    """Though the group takes no redelivery at all: it is another message that is at fault."""
    await change_group(running, resources, store, order)
    await running.assign("m", [0])
    await publish(running, "a", GARBAGE, "b", "c", GARBAGE, GARBAGE, "d", GARBAGE)
    await publish(running, "e", "next", producer="q")
    texts = ["a", "b", "c", "d", "e", "next"]
    got, _ = await consume(running, *texts, credit=credit)
    assert (got if order == "Ordered" else sorted(got)) == texts
    dead = await letters(stored, 4)
    assert [told(message)["offset"] for message in dead] == ["1", "4", "5", "7"]
    await eventually(lambda: consumed(running).book.cursor == 10, "all is done with")
    assert consumed(running).book.redeliveries == {}


async def test_a_late_word_of_what_is_sent_again_since_is_not_believed(running, target, stored):
    """It is in flight under a newer delivery; who cannot decode it says so once more."""
    await running.assign("m", [0])
    await publish(running, "a", GARBAGE, "b")
    flow = await open_flow(running)
    first, _ = await flow.find(frames.Deliver)
    assert await flow.nack(first, [(0, 1)], delay_ms=0) == ""
    second, _ = await flow.find(frames.Deliver)
    assert (second.start, second.delivery) == (0, first.delivery + 1)
    late = {"delay_ms": 0, "reason": frames.UNDECODABLE}
    assert await flow.nack(first, [(1, 2)], **late) == ""
    assert not consumed(running).outbox.has_work
    assert consumed(running).book.in_flight == 3
    assert await flow.nack(second, [(1, 2)], **late) == ""
    assert [told(message)["offset"] for message in await letters(stored, 1)] == ["1"]


async def change_group(running, resources, store, order):
    queue, (group,) = resources.queues[0], resources.groups
    nack = group.spec.nack.model_copy(update={"order": order})
    ack = group.spec.ack.model_copy(update={"max_redeliveries": 0})
    spec = group.spec.model_copy(update={"nack": nack, "ack": ack})
    changed = Resources(resources.queues, (group.model_copy(update={"spec": spec}),))
    await provision(store, queue, changed, uid=UID)
    await running.broker.refresh()


async def test_a_batch_of_many_holes_is_cut_into_few_windows(running, target, stored):
    """Each window costs the bytes of the whole batch."""
    await running.assign("m", [0])
    count = 20
    mixed = [part for at in range(count) for part in (f"{at}", GARBAGE)]
    await publish(running, *mixed)
    await publish(running, "next", producer="q")
    got, _ = await consume(running, "next")
    assert got == [*(f"{at}" for at in range(MAX_RUNS)), "next"]
    dead = await letters(stored, 2 * count - MAX_RUNS)
    assert sum(bool(message.value) for message in dead) == 1


async def test_without_a_dead_letter_queue_it_waits_and_the_others_go_on(
    start_broker, running, start_target, stored, monkeypatch
):
    """Also at another broker: what waits is stored, holds the log, and is told of."""
    monkeypatch.setattr("partq.broker.dead_letters.forwarder.PATIENCE_S", 0.0)
    await running.assign("m", [0])
    await publish(running, *[GARBAGE] * 3)
    await publish(running, "b", producer="q")
    assert (await consume(running, "b"))[0] == ["b"]
    await eventually(lambda: consumed(running).outbox.parked, "it is told of")
    # A reset lets go of none of them, so a publish without room is told of another way.
    path, body = "/v1/queues/orders/groups/workers/reset", {"to": "latest", "is_forced": True}
    assert (await running.call("POST", path, token=ADMIN, json=body))[0] == 200
    told = running.broker.quota._holders.describe()
    assert "group workers (4 messages, 3 of them dead letters; in partition 1.0 from 0 on)" in told
    assert "until the dead-letter queue takes them: create it" in told
    state = await running.state()
    assert (state["dead_letters"], state["blocked"], state["cursor"]) == (3, "", 4)
    assert "not found in the Redis of orders" in state["parked"]
    _, answer = await running.call("GET", "/v1/queues/orders/status")
    (line,) = parked_lines(convert(answer["groups"]["workers"], GroupStatus))
    assert line.startswith("partition 1.0: 3 dead letters wait")
    labels = '{group="workers",namespace="default",partition="1.0",queue="orders"}'
    assert f"partq_dead_letters_parked{labels} 1.0" in render_metrics(running.broker).decode()
    second = await start_broker("orders-1")
    record = await second.broker.partitions.read(P)
    await second.broker.ownership.claim(P, record)
    await publish(second, "c", producer="r")
    assert (await consume(second, "c"))[0] == ["c"]
    record = await second.broker.partitions.read(P)
    assert record.trimmed == 0, "the log is held for what waits"
    await start_target()
    assert len(await letters(stored, 3)) == 3


async def test_more_than_the_outbox_takes_hold_nobody_up_either(running, monkeypatch):
    monkeypatch.setattr("partq.broker.partition.outbox.MAX_WAITING", 5)
    await running.assign("m", [0])
    await publish(running, *[GARBAGE] * 20)
    await publish(running, "b", producer="q")
    assert (await consume(running, "b"))[0] == ["b"]
    outbox, book = consumed(running).outbox, consumed(running).book
    assert (len(outbox.letters), len(outbox.aside)) == (5, 15)
    assert (book.cursor, book.in_flight) == (5, 0), "what is not stored as a letter is not done"


async def test_what_the_broker_can_decode_is_an_ordinary_nack(running):
    """An older client, or one that lies."""
    await running.assign("m", [0])
    await publish(running, "a", "b")
    flow = await open_flow(running)
    header, _ = await flow.deliver()
    began = running.clock()
    assert await flow.nack(header, [(0, 2)], reason="undecodable") == ""
    book = consumed(running).book
    assert book.redeliveries == {0: 1, 1: 1}
    assert began + 60 <= book.waiting.next_due <= running.clock() + 60
    assert not consumed(running).outbox.has_work


async def test_a_member_that_decodes_nothing_waits_for_its_own_looks(running):
    """A broker looks into one batch at a time; the next one's turn is another flow's."""
    check = running.broker.ack_handler._check
    asked, answered = [], []

    async def find(partition, offset, find=check.find):
        asked.append(partition.index)
        found = await find(partition, offset)
        answered.append(partition.index)
        return found

    await running.assign("m", [0])
    await running.assign("n", [1])
    producer = await open_producer(running)
    flows = {}
    for index, member in enumerate("mn"):
        flows[index] = await open_flow(running, member)
        await producer.publish("good", partition=index)
        header, _ = await flows[index].deliver()
        place = (1, index, header.broker_epoch, header.epoch, header.delivery)
        flows[index].nacked = lambda request, place=place: frames.Nack(
            request, *place, [(0, 1)], 0, "undecodable"
        )
    check.find = find
    async with check._turn:
        for request in range(50):
            await flows[0].send(flows[0].nacked(request))
        await flows[1].send(flows[1].nacked(0))
        await eventually(lambda: 1 in asked, "the other one has come")
        await eventually(lambda: 0 in asked, "the first one has come")
    await eventually(lambda: len(answered) > 1, "two looks are done")
    assert set(answered[:2]) == {0, 1}
    await producer.close()


async def test_a_read_that_is_slow_holds_up_no_other_group_s_look(running):
    offset, _ = await publish(running, "good", GARBAGE)
    log = running.broker.log
    check, find = DecodeCheck(log), log.find
    gate = Gate(log, "find")
    slow = asyncio.create_task(check.find(P, offset))
    await gate.reached.wait()
    log.find = find
    async with asyncio.timeout(WAIT_S):
        found = await check.find(P, offset)
    assert found
    assert not slow.done()
    gate.opened.set()
    assert await slow == found


async def test_a_reset_forgets_what_is_about_to_become_a_dead_letter(running):
    """The move stands still: what was set aside holds nothing once the group begins again."""
    await running.assign("m", [0])
    producer = await open_producer(running)
    await producer.publish("x")
    await producer.close()
    letter_forwarder = running.broker.dead_letters
    moving = test_dead_letters.stop_at(letter_forwarder._outboxes, "add", is_done=False)
    letter_forwarder.park(consumed(running), [(0, 1)])
    await eventually(moving.is_set, "it is being moved")
    path = "/v1/queues/orders/groups/workers/reset"
    status, answer = await running.call("POST", path, json={"to": "earliest"})
    assert status == 200, answer
    flow = await open_flow(running)
    assert await flow.take(1) == ["x"]
