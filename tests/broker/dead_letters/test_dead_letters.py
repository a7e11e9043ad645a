"""Dead letters from one queue's broker to another's, through crashes of either."""

import asyncio
import base64
import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from partq.broker.dead_letters import forwarder
from partq.broker.operations.gauges import render_metrics
from partq.broker.partition.outbox import Outbox, OutboxProblem
from partq.cli.commands import cli
from partq.core.dead_letters import (
    MAX_WAITING,
    DeadLetter,
    DeadLetterReason,
    Origin,
    headers_of,
    producer_of,
    without_death,
)
from partq.core.model import Offset, PartitionId
from partq.embedded.provision import provision
from partq.errors import NotStoredError, StoreUnavailableError
from partq.resources import Resources, group_document, queue_document, resources_of
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.log import Log
from partq.testing import eventually
from partq.wire import batch, frames
from tests.broker.conftest import (
    ADMIN,
    PRODUCE,
    UID,
    RunningBroker,
    connect,
    key_of,
    open_flow,
    open_producer,
)
from tests.broker.moved_clocks import AheadWatch, put_watch

P = PartitionId(1, 0)
TARGET = "orders-workers-dlq"
TARGET_UID = "1d1e77e2"
ORIGIN = ("queue", "group", "partition", "offset")


@pytest.fixture
def resources():
    return resources_of(
        queue_document("orders", partitions=4),
        queue_document(TARGET, partitions=2),
        group_document("workers", "orders", ack={"maxRedeliveries": 1}),
    )


@pytest.fixture
async def start_target(redis_server, key_prefix, store, resources, tmp_path, running):
    """Start the broker of the dead-letter queue, which is not even on record before."""
    path = tmp_path / "target-tokens.json"
    path.write_text(json.dumps([{"token": ADMIN, "queue": TARGET, "role": "admin"}]))
    started = []

    async def start():
        await provision(store, resources.queues[1], resources, uid=TARGET_UID)
        own = await Store.open(redis_server.url, prefix=key_prefix, timeout_s=60.0)
        settings = replace(running.settings, queue=TARGET, queue_uid=TARGET_UID, tokens_file=path)
        target = await RunningBroker(settings, own, running.clock).start()
        started.append((target, own))
        await eventually(lambda: len(target.broker.owned) == 2, "target owns its partitions")
        return target

    yield start
    for target, own in started:
        await target.stop()
        await own.close()


@pytest.fixture
async def target(start_target):
    return await start_target()


@pytest.fixture
def stored(store, key_prefix):
    """Read all messages of the dead-letter queue."""

    async def stored():
        log = Log(store, Keys(key_prefix, "default", TARGET, TARGET_UID))
        found = []
        for index in range(2):
            entries = await log.read(
                PartitionId(1, index), Offset(0), max_bytes=2**20, max_entries=5000
            )
            found += [message for entry in entries for message in batch.decode(entry.data)]
        return found

    return stored


def consumed(running, index=0):
    return running.broker.owned[PartitionId(1, index)].groups["workers"]


async def fail(running, *, offset=0):
    """Have a member take the partition's messages, and die with them in hand."""
    flow = await open_flow(running)
    await flow.expect(frames.Assigned)
    header, _ = await flow.deliver()
    assert header.start == offset
    await flow.close()
    await eventually(lambda: consumed(running).flow is None, "flow lost")


async def publish(running, *values, partition=0):
    producer = await open_producer(running)
    await producer.publish(*values, partition=partition)
    await producer.close()


