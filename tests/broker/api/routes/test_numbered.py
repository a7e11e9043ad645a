"""Publishing by plain HTTP with numbers: repeats are stored once, wherever they arrive."""

import asyncio

import pytest

from partq.broker.api.routes import publish_http
from partq.core.layout import Layout
from partq.errors import QuotaExceededError
from partq.testing.frame_peers import make_batch
from partq.wire import frames
from tests.broker.ownership.test_failover import kill

LAYOUT = Layout.first(4)
MESSAGES = "/v1/queues/orders/messages"


async def post(running, peers, body, sequence=None, *, producer="p", **headers):
    """Publish; return status and answer."""
    headers |= {"Partq-Producer": producer} if producer is not None else {}
    headers |= {"Partq-Sequence": str(sequence)} if sequence is not None else {}
    return await running.call("POST", MESSAGES, token=peers.PRODUCE, json=body, headers=headers)


async def one(running, peers, key, value, sequence, **kwargs):
    """Publish a message; return its offset, or the code of the refusal with the number due."""
    body = {"key": key, "value": value}
    status, answer = await post(running, peers, body, sequence, **kwargs)
    if "error" in answer:
        return answer["error"]["code"], answer["error"].get("due")
    assert status == (200 if answer.get("is_duplicate") else 201)
    return answer["offset"], answer.get("is_duplicate", False)


async def many(running, peers, *rows, **kwargs):
    """Publish (key, sequence)s as an array; return of each its offset or its code."""
    body = [{"key": key, "value": f"{key}{n}", "sequence": n} for key, n in rows]
    _, answer = await post(running, peers, body, **kwargs)
    assert "results" in answer, answer
    return [r["error"]["code"] if "error" in r else r["offset"] for r in answer["results"]]


async def end_of(running, partition=0):
    _, status = await running.call("GET", "/v1/queues/orders/status")
    return status["partitions"][f"1.{partition}"]["end"]


def keys_in(peers, partition, count):
    """Return keys of one partition."""
    wanted = peers.partition_id(partition)
    found = (f"k{n}" for n in range(10_000) if LAYOUT.partition_for(f"k{n}") == wanted)
    return [next(found) for _ in range(count)]


async def test_a_repeat_answers_the_same_offset_and_stores_once(running, peers):
    key = peers.key_of(0)
    assert await one(running, peers, key, "a", 0) == (0, False)
    assert await one(running, peers, key, "b", 1) == (1, False)
    assert await one(running, peers, key, "a", 0) == (0, True)
    assert await one(running, peers, key, "b", 1) == (1, True)
    assert await one(running, peers, key, "d", 3) == ("out_of_sequence", 2)
    assert await one(running, peers, key, "x", 7, producer="q") == ("unknown_producer", None)
    assert await one(running, peers, key, "a", 0, producer="q") == (2, False)
    assert await end_of(running) == 3


async def test_every_key_counts_for_itself(running, peers):
    first, second = keys_in(peers, 0, 2)
    assert await one(running, peers, first, "a", 0) == (0, False)
    assert await one(running, peers, second, "a", 0) == (1, False)
    assert await one(running, peers, first, "b", 1) == (2, False)
    assert await one(running, peers, second, "a", 0) == (1, True)


async def test_repeats_at_the_same_time_store_once(running, peers):
    key = peers.key_of(0)
    answers = await asyncio.gather(*(one(running, peers, key, "a", 0) for _ in range(8)))
    assert sorted(answers) == [(0, False)] + [(0, True)] * 7


async def test_the_place_of_a_repeat_is_known_for_five_more_requests(running, peers):
    """Later it is still known to be stored, and not stored again."""
    key = peers.key_of(0)
    for number in range(6):
        await one(running, peers, key, "x", number)
    assert await one(running, peers, key, "x", 1) == (1, True)
    assert await one(running, peers, key, "x", 0) == (None, True)
    assert await end_of(running) == 6


async def test_what_was_refused_keeps_its_number(running, peers):
    """The number is due until it is stored: what comes behind it is refused."""
    key = peers.key_of(0)
    append, outcomes = running.broker.log.append, [QuotaExceededError("full")]

    async def fail_first(*args, **kwargs):
        if outcomes:
            raise outcomes.pop()
        return await append(*args, **kwargs)

    running.broker.log.append = fail_first
    assert (await one(running, peers, key, "a", 0))[0] == "quota_exceeded"
    assert await one(running, peers, key, "b", 1) == ("unknown_producer", None)
    assert await one(running, peers, key, "a", 0) == (0, False)
    assert await one(running, peers, key, "b", 1) == (1, False)


# ---- arrays -------------------------------------------------------------------------------------


