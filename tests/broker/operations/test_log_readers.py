"""The client that reads logs, with brokers that lose partitions and logs that are trimmed."""

from contextlib import aclosing

import pytest

from partq.client.audit_reader import AuditReader
from partq.client.browser import Browser
from partq.client.log_reader import Bounds, LogPosition, LogReader
from partq.client.producer_state import producer_due
from partq.core.model import BrokerId, PartitionId
from partq.errors import (
    BadRequestError,
    ConflictError,
    DataLossError,
    ForbiddenError,
    NotFoundError,
    NotOwnerError,
    QuotaExceededError,
    RolledBackError,
    SettingsError,
    UnauthorizedError,
    UnavailableError,
    UnknownGroupError,
    UnknownPartitionError,
)
from partq.wire import batch


@pytest.fixture
def partition(peers):
    return peers.partition_id(0)


@pytest.fixture
async def open_reader(running, peers):
    """Open a reader whose answers hold one batch each."""
    opened = []

    async def open_reader(**settings):
        settings = {"token": peers.CONSUME, "fetch_bytes": 1, "timeout_s": 10.0, **settings}
        reader = LogReader(settings.pop("url", running.url), queue="orders", **settings)
        opened.append(reader)
        return await reader.__aenter__()

    yield open_reader
    for reader in opened:
        await reader.__aexit__(None, None, None)


@pytest.fixture
async def reader(open_reader):
    return await open_reader()


def values(stored):
    return [message.value.decode() for message in batch.decode(stored.data)]


async def read(reader, *args):
    return [values(stored) async for stored in reader.entries(*args)]


# ---- reading ------------------------------------------------------------------------------------


async def test_a_reading_ends_at_its_stop_or_where_the_log_ended_when_it_began(
    running, producer, reader, partition
):
    for contents in (("a", "b"), ("c",), ("d", "e")):
        await producer.publish(*contents)
    assert await read(reader, partition, 0) == [["a", "b"], ["c"], ["d", "e"]]
    assert await read(reader, partition, 1, 3) == [["a", "b"], ["c"]]
    assert await read(reader, partition, 2, 4) == [["c"], ["d", "e"]]
    assert await read(reader, partition, 2, 2) == []
    epoch = (await running.state())["broker_epoch"]
    inside = LogPosition(partition, epoch, 1)
    assert await read(reader, partition, inside, inside) == [], "checked, and nothing to read"
    assert await read(reader, partition, 5) == []
    reading = reader.entries(partition, 0)
    assert values(await anext(reading)) == ["a", "b"]
    await producer.publish("f")
    assert [values(stored) async for stored in reading] == [["c"], ["d", "e"]]


async def test_positions_say_what_the_log_holds(running, producer, reader, partition):
    await producer.publish("a", "b")
    epoch = (await running.state())["broker_epoch"]
    assert (await reader.bounds())[partition] == Bounds(0, 2, epoch)
    assert await reader.bounds([partition]) == {partition: Bounds(0, 2, epoch)}
    assert await reader.positions({"offsets": {partition: 1}}) == {
        partition: LogPosition(partition, epoch, 1, 0, 2)
    }
    assert len(await reader.positions({"at_ms": 0})) == 4


async def test_what_no_reading_can_be_of_is_refused(producer, reader, partition, open_reader):
    await producer.publish("a")
    for where in ("never", {}, {"at_ms": 1, "group": "workers"}, {"topic": 1}):
        with pytest.raises(BadRequestError, match="expected earliest, latest, or one of"):
            await reader.positions(where)
    for seconds_or_microseconds in (1_795_203_246, 1_795_203_246_921_000):
        with pytest.raises(BadRequestError, match="which is usually not in milliseconds"):
            await reader.positions({"at_ms": seconds_or_microseconds})
    with pytest.raises(BadRequestError, match=r"no offset for partition 1\.1"):
        await reader.positions({"offsets": {partition: 1}}, [type(partition)(1, 1)])
    with pytest.raises(UnknownGroupError):
        await reader.positions({"group": "nobody"})
    missing = type(partition)(2, 0)
    for call in (
        reader.bounds([missing]),
        read(reader, missing, 0),
        reader.commit("workers", {missing: LogPosition(missing, 0, 0)}),
        reader.pin("x", {missing: 0}),
    ):
        with pytest.raises(
            UnknownPartitionError, match=r"partition 2\.0: not in the queue's layout"
        ):
            await call
    with pytest.raises(BadRequestError, match="from 3 to 2"):
        await read(reader, partition, 3, 2)
    with pytest.raises(SettingsError, match="fetch_bytes: got 0"):
        await open_reader(fetch_bytes=0)


