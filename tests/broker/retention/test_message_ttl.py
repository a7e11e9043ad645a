"""Times to live that producers give: each batch is judged by its own, wherever it lies."""

import logging

import pytest

from partq import Message, Producer
from partq.broker.operations.gauges import render_metrics
from partq.core.clocks.clock_watch import ClockWatch
from partq.core.model import MemberId, Offset, PartitionId
from partq.embedded.provision import provision
from partq.errors import BadRequestError, StoreUnavailableError
from partq.resources import group_document, queue_document, resources_of
from partq.store.records.members import Members
from partq.testing import eventually
from partq.wire import frames
from tests.broker.conftest import CONSUME, PRODUCE, UID, key_of, open_flow, open_producer
from tests.broker.group_rules import without_rules
from tests.broker.moved_clocks import AheadWatch, put_watch
from tests.broker.queue_ttl import set_ttl

__all__ = ["set_ttl"]

P = PartitionId(1, 0)
SHORT_S, LONG_S = 60, 86_400
LATER_MS = 3_600_000
"""Between the two."""
MESSAGES = "/v1/queues/orders/messages"
PULL = "/v1/queues/orders/groups/workers/pull"
QUEUE = queue_document("orders", partitions=4)
GROUP = group_document("workers", "orders")


@pytest.fixture
def documents():
    return [QUEUE, GROUP]


@pytest.fixture
def resources(documents):
    return resources_of(*documents)


@pytest.fixture
def lease_ttl_s():
    """Nothing here is about leases: none shall be over on a busy machine."""
    return 30.0


@pytest.fixture
def watch(running):
    """Redis's clock as the broker knows it."""
    return put_watch(running.broker, AheadWatch())


@pytest.fixture
def post(running):
    """Publish by plain HTTP."""

    async def post(values, **headers):
        body = [{"key": key_of(0), "value": value} for value in values]
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return await running.call("POST", MESSAGES, token=PRODUCE, json=body, headers=headers)

    return post


async def ttls(running):
    """Return (first offset, count, time to live) of all that partition 1.0 holds."""
    entries = await running.broker.log.read(P, Offset(0), max_bytes=2**20, max_entries=1000)
    return [(entry.first, entry.count, entry.ttl_ms) for entry in entries]


def book_of(running):
    return running.broker.owned[P].groups["workers"].book


async def test_a_short_one_between_long_ones_expires_and_the_others_do_not(running, watch):
    async with Producer(running.url, queue="orders", token=PRODUCE, linger_ms=1000) as producer:
        for value, ttl_s in [
            (b"a", None), (b"b", SHORT_S), (b"c", SHORT_S), (b"d", LONG_S), (b"e", SHORT_S),
        ]:  # fmt: skip
            await producer.send(value, key=key_of(0), ttl_s=ttl_s)
        many = [Message(key_of(0), value) for value in (b"f", b"g")]
        await producer.send_many(many, ttl_s=LONG_S)
        with pytest.raises(BadRequestError, match="ttl_s 0"):
            await producer.send(b"x", key=key_of(0), ttl_s=0)
        with pytest.raises(BadRequestError, match="ttl_s -1"):
            await producer.send_many(many, ttl_s=-1)
        await producer.flush()
    assert await ttls(running) == [
        (0, 1, 0), (1, 2, 60_000), (3, 1, 86_400_000), (4, 1, 60_000), (5, 2, 86_400_000),
    ]  # fmt: skip
    watch.ahead_ms = LATER_MS
    await running.assign("m", [0])
    flow = await open_flow(running)
    assert await flow.take(4) == ["a", "d", "f", "g"]
    await eventually(lambda: book_of(running).cursor == 7, "what has expired is done with")
    metrics = render_metrics(running.broker).decode()
    (line,) = [x for x in metrics.splitlines() if x.startswith("partq_messages_expired_total{")]
    assert line.endswith(" 3.0")


async def test_what_is_in_flight_stays_and_what_is_given_back_does_not(running, watch):
    await running.assign("m", [0])
    flow = await open_flow(running, credit=2)
    await flow.expect(frames.Assigned)
    producer = await open_producer(running)
    await producer.publish("a", "b", "c", ttl_ms=SHORT_S * 1000)
    await producer.publish("d")
    header, values = await flow.deliver()
    assert values == ["a", "b"]
    watch.ahead_ms = LATER_MS
    await flow.send(frames.Credit(1))
    assert (await flow.deliver())[1] == ["d"]
    assert (book_of(running).cursor, book_of(running).in_flight) == (0, 3)
    assert await flow.ack(header, ranges=[(0, 1)]) == ""
    await flow.close()
    again = await open_flow(running, incarnation="j")
    assert (await again.deliver())[1] == ["d"]
    assert book_of(running).cursor == 3
    await producer.close()


async def test_plain_http_gives_one_time_to_all_messages_of_a_request(running, watch, post):
    await running.assign("m", [0])
    assert (await post(["a", "b"], Partq_TTL_Ms=str(SHORT_S * 1000)))[0] == 201
    assert (await post(["c"]))[0] == 201
    for bad in ("0", "-1", "1.5", "soon", str(LONG_S * 1000 * 10_000)):
        status, answer = await post(["x"], Partq_TTL_Ms=bad)
        assert (status, answer["error"]["code"]) == (400, "bad_request")
        assert "Partq-TTL-Ms" in answer["error"]["message"]
    assert await ttls(running) == [(0, 2, 60_000), (2, 1, 0)]
    watch.ahead_ms = LATER_MS
    body = {"member": "m", "incarnation": "i", "wait_ms": 10_000}
    status, answer = await running.call("POST", PULL, token=CONSUME, json=body)
    assert (status, [each["value"] for each in answer["messages"]]) == (200, ["c"])