async def test_an_array_numbers_each_message(running, peers):
    """A repeat of it answers the same places; one that holds more stores only what is new."""
    first, second = keys_in(peers, 0, 2)
    rows = [(first, 0), (second, 0), (first, 1), (second, 1)]
    offsets = await many(running, peers, *rows)
    assert sorted(offsets) == [0, 1, 2, 3]
    assert (offsets[2], offsets[3]) == (offsets[0] + 1, offsets[1] + 1)
    assert await many(running, peers, *rows) == offsets
    assert await many(running, peers, (first, 1), (first, 2), (first, 3)) == [offsets[2], 4, 5]
    assert await end_of(running) == 6


async def test_behind_a_refused_message_only_its_own_key_is_refused(running, peers):
    first, second = keys_in(peers, 0, 2)
    rows = [(first, 0), (second, 0), (first, 2), (second, 1), (first, 3), (first, 1)]
    outcomes = await many(running, peers, *rows)
    assert outcomes[2:] == [
        "out_of_sequence",
        outcomes[1] + 1,
        "out_of_sequence",
        "not_stored",
    ]
    body = [
        {"key": first, "value": "x" * 5000, "sequence": 1},
        {"key": first, "value": "y", "sequence": 2},
        {"key": second, "value": "z", "sequence": 2},
    ]
    status, answer = await post(running, peers, body)
    codes = [result.get("error", {}).get("code", "") for result in answer["results"]]
    assert (status, codes) == (207, ["message_too_large", "not_stored", ""])
    assert await end_of(running) == 4


# ---- brokers ------------------------------------------------------------------------------------


async def test_a_repeat_is_known_at_every_broker_and_after_a_failover(running, peers, start_broker):
    """Forwarded by one that is not an owner; repeated at the next owner when the first has died."""
    other = await start_broker("orders-1")
    await peers.eventually(
        lambda: other.broker.claims.owner_url(peers.partition_id(0)), "the owner is known"
    )
    first, second = keys_in(peers, 0, 2)
    assert await one(other, peers, first, f"{first}0", 0) == (0, False)
    assert await one(running, peers, first, f"{first}0", 0) == (0, True)
    assert await one(other, peers, first, f"{first}2", 2) == ("out_of_sequence", 1)
    assert await many(other, peers, (first, 0), (first, 1)) == [0, 1]
    assert await many(other, peers, (second, 0)) == [2]
    await kill(running)
    await peers.eventually(lambda: len(other.broker.owned) == 4, "all are claimed")
    assert await one(other, peers, first, f"{first}1", 1) == (1, True)
    assert await one(other, peers, first, f"{first}2", 2) == (3, False)
    assert await end_of(other) == 4


async def test_a_client_that_forgot_its_numbers_asks_what_is_due(running, peers):
    key = peers.key_of(0)
    await one(running, peers, key, "a", 0)
    path = "/v1/queues/orders/producers/p"
    call = {"token": peers.PRODUCE, "params": {"key": key}}
    _, answer = await running.call("GET", path, **call)
    assert answer == {"due": {"1.0": 1}, "unavailable": []}
    _, answer = await running.call("GET", path, token=peers.PRODUCE)
    assert answer["due"]["1.0"] == 0, "a WebSocket's producer of the same name is another one"
    await running.admin("/yield", {"partitions": ["1.0"]})
    _, answer = await running.call("GET", path, **call)
    assert answer == {"due": {}, "unavailable": ["1.0"]}


# ---- what is no number --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "extra", "words"),
    [
        pytest.param({"Partq-Sequence": "0"}, {}, "send both", id="no producer"),
        pytest.param({"Partq-Producer": "p"}, {}, "expected one", id="no number"),
        pytest.param({}, {"sequence": 0}, "send both", id="a field, and no producer"),
        pytest.param(
            {"Partq-Producer": "p", "Partq-Sequence": "1"},
            {"sequence": 0},
            "2 sequences",
            id="two numbers",
        ),
        pytest.param(
            {"Partq-Producer": "p", "Partq-Sequence": "0"}, {"key": None}, "no key", id="no key"
        ),
        pytest.param(
            {"Partq-Producer": "p", "Partq-Sequence": "-1"}, {}, "Partq-Sequence", id="negative"
        ),
        pytest.param(
            {"Partq-Producer": "p", "Partq-Sequence": str(2**53)}, {}, "Partq-Sequence", id="large"
        ),
        pytest.param(
            {"Partq-Producer": "p", "Partq-Sequence": "1.5"}, {}, "Partq-Sequence", id="no integer"
        ),
        pytest.param(
            {"Partq-Producer": "dlq:p", "Partq-Sequence": "0"}, {}, "dead letters", id="an outbox"
        ),
        pytest.param(
            {"Partq-Producer": "p" * 129, "Partq-Sequence": "0"}, {}, "128", id="a long name"
        ),
        pytest.param(
            {"Partq-Producer": "p\u00ad", "Partq-Sequence": "0"}, {}, "printable", id="unprintable"
        ),
    ],
)
async def test_numbers_that_are_none_are_refused(running, peers, headers, extra, words):
    body = {"key": peers.key_of(0), "value": "a", **extra}
    status, answer = await running.call(
        "POST", MESSAGES, token=peers.PRODUCE, json=body, headers=headers
    )
    assert (status, answer["error"]["code"]) in [(400, "bad_request"), (400, "bad_json")]
    assert words in answer["error"]["message"]


