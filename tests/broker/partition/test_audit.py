"""The audit record of a queue that keeps one: each thing that happens, before it is told."""

import asyncio
import dataclasses
import json

import pytest
from crc32c import crc32c

from partq.client.audit_reader import AuditReader
from partq.core.hashing import slot_of
from partq.core.model import PartitionId
from partq.errors import DataLossError, RolledBackError, StoreUnavailableError
from partq.store.records.audit import Audits
from partq.testing.frame_peers import key_of, values_of
from partq.wire import audit, frames
from partq.wire.batch import Codec, Message, encode, encode_message
from tests.audit_record import check_chain, decode_group
from tests.wire.batch_bytes import assemble

P0 = PartitionId(1, 0)
MESSAGES_OF_X = [encode_message(Message("k", b"x" * 300))] * 4


@pytest.fixture
def resources(resources):
    """The same queue with an audit record."""
    (queue,) = resources.queues
    spec = queue.spec.model_copy(update={"audit": True})
    return dataclasses.replace(resources, queues=(queue.model_copy(update={"spec": spec}),))


@pytest.fixture
async def reader(running, peers):
    async with AuditReader(running.url, queue="orders", token=peers.ADMIN) as reader:
        yield reader


async def told(running, start=0):
    """Return the records of partition 1.0 from a sequence on, after a look at the chain."""
    groups = await Audits(running.store, running.broker.keys).read(P0, start, max_bytes=1 << 24)
    if groups:
        check_chain(groups, start)
    return [record for group in groups for record in decode_group(P0, group)]


def of_kind(records, kind):
    return [record for record in records if record.kind == kind]


async def test_the_road_of_a_message(scene, peers):
    """Claim, commit, bind, publish, delivery, ack: in this order, each under its token."""
    assert await scene.source.ack(scene.held, 2, [(1, 2)]) == ""
    assert await scene.source.ack(scene.held, 3) == ""
    records = await told(scene.running)
    kinds = [record.kind for record in records]
    expected = ["begin", "begin", "claim", "commit", "bind", "publish", "deliver", "ack", "ack"]
    assert kinds == expected
    deliver, *acks = records[-3:]
    token = (scene.held.broker_epoch, scene.held.epoch)
    flow = scene.running.broker.flow_registry.find("workers", "m")
    for record in (deliver, *acks):
        assert (record.broker_epoch, record.epoch) == token
        assert (record.group, record.member, record.incarnation) == ("workers", "m", "i")
        assert (record.flow, record.broker) == (flow.number, "orders-0")
    assert (deliver.first, deliver.stop, deliver.delivery, deliver.cause) == (0, 3, 0, "")
    assert deliver.append_broker_epoch == token[0]
    assert [(ack.first, ack.stop) for ack in acks] == [(0, 2), (2, 3)]
    assert of_kind(records, "bind")[0].epoch == scene.assigned.epoch


async def test_a_publish_tells_the_checksum_of_what_was_compressed(scene):
    """Whatever the codec is; a body that does not expand is stored like any other, without one."""
    peer, key = scene.producer, key_of(scene.running.broker.config.layout, 0)
    large = [encode_message(Message(key, bytes(4000)))] * 300
    bodies = [(MESSAGES_OF_X, codec) for codec in Codec] + [(large, Codec.LZ4)]
    wanted = []
    for messages, codec in bodies:
        data = encode(messages, [slot_of(key)] * len(messages), codec)
        wanted.append((data, len(messages), crc32c(b"".join(messages))))
    wanted.append((assemble(b"\xff" * 40, [100], [slot_of(key)], codec=1), 1, -1))
    first = peer.due[0]
    for request, (data, count, _) in enumerate(wanted, 1000):
        await peer.send(frames.Publish(request, 1, 0, first, 0), data)
        published, _ = await peer.expect(frames.Published)
        assert published.offset == first
        first += count
    told_of = of_kind(await told(scene.running), "publish")[-len(wanted) :]
    assert [each.content_crc for each in told_of] == [crc for *_, crc in wanted]