async def test_it_is_forwarded_and_outlives_its_broker(running, post, start_broker):
    other = await start_broker("orders-1")
    await running.admin("/yield", {"partitions": ["1.0"]})
    await other.admin("/claim", {"partitions": ["1.0"]})
    await eventually(lambda: running.broker.claims.owner_url(P), "the owner is known")
    assert (await post(["a"], Partq_TTL_Ms=str(SHORT_S * 1000)))[0] == 201
    assert (await post(["b"]))[0] == 201
    await other.admin("/yield", {"partitions": ["1.0"]})
    await running.admin("/claim", {"partitions": ["1.0"]})
    watch = put_watch(running.broker, AheadWatch())
    watch.ahead_ms = LATER_MS
    await running.assign("m", [0])
    flow = await open_flow(running)
    assert await flow.take(1) == ["b"]


async def test_the_shorter_of_the_queues_and_the_messages_holds(running, set_ttl, watch):
    await set_ttl(LONG_S * 2)
    producer = await open_producer(running)
    await producer.publish("short", ttl_ms=SHORT_S * 1000)
    await producer.publish("long", ttl_ms=LONG_S * 1000)
    watch.ahead_ms = LATER_MS
    await running.assign("m", [0])
    flow = await open_flow(running)
    assert await flow.take(1) == ["long"]
    await flow.close()
    await producer.publish("long for the queue", ttl_ms=LONG_S * 1000)
    # Under a long time to live partitions are looked at once a minute; a shorter one holds at once.
    await running.broker.expiry.expire()
    await set_ttl(1.0)
    await eventually(lambda: book_of(running).cursor == 3, "expired by the queue's")
    await producer.close()


@pytest.mark.parametrize("documents", [[QUEUE]])
async def test_a_group_that_comes_later_gets_none_that_is_over(running, store, watch):
    """Without a group what is over stays stored: nothing reads it."""
    assert not running.broker.owned[P].groups
    producer = await open_producer(running)
    await producer.publish("short", ttl_ms=1)
    await producer.publish("long")
    watch.ahead_ms = LATER_MS
    await running.broker.expiry.expire()
    assert len(await ttls(running)) == 2
    resources = resources_of(QUEUE, GROUP)
    await provision(store, resources.queues[0], resources, uid=UID)
    members = Members(store, running.broker.keys)
    await members.list_member("workers", MemberId("m"), "127.0.0.1")
    await running.broker.refresh()
    await eventually(lambda: running.broker.owned[P].groups, "a group")
    await running.assign("m", [0])
    flow = await open_flow(running)
    assert await flow.take(1) == ["long"]
    await producer.close()


async def test_what_is_over_waits_until_the_rules_of_its_group_are_known(running, watch):
    """The group may want it as a dead letter."""
    await running.assign("m", [0])
    flow = await open_flow(running)
    await flow.expect(frames.Assigned)
    watch.ahead_ms = LATER_MS
    producer = await open_producer(running)
    async with without_rules(running.broker):
        await producer.publish("short", ttl_ms=SHORT_S * 1000)
        await producer.publish("long")
        assert await flow.gets_nothing()
        assert book_of(running).cursor == 0
    assert await flow.take(1) == ["long"]
    await producer.close()


async def test_nothing_is_judged_after_a_jump_of_the_clock(running):
    expiry = running.broker.expiry
    put_watch(running.broker, ClockWatch()).observe(0, 0.0, wall_s=0.0)
    producer = await open_producer(running)
    await producer.publish("short", ttl_ms=1)
    await expiry.expire()
    assert running.broker.expiry.clocks.is_suspended
    await running.assign("m", [0])
    flow = await open_flow(running)
    assert await flow.take(1) == ["short"]
    await producer.close()


async def test_it_is_over_by_redis_time_alone(running, store):
    producer = await open_producer(running)
    await producer.publish("short", ttl_ms=1)
    await producer.publish("long", ttl_ms=LONG_S * 1000)
    (entry, _) = await running.broker.log.read(P, Offset(0), max_bytes=2**20, max_entries=9)

    async def is_later():
        seconds, _ = await store.read("TIME")
        return int(seconds) * 1000 > entry.at_ms + 1500

    await eventually(is_later, "later")
    await running.assign("m", [0])
    flow = await open_flow(running)
    assert await flow.take(1) == ["long"]
    await producer.close()


async def test_deliveries_wait_until_the_time_of_redis_is_known(running, peers, caplog):
    """That it is not known is told once, and so is its end."""
    caplog.set_level(logging.INFO, "partq.broker.retention.expiry")
    clocks = running.broker.expiry.clocks
    errors = [StoreUnavailableError(text) for text in ("no answer", "none", "none yet")]
    observe = clocks.observe

    async def fail_at_first():
        if errors:
            raise errors.pop(0)
        return await observe()

    clocks.observe = fail_at_first
    gate = peers.Gate(clocks, "observe")
    await running.assign("m", [0])
    flow = await open_flow(running)
    await flow.expect(frames.Assigned)
    producer = await open_producer(running)
    await producer.publish("a", ttl_ms=LONG_S * 1000)
    await gate.reached.wait()
    assert await flow.gets_nothing()
    gate.opened.set()
    assert await flow.take(1) == ["a"]
    assert not errors
    told = [each for each in caplog.records if each.name == "partq.broker.retention.expiry"]
    assert [(each.levelname, each.getMessage()) for each in told] == [
        ("WARNING", "the time of Redis is unknown, messages with a time to live wait: no answer"),
        ("INFO", "the time of Redis is known again"),
    ]
    await producer.close()