async def test_an_array_has_its_numbers_in_its_messages_and_not_too_many(
    running, peers, monkeypatch
):
    monkeypatch.setattr(publish_http, "MAX_NUMBERED_MESSAGES", 2)
    row = {"key": "k", "value": "a"}
    status, answer = await post(running, peers, [row, row], 0)
    assert (status, answer["error"]["code"]) == (400, "bad_request")
    rows = [{**row, "sequence": n} for n in range(3)]
    status, answer = await post(running, peers, rows)
    assert (status, answer["error"]["code"]) == (413, "batch_too_large")
    status, _ = await post(running, peers, rows[:2])
    assert status == 201


async def test_a_number_that_is_used_for_another_message_is_no_duplicate(running, peers):
    """It was confirmed, and never stored: so a client lost what began at 0 again."""
    key = peers.key_of(0)
    assert await one(running, peers, key, "poison", 0) == (0, False)
    assert await one(running, peers, key, "b", 0) == ("number_reused", None)
    assert await one(running, peers, key, "poison", 0) == (0, True)
    assert await one(running, peers, key, "b", 1) == (1, False)
    assert await end_of(running) == 2


async def test_a_repeat_of_a_series_that_had_to_be_forgotten_is_told(
    running, peers, start_broker, store
):
    """With its age it is not begun again; what was never sent before is."""
    keys, partition = running.broker.keys, peers.partition_id(0)
    key = peers.key_of(0)
    assert await one(running, peers, key, "a", 0) == (0, False)
    now_ms, _ = await running.broker.log.read_times(partition, [0])
    idle_ms = now_ms - 25 * 3600 * 1000
    await store.read("HSET", keys.series(partition), f"p\x1f{'0' * 32}", f"1 {idle_ms} 0:1:0")
    assert await one(running, peers, key, "b", 0, producer="q") == (1, False)
    # An hour: nothing so young had to go. Two days: it may have been the one that is gone.
    hour, days = str(3600 * 1000), str(48 * 3600 * 1000)
    other = await start_broker("orders-1")
    await peers.eventually(lambda: other.broker.claims.owner_url(partition), "the owner is known")
    again = {"producer": "r", "Partq-Age-Ms": days}
    assert await one(other, peers, key, "c", 0, **again) == ("unknown_producer", None)
    again["Partq-Age-Ms"] = hour
    assert await one(running, peers, key, "c", 0, **again) == (2, False)


async def test_a_repeat_over_a_websocket_says_its_age_too(running, peers, store):
    keys, partition = running.broker.keys, peers.partition_id(0)
    first = await peers.open_producer(running, "first")
    await first.publish("a")
    now_ms, _ = await running.broker.log.read_times(partition, [0])
    hour_ms = 3600 * 1000
    await store.read("HSET", keys.producers(partition), "idle", f"1 {now_ms - 25 * hour_ms} 0:1:0")
    second = await peers.open_producer(running, "second")
    await second.publish("b")
    assert not await store.read("HEXISTS", keys.producers(partition), "idle")
    again = await peers.open_producer(running, "again")
    data = make_batch(["c"], peers.key_of(0))
    await again.send(frames.Publish(1, 1, 0, 0, age_ms=48 * hour_ms), data)
    refused, _ = await again.expect(frames.PublishRefused)
    assert refused.code == "unknown_producer"
    await again.send(frames.Publish(2, 1, 0, 0, age_ms=hour_ms), data)
    published, _ = await again.expect(frames.Published)
    assert published.offset == 2


async def test_a_producer_that_uses_a_number_again_is_refused(running, peers):
    producer = await peers.open_producer(running, "job-1")
    await producer.publish("a")
    await producer.offer(0, "other")
    refused, _ = await producer.expect(frames.PublishRefused)
    assert (refused.code, refused.due) == ("number_reused", 1)
    assert refused.message == (
        "partition 1.0: number 0 came before with other messages, which are stored; these are not: "
        "send them under 1"
    )
    await producer.offer(0, "a")
    published, _ = await producer.expect(frames.Published)
    assert (published.offset, published.is_duplicate) == (0, True)
