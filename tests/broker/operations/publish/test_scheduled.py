"""What waits until it is due is listed, cancelled and dropped over HTTP, by any broker."""

from dataclasses import replace

import pytest

from partq.core.model import PartitionId
from tests.store.parked import data_of, park

PATH = "/v1/queues/orders/scheduled"
DUE = 4_000_000_000_000


@pytest.fixture
async def scene(running):
    await running.claim_all()
    return Scene(running)


class Scene:
    """A broker with entries in its partitions."""

    def __init__(self, running):
        self.running = running
        self.call = running.call
        self.keys = running.broker.keys

    async def park(self, index, number, due, key="k", *values, **options):
        data = data_of(key, *(values or ("v",)))
        await park(
            self.running.store, self.keys, PartitionId(1, index), number, DUE + due, data, **options
        )

    async def listed(self, query=""):
        status, answer = await self.call("GET", PATH + query)
        assert status == 200, answer
        return answer

    async def ids(self, query=""):
        return [each["id"] for each in (await self.listed(query))["messages"]]


def named(index, number):
    return f"1.{index}/{number:016d}"


async def test_they_are_listed_by_due_time_over_all_partitions(scene):
    assert await scene.listed() == {"messages": []}
    await scene.park(2, 5, 20, "a", ttl_ms=7)
    await scene.park(0, 6, 10, "b", "1", "2")
    await scene.park(1, 7, 20, None)
    messages = (await scene.listed())["messages"]
    assert [each.pop("bytes") > 0 for each in messages] == [True] * 3
    assert messages == [
        {"id": named(0, 6), "due_ms": DUE + 10, "count": 2, "key": "b"},
        {"id": named(1, 7), "due_ms": DUE + 20, "count": 1},
        {"id": named(2, 5), "due_ms": DUE + 20, "count": 1, "key": "a", "ttl_ms": 7},
    ]


async def test_pages_pass_over_nothing_whatever_their_length(scene):
    every = []
    for index in range(4):
        for number in range(1, 6):
            due = (3 * number + index) // 4  # some are due at once, in several partitions
            await scene.park(index, number, due)
            every.append((due, index, number))
    expected = [named(index, number) for _, index, number in sorted(every)]
    for limit in (1, 3, 7, 20):
        found, query = [], f"?limit={limit}"
        while True:
            answer = await scene.listed(query)
            assert len(answer["messages"]) <= limit
            found += [each["id"] for each in answer["messages"]]
            if "next" not in answer:
                break
            query = f"?limit={limit}&after={answer['next']}"
        assert found == expected


async def test_they_are_chosen_by_partition_time_and_key(scene, monkeypatch):
    monkeypatch.setattr("partq.broker.operations.publish.scheduled.READ_ENTRIES", 2)
    for number, key in enumerate("abcab", 1):
        await scene.park(number % 2, number, number, key)
    assert await scene.ids("?partition=1.1") == [named(1, 1), named(1, 3), named(1, 5)]
    assert await scene.ids(f"?before_ms={DUE + 3}") == [named(1, 1), named(0, 2)]
    assert await scene.ids("?key=a") == [named(1, 1), named(0, 4)]
    assert await scene.ids("?key=a&partition=1.0") == [named(0, 4)]
    assert await scene.ids("?key=nobody") == []


async def test_a_search_for_a_key_ends_and_says_where(scene, monkeypatch):
    monkeypatch.setattr("partq.broker.operations.publish.scheduled.READ_ENTRIES", 2)
    monkeypatch.setattr("partq.broker.operations.publish.scheduled.MAX_LOOKED_AT", 4)
    for number in range(1, 9):
        await scene.park(0, number, number, "a" if number == 7 else "b")
    found = await scene.listed("?key=a")
    assert (found["messages"], found["next"]) == ([], f"{DUE + 4}/{named(0, 4)}")
    assert await scene.ids(f"?key=a&after={found['next']}") == [named(0, 7)]


async def test_a_damaged_entry_is_listed_with_what_is_wrong(scene):
    await park(scene.running.store, scene.keys, PartitionId(1, 0), 1, DUE, b"no batch")
    (message,) = (await scene.listed())["messages"]
    assert (message["count"], message["error"]["code"]) == (0, "bad_batch")
    assert await scene.ids("?key=a") == [named(0, 1)], "it may be"


async def test_the_status_says_how_much_waits_and_until_when(scene):
    await scene.park(1, 5, 20)
    await scene.park(1, 6, 10)
    status, answer = await scene.call("GET", "/v1/queues/orders/status?max_age_ms=0")
    assert status == 200
    row = answer["partitions"]["1.1"]
    assert (row["scheduled"], row["next_due_ms"], row["scheduled_bytes"] > 0) == (2, DUE + 10, True)
    assert "scheduled" not in answer["partitions"]["1.0"]
    assert answer["totals"]["messages"] == 0