@pytest.mark.req("PUL-54", "PUL-55", "PUL-61", "PUL-63")
async def test_a_message_that_fails_too_often_moves_on_and_the_others_go_on(
    running, target, stored
):
    await running.assign("m", [0])
    await publish(running, "poison", "b")
    await fail(running)
    await fail(running)
    await eventually(stored, "the dead letter")
    (dead,) = await stored()
    assert (dead.key, dead.value) == (key_of(0), b"poison")
    epoch = (await running.state())["broker_epoch"]
    assert dead.headers == {
        "partq-dead-letter-reason": "maxRedeliveries",
        "partq-dead-letter-queue": "orders",
        "partq-dead-letter-group": "workers",
        "partq-dead-letter-partition": "1.0",
        "partq-dead-letter-offset": "0",
        "partq-dead-letter-position": f"1.{epoch}.0",
        "partq-dead-letter-redeliveries": "2",
    }
    flow = await open_flow(running)
    await flow.expect(frames.Assigned)
    header, _ = await flow.deliver()
    assert (header.start, header.stop) == (1, 2)
    await eventually(lambda: not consumed(running).outbox.letters, "the outbox is empty")
    metrics = render_metrics(running.broker).decode()
    assert "partq_messages_dead_lettered_total{" in metrics
    assert 'reason="maxRedeliveries"} 1.0' in metrics


@pytest.mark.req("PUL-62")
@pytest.mark.parametrize("order", ["Ordered", "Free"])
async def test_a_nack_too_many_moves_a_message_without_its_delay(
    running, target, stored, resources, store, order
):
    queue, (group,) = resources.queues[0], resources.groups
    nack = group.spec.nack.model_copy(update={"order": order, "delay_seconds": 0})
    spec = group.spec.model_copy(update={"nack": nack})
    changed = Resources(resources.queues, (group.model_copy(update={"spec": spec}),))
    await provision(store, queue, changed, uid=UID)
    await running.broker.refresh()
    await running.assign("m", [0])
    await publish(running, "poison", "b", "c")
    flow = await open_flow(running)
    await flow.expect(frames.Assigned)
    header, _ = await flow.deliver()
    await flow.send(nack_of(header, 1))
    header, _ = await flow.deliver()
    assert (header.start, header.redeliveries) == (1, [(1, 1)])
    await flow.send(nack_of(header, 1, delay_ms=60_000))
    await eventually(stored, "the dead letter")
    (dead,) = await stored()
    assert dead.value == b"b"
    assert dead.headers["partq-dead-letter-redeliveries"] == "2"
    book = consumed(running).book
    if order == "Ordered":  # what was behind it comes again, without it
        header, _ = await flow.deliver()
        assert (header.start, header.stop) == (2, 3)
    assert book.in_flight == 2
    assert not book.waiting


async def test_a_message_that_expires_is_a_dead_letter_when_the_group_says_so(
    running, target, stored, resources, store
):
    queue = resources.queues[0]
    letters = queue.spec.dead_letter.model_copy(update={"expired": True})
    spec = queue.spec.model_copy(update={"message_ttl_seconds": 1.0, "dead_letter": letters})
    changed = queue.model_copy(update={"spec": spec})
    await running.assign("m", [0])
    flow = await open_flow(running, credit=1)
    await flow.expect(frames.Assigned)
    await publish(running, "in flight", "late", "later")
    await flow.deliver()
    await provision(store, changed, replace(resources, queues=(changed,)), uid=UID)

    async def has_two():
        return len(await stored()) == 2

    await eventually(has_two, "two dead letters")
    dead = await stored()
    assert [message.value for message in dead] == [b"late", b"later"]
    assert {message.headers["partq-dead-letter-reason"] for message in dead} == {"expired"}
    assert (consumed(running).book.cursor, consumed(running).book.in_flight) == (0, 1)


