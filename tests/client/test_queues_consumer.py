"""A consumer of several queues: turns, acks, queues that come and go."""

import asyncio
import json
from collections import Counter

import pytest

from partq import (
    ConnectionOptions,
    ForbiddenError,
    Message,
    PartitionId,
    PartitionKey,
    Producer,
    QueuesConsumer,
    SettingsError,
    queues_in_directory,
)
from partq.embedded.runtime import EmbeddedRuntime
from partq.resources import group_document, queue_document, resources_of
from partq.testing import eventually
from partq.wire import frames
from tests.client.member import LEASE_MS, WAIT_S, assigned, deliver

PATIENT = {"handle_signals": False, "max_processing_s": 0}


def found(**queues):
    """Return a `find` of queues by their URLs; a name has `_` for a hyphen."""
    return lambda: [ConnectionOptions(url, name.replace("_", "-")) for name, url in queues.items()]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "queues, pattern: got neither, expected one of them"),
        ({"queues": ["a"], "pattern": "a"}, "queues, pattern: got both"),
        ({"queues": "orders"}, "queues: got str, expected a list of names"),
        ({"queues": []}, "queues: got 0 names, expected 1 to 1000"),
        ({"queues": ["a", ".."]}, "queues: got '..', expected a DNS label"),
        ({"pattern": "("}, "pattern: got '(', expected a regular expression"),
        ({"pattern": ""}, "pattern: got '', expected a text of 1 to 1000 characters"),
        ({"pattern": "a", "find": None}, "find: got None, expected a function"),
        ({"pattern": "a", "find": 7}, "find: got int, expected a function"),
        ({"pattern": "a", "find_every_s": 0}, "find_every_s: got 0, expected 0.05 to"),
        ({"pattern": "a", "max_queues": 0}, "max_queues: got 0, expected 1 to 1000"),
        ({"pattern": "a", "group": ".."}, "group: got '..', expected a DNS label"),
        (
            {"pattern": "a", "group": "{que}-w"},
            "group: got '{que}-w', expected a name in which {que",
        ),
        ({"pattern": "a", "group": "w-{queue"}, "group: got 'w-{queue', expected a name in which"),
        ({"pattern": "a", "group": "w-{}"}, "group: got 'w-{}', expected a name in which {queue}"),
        ({"pattern": "a", "group": None}, "group: got NoneType, expected text"),
        ({"pattern": "a", "credit": 0}, "credit: got 0, expected 1 to"),
        ({"pattern": "a", "auto_ack": 1}, "auto_ack: got 1, expected True or False"),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_name(given, says):
    with pytest.raises(SettingsError) as caught:
        QueuesConsumer(**{"find": found(), "group": "workers", **given})
    assert caught.value.message.startswith(says)


async def flow_of(peer, *batches):
    """Bind a flow that has delivered batches of partition 0."""
    flow = await peer.flow()
    await flow.send(assigned())
    start = 0
    for batch, count in batches:
        await flow.send(deliver(start, start + count), payload=batch)
        start += count
    return flow


async def test_queues_take_turns_and_acks_go_where_the_messages_came_from(
    peer, other_peer, stored_batch
):
    two = stored_batch(b"1", b"2")
    options = {"group": "workers", "queues": ["a", "b", "none"], **PATIENT}
    find = found(a=peer.url, b=other_peer.url, other="http://127.0.0.1:1")
    async with QueuesConsumer(find=find, leave_timeout_s=0, **options) as consumer:
        flows = {
            "a": await flow_of(peer, *[(two, 2)] * 3),
            "b": await flow_of(other_peer, *[(two, 2)] * 3),
        }

        def is_ready():
            return sum(each.buffered for each in consumer.stats().values()) == 12

        await eventually(is_ready, "all messages are here")
        assert consumer.queues == {"a", "b"}
        assert consumer.partitions == {
            PartitionKey("a", PartitionId(1, 0)), PartitionKey("b", PartitionId(1, 0)),
        }  # fmt: skip
        taken = []
        batches = consumer.batches()
        for _ in range(6):
            batch = await anext(batches)
            taken.append((batch.queue, batch.offsets[0]))
            acking = asyncio.create_task(consumer.ack(batch, confirmed=True))
            ack = await flows[batch.queue].next(frames.Ack)
            assert ack.ranges == [(batch.offsets[0], batch.offsets[-1] + 1)]
            await flows[batch.queue].send(frames.AckConfirmed(ack.request))
            await acking
        queues = [queue for queue, _ in taken]
        assert queues in (["a", "b"] * 3, ["b", "a"] * 3), "no queue waits for another one"
        for queue in ("a", "b"):
            assert [first for name, first in taken if name == queue] == [0, 2, 4]