async def test_nothing_is_sent_before_it_is_on_record(scene, peers):
    """Neither messages nor what follows them; then all comes, in its order."""
    gate = peers.Gate(scene.running.broker.audits, "write")
    await scene.producer.publish("d")
    await scene.producer.publish("e")
    await gate.is_reached()
    assert await scene.source.gets_nothing()
    handoff = asyncio.create_task((await scene.handoff()).pause())
    assert await scene.source.gets_nothing(), "what belongs behind a delivery does not overtake it"
    assert not handoff.done(), "a pause is on record before it is answered"
    gate.opened.set()
    for text in ("d", "e"):
        frame, payload = await scene.source.receive()
        assert isinstance(frame, frames.Deliver), frame
        assert values_of(frame, payload) == [text]
    await scene.source.expect(frames.Paused)
    assert (await handoff)["code"] == ""
    delivered = of_kind(await told(scene.running), "deliver")
    assert [(each.first, each.stop) for each in delivered] == [(0, 3), (3, 4), (4, 5)]


async def test_what_waits_for_its_record_cannot_be_acknowledged(scene, peers):
    """Nobody has got it; what was sent can be."""
    gate = peers.Gate(scene.running.broker.audits, "write")
    await scene.producer.publish("d")
    await gate.is_reached()
    assert await scene.source.ack(scene.held, 4) == "not_delivered"
    assert await scene.source.ack(scene.held, ranges=[(3, 4)]) == "not_delivered"
    assert await scene.source.ack(scene.held, 3) == ""
    held = scene.held
    token = (held.generation, held.partition, held.broker_epoch, held.epoch)
    await scene.source.send(frames.Nack(7, *token, held.delivery, [(3, 4)]))
    assert await scene.source.gets_nothing(), "the answer to a nack keeps its place, too"
    gate.opened.set()
    held, payload = await scene.source.expect(frames.Deliver)
    assert values_of(held, payload) == ["d"]
    refused, _ = await scene.source.expect(frames.AckRefused)
    assert refused.code == "not_delivered"
    assert await scene.source.ack(held, 4) == ""


async def test_what_waits_for_its_record_cannot_be_released(scene, peers):
    """Nobody has got it: its client's book is not the broker's."""
    gate = peers.Gate(scene.running.broker.audits, "write")
    await scene.producer.publish("d", "e")
    await gate.is_reached()
    await scene.source.release(scene.held, 4)
    failed, _ = await scene.source.find(frames.Failed)
    assert failed.code == "not_delivered"
    gate.opened.set()
    await scene.source.ended()


async def test_a_broker_that_is_fenced_sends_nothing(scene, peers):
    """The record is under another broker's epoch: what was taken is never sent."""
    gate = peers.Gate(scene.running.broker.audits, "write")
    await scene.producer.publish("d")
    await gate.is_reached()
    other = scene.held.broker_epoch + 10**9
    meta = scene.running.broker.keys.meta(P0)
    await scene.running.store.read("HSET", meta, "broker_epoch", other, "owner", "b-1")
    gate.opened.set()
    revoked, _ = await scene.source.receive()
    assert isinstance(revoked, frames.Revoked)
    delivered = of_kind(await told(scene.running), "deliver")
    assert [(each.first, each.stop) for each in delivered] == [(0, 3)]


async def test_a_silent_store_is_asked_again_and_nothing_is_told_twice(scene, peers, monkeypatch):
    """The answer to a write is lost: the next one bears the same numbers."""
    audits = scene.running.broker.audits
    write, calls = audits.write, []

    async def lose_the_first_answer(*args, **kwargs):
        calls.append(kwargs["audit"])
        await write(*args, **kwargs)
        if len(calls) == 1:
            raise StoreUnavailableError("the answer is lost")

    monkeypatch.setattr(audits, "write", lose_the_first_answer)
    await scene.producer.publish("d")
    await scene.source.deliver()
    assert [call.first for call in calls] == [calls[0].first] * 2
    delivered = of_kind(await told(scene.running), "deliver")
    assert [(each.first, each.stop) for each in delivered] == [(0, 3), (3, 4)]