async def test_a_batch_whose_own_time_is_over_becomes_dead_letters(
    running, target, stored, resources, store, monkeypatch
):
    monkeypatch.setattr("partq.broker.retention.expiry.MOVES_AT_ONCE", 3)
    queue = resources.queues[0]
    letters = queue.spec.dead_letter.model_copy(update={"expired": True})
    spec = queue.spec.model_copy(update={"dead_letter": letters})
    changed = queue.model_copy(update={"spec": spec})
    await provision(store, changed, replace(resources, queues=(changed,)), uid=UID)
    await running.broker.refresh()
    watch = put_watch(running.broker, AheadWatch())
    short = [f"short {number}" for number in range(8)]
    producer = await open_producer(running)
    await producer.publish("a")
    await producer.publish(*short, ttl_ms=60_000)
    await producer.publish("b", ttl_ms=86_400_000)
    watch.ahead_ms = 3_600_000
    await running.assign("m", [0])
    flow = await open_flow(running)
    assert await flow.take(2) == ["a", "b"]

    async def has_all():
        return len(await stored()) == len(short)

    await eventually(has_all, "the dead letters")
    dead = await stored()
    assert [message.value.decode() for message in dead] == short
    assert {message.headers["partq-dead-letter-reason"] for message in dead} == {"expired"}
    await eventually(lambda: consumed(running).book.cursor == len(short) + 2, "all is done")
    await producer.close()


OWN_HEADERS = {"own": "1", "SessionId": "old"}
"""One names another key than the message has, as of those stored before that was refused."""


async def bury(running, target, count, *, first=0):
    """Have the broker of the dead-letter queue store dead letters of the origin's partition 1.0."""
    for number in range(first, first + count):
        origin = Origin("orders", "workers", P, Offset(number), 9)
        headers = headers_of(OWN_HEADERS, origin, DeadLetter(1, number, 1, 2))
        message = batch.Message(key_of(0), f"dead {number}".encode(), headers)
        await running.broker.dead_letters.target.send(
            TARGET,
            0,
            batch.encode([batch.encode_message(message)], [0]),
            producer_of(UID, P, "workers"),
            number,
        )


async def run(target, *arguments):
    """Run a command of the CLI against the dead-letter queue."""
    common = ("--url", target.url, "--queue", TARGET, "--token", ADMIN)
    command = ["dead-letters", arguments[0], *common, *arguments[1:]]
    return await asyncio.to_thread(CliRunner().invoke, cli, command)


