"""Keys that wait are listed, and released before their time."""

import pytest

from partq.core.model import Cause
from partq.errors import StoreUnavailableError
from partq.wire import frames
from tests.broker.delivery.keyed import DAY_MS, SLOTS, KeyedScene, open_keyed

KEYS = "/v1/queues/orders/groups/workers/keys"


@pytest.fixture
async def scene(running):
    scene = await KeyedScene().set(running, "a0", "b0", "c0")
    scene.held, _ = await scene.source.deliver()
    for offset in range(2):
        part = (offset, offset + 1)
        assert await scene.source.nack(scene.held, [part], delay_ms=DAY_MS) == ""
    return scene


async def test_they_are_listed_with_their_lowest_message(scene):
    status, answer = await scene.running.call("GET", KEYS)
    assert status == 200
    found = answer["partitions"]
    assert sorted(found) == ["1.0", "1.1", "1.2", "1.3"]
    assert found["1.1"] == {"keys": []}
    keys = found["1.0"]["keys"]
    assert [0 < each.pop("due_ms") <= DAY_MS for each in keys] == [True, True]
    assert keys == [
        {"slot": SLOTS["a"], "offset": 0, "redeliveries": 1, "state": "waits"},
        {"slot": SLOTS["b"], "offset": 1, "redeliveries": 1, "state": "waits"},
    ]


async def test_without_a_member_they_have_their_delays_and_failures(scene, start_broker):
    """Here, where the messages were read, and at a broker that has read none."""
    expected = [(SLOTS["a"], 0, 1, True), (SLOTS["b"], 1, 1, True)]

    def shown(answer):
        keys = answer["partitions"]["1.0"]["keys"]
        return [(k["slot"], k["offset"], k["redeliveries"], k["due_ms"] > 0) for k in keys]

    scene.consumed.unbind(Cause.RESET)  # a cause that does not count
    assert shown((await scene.running.call("GET", KEYS))[1]) == expected
    other = await start_broker("orders-1")
    await scene.running.admin("/yield", {"partitions": ["1.0"]})
    await other.admin("/claim", {"partitions": ["1.0"]})
    body = {"partitions": ["1.0"]}
    assert shown((await other.call("GET", KEYS, json=body))[1]) == expected


async def test_of_too_many_some_are_listed_and_the_others_counted(scene, monkeypatch):
    monkeypatch.setattr("partq.broker.operations.parked_keys.MAX_LISTED", 1)
    _, answer = await scene.running.call("GET", KEYS, json={"partitions": ["1.0"]})
    found = answer["partitions"]["1.0"]
    assert ([each["slot"] for each in found["keys"]], found["more"]) == ([SLOTS["a"]], 1)


async def test_one_is_released_and_that_is_stored(scene):
    body = {"slot": SLOTS["b"], "partitions": ["1.0"]}
    status, answer = await scene.running.call("POST", f"{KEYS}/release", json=body)
    assert (status, answer) == (200, {"partitions": {"1.0": {"is_released": True}}})
    assert (await scene.source.deliver())[1] == ["b0"]
    assert list((await scene.record()).parked) == [SLOTS["a"]]
    status, answer = await scene.running.call("POST", f"{KEYS}/release", json=body)
    assert answer["partitions"]["1.0"] == {"is_released": False}


async def test_a_repeat_of_a_release_that_was_not_stored_waits_until_it_is(scene, monkeypatch):
    monkeypatch.setattr("partq.broker.operations.parked_keys.STORE_TIMEOUT_S", 0.05)
    body = {"slot": SLOTS["b"], "partitions": ["1.0"]}

    async def no_answer(*args, **book):
        raise StoreUnavailableError("no answer")

    with monkeypatch.context() as outage:
        outage.setattr(scene.running.broker.partitions, "flush", no_answer)
        for _ in range(2):
            _, answer = await scene.running.call("POST", f"{KEYS}/release", json=body)
            assert answer["partitions"]["1.0"]["error"]["code"] == "unavailable"
    monkeypatch.undo()
    _, answer = await scene.running.call("POST", f"{KEYS}/release", json=body)
    assert answer["partitions"]["1.0"] == {"is_released": False}
    assert list((await scene.record()).parked) == [SLOTS["a"]]