async def test_a_flush_that_is_repeated_tells_each_ack_once(scene, peers, monkeypatch):
    partitions = scene.running.broker.partitions
    flush, calls = partitions.flush, []

    async def lose_the_first_answer(*args, **kwargs):
        calls.append(kwargs["audit"])
        await flush(*args, **kwargs)
        if len(calls) == 1:
            raise StoreUnavailableError("the answer is lost")

    monkeypatch.setattr(partitions, "flush", lose_the_first_answer)
    assert await scene.source.ack(scene.held, 1) == ""
    assert await scene.source.ack(scene.held, ranges=[(2, 3)]) == ""
    acked = of_kind(await told(scene.running), "ack")
    assert [(each.first, each.stop) for each in acked] == [(0, 1), (2, 3)]
    assert calls[0].records


async def test_a_handoff_tells_its_steps(scene, peers):
    handoff = await scene.paused()
    await scene.source.release(scene.held, 1)
    assert await scene.source.ack(scene.held, 1) == ""
    drained = await handoff.drain()
    assert drained["is_drained"]
    assert (await told(scene.running))[-1].kind == "drained", "on record before it is answered"
    assert (await handoff.drain())["is_drained"]
    assert (await handoff.commit())["code"] == ""
    records = (await told(scene.running))[7:]
    assert [r.kind for r in records if r.kind != "release"] == ["pause", "ack", "drained", "commit"]
    (release,) = of_kind(records, "release")
    assert (release.first, release.stop, release.member) == (1, 3, "m")
    attempt = handoff.token["attempt"]
    steps = [r for r in records if r.kind in {"pause", "drained", "commit"}]
    assert {(r.attempt, r.group, r.member) for r in steps} == {(attempt, "workers", "m")}
    drained, commit = steps[1:]
    assert (drained.first, drained.stop, drained.cause) == (1, 1, "")
    assert (commit.target, commit.cause) == ("n", "")
    assert commit.epoch > scene.assigned.epoch
    target = await scene.target()
    deliver, _ = await target.deliver()
    last = (await told(scene.running))[-1]
    assert (last.kind, last.member, last.first, last.stop) == ("deliver", "n", 1, 3)
    assert last.epoch == deliver.epoch


async def test_a_pause_that_is_cancelled_or_lapses_is_told(scene, peers, clock):
    handoff = await scene.paused()
    assert (await handoff.cancel())["code"] == ""
    assert [r.kind for r in (await told(scene.running))[7:]] == ["pause", "cancel"]
    await scene.source.expect(frames.Resumed)
    later = await scene.paused(lease_ms=50)
    await scene.source.expect(frames.Resumed)

    async def kinds():
        return [r.kind for r in (await told(scene.running))[9:]] == ["pause", "lapse"]

    await peers.eventually(kinds, "the lapse is on record")
    assert (await told(scene.running))[-1].attempt == later.token["attempt"]


async def test_a_forced_commit_tells_why(scene, peers):
    handoff = await scene.paused(drain_ms=0)
    await handoff.drain(wait_ms=0)
    assert (await handoff.commit(cause="drain_timeout"))["was_forced"]
    *_, drained, commit = await told(scene.running)
    assert (drained.kind, drained.cause) == ("drained", "drain_timeout")
    assert (drained.first, drained.stop) == (0, 3)
    assert (commit.kind, commit.cause) == ("commit", "drain_timeout")
    target = await scene.target()
    await target.deliver()
    last = (await told(scene.running))[-1]
    assert (last.kind, last.cause, last.first, last.stop) == ("deliver", "forced_commit", 0, 3)


async def test_a_pull_is_answered_once_it_is_on_record(running, peers):
    await running.assign("m", [0])
    producer = await peers.open_producer(running)
    await producer.publish("a", "b")
    path = "/v1/queues/orders/groups/workers/pull"
    gate = peers.Gate(running.broker.audits, "write")
    body = {"member": "m", "incarnation": "i", "wait_ms": 5000}
    pull = asyncio.create_task(running.call("POST", path, token=peers.CONSUME, json=body))
    await gate.is_reached()
    assert not of_kind(await told(running), "deliver")
    assert not pull.done()
    gate.opened.set()
    status, answer = await pull
    assert (status, len(answer["messages"])) == (200, 2)
    (deliver,) = of_kind(await told(running), "deliver")
    assert (deliver.first, deliver.stop, deliver.member) == (0, 2, "m")


