"""A handoff in the middle of sequences: what is split, what is not, what continues meanwhile."""

import asyncio
from itertools import count

import pytest

from partq.core.layout import Layout
from partq.core.model import Cause
from partq.wire import frames

MESSAGES = "/v1/queues/orders/messages"
LAYOUT = Layout.first(4)


@pytest.fixture
def lease_ttl_s():
    """Nothing here is about leases: none shall be over on a busy machine."""
    return 30.0


def keys_of(partition, number):
    """Return some keys that live in a partition."""
    names = (f"key-{at}" for at in count())
    found = (name for name in names if LAYOUT.partition_for(name).index == partition)
    return [next(found) for _ in range(number)]


async def publish(running, peers, *messages):
    """Publish (key, value) pairs in one call; return when they are stored."""
    body = [{"key": key, "value": value} for key, value in messages]
    status, answer = await running.call("POST", MESSAGES, token=peers.PRODUCE, json=body)
    assert status == 201, answer


async def take(flow, number):
    """Return the texts of so many messages and the last delivery; nothing is acknowledged."""
    values = []
    deliver = None
    while len(values) < number:
        deliver, some = await flow.deliver()
        values += some
    assert len(values) == number
    return values, deliver


async def quiet(flow):
    """Wait until the broker has handled all that came before; fail if anything was sent."""
    await flow.send(frames.Ping(7))
    await flow.expect(frames.Pong)


@pytest.mark.req("HND-17", "HND-04", "HND-07", "HND-08", "HND-09", "HND-10")
@pytest.mark.req("HND-13", "HND-14", "HND-15")
async def test_the_worked_example(running, peers):
    """Key A in p0 and key B in p1 at one consumer; p1 passes to another."""
    await running.assign("m", [0, 1])
    first = await peers.open_flow(running, "m", credit=4)
    second = await peers.open_flow(running, "n", "j")
    producer = await peers.open_producer(running)

    async def publish_one(value):
        await producer.publish(value, partition="AB".index(value[0]))

    for value in ("A1", "A2", "B1", "B2", "B3"):  # B3: no room at the consumer, so it is stored
        await publish_one(value)
    got, held = {}, {}
    for _ in range(4):
        deliver, (value,) = await first.deliver()
        got[value], held[deliver.partition] = deliver, deliver
    assert set(got) == {"A1", "A2", "B1", "B2"}
    appends = peers.Gate(running.broker.log, "append")
    await producer.offer(3, "B4", partition=1)  # in transit when the handoff begins
    await appends.reached.wait()

    handoff = await peers.Handoff.begin(running, partition=1)
    assert (await handoff.pause())["in_flight"] == 2
    await first.find(frames.Paused)
    await first.send(frames.Credit(10))  # room enough, and nothing of B comes
    appends.opened.set()
    published, _ = await producer.expect(frames.Published)
    assert published.offset == 3, "confirmed while the partition is paused"
    producer.due[1] = 4
    await publish_one("B5")
    await publish_one("A3")
    assert (await first.deliver())[1] == ["A3"], "key A continues"
    await quiet(first)
    await quiet(second)

    state = await running.state(1)
    assert (state["state"], state["lag"], state["in_flight"]) == ("Paused", 5, 2)
    draining = asyncio.create_task(handoff.drain())
    assert await first.ack(held[1], 2) == ""
    assert (await draining)["is_drained"]
    assert (await handoff.commit())["was_forced"] is False
    values, deliver = await take(second, 3)
    assert (values, deliver.cause) == (["B3", "B4", "B5"], Cause.NONE)
    assert await first.ack(held[0], 2) == "", "key A: its token is what it was"
    await quiet(second)


@pytest.mark.req("HND-05", "HND-18", "HND-19", "HND-30")
async def test_only_a_sequence_that_is_half_delivered_is_split(running, peers):
    """One is done, one half delivered, one stored, one not published: all in one partition."""
    done, half, stored, later = keys_of(0, 4)
    await running.assign("m", [0])
    source = await peers.open_flow(running, "m", credit=4)
    target = await peers.open_flow(running, "n", "j")
    for key, value in ((done, "d1"), (half, "h1"), (done, "d2"), (half, "h2"), (stored, "s1"),
                       (half, "h3"), (stored, "s2")):  # fmt: skip
        await publish(running, peers, (key, value))
    at_source, held = await take(source, 4)
    handoff = await peers.Handoff.begin(running)
    assert (await handoff.pause())["in_flight"] == 4
    await source.expect(frames.Paused)
    await publish(running, peers, (later, "l1"), (later, "l2"))
    assert await source.ack(held, 4) == ""
    assert (await handoff.commit())["was_forced"] is False
    at_target, _ = await take(target, 5)

    assert (at_source, at_target) == (["d1", "h1", "d2", "h2"], ["s1", "h3", "s2", "l1", "l2"])
    split = {value[0] for value in at_source} & {value[0] for value in at_target}
    assert split == {"h"}