async def test_a_queue_that_refuses_holds_up_no_other(peer, other_peer, stored_batch):
    peer.refusal = (403, "forbidden")
    options = {"group": "workers", "pattern": "[ab]", "find_every_s": 0.05, **PATIENT}
    find = found(a=peer.url, b=other_peer.url)
    async with QueuesConsumer(find=find, leave_timeout_s=0, **options) as consumer:
        await flow_of(other_peer, (stored_batch(b"1", b"2"), 2))
        got = []
        refused = 0
        async with asyncio.timeout(WAIT_S):
            while len(got) < 2 or not refused:
                try:
                    got.append((await anext(consumer)).value)
                except ForbiddenError:
                    refused += 1
        assert got == [b"1", b"2"]
        # It is tried again: once it takes the consumer, its messages come.
        peer.refusal = None
        await flow_of(peer, (stored_batch(b"3"), 1))
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    message = await anext(consumer)
                    break
                except ForbiddenError:
                    continue
        assert (message.queue, message.value) == ("a", b"3")


async def test_a_find_that_fails_changes_nothing(peer, stored_batch, caplog):
    is_broken = False

    async def find():
        if is_broken:
            raise OSError("no such directory")
        return found(a=peer.url)()

    options = {"group": "workers", "pattern": "a", "find_every_s": 0.05, **PATIENT}
    async with QueuesConsumer(find=find, leave_timeout_s=0, **options) as consumer:
        flow = await flow_of(peer)
        is_broken = True
        await eventually(lambda: "no such directory" in caplog.text, "it is told")
        await flow.send(deliver(0, 1), payload=stored_batch(b"1"))
        async with asyncio.timeout(WAIT_S):
            assert (await anext(consumer)).value == b"1"
    with pytest.raises(OSError, match="no such directory"):
        async with QueuesConsumer(find=find, **options):
            pass


async def test_only_so_many_queues_are_consumed(peer, caplog):
    options = {"group": "workers", "pattern": ".*", "max_queues": 1, **PATIENT}
    find = found(b=peer.url, a=peer.url, c=peer.url)
    async with QueuesConsumer(find=find, leave_timeout_s=0, **options) as consumer:
        await flow_of(peer)
        await eventually(lambda: consumer.queues == {"a"}, "the first one by name")
        assert "3 queues fit, above max_queues of 1; these are not consumed: b, c" in caplog.text


async def test_of_a_queue_that_cannot_be_opened_one_error_waits_to_be_raised(peer):
    """It is tried again and again while the application is busy."""
    peer.refusal = (403, "forbidden")
    looks = 0

    def find():
        nonlocal looks
        looks += 1
        return [ConnectionOptions(peer.url, "a")] if looks < 20 else []

    options = {"group": "workers", "pattern": "a", "find_every_s": 0.05, **PATIENT}
    consumer = QueuesConsumer(find=find, leave_timeout_s=0, **options)
    await consumer.__aenter__()
    await eventually(lambda: looks >= 22, "the queue was tried for some time")
    with pytest.raises(ForbiddenError):
        await consumer.close()
    await consumer.close()


async def test_a_mistake_while_a_queue_is_opened_is_raised_by_iterating(peer, monkeypatch):
    async def fail(_consumer):
        raise KeyError("a mistake")

    monkeypatch.setattr("partq.client.consumer.Consumer.__aenter__", fail)
    options = {"group": "workers", "pattern": "a", **PATIENT}
    async with QueuesConsumer(find=found(a=peer.url), on_error=print, **options) as consumer:
        with pytest.raises(KeyError, match="a mistake"):
            await asyncio.wait_for(anext(consumer), WAIT_S)