async def test_a_reset_and_a_cursor_of_a_reader_are_told(scene, peers, running):
    await scene.source.close()
    await peers.eventually(lambda: not running.broker.flow_registry.flows, "the flow is lost")
    path = "/v1/queues/orders/groups/workers"
    body = {"positions": {"1.0": {"offset": 2}}}
    status, answer = await running.call("POST", f"{path}/cursors", json=body)
    assert (status, answer["partitions"]["1.0"]["is_moved"]) == (200, True)
    ack = of_kind(await told(running), "ack")[-1]
    assert (ack.first, ack.stop, ack.member, ack.flow, ack.flags) == (0, 2, "", -1, "cursor")
    status, _ = await running.call("POST", f"{path}/reset", json={"to": "earliest"})
    assert status == 200
    reset = of_kind(await told(running), "reset")[0]
    assert (reset.group, reset.first, reset.stop, reset.number) == ("workers", 0, 0, 2)


async def test_a_seek_is_told_as_a_reset_between_two_binds(scene, running):
    """In an order that a report finds nothing wrong with: what was in flight is void by then."""
    source, held = scene.source, scene.held
    assert await source.ack(held, 2) == ""
    under = (1, 0, held.broker_epoch, held.epoch)
    await source.send(frames.Seek(1, *under, offset=1))
    assert await source.pick(frames.Sought) == frames.Sought(1, 1)
    again, _ = await source.deliver()
    assert await source.ack(again, 3) == ""
    records = await told(running)
    first = records.index(of_kind(records, "ack")[0])
    kinds = [record.kind for record in records[first:]]
    assert kinds == ["ack", "reset", "bind", "deliver", "ack"]
    reset, bind, deliver = records[first + 1 : first + 4]
    assert (reset.group, reset.first, reset.stop, reset.number) == ("workers", 1, 1, 2)
    assert held.epoch < reset.epoch < bind.epoch == deliver.epoch == again.epoch
    assert (deliver.cause, deliver.first, deliver.stop) == ("reset", 1, 3)


async def test_another_broker_goes_on_with_the_record(scene, peers, start_broker):
    await scene.source.ack(scene.held, 1)
    await scene.running.admin("/yield", {"partitions": ["1.0"]})
    other = await start_broker("orders-1")
    brokers = (scene.running.broker, other.broker)
    await peers.eventually(lambda: any(P0 in each.owned for each in brokers), "claimed")
    records = await told(scene.running)
    (given_up,) = of_kind(records, "yield")
    claim = records[records.index(given_up) + 1]
    assert (claim.kind, claim.first, claim.stop) == ("claim", 0, 3)
    assert given_up.broker_epoch == scene.held.broker_epoch < claim.broker_epoch
    assert [(each.first, each.stop) for each in of_kind(records, "ack")] == [(0, 1)]


# ---- on and off ---------------------------------------------------------------------------------


async def switch(running, *, is_on):
    """Change the queue's spec, as its operator does."""
    configs = running.broker.configs
    config = await configs.read_queue()
    spec = {**config.spec, "audit": is_on}
    await configs.write_queue(spec, resource_generation=config.resource_generation + 1)
    await running.broker.refresh()


async def test_off_and_on_again_while_it_serves(scene, peers):
    await switch(scene.running, is_on=False)
    length = len(await told(scene.running))
    assert (await told(scene.running))[-1].kind == "end"
    await scene.producer.publish("d")
    held, _ = await scene.source.deliver()
    assert await scene.source.ack(held, 2) == ""
    assert await scene.source.ack(held, ranges=[(3, 4)]) == ""
    assert len(await told(scene.running)) == length
    await switch(scene.running, is_on=True)
    begin, *done = (await told(scene.running))[length:]
    assert (begin.kind, begin.first, begin.stop) == ("begin", 0, 4)
    assert [(each.first, each.stop) for each in done] == [(0, 2), (3, 4)]
    assert await scene.source.ack(held, ranges=[(2, 3)]) == ""
    await scene.producer.publish("e")
    await scene.source.deliver()
    later = [each.kind for each in (await told(scene.running))[length + 3 :]]
    assert [kind for kind in later if kind != "trim"] == ["ack", "publish", "deliver"]


# ---- reading and trimming -----------------------------------------------------------------------


