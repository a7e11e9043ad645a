"""Publishing: numbers, the appender, plain HTTP, forwarding."""

import asyncio
import base64
import gc
from dataclasses import replace
from itertools import count

import pytest

from partq.broker.api import message_writer
from partq.broker.api.routes.publish import ProducerConnection
from partq.core.layout import Layout
from partq.errors import QuotaExceededError, StoreUnavailableError
from partq.testing.frame_peers import make_batch
from partq.wire import frames
from partq.wire.batch import read_outline

NONCES = count(1)
MESSAGES = "/v1/queues/orders/messages"


async def outcome(producer, first, *values):
    """Offer a batch; return its code, or "stored" or "duplicate", with the offset or due number."""
    await producer.offer(first, *values)
    answer, _ = await producer.expect((frames.Published, frames.PublishRefused))
    if isinstance(answer, frames.PublishRefused):
        return answer.code, answer.due
    return ("duplicate" if answer.is_duplicate else "stored"), answer.offset


async def answered_at_once(producer):
    """Return the next answer, which is that to this ping if nothing before it was answered."""
    nonce = next(NONCES)
    await producer.send(frames.Ping(nonce))
    while True:
        answer, _ = await producer.receive()
        if answer == frames.Pong(nonce) or isinstance(answer, frames.PublishRefused):
            return answer


# ---- numbers ------------------------------------------------------------------------------------


async def test_messages_are_numbered_by_their_producer(running, peers):
    """What is known is a duplicate, in its place; what is not due is refused with what is."""
    producer = await peers.open_producer(running)
    assert await outcome(producer, 5, "x") == ("unknown_producer", -1)
    assert await outcome(producer, 0, "a", "b", "c") == ("stored", 0)
    assert await outcome(producer, 0, "a", "b", "c") == ("duplicate", 0)
    assert await outcome(producer, 1, "b") == ("duplicate", 1)
    assert await outcome(producer, 2, "c", "d") == ("resend_from", 3)
    assert await outcome(producer, 4, "e") == ("out_of_sequence", 3)
    assert await outcome(producer, 3, "d") == ("stored", 3)
    other = await peers.open_producer(running, "q")
    assert await outcome(other, 0, "z") == ("stored", 4)
    for number in range(4, 10):
        assert (await outcome(producer, number, "x"))[0] == "stored"
    assert await outcome(producer, 0, "a", "b", "c") == ("duplicate", -1)  # too old to know where


async def test_a_producer_that_comes_back_asks_what_is_due(running, peers):
    producer = await peers.open_producer(running)
    await producer.publish("a", "b")
    await producer.publish("c", partition=2)
    path = "/v1/queues/orders/producers/p"
    status, answer = await running.call("GET", path, token=peers.PRODUCE)
    assert status == 200
    assert answer == {"due": {"1.0": 2, "1.1": 0, "1.2": 1, "1.3": 0}, "unavailable": []}


async def test_a_producer_sees_what_its_last_batches_look_like(running, peers):
    producer = await peers.open_producer(running)
    await producer.publish("a", "b")
    await producer.publish("c", "dd", "e")
    path = "/v1/queues/orders/producers/p?outlines=true"
    _, answer = await running.call("GET", path, token=peers.PRODUCE)
    found = answer["outlines"]
    stored = await running.broker.log.read(peers.partition_id(0), 2, max_bytes=1, max_entries=1)
    crc = read_outline(stored[0].data)
    assert found == {"1.0": {"first": 2, "count": 3, "crc32c": crc}}
    status, answer = await running.call("GET", path.replace("true", "1"), token=peers.PRODUCE)
    assert (status, answer["error"]["code"]) == (400, "bad_request")


async def test_a_producer_may_have_five_batches_on_their_way(running, peers):
    """A sixth is refused at once, and stored when it comes again."""
    appends = peers.Gate(running.broker.log, "append")
    producer = await peers.open_producer(running)
    for number in range(6):
        await producer.offer(number, str(number))
    refused = await answered_at_once(producer)
    assert isinstance(refused, frames.PublishRefused), "six are on their way"
    assert (refused.request, refused.code) == (5, "not_stored"), "a repeat may pass"
    appends.opened.set()
    for number in range(5):
        published, _ = await producer.expect(frames.Published)
        assert (published.request, published.offset) == (number, number)
    assert await outcome(producer, 5, "5") == ("stored", 5)


