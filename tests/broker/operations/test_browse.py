"""Messages are looked at without being consumed, and kept by a pin while somebody reads."""

import pytest

from tests.broker.conftest import queue_and_group

BROWSE = "/v1/queues/orders/browse"
PINS = "/v1/queues/orders/pins"
VALUES = "abcdefghijkl"
"""One message each, in turn over the partitions, so that their times rise."""


@pytest.fixture
def resources(request):
    """Four partitions, unless a test says otherwise."""
    return queue_and_group(partitions=getattr(request, "param", 4))


class Asker:
    """Calls of a reader with the token of a consumer."""

    def __init__(self, peers, at):
        self.peers = peers
        self.at = at

    async def call(self, method, path, status, body):
        got, answer = await self.at.call(method, path, json=body, token=self.peers.CONSUME)
        assert got == status, answer
        return answer

    async def browse(self, status=200, **body):
        return await self.call("POST", BROWSE, status, body)

    async def values(self, **body):
        return "".join(m["value"] for m in (await self.browse(**body))["messages"])

    async def pages(self, **body):
        return (await self.browse(is_merged=False, **body))["partitions"]

    async def pin(self, status=200, name="reader", **offsets):
        named = {f"1.{index[1:]}": offset for index, offset in offsets.items()}
        answer = await self.call("PUT", f"{PINS}/{name}", status, {"offsets": named})
        return answer.get("partitions", answer)


@pytest.fixture
async def reader(running, peers):
    producer = await peers.open_producer(running)
    for at, value in enumerate(VALUES):
        await producer.publish(value, partition=at % 4)
    await producer.close()
    return Asker(peers, running)


@pytest.mark.req("AZR-14")
@pytest.mark.parametrize("resources", [1], indirect=True)
async def test_the_oldest_messages_of_one_log(running, peers):
    producer = await peers.open_producer(running)
    for value in VALUES:
        await producer.publish(value)
    reader = Asker(peers, running)
    (oldest,) = (await reader.browse(max_messages=1))["messages"]
    assert (oldest["value"], oldest["offset"]) == ("a", 0)
    assert await reader.values(max_messages=3) == "abc", "a look takes nothing away"


@pytest.mark.req("AZR-15", "AZR-16", "AZR-61", "AZR-62")
async def test_the_oldest_messages_of_all_partitions_in_pages(running, reader):
    """What is shown stays: no group has moved, and it can be shown again."""
    first = await reader.browse(max_messages=1)
    (oldest,) = first["messages"]
    assert (oldest["value"], oldest["partition"], oldest["offset"]) == ("a", "1.0", 0)
    assert first["why"] == "enough"
    assert first["next"] == {"1.0": 1, "1.1": 0, "1.2": 0, "1.3": 0}

    page = await reader.browse(max_messages=5)
    shown = page["messages"]
    times = [message["publish_time_ms"] for message in shown]
    assert times == sorted(times)
    rest = await reader.browse(max_messages=100, offsets=page["next"])
    assert sorted(m["value"] for m in shown + rest["messages"]) == sorted(VALUES)
    assert rest["why"] == "end"

    small = await reader.browse(max_bytes=700)
    assert small["why"] == "size"
    assert 1 <= len(small["messages"]) < 5

    nothing = await reader.browse(offsets=rest["next"])
    assert (nothing["messages"], nothing["why"]) == ([], "end")
    assert (await running.state())["cursor"] == 0