async def test_each_is_cancelled_once(scene, peers):
    await scene.park(1, 5, 20)
    path = f"{PATH}/{named(1, 5)}"
    for is_cancelled in (True, False):
        answer = await scene.call("DELETE", path, token=peers.PRODUCE)
        assert answer == (200, {"is_cancelled": is_cancelled})
    assert await scene.ids() == []


async def test_of_what_may_have_moved_nobody_says_that_it_was_delivered(scene, peers):
    owned = scene.running.broker.owned[peers.partition_id(1)]
    owned.layout = replace(owned.layout, seals={2: 0})
    await scene.park(1, 5, 20)
    path = f"{PATH}/{named(1, 5)}"
    assert await scene.call("DELETE", path) == (200, {"is_cancelled": True})
    status, answer = await scene.call("DELETE", path)
    assert (status, answer["error"]["code"]) == (409, "conflict")
    assert "may wait in another partition" in answer["error"]["message"]


@pytest.mark.parametrize("name", ["1.1/5", "1.1/000000000000000x", "1/0000000000000005"])
async def test_what_is_no_id_of_one_is_refused(scene, name):
    status, answer = await scene.call("DELETE", f"{PATH}/{name}")
    assert (status, answer["error"]["code"]) == (400, "bad_request")
    assert "such as 1.3/0001795324574173" in answer["error"]["message"]


async def test_all_are_dropped_but_those_that_came_after_they_were_shown(scene, monkeypatch):
    monkeypatch.setattr("partq.broker.operations.publish.scheduled.READ_ENTRIES", 2)
    for number in range(1, 6):
        await scene.park(0, number, -number)
    await scene.park(1, 9, 3)
    drop = f"{PATH}/drop"
    status, answer = await scene.call("POST", drop, json={"is_dry_run": True})
    planned = answer["partitions"]
    assert (status, planned["1.0"], planned["1.2"]) == (
        200,
        {"count": 5, "upto": 5},
        {"count": 0, "upto": 0},
    )
    await scene.park(0, 6, -99)
    body = {"partitions": ["1.0"], "upto": {"1.0": 5}}
    _, answer = await scene.call("POST", drop, json=body)
    assert answer["partitions"] == {"1.0": {"count": 5, "upto": 5}}
    assert await scene.ids() == [named(0, 6), named(1, 9)]
    _, answer = await scene.call("POST", drop, json={"before_ms": DUE + 3})
    assert {name: each["count"] for name, each in answer["partitions"].items()} == {
        **dict.fromkeys(("1.1", "1.2", "1.3"), 0),
        "1.0": 1,
    }
    assert await scene.ids() == [named(1, 9)]


async def test_a_drop_that_takes_too_long_says_that_there_is_more(scene, monkeypatch):
    monkeypatch.setattr("partq.broker.operations.publish.scheduled.READ_ENTRIES", 2)
    monkeypatch.setattr("partq.broker.operations.publish.scheduled.DROP_TIMEOUT_S", 0)
    for number in range(1, 6):
        await scene.park(0, number, number)
    counts = []
    for _ in range(3):
        _, answer = await scene.call("POST", f"{PATH}/drop", json={"partitions": ["1.0"]})
        counts.append((answer["partitions"]["1.0"]["count"], "more" in answer["partitions"]["1.0"]))
    assert counts == [(2, True), (2, True), (1, False)]


async def test_a_broker_asks_the_owners(running, start_broker, peers):
    await running.claim_all()
    other = await start_broker("orders-1")
    await running.admin("/yield", {"partitions": ["1.0"]})
    await other.admin("/claim", {"partitions": ["1.0"]})
    scene = Scene(running)
    await scene.park(0, 5, 1)
    await scene.park(1, 6, 2)
    await running.broker.claims.refresh()
    for broker in (running, other):
        scene.call = broker.call
        assert await scene.ids("?limit=5") == [named(0, 5), named(1, 6)]
        assert await scene.ids(f"?before_ms={DUE + 2}") == [named(0, 5)]
    scene.call = running.call
    answer = await scene.call("DELETE", f"{PATH}/{named(0, 5)}", token=peers.PRODUCE)
    assert answer == (200, {"is_cancelled": True})
    _, answer = await scene.call("POST", f"{PATH}/drop", json={"is_dry_run": True})
    assert [each["count"] for each in answer["partitions"].values()] == [0, 1, 0, 0]
    await other.stop()
    answer = await scene.listed("?partition=1.0")
    assert answer["unavailable"]["1.0"]["code"] == "unavailable"