async def test_batches_that_are_refused_at_once_change_no_count(running, peers):
    """Neither lets one more on its way, nor is a partition that does not exist remembered."""
    appends = peers.Gate(running.broker.log, "append")
    producer = await peers.open_producer(running)
    await producer.offer(0, "0")
    for number in range(10):
        bad_age = frames.Publish(100 + number, 1, 0, 1, 0, -1)
        elsewhere = frames.Publish(200 + number, 1, 1000 + number, 0, 0, 0)
        for frame in (bad_age, elsewhere):
            await producer.send(frame, make_batch(["x"], "key"))
            refused, _ = await producer.expect(frames.PublishRefused)
            assert refused.request == frame.request
    for number in range(1, 6):
        await producer.offer(number, str(number))
    refused = await answered_at_once(producer)
    assert isinstance(refused, frames.PublishRefused), "six are on their way"
    assert "5 batches of partition 1.0 are without an answer" in refused.message
    appends.opened.set()
    for _ in range(5):
        await producer.expect(frames.Published)
    connections = [each for each in gc.get_objects() if type(each) is ProducerConnection]
    assert connections
    assert not any(each._in_flight for each in connections)


async def test_a_producer_that_repeats_all_before_the_answers_loses_and_doubles_nothing(
    running, peers
):
    """As the library does after a `Moved`: the refusals of the repeats are not final."""
    appends = peers.Gate(running.broker.log, "append")
    producer = await peers.open_producer(running)
    for number in range(5):
        await producer.offer(number, str(number))
    for number in range(5):
        await producer.offer(number, str(number))
        refused = await answered_at_once(producer)
        assert isinstance(refused, frames.PublishRefused)
        assert refused.code == "not_stored"
    appends.opened.set()
    for _ in range(5):
        await producer.expect(frames.Published)
    assert [(await outcome(producer, number, str(number)))[0] for number in range(5)] == [
        "duplicate"
    ] * 5


async def test_a_partition_that_is_elsewhere_is_answered_with_its_broker(
    running, peers, start_broker
):
    other = await start_broker("orders-1")
    await running.admin("/yield", {"partitions": ["1.0"]})
    producer = await peers.open_producer(running)
    await producer.offer(0, "a")
    moved, _ = await producer.expect(frames.Moved)
    assert (moved.generation, moved.partition, moved.broker, moved.url) == (1, 0, "", "")
    await other.admin("/claim", {"partitions": ["1.0"]})
    await peers.eventually(
        lambda: running.broker.claims.owner_url(peers.partition_id(0)), "the owner is known"
    )
    await producer.offer(0, "a")
    moved, _ = await producer.expect(frames.Moved)
    assert (moved.broker, moved.url) == ("orders-1", other.url)


# ---- the appender -------------------------------------------------------------------------------


@pytest.mark.req("SOL-03")
async def test_batches_of_many_producers_at_once_land_once_and_in_order(running, peers):
    """Each producer's in its order, whatever calls the appender makes of them."""
    await running.assign("m", [0])
    flow = await peers.open_flow(running, "m", credit=1000)
    producers = [await peers.open_producer(running, f"p{n}") for n in range(8)]

    async def work(name, producer):
        for first in range(0, 20, 2):
            await producer.publish(f"{name}-{first}", f"{name}-{first + 1}")

    await asyncio.gather(*(work(at, producer) for at, producer in enumerate(producers)))
    values = await flow.take(160)
    for name in range(8):
        mine = [value for value in values if value.startswith(f"{name}-")]
        assert mine == [f"{name}-{number}" for number in range(20)]


async def test_an_append_whose_answer_is_lost_is_stored_once(running, peers):
    log = running.broker.log
    append, calls = log.append, []

    async def lose_first(*args, **kwargs):
        appended = await append(*args, **kwargs)
        calls.append(kwargs["number"])
        if len(calls) == 1:
            raise StoreUnavailableError("the answer is lost")
        return appended

    log.append = lose_first
    producer = await peers.open_producer(running)
    assert await producer.publish("a") == 0
    assert await producer.publish("b") == 1
    assert calls == [0, 0, 1]


async def test_an_append_in_doubt_on_a_full_redis_is_not_mixed_up(running, peers):
    """The next call must not get the answer of the one that nobody knows the outcome of."""
    log = running.broker.log
    append, outcomes = log.append, [StoreUnavailableError("lost"), full(), None]

    async def fail(*args, **kwargs):
        appended = await append(*args, **kwargs)
        error = outcomes.pop(0) if outcomes else None
        if error is not None:
            raise error
        return appended

    log.append = fail
    producer = await peers.open_producer(running)
    assert await outcome(producer, 0, "a") == ("outcome_unknown", -1)
    await peers.eventually(lambda: peers.partition_id(0) in running.broker.owned, "claimed again")
    assert await outcome(producer, 0, "a") == ("duplicate", 0)
    assert await outcome(producer, 1, "b") == ("stored", 1)