async def test_those_that_the_record_does_not_name_are_released_one_by_one(running, start_broker):
    scene = await KeyedScene().set(running, "a0", "b0", "c0", "d0", maxParkedKeys=1)
    held, _ = await scene.source.deliver()
    for offset in range(3):
        assert await scene.source.nack(held, [(offset, offset + 1)], delay_ms=DAY_MS) == ""
    other = await start_broker("orders-1")
    elsewhere = await open_keyed(other)
    await running.admin("/yield", {"partitions": ["1.0"]})
    await other.admin("/claim", {"partitions": ["1.0"]})
    await elsewhere.find(frames.Assigned)
    assert await elsewhere.gets_nothing(), "all wait"
    body = {"slot": SLOTS["b"], "partitions": ["1.0"]}
    _, answer = await other.call("POST", f"{KEYS}/release", json=body)
    assert answer["partitions"]["1.0"] == {"is_released": True}
    _, answer = await other.call("GET", KEYS, json={"partitions": ["1.0"]})
    keys = answer["partitions"]["1.0"]["keys"]
    assert [each["slot"] for each in keys] == [SLOTS["a"], SLOTS["c"]]
    body = {"slot": SLOTS["c"], "partitions": ["1.0"]}
    _, answer = await other.call("POST", f"{KEYS}/release", json=body)
    assert answer["partitions"]["1.0"] == {"is_released": True}
    assert await elsewhere.values(3) == ["b0", "c0", "d0"], "no more wait than may"
    body = {"all": True, "partitions": ["1.0"]}
    _, answer = await other.call("POST", f"{KEYS}/release", json=body)
    assert answer["partitions"]["1.0"] == {"is_released": True, "released": 1}
    _, answer = await other.call("POST", f"{KEYS}/release", json=body)
    assert answer["partitions"]["1.0"] == {"is_released": False, "released": 0}
    assert await elsewhere.values(1) == ["a0"]


async def test_where_they_cannot_be_read_in_time_the_release_says_so(
    running, start_broker, monkeypatch
):
    scene = await KeyedScene().set(running, "a0", "b0", maxParkedKeys=1)
    held, _ = await scene.source.deliver()
    for offset in range(2):
        assert await scene.source.nack(held, [(offset, offset + 1)], delay_ms=DAY_MS) == ""
    other = await start_broker("orders-1")
    await running.admin("/yield", {"partitions": ["1.0"]})
    await other.admin("/claim", {"partitions": ["1.0"]})
    monkeypatch.setattr("partq.broker.operations.parked_keys.MAX_BATCHES_NAMED", 0)
    body = {"slot": SLOTS["e"], "partitions": ["1.0"]}
    _, answer = await other.call("POST", f"{KEYS}/release", json=body)
    assert "repeat the call, or release all" in answer["partitions"]["1.0"]["error"]["message"]
    _, answer = await other.call("POST", f"{KEYS}/release", json={"all": True})
    assert answer["partitions"]["1.0"] == {"is_released": True, "released": 2}


async def test_a_key_stands_for_its_slot(scene):
    status, answer = await scene.running.call("POST", f"{KEYS}/release", json={"key": "k"})
    assert (status, {each["is_released"] for each in answer["partitions"].values()}) == (
        200,
        {False},
    )


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "bad_request"),
        ({"slot": 1, "key": "k"}, "bad_request"),
        ({"slot": 1, "all": True}, "bad_request"),
        ({"slot": 65_536}, "bad_json"),
        ({"key": "k" * 2000}, "bad_request"),
        ({"slot": 1, "partitions": ["1.9"]}, "unknown_partition"),
    ],
)
async def test_a_release_must_name_one_key(running, body, code):
    status, answer = await running.call("POST", f"{KEYS}/release", json=body)
    assert (status in (400, 404), answer["error"]["code"]) == (True, code)


async def test_metrics_count_them(scene):
    async with scene.running.session.get(f"{scene.running.url}/metrics") as response:
        text = await response.text()
    (line,) = [each for each in text.splitlines() if _is_of(each, "partq_parked_keys", "1.0")]
    assert line.endswith(" 2.0")
    (line,) = [each for each in text.splitlines() if _is_of(each, "partq_partition_stalled", "1.0")]
    assert line.endswith(" 0.0")


def _is_of(line, metric, partition):
    return line.startswith(metric) and f'partition="{partition}"' in line and "workers" in line