@pytest.mark.req("AZR-16", "AZR-61", "AZR-62")
async def test_one_partition_by_its_offsets_or_from_a_time(reader):
    page = (await reader.pages(partitions=["1.2"]))["1.2"]
    assert [row["message"]["offset"] for row in page["rows"]] == [0, 1, 2]
    assert [row["message"]["value"] for row in page["rows"]] == ["c", "g", "k"]
    assert (page["next"], page["why"], page["first"], page["end"]) == (3, "end", 0, 3)

    one = (await reader.pages(offsets={"1.2": 1}, partitions=["1.2"], max_messages=1))["1.2"]
    assert [row["message"]["value"] for row in one["rows"]] == ["g"]
    assert (one["next"], one["why"]) == (2, "enough")
    tiny = (await reader.pages(partitions=["1.2"], max_bytes=1))["1.2"]
    assert (len(tiny["rows"]), tiny["next"], tiny["why"]) == (1, 1, "size")

    since = page["rows"][1]["message"]["publish_time_ms"]
    later = (await reader.pages(partitions=["1.2"], at_ms=since))["1.2"]
    assert "k" in [row["message"]["value"] for row in later["rows"]]
    assert all(row["message"]["publish_time_ms"] >= since for row in later["rows"])
    assert await reader.values(at_ms=2**53) == ""


async def test_an_offset_beyond_the_end_counts_as_the_end(reader):
    """So who continues from `next` misses nothing that comes later."""
    beyond = await reader.browse(partitions=["1.2"], offsets={"1.2": 1_000_000})
    assert (beyond["messages"], beyond["why"], beyond["next"]) == ([], "end", {"1.2": 3})
    page = (await reader.pages(partitions=["1.2"], offsets={"1.2": 1_000_000}))["1.2"]
    assert (page["rows"], page["why"], page["next"], page["end"]) == ([], "end", 3, 3)


async def test_inside_a_large_batch(running, reader, peers):
    producer = await peers.open_producer(running, "large")
    await producer.publish(*(f"{number:03}" for number in range(500)), partition=1)
    page = (await reader.pages(partitions=["1.1"], offsets={"1.1": 103}, max_messages=200))["1.1"]
    assert [row["message"]["value"] for row in page["rows"]] == [f"{n:03}" for n in range(100, 300)]
    assert (page["next"], page["why"]) == (303, "enough")


async def test_bad_input_is_named(reader):
    for body in (
        {"max_messages": 0},
        {"max_bytes": 2**30},
        {"offsets": {"1.0": -1}},
        {"offsets": {"x": 1}},
        {"partitions": ["1.0", "1.0"]},
        {"unknown": 1},
    ):
        answer = await reader.browse(400, **body)
        assert answer["error"]["code"] in {"bad_json", "bad_request"}, body
    assert (await reader.browse(404, offsets={"1.9": 1}))["error"]["code"] == "unknown_partition"


@pytest.mark.req("AZR-15")
async def test_any_broker_shows_what_is_served_and_names_what_is_not(
    start_broker, reader, running, peers, monkeypatch
):
    other = Asker(peers, await start_broker("orders-1"))
    claims = other.at.broker.claims
    await peers.eventually(lambda: len(claims.served()) == 4, "it knows who owns what")
    assert sorted(await other.values()) == sorted(VALUES)
    assert (await other.pages(partitions=["1.3"]))["1.3"]["end"] == 3
    served, url = claims.served, claims.owner_url
    monkeypatch.setattr(claims, "served", lambda: served() - {peers.partition_id(3)})
    monkeypatch.setattr(claims, "owner_url", lambda p: None if p.index == 3 else url(p))
    limited = await other.browse()
    assert sorted(m["value"] for m in limited["messages"]) == sorted("abcefgijk")
    assert limited["unavailable"]["1.3"]["code"] == "unavailable"
    assert limited["next"]["1.3"] == 0, "later it continues there"
    assert (await other.pages(partitions=["1.3"]))["1.3"]["error"]["code"] == "unavailable"
    assert (await other.pin(p0=0))["1.0"]["offset"] == 0, "a pin is set where the owner is"