def full():
    return QuotaExceededError("full")


async def test_an_append_on_a_full_redis_is_refused_and_may_come_again(running, peers):
    log = running.broker.log
    append, outcomes = log.append, [full()]

    async def fail_first(*args, **kwargs):
        if outcomes:
            raise outcomes.pop()
        return await append(*args, **kwargs)

    log.append = fail_first
    producer = await peers.open_producer(running)
    assert await outcome(producer, 0, "a") == ("quota_exceeded", -1)
    assert await outcome(producer, 0, "a") == ("stored", 0)


# ---- plain HTTP ---------------------------------------------------------------------------------


async def post(running, peers, body, **kwargs):
    return await running.call("POST", MESSAGES, token=peers.PRODUCE, json=body, **kwargs)


async def delivered(running, peers, number):
    """Return the messages of all partitions, as pulls tell them."""
    await running.assign("m", [0, 1, 2, 3])
    path = "/v1/queues/orders/groups/workers/pull"
    last, messages = None, []
    while len(messages) < number:
        body = {"member": "m", "incarnation": "i", "last_answer": last}
        status, answer = await running.call("POST", path, token=peers.CONSUME, json=body)
        assert status == 200, answer
        last = answer["answer"]
        messages += answer["messages"]
    return messages


@pytest.mark.req("SOL-02", "SOL-18")
async def test_one_message_by_plain_http(running, peers):
    key = peers.key_of(3)
    status, answer = await post(
        running, peers, {"key": key, "value": "é", "headers": {"a": "b"}, "event_time_ms": 5}
    )
    assert (status, answer) == (201, {"partition": "1.3", "offset": 0})
    (message,) = await delivered(running, peers, 1)
    assert (message["key"], message["value"], message["headers"], message["event_time_ms"]) == (
        key, "é", {"a": "b"}, 5,
    )  # fmt: skip


@pytest.mark.req("SOL-13", "SOL-14", "AZR-21", "AZR-23", "AZR-24", "AZR-25")
async def test_the_key_may_stand_in_a_header(running, peers):
    key = peers.key_of(2)
    names = ("SessionId", "PartitionKey", "QUEUE_PARTITION_KEY", "JMSXGroupID")
    for name in names:
        for body in ({"value": name}, {"key": key, "value": name}):
            status, answer = await post(running, peers, body, headers={name: key})
            assert (status, answer["partition"]) == (201, "1.2")
        body = {"key": "other", "value": "a"}
        status, answer = await post(running, peers, body, headers={name: key})
        assert (status, answer["error"]["code"]) == (400, "key_conflict")
        assert name in answer["error"]["message"]
    equal = dict.fromkeys(names, key)
    status, answer = await post(running, peers, [{"value": "a"}] * 3, headers=equal)
    assert (status, {r["partition"] for r in answer["results"]}) == (201, {"1.2"})
    status, answer = await post(running, peers, {"value": "a"}, headers={**equal, names[1]: "b"})
    assert (status, answer["error"]["code"]) == (400, "key_conflict")
    got = await delivered(running, peers, 11)
    assert {message["key"] for message in got} == {key}, "a consumer reads it as the key"


async def test_an_empty_string_is_a_key(running, peers):
    expected = str(Layout.first(4).partition_for(""))
    for _ in range(3):
        _, answer = await post(running, peers, {"key": "", "value": "a"})
        assert answer["partition"] == expected


async def test_values_that_are_no_text_go_as_base64(running, peers):
    value = base64.b64encode(b"\xff\x00").decode()
    status, _ = await post(running, peers, {"key": "k", "value_base64": value})
    assert status == 201
    (message,) = await delivered(running, peers, 1)
    assert message["value_base64"] == value


async def test_an_array_is_stored_in_its_order(running, peers):
    body = [{"key": peers.key_of(n % 2), "value": str(n)} for n in range(6)]
    status, answer = await post(running, peers, body)
    assert status == 201
    assert [(r["partition"], r["offset"]) for r in answer["results"]] == [
        ("1.0", 0), ("1.1", 0), ("1.0", 1), ("1.1", 1), ("1.0", 2), ("1.1", 2),
    ]  # fmt: skip


