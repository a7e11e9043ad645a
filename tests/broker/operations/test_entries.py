"""A log is shown as it is stored: by its owner alone, and never what a failover may take back."""

import asyncio
import itertools

import pytest

from partq.broker.api.app_keys import LOG_WAITS
from partq.core.model import BrokerId, Offset
from partq.errors import FencedError, StoreUnavailableError
from partq.store.records.log import AppendBatch
from partq.testing import eventually
from partq.wire import batch
from partq.wire.calls import entries

PATH = "/v1/queues/orders/partitions/{}/entries"


@pytest.fixture
def read(running, peers):
    """Return what a broker shows; of a refusal its code and what it says."""

    async def read(start=0, *, partition="1.0", at=running, token=peers.CONSUME, **query):
        headers = {"Authorization": f"Bearer {token}"}
        params = {"from": start, **query}
        url = at.url + PATH.format(partition)
        async with at.session.get(url, params=params, headers=headers) as response:
            if response.status == 200:
                assert response.content_type == "application/octet-stream"
                return entries.decode(await response.read())
            error = (await response.json())["error"]
            return response.status, error["code"], error["message"]

    return read


def values(stored):
    return [message.value.decode() for message in batch.decode(stored.data)]


def firsts(found):
    return [stored.first for stored in found.batches]


@pytest.mark.req("PUL-70")
async def test_batches_are_shown_as_they_came(running, producer, read, peers):
    for contents in (("a", "b", "c"), ("d",), ("e", "f")):
        await producer.publish(*contents)
    await producer.publish("other", partition=1)
    epoch = (await running.state())["broker_epoch"]
    found = await read()
    assert (found.first, found.end) == (0, 6)
    assert [values(stored) for stored in found.batches] == [["a", "b", "c"], ["d"], ["e", "f"]]
    assert found.batches[0].data == peers.make_batch(["a", "b", "c"])
    assert {stored.append_broker_epoch for stored in found.batches} == {epoch}
    stored = await running.broker.log.read(
        peers.partition_id(0), Offset(0), max_bytes=10**6, max_entries=9
    )
    assert [each.at_ms for each in found.batches] == [each.at_ms for each in stored]


async def test_a_call_at_the_end_waits_for_the_next_message(running, producer, read, peers):
    waiting = asyncio.create_task(read(0, wait_ms=4000))
    await eventually(lambda: running.app[LOG_WAITS].count == 1, "it waits")
    await producer.publish("a")
    assert firsts(await waiting) == [0]
    assert running.app[LOG_WAITS].count == 0
    assert firsts(await read(0, wait_ms=4000)) == [0], "there is something: it does not wait"
    assert await read(1, to=1, wait_ms=4000) == (0, 1, [])
    assert await read(1, wait_ms=1) == (0, 1, [])


async def test_a_wait_ends_with_the_partition_and_with_the_broker(running, read, peers):
    waits = running.app[LOG_WAITS]
    waiting = asyncio.create_task(read(0, wait_ms=4000))
    await eventually(lambda: waits.count == 1, "it waits")
    owned = running.broker.owned[peers.partition_id(0)]
    running.broker.ownership.lose(owned, FencedError("lost"))
    assert (await waiting)[:2] == (421, "not_owner")
    waiting = asyncio.create_task(read(0, partition="1.1", wait_ms=4000))
    await eventually(lambda: waits.count == 1, "it waits")
    waits.close()
    assert await waiting == (0, 0, [])


async def test_a_client_that_has_gone_takes_no_place(running, read, monkeypatch):
    """Else 1,024 clients that went away would have all others ask again and again."""
    waits = running.app[LOG_WAITS]
    times = itertools.count(0, -3600)  # for none of them the time is over within the test
    monkeypatch.setattr(running.broker, "clock", lambda: float(next(times)))
    gone = [asyncio.create_task(read(0, wait_ms=4000)) for _ in range(3)]
    stays = asyncio.create_task(read(0, wait_ms=4000))
    await eventually(lambda: waits.count == 4, "they wait")
    for each in gone:
        each.cancel()  # its connection is closed
    await eventually(lambda: waits.count == 1, "the others are forgotten")
    assert not stays.done()
    waits.close()
    assert await stays == (0, 0, [])


async def test_no_more_calls_wait_than_there_may(running, read, monkeypatch, peers):
    monkeypatch.setattr(running.app[LOG_WAITS], "_most", 1)
    waiting = asyncio.create_task(read(0, wait_ms=4000))
    await eventually(lambda: running.app[LOG_WAITS].count == 1, "one waits")
    assert await read(0, wait_ms=4000) == (0, 0, []), "another one is answered"
    assert not waiting.done()
    running.app[LOG_WAITS].close()
    assert await waiting == (0, 0, [])


async def test_it_begins_with_the_batch_that_holds_the_offset(producer, read):
    for contents in (("a", "b", "c"), ("d",), ("e", "f")):
        await producer.publish(*contents)
    assert firsts(await read(2)) == [0, 3, 4]
    assert firsts(await read(3)) == [3, 4]
    assert firsts(await read(5)) == [4]
    assert await read(6) == (0, 6, [])
    assert await read(partition="1.3") == (0, 0, [])


async def test_it_ends_with_the_batch_that_holds_the_last_message(producer, read):
    for contents in (("a", "b", "c"), ("d",), ("e", "f")):
        await producer.publish(*contents)
    for to, found in ((0, []), (1, [0]), (3, [0]), (4, [0, 3]), (5, [0, 3, 4]), (99, [0, 3, 4])):
        assert firsts(await read(0, to=to)) == found, to
    assert (await read(0, to=1)).end == 6