async def test_a_wrong_token_or_queue_is_refused_at_once(running, open_reader, peers):
    """No waiting: nothing of it changes by itself."""
    with pytest.raises(UnauthorizedError):
        await open_reader(timeout_s=3600.0, token="nobody-knows-this")
    reader = await open_reader(timeout_s=3600.0, namespace="elsewhere")
    with pytest.raises(NotFoundError):
        await reader.bounds()
    with pytest.raises(SettingsError, match="producer"):
        await producer_due(running.url, "", queue="orders", token=peers.PRODUCE)


@pytest.mark.parametrize(
    ("kind", "role", "needed"),
    [
        (LogReader, "PRODUCE", "role admin or consume"),
        (AuditReader, "PRODUCE", "role admin"),
        (AuditReader, "CONSUME", "role admin"),
        (Browser, "PRODUCE", "role admin or consume"),
    ],
)
async def test_a_token_of_another_role_is_told_on_entering(running, peers, kind, role, needed):
    """Not at the first read, which may be hours later and far from where the token was given."""
    dead = "http://127.0.0.1:9"
    reader = kind(f"{dead},{running.url}", queue="orders", token=getattr(peers, role))
    with pytest.raises(
        ForbiddenError, match=rf"role {role.lower()}\b.*; this call needs.* {needed}"
    ):
        await reader.__aenter__()


async def test_who_enters_while_no_broker_answers_goes_on():
    async with LogReader("http://127.0.0.1:9", queue="orders", token="t", timeout_s=0.0) as reader:
        with pytest.raises(UnavailableError):
            await reader.partitions()


async def test_who_stops_reading_leaves_nothing_behind(producer, reader, partition):
    for value in "abcd":
        await producer.publish(value)
    async with aclosing(reader.entries(partition, 0)) as reading:
        assert values(await anext(reading)) == ["a"]
    assert not reader._fetching


async def test_a_reader_that_is_closed_says_so(producer, open_reader, partition):
    """And does not look as if whoever reads were cancelled."""
    for value in "abcd":
        await producer.publish(value)
    reader = await open_reader()
    reading = reader.entries(partition, 0)
    assert values(await anext(reading)) == ["a"]
    await reader.__aexit__(None, None, None)
    with pytest.raises(RuntimeError, match="reader was closed"):
        await anext(reading)


async def test_the_next_batches_are_fetched_while_those_before_are_worked_on(
    running, producer, reader, partition, peers
):
    """One answer ahead, and no more: that bounds the memory."""
    for value in "abcd":
        await producer.publish(value)
    asked = []
    real = running.broker.log.read_within

    async def note(partition, start, stop, **settings):
        asked.append(start)
        return await real(partition, start, stop, **settings)

    running.broker.log.read_within = note
    reading = reader.entries(partition, 0)
    assert values(await anext(reading)) == ["a"]
    await peers.eventually(lambda: asked == [0, 1], "the next answer is asked for")
    assert values(await anext(reading)) == ["b"]
    await peers.eventually(lambda: asked == [0, 1, 2], "and the one after it")
    await reading.aclose()


# ---- brokers that change ------------------------------------------------------------------------


@pytest.fixture
async def move(running, start_broker):
    """Have another broker own a partition; it is started with the first one that moves."""
    others = []

    async def move(partition):
        if not others:
            others.append(await start_broker("orders-1"))
        await running.admin("/yield", {"partitions": [str(partition)]})
        (result,) = await others[0].admin("/claim", {"partitions": [str(partition)]})
        assert "error" not in result, result
        return others[0]

    return move


async def test_a_partition_that_moves_is_read_on_where_it_is(
    producer, reader, partition, move, peers
):
    for value in "abc":
        await producer.publish(value)
    reading = reader.entries(partition, 0)
    assert values(await anext(reading)) == ["a"]
    other = await move(partition)
    at_other = await peers.open_producer(other, "q")
    assert [values(stored) async for stored in reading] == [["b"], ["c"]]
    await at_other.publish("d")
    assert await read(reader, partition, 2) == [["c"], ["d"]]
    ends = await reader.positions("latest")
    assert ends[partition].offset == 4
    assert await reader.commit("workers", ends) == {p: e.offset for p, e in ends.items()}
    await at_other.close()


async def test_all_owners_are_asked_for_the_numbers_of_a_producer(
    running, producer, partition, move, peers
):
    await producer.publish("a", "b")
    await producer.publish("c", partition=1)
    await move(partition)
    due = await producer_due(running.url, "p", queue="orders", token=peers.PRODUCE)
    assert [due[peers.partition_id(n)] for n in range(4)] == [2, 1, 0, 0]