async def test_it_ends_while_a_queue_is_waited_for():
    """At once: closing waits for no queue that is not there."""
    options = {"group": "workers", "pattern": ".*", "connect_timeout_s": 86_400, **PATIENT}
    async with asyncio.timeout(WAIT_S):
        async with QueuesConsumer(find=found(a="http://127.0.0.1:1"), **options) as consumer:
            consumer.leave()
            assert [message async for message in consumer] == []
            with pytest.raises(RuntimeError, match="has left"):
                await consumer.getmany()
        for call in (consumer.getmany, lambda: consumer.run(print)):
            with pytest.raises(RuntimeError, match="the consumer was closed: make another one"):
                await call()


async def test_one_that_left_before_it_was_entered_says_that_it_will_do_nothing(peer, caplog):
    options = {"group": "{queue}-workers", "pattern": "a", **PATIENT}
    consumer = QueuesConsumer(find=found(a=peer.url), **options)
    consumer.leave()
    assert "group {queue}-workers is told to leave before it was entered" in caplog.text
    async with consumer:
        assert [message async for message in consumer] == []


@pytest.fixture
async def runtime(tmp_path):
    names = ("orders-a", "orders-b", "orders-c", "audit")
    resources = resources_of(
        *(queue_document(name, partitions=2) for name in names),
        *(group_document(f"{name}-workers", name) for name in names),
    )
    async with EmbeddedRuntime(resources, tmp_path / "data", lease_ttl_s=10.0) as running:
        yield running


@pytest.mark.req("PUL-09")
async def test_queues_appear_and_vanish(runtime, tmp_path):
    directory = tmp_path / "queues"
    directory.mkdir()
    queues = {queue.name: queue for queue in runtime.queues}

    def describe(name):
        fields = {"url": queues[name].url, "token": queues[name].tokens.consume}
        (directory / f"{name}.json").write_text(json.dumps(fields))

    for name in ("orders-a", "orders-b", "audit"):
        describe(name)
    for name, queue in queues.items():
        async with Producer(queue.url, queue=name, token=queue.tokens.produce) as producer:
            messages = [Message(f"k{n % 5}", f"{name} {n}".encode()) for n in range(50)]
            await (await producer.send_many(messages))
    told = []
    last: Counter[tuple[str, str]] = Counter()
    seen: Counter[str] = Counter()

    async def take_until(name, count):
        async with asyncio.timeout(WAIT_S):
            while seen[name] < count:
                message = await anext(consumer)
                queue, number = message.value.decode().split()
                assert queue == message.queue
                assert int(number) >= last[queue, message.key], "of each queue the order is kept"
                last[queue, message.key] = int(number)
                seen[queue] += 1
                await consumer.ack(message)

    consumer = QueuesConsumer(
        pattern="orders-.*",
        find=queues_in_directory(directory),
        find_every_s=0.05,
        group="{queue}-workers",
        on_assigned=lambda key: told.append(str(key)),
        **PATIENT,
    )
    async with consumer:
        await take_until("orders-a", 50)
        await take_until("orders-b", 50)
        assert consumer.queues == {"orders-a", "orders-b"}
        describe("orders-c")
        await take_until("orders-c", 50)
        (directory / "orders-a.json").unlink()

        def has_left():
            return consumer.queues == {"orders-b", "orders-c"}

        await eventually(has_left, "the queue that is gone is left")
        assert {key.queue for key in consumer.partitions} == {"orders-b", "orders-c"}
        await consumer.flush()
    assert seen == {"orders-a": 50, "orders-b": 50, "orders-c": 50}
    assert sorted(set(told)) == sorted(f"orders-{q}:1.{p}" for q in "abc" for p in (0, 1))
    with pytest.raises(StopAsyncIteration):
        await anext(consumer)


async def test_slots_are_told_with_the_queue(peer):
    told = []
    options = {"group": "workers", "queues": ["a"], **PATIENT}
    async with QueuesConsumer(
        find=found(a=peer.url),
        leave_timeout_s=0,
        on_lanes=lambda key, ranges: told.append((str(key), ranges)),
        **options,
    ):
        flow = await peer.raw_flow()
        await flow.send(frames.Bound("broker-0", 1, LEASE_MS, takes_lanes=True))
        await flow.send(frames.Assigned(1, 0, 5, 9, 0, frames.KEYED))
        await flow.send(frames.Lanes(1, 0, 5, 9, [(0, 4096)]))
        await eventually(lambda: told == [("a:1.0", [(0, 4096)])], "the slots are told")