LENGTH = 6
SEQUENCES = {
    "one key and nothing else": lambda at: {},
    "they say where they begin and end": lambda at: {
        "sequence": {0: "begin", LENGTH - 1: "end"}.get(at, "within")
    },
    "they end before their first": lambda at: {"sequence": "begin" if at else "end"},
    "a key each": lambda at: {"sequence-number": str(at), "sequence-length": str(LENGTH)},
}


@pytest.mark.req("HND-06")
async def test_where_a_sequence_begins_and_ends_changes_nothing(running, peers):
    """The same handoff in the middle of each: the same deliveries, whatever its headers say."""
    partitions = range(len(SEQUENCES))
    await running.assign("m", list(partitions))
    source = await peers.open_flow(running, "m")
    target = await peers.open_flow(running, "n", "j")
    got = {}
    for partition, (name, headers) in zip(partitions, SEQUENCES.items(), strict=True):
        keys = keys_of(partition, LENGTH)
        messages = [
            {
                "key": keys[at if name == "a key each" else 0],
                "value": str(at),
                "headers": headers(at),
            }
            for at in range(LENGTH)
        ]
        status, _ = await running.call("POST", MESSAGES, token=peers.PRODUCE, json=messages)
        assert status == 201
        seen = []
        while len(seen) < LENGTH:
            held, values = await source.deliver()
            seen += values
        assert await source.ack(held, 2) == ""
        handoff = await peers.Handoff.begin(running, partition=partition)
        await handoff.pause(drain_ms=0)
        assert (await handoff.commit(cause="drain_timeout"))["was_forced"] is True
        found = []
        while sum(len(values) for *_, values in found) < LENGTH - 2:
            again, values = await target.deliver()
            found.append((again.start, again.stop, again.skip, again.cause, values))
        got[name] = found
    first, *others = got.values()
    assert first == [(2, 6, [], Cause.FORCED_COMMIT, ["2", "3", "4", "5"])]
    assert others == [first] * len(others), got


@pytest.mark.req("HND-04", "HND-31")
async def test_a_partition_that_cannot_be_drained_stops_no_other(running, peers):
    """Source and target continue with all that they have, and others come and go meanwhile."""
    await running.assign("m", [0, 1])
    await running.assign("n", [2])
    source = await peers.open_flow(running, "m")
    target = await peers.open_flow(running, "n", "j")
    producer = await peers.open_producer(running)
    await producer.publish("stuck", partition=0)
    await source.deliver()
    handoff = await peers.Handoff.begin(running)
    assert (await handoff.pause())["in_flight"] == 1
    await source.expect(frames.Paused)
    for number in range(10):
        await producer.publish(f"s{number}", partition=1)
        await producer.publish(f"t{number}", partition=2)
        assert await source.take(1) == [f"s{number}"]
        assert await target.take(1) == [f"t{number}"]
    assert [(await running.state(p))["state"] for p in (0, 1, 2)] == ["Paused", "Ready", "Ready"]
    await running.assign("m", [3])
    await source.find(frames.Assigned)


@pytest.mark.req("HND-31", "HND-20", "HND-21")
async def test_a_sequence_is_split_rather_than_interrupted(running, peers):
    """The source keeps its three to itself: the target gets them after the time, and continues."""
    (key,) = keys_of(0, 1)
    await running.assign("m", [0])
    source = await peers.open_flow(running, "m", credit=3)
    target = await peers.open_flow(running, "n", "j")
    for number in range(5):
        await publish(running, peers, (key, str(number)))
    at_source, _ = await take(source, 3)
    handoff = await peers.Handoff.begin(running)
    await handoff.pause(drain_ms=50)
    assert (await handoff.drain())["in_flight"] == 3
    assert (await handoff.commit(cause="drain_timeout"))["was_forced"] is True
    at_target, causes = [], []
    while len(at_target) < 5:
        deliver, values = await target.deliver()
        at_target += values
        causes += [deliver.cause] * len(values)
    assert at_target == ["0", "1", "2", "3", "4"]
    assert set(at_source) & set(at_target) == {"0", "1", "2"}, "duplicates: what was in hand"
    assert causes == [Cause.FORCED_COMMIT] * 3 + [Cause.NONE] * 2