async def test_an_answer_is_bounded_and_holds_a_batch_at_least(producer, read, peers):
    for _ in range(4):
        await producer.publish("x")
    size = len(peers.make_batch(["x"]))
    counts = [len((await read(max_bytes=n)).batches) for n in (1, size, 2 * size - 1, 3 * size)]
    assert counts == [1, 1, 1, 3]


async def test_the_time_to_live_of_a_batch_comes_with_it(producer, read):
    await producer.publish("a", ttl_ms=60_000)
    await producer.publish("b")
    assert [stored.ttl_ms for stored in (await read()).batches] == [60_000, 0]


async def test_what_is_trimmed_is_refused_and_says_what_is_not(running, scene, read, peers):
    first = await scene.trim()
    status, code, message = await read(0)
    assert (status, code) == (410, "data_loss")
    assert message.endswith(f"has the offset {first}; begin there")
    assert firsts(await read(first)) == list(range(first, 7))


async def test_a_position_of_another_history_is_refused(running, producer, read):
    await producer.publish("a", "b")
    epoch = (await running.state())["broker_epoch"]
    assert firsts(await read(1, append_broker_epoch=epoch)) == [0]
    assert firsts(await read(2, append_broker_epoch=epoch)) == []
    assert firsts(await read(0, append_broker_epoch=epoch)) == [0], "nothing is below: unknown"
    for start, known, says in (
        (1, epoch - 1, f"below 1 was appended under broker epoch {epoch}"),
        (2, epoch + 1, f"the position says {epoch + 1}"),
        (3, 0, "the log ends at 2, below 3"),
    ):
        status, code, message = await read(start, append_broker_epoch=known)
        assert (status, code) == (409, "rolled_back")
        assert says in message


async def test_what_no_replica_may_have_is_not_shown(running, producer, read, peers):
    """Stored at the master, and not confirmed: delivery does not begin there, nor does this."""
    await producer.publish("a")
    owned = running.broker.owned[peers.partition_id(0)]
    unconfirmed = [AppendBatch("", 0, 1, peers.make_batch(["b"]))]
    await running.broker.log.append(
        owned.id, broker_epoch=owned.broker_epoch, number=10**6, expected=Offset(1),
        batches=unconfirmed, room_bytes=None,
    )  # fmt: skip
    found = await read()
    assert (found.end, firsts(found)) == (1, [0])
    status, code, _ = await read(2)
    assert (status, code) == (409, "rolled_back"), "nobody can have a position there"


async def test_who_does_not_own_the_partition_any_more_does_not_answer(
    running, producer, read, peers
):
    """It would show what it knows for all that there is."""
    await producer.publish("a")
    partition = peers.partition_id(0)
    record = await running.broker.partitions.read(partition)
    await running.broker.partitions.claim(
        partition, BrokerId("another"), "i", expected=record.broker_epoch, affirmed=record.affirmed
    )
    status, code, _ = await read()
    assert (status, code) == (421, "not_owner")
    assert (await read())[1] == "not_owner"


async def test_what_was_read_while_the_store_was_replaced_is_not_shown(
    running, producer, read, peers
):
    await producer.publish("a")
    gate = peers.Gate(running.broker.log, "read_positions")
    reading = asyncio.create_task(read())
    await gate.reached.wait()
    running.broker.ownership.drop_all()
    gate.opened.set()
    assert (await reading)[:2] == (421, "not_owner")


async def test_a_store_that_does_not_answer_is_not_waited_for(
    running, producer, read, peers, monkeypatch
):
    await producer.publish("a")
    monkeypatch.setattr("partq.broker.operations.entries.READ_TIMEOUT_S", 0.05)
    gate = peers.Gate(running.broker.log, "read_positions")
    assert (await read())[:2] == (503, "unavailable")
    gate.opened.set()

    async def fail(*_, **__):
        raise StoreUnavailableError("no answer")

    running.broker.log.read_within = fail
    assert (await read())[:2] == (503, "store_unavailable")


async def test_what_makes_no_sense_is_refused(read, peers):
    for query in ({"start": -1}, {"start": 2**54}, {"max_bytes": 0}, {"max_bytes": 2**24 + 1},
                  {"wait_ms": 4001}, {"append_broker_epoch": "x"}, {"partition": "1"}):  # fmt: skip
        assert (await read(**query))[:2] == (400, "bad_request"), query
    assert (await read(partition="1.4"))[:2] == (404, "unknown_partition")
    assert (await read(token=peers.PRODUCE))[:2] == (403, "forbidden")


async def test_a_hole_in_the_log_is_named_and_not_waited_for(running, producer, read, peers):
    """As after a change of Redis by hand: asked again, it would be there for ever."""
    for value in ("a", "b", "c", "d"):
        await producer.publish(value)
    key = running.broker.keys.log(peers.partition_id(0))
    for entry in ("1-1", "3-1"):
        await running.broker.store.read("XDEL", key, entry)
    assert firsts(await read()) == [0], "what is before it"
    status, code, message = await read(1)
    assert (status, code) == (410, "data_loss"), message
    assert "1 is missing in the log, which continues at 2; begin there" in message
    assert firsts(await read(2)) == [2]
    status, code, message = await read(3)
    assert (status, code) == (410, "data_loss"), message
    assert "3 is missing in the log, up to its end at 4; begin there" in message
    assert (await read(4)).end == 4