async def test_after_a_refused_message_the_later_ones_of_its_partition_are_refused(running, peers):
    """Order is kept: the caller sends again from there. Other partitions are not touched."""
    here, there = peers.key_of(0), peers.key_of(1)
    body = [
        {"key": here, "value": "a"},
        {"key": here, "value": "x" * 5000},
        {"key": here, "value": "c"},
        {"key": there, "value": "d"},
        {"key": there},
        {"key": there, "value": "f"},
    ]
    status, answer = await post(running, peers, body)
    codes = [result.get("error", {}).get("code", "") for result in answer["results"]]
    assert status == 207
    assert codes == ["", "message_too_large", "not_stored", "", "bad_request", "not_stored"]
    got = await delivered(running, peers, 2)
    assert sorted(message["value"] for message in got) == ["a", "d"]


@pytest.mark.parametrize("policy", ["Random", "RoundRobin"])
async def test_keyless_messages_go_where_somebody_serves(running, peers, policy, monkeypatch):
    monkeypatch.setattr(running.broker, "_config", replace_policy(running.broker.config, policy))
    await running.admin("/yield", {"partitions": ["1.3"]})
    status, answer = await post(running, peers, [{"value": str(n)} for n in range(60)])
    assert status == 201, answer
    counts = [sum(r["partition"] == f"1.{p}" for r in answer["results"]) for p in range(4)]
    assert counts[3] == 0
    assert counts[:3] == [20, 20, 20] if policy == "RoundRobin" else all(counts[:3])
    assert {message["key"] for message in await delivered_of(running, peers, 60)} == {None}


def replace_policy(config, policy):
    return replace(config, keyless_policy=policy)


async def delivered_of(running, peers, number):
    await running.admin("/claim", {"partitions": ["1.3"]})
    return await delivered(running, peers, number)


@pytest.mark.req("AZR-20", "AZR-22", "AZR-32", "AZR-33")
async def test_a_broker_forwards_to_the_owner_once(running, peers, start_broker):
    """The client need not know who owns what; the answer is the owner's."""
    other = await start_broker("orders-1")
    await running.admin("/yield", {"partitions": ["1.0"]})
    key = peers.key_of(0)
    status, answer = await post(running, peers, {"key": key, "value": "a"})
    assert (status, answer["error"]["code"]) == (503, "not_stored")
    await other.admin("/claim", {"partitions": ["1.0"]})
    await peers.eventually(
        lambda: running.broker.claims.owner_url(peers.partition_id(0)), "the owner is known"
    )
    body = [{"key": key, "value": "a"}, {"key": peers.key_of(1), "value": "b"}]
    status, answer = await post(running, peers, body)
    assert (status, answer["results"][0]) == (201, {"partition": "1.0", "offset": 0})
    status, answer = await post(
        running, peers, {"key": key, "value": "a"}, headers={"Partq-Forwarded": "x"}
    )
    assert (status, answer["error"]["code"]) == (421, "not_owner")
    for number, broker in enumerate((running, other, running), start=1):  # whoever is asked
        status, answer = await post(broker, peers, {"value": "s"}, headers={"SessionId": key})
        assert (status, answer) == (201, {"partition": "1.0", "offset": number})

    # The owner answers nobody, and keeps its lease. What has a key waits for it; the rest does not.
    await other.runner.cleanup()

    async def is_refused():
        _, answer = await post(running, peers, {"key": key, "value": "a"})
        return answer["error"]["code"] == "not_stored"  # over an old connection nobody knows

    await peers.eventually(is_refused, "the owner's connections have ended")
    body = [{"key": key, "value": "a"}, *({"value": str(n)} for n in range(12))]
    for _ in range(3):
        status, answer = await post(running, peers, body)
        codes = [result.get("error", {}).get("code", "") for result in answer["results"]]
        assert (status, codes[0]) == (207, "not_stored")
        assert not any(codes[1:])
        assert not any(result["partition"] == "1.0" for result in answer["results"][1:])
    ends = [(await running.broker.partitions.read(peers.partition_id(p))).next for p in range(4)]
    assert (ends[0], sum(ends[1:])) == (4, 37), "with a key: stored nowhere else"


async def test_publishing_waits_no_longer_than_its_limit(running, peers, monkeypatch):
    monkeypatch.setattr(message_writer, "ANSWER_TIMEOUT_S", 0.05)
    gate = peers.Gate(running.broker.log, "append")
    status, answer = await post(running, peers, {"key": peers.key_of(0), "value": "a"})
    assert (status, answer["error"]["code"]) == (504, "outcome_unknown")
    gate.opened.set()