async def test_a_partition_without_a_broker_is_waited_for(running, producer, reader, partition):
    """What the layout of before says is asked again until somebody answers."""
    await producer.publish("a")
    assert await read(reader, partition, 0) == [["a"]]
    broker = running.broker
    broker.ownership.lose(broker.owned[partition], ConflictError("another history"))
    assert await read(reader, partition, 0) == [["a"]]


async def test_nobody_is_waited_for_longer_than_was_said(
    running, producer, open_reader, partition, peers
):
    await producer.publish("a")
    reader = await open_reader(timeout_s=0.0)
    await reader.partitions()
    record = await running.broker.partitions.read(partition)
    running.broker.claims._all_partitions = tuple
    await running.broker.partitions.claim(
        partition, BrokerId("gone"), "i", expected=record.broker_epoch, affirmed=record.affirmed
    )
    with pytest.raises(NotOwnerError):
        await read(reader, partition, 0, 1)
    with pytest.raises((UnavailableError, NotOwnerError)):
        await reader.bounds([partition])


# ---- logs that change ---------------------------------------------------------------------------


async def test_what_is_trimmed_under_the_reader_is_said_and_not_passed_over(
    running, producer, reader, partition, peers
):
    for value in "abcd":
        await producer.publish(value)
    reading = reader.entries(partition, 0)
    assert values(await anext(reading)) == ["a"]
    await reader.commit("workers", {partition: LogPosition(partition, 0, 3)})

    async def trimmed():
        return (await reader.bounds([partition]))[partition].first == 3

    await peers.eventually(trimmed, "all but the last one is gone")
    assert values(await anext(reading)) == ["b"], "it was fetched before"
    with pytest.raises(DataLossError, match=r"2 is no longer stored; .* has the offset 3"):
        await anext(reading)
    with pytest.raises(DataLossError):
        await read(reader, partition, 0)
    assert await read(reader, partition, 3) == [["d"]]


async def test_what_is_pinned_stays(producer, reader, partition, peers):
    for value in "abcd":
        await producer.publish(value)
    assert await reader.pin("lake", {partition: 1}) == {partition: 1}
    await reader.commit("workers", {partition: LogPosition(partition, 0, 4)})

    async def first():
        return (await reader.bounds([partition]))[partition].first

    async def is_trimmed(to):
        return await first() == to

    await peers.eventually(lambda: is_trimmed(1), "what lies below the pin is gone")
    assert await read(reader, partition, 1) == [["b"], ["c"], ["d"]]
    await reader.unpin("lake")
    await reader.unpin("lake")
    await peers.eventually(lambda: is_trimmed(4), "what it held is gone")
    assert await reader.pin("lake", {partition: 1}) == {partition: 4}


async def test_a_pin_that_was_removed_is_not_set_by_a_call_that_arrives_late(
    running, reader, partition, peers
):
    """A reader whose numbers are lower goes above the number that it is told, and continues."""
    await reader.pin("lake", {partition: 0})
    await reader.unpin("lake")
    path, name = "/v1/queues/orders/pins/lake", str(partition)

    async def call(method, number):
        body = {"offsets": {name: 0}, "number": number}
        _, answer = await running.call(method, path, token=peers.CONSUME, json=body)
        return answer["partitions"][name].get("number")

    drawn = await call("PUT", 0)
    removed = await call("PUT", drawn - 10**6)
    assert drawn - 10**6 < removed < drawn, "refused"
    await call("DELETE", drawn + 50_000)  # of a reader that is far ahead of this one
    assert await call("PUT", drawn + 1) == drawn + 50_000
    assert await reader.pin("lake", {partition: 0}) == {partition: 0}
    assert await call("PUT", drawn + 50_000) == drawn + 50_001, "its last one"


async def test_too_many_pins_are_refused_at_once(open_reader, partition):
    reader = await open_reader(timeout_s=3600.0)
    for number in range(16):
        await reader.pin(f"pin-{number}", {partition: 0})
    with pytest.raises(QuotaExceededError):
        await reader.pin("one-more", {partition: 0})


async def test_a_member_that_is_connected_is_told_of(scene, reader, partition):
    with pytest.raises(ConflictError, match="member m of workers is connected"):
        await reader.commit("workers", await reader.positions("latest"))
    await scene.producer.close()