async def test_replay_goes_on_where_it_was_stopped_and_repeats_nothing(running, target):
    await bury(running, target, 5)
    road = target.broker.dead_letters.target
    send, sent = road.send, []

    async def die_after_two(*args):
        if len(sent) == 2:
            raise NotStoredError("the origin has gone")
        sent.append(args)
        return await send(*args)

    road.send = die_after_two
    trim = target.broker.log.trim

    async def trim_nothing(*_, **__):
        raise StoreUnavailableError("the broker dies before it frees anything")

    target.broker.log.trim = trim_nothing
    result = await run(target, "replay", "--yes", "--json")
    assert result.exit_code == 1
    road.send, target.broker.log.trim = send, trim
    result = await run(target, "replay", "--yes", "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert (answer["replayed"], answer["repeated"]) == (3, 0), "two are known to have arrived"
    log = running.broker.log
    entries = await log.read(P, Offset(0), max_bytes=2**20, max_entries=100)
    messages = [message for entry in entries for message in batch.decode(entry.data)]
    assert [message.value for message in messages] == [b"dead %d" % at for at in range(5)]
    assert all(message.headers == OWN_HEADERS for message in messages)
    again = json.loads((await run(target, "replay", "--yes", "--json")).stdout)
    assert (again["replayed"], again["repeated"]) == (0, 0)


async def test_dead_letters_are_listed_and_dropped(running, target):
    await bury(running, target, 3)
    result = await run(target, "list", "--json")
    assert result.exit_code == 0, result.output
    letters = json.loads(result.stdout)["messages"]
    assert [each["value"] for each in letters] == ["dead 0", "dead 1", "dead 2"]
    lines = (await run(target, "list")).stdout.splitlines()
    for each in letters:
        told = each["headers"]
        origin = [told[f"partq-dead-letter-{name}"] for name in ORIGIN]
        (line,) = [line for line in lines if each["value"] in line]
        assert f"│ {' '.join(origin)} │" in line
        assert f"│ {told['partq-dead-letter-reason']} │" in line
    assert (await run(target, "drop")).exit_code == 2
    assert (await run(target, "drop", "--dry-run")).stdout == "3 dead letters would be dropped\n"
    part = await run(target, "drop", "--yes", "--partition", "0", "--before", "1")
    assert part.stdout == "1 dead letter is dropped\n"
    assert (await run(target, "drop", "--yes")).stdout == "2 dead letters are dropped\n"
    assert json.loads((await run(target, "list", "--json")).stdout)["messages"] == []


async def test_a_queue_with_a_group_is_neither_replayed_nor_dropped(running):
    for call in ("replay", "drop"):
        path = f"/v1/queues/orders/dead-letters/{call}"
        _, answer = await running.call("POST", path, json={"partitions": ["1.0"]})
        assert answer["partitions"]["1.0"]["error"]["code"] == "conflict"
        message = answer["partitions"]["1.0"]["error"]["message"]
        assert "on Kubernetes delete the ConsumerGroup, elsewhere `partq groups remove`" in message
        assert "partq reset" not in message, "a group at the end consumes it, too"
    reset = "/v1/queues/orders/groups/workers/reset"
    await running.call("POST", reset, json={"to": "latest"})
    _, answer = await running.call("POST", path, json={"partitions": ["1.0"]})
    assert answer["partitions"]["1.0"]["error"]["code"] == "conflict"
    configs = running.broker.configs
    known = await configs.read_queue()
    await configs.write_queue({**known.spec, "groups": []}, resource_generation=2)
    await running.broker.refresh()
    _, answer = await running.call("POST", path, json={"partitions": ["1.0"]})
    assert "error" not in answer["partitions"]["1.0"], "a group that is gone is in no way"


def nack_of(header, offset, *, delay_ms=-1):
    """Return a nack of one offset of a delivery."""
    return frames.Nack(
        1, header.generation, header.partition, header.broker_epoch, header.epoch,
        header.delivery, [(offset, offset + 1)], delay_ms,
    )  # fmt: skip


async def let_die(running):
    """Publish two messages, and have the first one fail too often."""
    await running.assign("m", [0])
    await publish(running, "poison", "b")
    await fail(running)
    await fail(running)


@pytest.mark.parametrize("step", ["add", "send", "remove"])
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.req("PUL-54", "PUL-56")
async def test_another_broker_goes_on_wherever_the_first_one_dies(
    start_broker, running, target, stored, step, is_done
):
    letter_forwarder = running.broker.dead_letters
    owner = letter_forwarder._target if step == "send" else letter_forwarder._outboxes
    reached = stop_at(owner, step, is_done=is_done)
    await let_die(running)
    await eventually(reached.is_set, f"the first broker is at {step}")
    second = await start_broker("orders-1")
    record = await second.broker.partitions.read(P)
    await second.broker.ownership.claim(P, record)
    await eventually(lambda: not consumed(second).outbox.is_working, "the second is done")
    assert [message.value for message in await stored()] == [b"poison"]
    await second.broker.cursor_writer.settle(consumed(second))
    cursor = await second.broker.partitions.read_cursor(P, "workers")
    assert (cursor.outbox, cursor.cursor, cursor.redeliveries) == ([], 1, {})


def stop_at(owner, name, *, is_done):
    """Let a process stand still for ever at a call: before it, or before its answer."""
    call, reached = getattr(owner, name), asyncio.Event()

    async def stand(*args, **kwargs):
        if is_done:
            await call(*args, **kwargs)
        reached.set()
        await asyncio.Event().wait()

    setattr(owner, name, stand)
    return reached


@pytest.mark.req("PUL-54")
async def test_a_target_that_does_not_take_them_stops_the_partition_until_it_does(
    running, start_target, stored, start_broker, monkeypatch
):
    monkeypatch.setattr(forwarder, "PATIENCE_S", 0.0)
    await let_die(running)
    await eventually(lambda: consumed(running).outbox.blocked, "blocked")
    state = await running.state()
    assert (state["dead_letters"], state["cursor"]) == (1, 1)
    assert f"queue default/{TARGET}: not found in the Redis of orders" in state["blocked"]
    flow = await open_flow(running)
    await flow.expect(frames.Assigned)
    assert not consumed(running).is_open
    other = await start_broker("orders-1")
    for asked in (running, other):
        _, status = await asked.call("GET", "/v1/queues/orders/status")
        row = status["groups"]["workers"]["partitions"][str(P)]
        assert (row["dead_letters"], row["blocked"]) == (1, state["blocked"]), "whoever is asked"
    await start_target()
    header, _ = await flow.deliver()
    assert (header.start, header.stop) == (1, 2)
    assert [message.value for message in await stored()] == [b"poison"]


def test_an_outbox_that_is_full_stops_the_partition():
    letters = [DeadLetter(number, number, 1, 2) for number in range(MAX_WAITING)]
    outbox = Outbox(letters)
    assert outbox.is_holding
    assert outbox.blocked == "1000 dead letters wait to be sent"
    outbox.trouble = OutboxProblem("the target is gone", since=0.0)
    assert outbox.blocked == "the target is gone"
    letters.pop()
    assert (outbox.room, outbox.blocked, outbox.is_holding) == (1, "", False)


def test_a_trouble_is_over_when_nothing_is_left_to_move():
    """What was to be moved may be done with otherwise: the group was reset, or has acked it."""
    outbox = Outbox(scheduled={4: DeadLetterReason.MAX_REDELIVERIES})
    outbox.trouble = OutboxProblem("Redis is away", since=0.0, is_lasting=True)
    assert (outbox.blocked, outbox.is_holding) == ("Redis is away", True)
    outbox.scheduled.clear()
    assert (outbox.blocked, outbox.is_holding) == ("", False)


async def test_only_brokers_of_other_queues_may_send_dead_letters(running, target):
    producer = producer_of(UID, P, "workers")
    message = batch.encode([batch.encode_message(batch.Message("k", b"v"))], [0])
    body = {
        "partition": "1.0",
        "producer": producer,
        "number": 7,
        "batch_base64": base64.b64encode(message).decode(),
    }
    path, peer = f"/v1/queues/{TARGET}/dead-letters", target.broker.peer_token

    async def send(token=peer, **changes):
        status, answer = await target.call("POST", path, token=token, json={**body, **changes})
        return status, answer.get("error", {}).get("code", answer.get("is_stored_before"))

    assert await send() == (201, False)
    assert await send() == (200, True)
    assert await send(number=6) == (200, True)
    assert await send(number=9) == (201, False)
    assert await send(ADMIN) == (403, "forbidden")
    assert await send(running.broker.peer_token) == (401, "unauthorized")
    assert await send(partition="1.1") == (400, "wrong_partition")
    for name, wrong in (
        ("producer", "p"),
        ("number", -1),
        ("partition", "x"),
        ("batch_base64", "!"),
    ):
        assert await send(**{name: wrong}) == (400, "bad_request")
    assert await send(batch_base64="") == (400, "bad_batch")
    status, _ = await target.call("GET", f"/v1/queues/{TARGET}/layout", token=peer)
    assert status == 403


@pytest.mark.req("PUL-56")
async def test_no_client_may_number_as_dead_letters_do(running):
    peer = await connect(running, "/v1/queues/orders/publish", PRODUCE)
    await peer.send(frames.ProducerHello("dlq:anything"))
    failed, _ = await peer.expect(frames.Failed)
    assert failed.code == "bad_request"
    assert "choose another one" in failed.message
    await peer.close()


def test_headers():
    origin = Origin("orders", "workers", P, Offset(4), 9)
    first = headers_of({"own": "1"}, origin, DeadLetter(1, 4, DeadLetterReason.EXPIRED, 0))
    again = headers_of(first, origin, DeadLetter(1, 4, DeadLetterReason.MAX_REDELIVERIES, 3))
    assert first["partq-dead-letter-reason"] == "expired"
    assert again["partq-dead-letter-redeliveries"] == "3"
    assert without_death(again) == {"own": "1"}