async def test_the_record_is_read_and_freed_by_its_archive(scene, reader):
    for text in "defg":
        await scene.producer.publish(text)
        held, _ = await scene.source.deliver()
        assert await scene.source.ack(held, held.stop) == ""
    extent = (await reader.bounds())[P0]
    assert (extent.is_on, extent.first) == (True, 0)
    groups = [group async for group in reader.groups(P0, 0)]
    assert [group.sequence for group in groups] == list(range(extent.next))
    assert groups[-1].chain == extent.chain
    assert all(group.is_whole for group in groups)
    columns = audit.decode_columns(P0, groups)
    steps = [kind for kind in columns["kind"] if kind != "trim"]  # which comes when there is time
    assert steps[-3:] == ["publish", "deliver", "ack"]
    stored = await reader.trim({P0: 5})
    assert stored[P0].first == 5
    assert 0 < stored[P0].stored_bytes < extent.stored_bytes
    rest = [group async for group in reader.groups(P0, 5, previous=groups[4].chain)]
    assert rest == groups[5:]
    with pytest.raises(DataLossError, match=r"the first one that is has the sequence 5"):
        _ = [group async for group in reader.groups(P0, 4)]


async def test_a_store_that_has_lost_groups_is_noticed(scene, reader):
    extent = (await reader.bounds([P0]))[P0]
    with pytest.raises(RolledBackError, match="below 99"):
        _ = [group async for group in reader.groups(P0, 99)]
    with pytest.raises(RolledBackError, match="follows another chain"):
        _ = [group async for group in reader.groups(P0, 1, previous="f" * 40)]
    assert extent.chain != "f" * 40


async def test_what_is_asked_for_wrongly_is_refused(running):
    path = "/v1/queues/orders/partitions/1.0/audit"
    for query in ("", "?from=x", "?from=-1", "?from=0&max_bytes=0"):
        assert (await running.call("GET", path + query))[0] == 400, query
    path = "/v1/queues/orders/audit/cursor"
    for body in ({}, {"cursors": {}}, {"cursors": {"1.0": -1}}, {"cursors": {"x": 1}}):
        assert (await running.call("POST", path, json=body))[0] == 400, json.dumps(body)
    body = {"cursors": {"1.9": 1}}
    assert (await running.call("POST", path, json=body))[0] == 404
    body = {"cursors": {"1.0": 1}, "partitions": ["1.1"]}
    assert (await running.call("POST", path, json=body))[0] == 400


async def test_deliveries_wait_while_redis_has_no_room_for_their_record(scene, peers):
    """Acks pass, and what was held comes when there is room again."""
    running = scene.running
    info = await running.broker.store.info()
    full = dataclasses.replace(info, maxmemory_bytes=100, used_memory_bytes=95)
    gate = peers.Gate(running.broker.quota, "refresh")
    await gate.is_reached()
    await scene.producer.publish("d")
    await scene.source.deliver()
    running.broker.quota.info = full
    assert await scene.source.ack(scene.held, 1) == ""
    await switch(running, is_on=True)
    owned = running.broker.owned[P0]
    assert owned.audit.is_held
    assert not owned.groups["workers"].is_open
    running.broker.quota.info = info
    assert owned.groups["workers"].is_open
    gate.opened.set()


async def test_how_much_waits_for_an_archive_is_shown(scene, reader, peers, monkeypatch, caplog):
    """In the status, as metrics, and in the log when it is much."""
    running = scene.running
    extent = (await reader.bounds())[P0]
    watch = running.broker.audit_backlog
    await watch.measure()
    labels = '{namespace="default",partition="1.0",queue="orders"}'
    metrics = running.broker.metrics.render().decode()
    assert f"partq_audit_bytes{labels} {float(extent.stored_bytes)}" in metrics
    assert f"partq_audit_groups{labels} {float(extent.next)}" in metrics
    _, status = await running.call("GET", "/v1/queues/orders/status")
    stored = {p: e.stored_bytes for p, e in (await reader.bounds()).items()}
    assert status["totals"]["audit_bytes"] == sum(stored.values())
    assert not watch.is_much
    monkeypatch.setattr("partq.broker.retention.audit_backlog.MUCH_BYTES", 100)
    await watch.measure()
    assert watch.is_much
    assert "wait for an archive" in caplog.text
    await reader.trim({p: e.next for p, e in (await reader.bounds()).items()})
    await watch.measure()
    assert not watch.is_much