async def test_a_stop_of_another_history_is_noticed(running, producer, reader, partition):
    await producer.publish("a", "b")
    epoch = (await running.state())["broker_epoch"]
    assert await read(reader, partition, 0, LogPosition(partition, epoch, 1)) == [["a", "b"]]
    with pytest.raises(RolledBackError, match=f"the position says {epoch - 1}"):
        await read(reader, partition, 0, LogPosition(partition, epoch - 1, 1))
    with pytest.raises(RolledBackError, match="the log ends at 2, below 3"):
        await read(reader, partition, 0, 3)
    with pytest.raises(RolledBackError, match="the log ends at 2, below 3"):
        await read(reader, partition, 3)


HERE, THERE = PartitionId(1, 0), PartitionId(1, 1)


async def all_of(found):
    return [each async for each in found]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda r: r.commit("lake", None), "positions: got NoneType, expected a mapping"),
        (lambda r: r.commit("lake", "x"), "positions: got str, expected a mapping"),
        (lambda r: r.pin(5, {}), "name: got int, expected text"),
        (lambda r: all_of(r.entries("1.0", 0, 5)), "partitions: got str, expected a PartitionId"),
        (lambda r: r.positions({"at_ms": "x"}), "at_ms: got str, expected a whole number"),
        (lambda r: r.bounds(5), "partitions: got int, expected PartitionIds"),
        (lambda r: all_of(r.entries(HERE, "0")), "start: got str, expected a whole number"),
        (
            lambda r: all_of(r.entries(HERE, 0, LogPosition(THERE, 0, 1))),
            "stop: got a LogPosition of partition 1.1, expected one of partition 1.0",
        ),
        (
            lambda r: all_of(r.follow(HERE, LogPosition(HERE, 0, True))),
            "start: offset: got bool, expected a whole number",
        ),
        (
            lambda r: r.pin("p", {HERE: LogPosition(THERE, 0, 1)}),
            "offsets: got a LogPosition of partition 1.1, expected one of partition 1.0",
        ),
        (
            lambda r: r.commit("lake", {HERE: LogPosition(THERE, 0, 1)}),
            "positions: got a LogPosition of partition 1.1, expected one of partition 1.0",
        ),
        (
            lambda r: r.commit("lake", {HERE: LogPosition(HERE, True, 1)}),
            "positions: append_broker_epoch: got bool, expected a whole number",
        ),
    ],
)
async def test_arguments_of_a_wrong_type_are_named(reader, call, words):
    with pytest.raises(SettingsError, match=words):
        await call(reader)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"count": "5"}, "count: got str, expected a whole number"),
        ({"offsets": [1]}, "offsets: got list, expected a mapping by PartitionId"),
        ({"partitions": "1.0"}, "partitions: got str, expected PartitionIds"),
        ({"at_ms": "x"}, "at_ms: got str, expected a whole number"),
    ],
)
async def test_so_are_those_of_a_browser(running, peers, arguments, words):
    async with Browser(running.url, queue="orders", token=peers.CONSUME) as browser:
        with pytest.raises(SettingsError, match=words):
            await all_of(browser.messages(**arguments))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda r: r.bounds("1.0"), "partitions: got str, expected PartitionIds"),
        (lambda r: r.bounds([5]), "partitions: got int, expected a PartitionId"),
        (lambda r: all_of(r.groups("1.0", 0)), "partitions: got str, expected a PartitionId"),
        (lambda r: all_of(r.groups(HERE, "0")), "start: got str, expected a whole number"),
        (lambda r: all_of(r.groups(HERE, True)), "start: got bool, expected a whole number"),
        (lambda r: all_of(r.groups(HERE, -1)), "start: got -1, expected 0 to"),
        (lambda r: all_of(r.groups(HERE, 0, 1.5)), "stop: got 1.5, expected a whole number"),
        (lambda r: all_of(r.groups(HERE, 0, previous=b"")), "previous: got bytes, expected text"),
        (lambda r: r.trim([HERE]), "cursors: got list, expected a mapping by PartitionId"),
        (lambda r: r.trim({"1.0": 0}), "cursors: got str, expected a PartitionId"),
        (lambda r: r.trim({HERE: "0"}), "cursors: got str, expected a whole number"),
        (lambda r: r.trim({HERE: -1}), "cursors: got -1, expected 0 to"),
    ],
)
async def test_so_are_those_of_a_reader_of_the_audit_record(running, peers, call, words):
    async with AuditReader(running.url, queue="orders", token=peers.ADMIN) as reader:
        with pytest.raises(SettingsError, match=words):
            await call(reader)


async def test_a_pin_takes_the_positions_that_the_reader_returns(producer, reader, partition):
    await producer.publish("a", "b")
    positions = await reader.positions("latest", [partition])
    assert await reader.pin("p", positions) == {partition: 2}
    with pytest.raises(BadRequestError, match="expected earliest, latest, or one of"):
        await reader.positions(5)
