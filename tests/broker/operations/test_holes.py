"""Where the log misses messages, as after a change of Redis by hand, what follows is shown."""

import pytest

BROWSE = "/v1/queues/orders/browse"


@pytest.fixture
def cut(running, peers):
    """Take single messages out of a partition's log."""

    async def cut(*offsets, partition=0):
        key = running.broker.keys.log(peers.partition_id(partition))
        for offset in offsets:
            assert await running.store.read("XDEL", key, f"{offset}-1") == 1

    return cut


@pytest.fixture
def browse(running, peers):
    async def browse(**body):
        status, answer = await running.call("POST", BROWSE, json=body, token=peers.CONSUME)
        assert status == 200, answer
        return answer

    return browse


async def read_all(browse, **body):
    """Return the values of all pages, and what each said to be missing."""
    values, missing, offsets = [], [], {}
    for _ in range(50):
        page = await browse(offsets=offsets, **body)
        assert page["unavailable"] == {}
        values += [message["value"] for message in page["messages"]]
        missing += [(name, *hole) for name, holes in page["missing"].items() for hole in holes]
        offsets = page["next"]
        if page["why"] == "end":
            return values, missing, offsets
    raise AssertionError("it does not come to an end")


@pytest.mark.parametrize("size", [1, 3, 100])
async def test_what_is_behind_a_hole_is_shown_and_the_hole_is_named_once(
    browse, cut, producer, size
):
    for value in "abcd":
        for partition in range(4):
            await producer.publish(f"{partition}{value}", partition=partition)
    await cut(0, partition=2)
    await cut(1, 2, partition=1)
    await cut(2, 3, partition=3)
    values, missing, offsets = await read_all(browse, max_messages=size)
    gone = {"2a", "1b", "1c", "3c", "3d"}
    assert sorted(values) == sorted({f"{n}{v}" for n in range(4) for v in "abcd"} - gone)
    assert sorted(missing) == [("1.1", 1, 3), ("1.2", 0, 1), ("1.3", 2, 4)]
    assert offsets == {f"1.{n}": 4 for n in range(4)}


async def test_more_partitions_that_begin_with_holes_than_a_page_reads(
    browse, cut, producer, monkeypatch
):
    monkeypatch.setattr("partq.broker.operations.browse.AT_ONCE", 1)
    for partition in range(4):
        await producer.publish("lost", partition=partition)
    # Of one millisecond the lower partition is first.
    await producer.publish("a", partition=0)
    await producer.publish("b", partition=1)
    for partition in range(4):
        await cut(0, partition=partition)
    values, missing, _ = await read_all(browse)
    assert values == ["a", "b"]
    assert sorted(missing) == [(f"1.{n}", 0, 1) for n in range(4)]


async def test_a_page_of_one_partition_ends_at_a_hole_at_its_end(browse, cut, producer):
    for value in "abcd":
        await producer.publish(value)
    await cut(0, 3)
    for offset, values, holes in ((0, ["b", "c"], [[0, 1], [3, 4]]), (3, [], [[3, 4]])):
        answer = await browse(is_merged=False, partitions=["1.0"], offsets={"1.0": offset})
        page = answer["partitions"]["1.0"]
        assert [row["message"]["value"] for row in page.get("rows", [])] == values, page
        assert (page["missing"], page["next"], page["why"]) == (holes, 4, "end")


async def test_what_is_trimmed_while_it_is_read_is_not_said_to_be_missing(
    browse, producer, running, peers, monkeypatch
):
    for value in "abc":
        await producer.publish(value)
    log, partition = running.broker.log, peers.partition_id(0)
    epoch = (await running.broker.partitions.read(partition)).broker_epoch
    read, groups = log.read, [each async for each in _marks(running, partition)]

    async def read_late(*args, **kwargs):
        for group in groups:
            await running.store.read("HDEL", running.broker.keys.meta(partition), group)
        await log.trim(partition, broker_epoch=epoch, expired=2)
        return await read(*args, **kwargs)

    monkeypatch.setattr(log, "read", read_late)
    answer = await browse(is_merged=False, partitions=["1.0"])
    page = answer["partitions"]["1.0"]
    assert [row["message"]["value"] for row in page["rows"]] == ["c"]
    assert page.get("missing", []) == []


async def _marks(running, partition):
    for name in await running.store.read("HKEYS", running.broker.keys.meta(partition)):
        if name.startswith(b"mark:"):
            yield name.decode()


async def test_the_position_above_a_missing_message_has_no_epoch(producer, cut, running, peers):
    """It was that of another message, the last one before the hole."""
    for value in "abcd":
        await producer.publish(value)
    await cut(1)

    async def epoch_at(offset):
        body = {"offsets": {"1.0": offset}, "partitions": ["1.0"]}
        path = "/v1/queues/orders/positions"
        status, answer = await running.call("POST", path, json=body, token=peers.CONSUME)
        assert status == 200, answer
        return answer["partitions"]["1.0"]["append_broker_epoch"]

    current = (await running.state())["broker_epoch"]
    assert [await epoch_at(offset) for offset in range(5)] == [0, current, 0, current, current]