async def test_a_pin_keeps_what_every_group_has_done_with(running, reader, peers):
    """And its end frees it, though nothing else moves."""
    pinned = await reader.pin(p0=1, p1=0)
    assert pinned["1.0"] == {"offset": 1, "lasts_ms": 600_000}
    await running.assign("m", [0, 1])
    flow = await peers.open_flow(running, "m")
    await flow.take(6)
    broker = running.broker

    async def first(index):
        return (await broker.partitions.read(peers.partition_id(index))).trimmed

    async def is_trimmed():
        return await first(0) == 1

    await peers.eventually(is_trimmed, "what lies before the pin is freed")
    assert await first(1) == 0
    shown = (await reader.pages(partitions=["1.0"]))["1.0"]
    assert [row["message"]["value"] for row in shown["rows"]] == ["e", "i"]
    said = await reader.browse(partitions=["1.0"], offsets={"1.0": 0})
    assert said["trimmed"] == {"1.0": 1}
    unnamed = await reader.browse(partitions=["1.0"])
    assert unnamed["trimmed"] == {}, "who names no offset misses nothing"

    got, answer = await running.call("DELETE", f"{PINS}/reader", token=peers.CONSUME)
    assert (got, answer["partitions"]["1.0"]) == (200, {})

    async def is_empty():
        return (await first(0), await first(1)) == (3, 3)

    await peers.eventually(is_empty, "all is freed")
    assert (await reader.pin(400, name="x" * 64))["error"]["code"] == "bad_request"


async def test_a_call_for_a_pin_that_arrives_late_changes_nothing(running, reader, peers):
    """Its number is below that of the later one, whoever carries it out."""

    async def call(method, number, **body):
        body |= {"number": number}
        _, answer = await running.call(method, f"{PINS}/reader", token=peers.CONSUME, json=body)
        return answer["partitions"]

    newer = {"offset": 2, "lasts_ms": 600_000, "number": 7}
    assert (await call("PUT", 7, offsets={"1.0": 2}))["1.0"] == newer
    assert (await call("PUT", 6, offsets={"1.0": 1}))["1.0"] == newer
    assert (await call("DELETE", 6))["1.0"] == {"number": 7}
    assert (await reader.pin(p0=1))["1.0"] == {"offset": 1, "lasts_ms": 600_000}, "has no number"
    assert (await call("PUT", 6, offsets={"1.0": 0}))["1.0"] == {**newer, "offset": 1}
    assert (await call("DELETE", 8))["1.0"] == {}
    for number, offset in ((7, 0), (8, 2)):
        pin = (await call("PUT", number, offsets={"1.0": 2}))["1.0"]
        assert (pin["offset"], pin["number"]) == (offset, 8), number


async def test_a_group_that_is_removed_frees_what_it_held(running, reader, peers):
    """Though nothing of the other group moves, and under the broker's own eyes only."""
    broker = running.broker
    stored = await broker.configs.read_queue()
    layout = broker.config.layout.partitions()

    async def set_groups(generation, *names):
        spec = {**stored.spec, "groups": list(names)}
        number = stored.resource_generation + generation
        assert await broker.configs.write_queue(spec, resource_generation=number)

    for partition in layout:
        await broker.partitions.add_group(partition, "slow", start="Earliest")
    await set_groups(1, "slow", "workers")
    await running.assign("m", [0])
    flow = await peers.open_flow(running, "m")
    await flow.take(3)

    async def has_seen_all():
        record = await broker.partitions.read_cursor(peers.partition_id(0), "workers")
        return record.cursor == 3 and "slow" in broker.owned[peers.partition_id(0)].groups

    await peers.eventually(has_seen_all, "one group is through")
    assert (await broker.partitions.read(peers.partition_id(0))).trimmed == 0

    # As a coordinator does: off the queue's list first, the cursors after that.
    await set_groups(2, "workers")
    await peers.eventually(
        lambda: "slow" not in broker.owned[peers.partition_id(0)].groups, "its book is dropped"
    )
    for _ in range(3):
        await broker.trimmer.trim()  # finds nothing to free, however often
    for partition in layout:
        began = (await broker.partitions.read_cursor(partition, "slow")).born
        await broker.partitions.remove_group(partition, "slow", born=began)

    async def is_freed():
        return (await broker.partitions.read(peers.partition_id(0))).trimmed == 3

    await peers.eventually(is_freed, "what only the removed group held is freed")
