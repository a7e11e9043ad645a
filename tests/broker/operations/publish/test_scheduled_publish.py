"""Messages that are published with a due time wait for it, over every way of publishing."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from partq import BadRequestError, Message, Producer, UnsupportedError
from partq.core.numbering.scheduled_ids import MAX_AHEAD_MS, ScheduledId
from partq.store.schedule.scheduled_entries import ScheduledEntries
from partq.wire import frames
from partq.wire.calls.bodies import DELIVER_AFTER, DELIVER_AT, ENQUEUE_TIME

MESSAGES = "/v1/queues/orders/messages"
PATH = "/v1/queues/orders/scheduled"
FAR = datetime.now(UTC).replace(microsecond=0) + timedelta(days=300)
FAR_MS = round(FAR.timestamp() * 1000)


@pytest.fixture
async def local(running):
    await running.claim_all()
    return running


@pytest.fixture
async def producer(local, peers):
    async with Producer(local.url, queue="orders", token=peers.PRODUCE, linger_ms=0) as producer:
        yield producer


async def listed(running, *fields):
    status, answer = await running.call("GET", PATH)
    assert status == 200, answer
    return [tuple(each.get(field) for field in fields) for each in answer["messages"]]


async def post(running, peers, body, **headers):
    named = {name.replace("_", "-"): str(value) for name, value in headers.items()}
    return await running.call("POST", MESSAGES, token=peers.PRODUCE, json=body, headers=named)


# ---- plain HTTP


@pytest.mark.req("PUL-79")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        (DELIVER_AT, FAR_MS),
        (ENQUEUE_TIME, FAR.isoformat()),
        (ENQUEUE_TIME, FAR.strftime("%Y-%m-%dT%H:%M:%S.000Z")),
        (ENQUEUE_TIME, FAR.replace(tzinfo=None).isoformat()),
        (DELIVER_AFTER, 1_000_000),
    ],
    ids=("at", "text", "milliseconds", "no offset", "after"),
)
async def test_each_header_schedules(local, peers, name, value):
    key = peers.key_of(1)
    before_ms = round(time.time() * 1000)
    status, answer = await post(local, peers, {"key": key, "value": "v"}, **{name: value})
    assert (status, answer["partition"], answer["offset"]) == (201, "1.1", None)
    due_ms = answer["due_ms"]
    assert due_ms >= before_ms + 1_000_000 if name == DELIVER_AFTER else due_ms == FAR_MS
    assert await listed(local, "id", "due_ms", "key") == [(answer["scheduled"], due_ms, key)]
    status, answer = await local.call("DELETE", f"{PATH}/{answer['scheduled']}")
    assert (status, answer) == (200, {"is_cancelled": True})


async def test_messages_of_an_array_that_go_to_one_partition_are_one_entry(local, peers):
    rows = [{"key": peers.key_of(0), "value": value} for value in "ab"]
    rows.append({"key": peers.key_of(1), "value": "c"})
    status, answer = await post(local, peers, rows, **{DELIVER_AT: FAR_MS})
    assert status == 201
    ids = [each["scheduled"] for each in answer["results"]]
    assert ids[0] == ids[1]
    assert sorted(await listed(local, "id", "count")) == sorted([(ids[0], 2), (ids[2], 1)])


async def test_a_time_that_is_over_is_now(local, peers):
    body = {"key": peers.key_of(0), "value": "v"}
    for at_ms in (0, 10**11):
        status, answer = await post(local, peers, body, **{DELIVER_AT: at_ms})
        assert (status, "scheduled" in answer) == (201, False)
    status, answer = await post(local, peers, body, **{DELIVER_AFTER: 0})
    assert (status, answer) == (201, {"partition": "1.0", "offset": 2})


async def test_a_repeat_with_its_number_has_the_same_id(local, peers):
    body = {"key": peers.key_of(0), "value": "v"}
    headers = {"Partq-Producer": "p", "Partq-Sequence": 0, DELIVER_AT: FAR_MS}
    _, first = await post(local, peers, body, **headers)
    status, again = await post(local, peers, body, **headers)
    assert (status, again["is_duplicate"], again["scheduled"]) == (200, True, first["scheduled"])
    assert await listed(local, "id") == [(first["scheduled"],)]


@pytest.mark.parametrize(
    "headers",
    [
        {DELIVER_AT: FAR_MS, DELIVER_AFTER: 5},
        {DELIVER_AT: FAR_MS, ENQUEUE_TIME: FAR.isoformat()},
        {DELIVER_AT: FAR_MS + MAX_AHEAD_MS},
        {DELIVER_AT: "soon"},
        {DELIVER_AT: FAR_MS // 1000},
        {DELIVER_AT: 10**14 + 1},
        {DELIVER_AFTER: MAX_AHEAD_MS + 1},
        {ENQUEUE_TIME: "tomorrow"},
    ],
)
async def test_wrong_times_are_refused_and_nothing_is_stored(local, peers, headers):
    status, answer = await post(local, peers, {"key": "k", "value": "v"}, **headers)
    assert (status, answer["error"]["code"]) == (400, "bad_request")
    assert await listed(local, "id") == []


async def test_a_time_in_seconds_is_told_from_one_that_is_over(local, peers):
    body = {"key": "k", "value": "v"}
    _, answer = await post(local, peers, body, **{DELIVER_AT: 1_795_955_974})
    assert (
        f"headers: {DELIVER_AT}: got 1795955974, which is usually not in milliseconds; expected "
        "milliseconds since 1970, 100000000000 to 100000000000000, or 0 for at once"
    ) in answer["error"]["message"]


async def test_another_broker_of_the_queue_schedules_for_the_owner(running, start_broker, peers):
    await running.claim_all()
    other = await start_broker("orders-1")
    await running.admin("/yield", {"partitions": ["1.0"]})
    await other.admin("/claim", {"partitions": ["1.0"]})
    await running.broker.claims.refresh()
    body = {"key": peers.key_of(0), "value": "v"}
    for name, value in ((DELIVER_AT, FAR_MS), (DELIVER_AFTER, 1_000_000)):
        status, answer = await post(running, peers, body, **{name: value})
        assert (status, answer["due_ms"] > 0) == (201, True)
        assert (answer["scheduled"],) in await listed(other, "id")
    long_ago = {ENQUEUE_TIME: "1970-02-01T00:00:00Z"}
    assert (await post(running, peers, body, **long_ago))[0] == 201, "a time, and it is over"


# ---- the client


@pytest.mark.req("PUL-71")
async def test_each_message_that_is_sent_is_an_entry_that_can_be_cancelled(local, peers, producer):
    key = peers.key_of(2)
    sent = [await producer.send(b"v", key=key, deliver_at=FAR) for _ in range(2)]
    first, second = [await each for each in sent]
    assert (first.partition, first.offset, first.is_duplicate) == ((1, 2), -1, False)
    assert [(first.scheduled, 1), (second.scheduled, 1)] == await listed(local, "id", "count")
    assert await producer.cancel_scheduled(first.scheduled) is True
    assert await producer.cancel_scheduled(first.scheduled) is False
    assert await listed(local, "id") == [(second.scheduled,)]
    assert (await producer.send_and_wait(b"now", key=key)).scheduled is None


async def test_a_list_is_an_entry_for_each_batch_of_a_partition(local, peers):
    messages = [Message(peers.key_of(n % 2), b"v") for n in range(10)]
    options = {"queue": "orders", "token": peers.PRODUCE, "max_batch_count": 3}
    async with Producer(local.url, **options) as producer:
        positions = await (await producer.send_many(messages, deliver_after_s=1_000_000))
        ids = [each.scheduled for each in positions]
        assert [ids[0], ids[2], ids[4]] == [ids[0]] * 3
        assert sorted(await listed(local, "id", "count")) == sorted(
            [(ids[0], 3), (ids[6], 2), (ids[1], 3), (ids[7], 2)]
        )
        assert [each.partition for each in positions] == [(1, n % 2) for n in range(10)]


@pytest.mark.req("PUL-79")
async def test_they_are_delivered_when_they_are_due_and_not_cancelled_then(local, peers, producer):
    key = peers.key_of(0)
    receipt = await producer.send_and_wait(b"later", key=key, deliver_after_s=0.05)
    assert receipt.scheduled is not None
    assert (await producer.send_and_wait(b"now", key=key)).offset == 0
    await peers.eventually(
        lambda: local.broker.owned[peers.partition_id(0)].tail.end == 2, "it is appended"
    )
    assert await producer.cancel_scheduled(receipt.scheduled) is False
    assert await read_all(local, peers, 2) == [b"now", b"later"]


async def test_a_producer_with_an_id_cannot_schedule(local, peers):
    options = {"queue": "orders", "token": peers.PRODUCE, "producer_id": "p"}
    async with Producer(local.url, **options) as producer:
        with pytest.raises(BadRequestError, match="one without"):
            await producer.send(b"v", key="k", deliver_after_s=5)
        with pytest.raises(BadRequestError, match="one without"):
            await producer.send_many([Message("k", b"v")], deliver_at=FAR)


async def test_a_time_too_far_ahead_is_refused_by_the_broker(local, producer):
    with pytest.raises(BadRequestError, match="at most 400 days ahead"):
        await producer.send_and_wait(b"v", key="k", deliver_at=FAR + timedelta(days=200))
    assert (await producer.send_and_wait(b"v", key="k")).offset == 0


async def test_an_older_broker_gets_nothing_that_it_would_deliver_at_once(
    local, peers, monkeypatch
):
    monkeypatch.setattr("partq.broker.api.routes.publish_socket.FEATURES", ())
    options = {"queue": "orders", "token": peers.PRODUCE}
    async with Producer(local.url, **options) as producer:
        with pytest.raises(UnsupportedError, match="without scheduled"):
            await producer.send_and_wait(b"v", key="k", deliver_after_s=5)
        assert (await producer.send_and_wait(b"v", key="k")).offset == 0


# ---- what races


async def test_of_a_cancel_and_a_due_time_exactly_one_wins(local, peers, producer):
    """Cancelled or delivered, never both, never neither."""
    key, count = peers.key_of(0), 200
    sent = [
        await producer.send(b"%d" % n, key=key, deliver_after_s=0.02 + n / 2000)
        for n in range(count)
    ]
    cancelled = set()
    for number, each in enumerate(sent):
        if await producer.cancel_scheduled((await each).scheduled):
            cancelled.add(b"%d" % number)
    left = count - len(cancelled)
    owned = local.broker.owned[peers.partition_id(0)]
    await peers.eventually(lambda: owned.tail.end >= left, "all others are appended")
    values = await read_all(local, peers, owned.tail.end)
    assert set(values) == {b"%d" % n for n in range(count)} - cancelled
    assert len(values) == left
    assert await listed(local, "id") == []
    entries = ScheduledEntries(local.store, local.broker.keys)
    assert await entries.read_counts([peers.partition_id(0)]) == {}


async def read_all(running, peers, count):
    from partq.wire import batch

    values = []
    while len(values) < count:
        entries = await running.broker.log.read(
            peers.partition_id(0), len(values), max_bytes=99_999, max_entries=999
        )
        values += [message.value for entry in entries for message in batch.decode(entry.data)]
    return values


async def test_a_frame_of_a_batch_says_under_which_number_it_waits(local, peers):
    producer = await peers.open_producer(local)
    data = peers.make_batch(["a"])
    for is_duplicate in (False, True):
        await producer.send(frames.Publish(1, 1, 0, 0, due_ms=FAR_MS), data)
        published, _ = await producer.expect(frames.Published)
        assert (published.offset, published.is_duplicate) == (-1, is_duplicate)
        name = str(ScheduledId(peers.partition_id(0), published.entry))
        assert await listed(local, "id") == [(name,)]
    status, answer = await local.call("GET", "/v1/queues/orders/producers/p?outlines=true")
    assert (status, answer["due"]["1.0"], answer.get("outlines", {})) == (200, 1, {})
