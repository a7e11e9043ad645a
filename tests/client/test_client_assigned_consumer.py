"""A consumer whose application chooses its partitions, against real brokers."""

import asyncio

import pytest

from partq import (
    BadRequestError,
    ClientAssignedConsumer,
    Consumer,
    FencedError,
    Message,
    NodeInUseError,
    NotSubscribableError,
    PartitionId,
    PartitionInUseError,
    PartitionKey,
    Producer,
    ServerAssignedError,
    SettingsError,
    SourceCountError,
)
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import Session
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from partq.wire.calls.registration import Subscribable
from tests.client.hooks.test_interceptor_calls import Notes
from tests.even_shares import even_shares

WAIT_S = 60.0
PARTITIONS = 4
KEYS = [PartitionKey("orders", PartitionId(1, index)) for index in range(PARTITIONS)]
CLIENT = {"assignment": "Client", "rebalance": {"delaySeconds": 3}}


@pytest.fixture
async def broker(request):
    """Its leases are short only where a test kills a broker: a busy machine ends such a one."""
    groups = {"workers": CLIENT, "served": {}}
    lease_s = getattr(request, "param", 10.0)
    async with LocalBroker(
        groups=groups, partitions=PARTITIONS, broker_count=2, lease_ttl_s=lease_s
    ) as local:
        await even_shares(local.queue)
        yield local


def consumer_of(broker, name, *, group="workers", **more):
    token = broker.tokens.consume
    options = {"handle_signals": False, "leave_timeout_s": 5.0, "max_processing_s": 0, **more}
    return ClientAssignedConsumer(
        broker.url, queue="orders", group=group, token=token, member=name, **options
    )


async def publish(broker, count):
    """Store messages in every partition."""
    token = broker.tokens.produce
    async with Producer(broker.url, queue="orders", token=token) as producer:
        await (await producer.send_many([Message(f"k{n}", b"%d" % n) for n in range(count)]))


async def taken(consumer, key):
    """Return the next batch of a partition."""
    async with asyncio.timeout(WAIT_S):
        while (batch := await consumer.get(key)) is None:
            pass
    assert batch.partition == key.partition
    return batch


@pytest.mark.req("TUB-06", "TUB-10", "TUB-11", "TUB-12", "TUB-16", "TUB-U02", "TUB-U03")
async def test_a_member_has_what_it_registers_and_nothing_else(broker):
    await publish(broker, 200)
    notes = Notes()
    async with consumer_of(broker, "a", interceptors=[notes]) as consumer:
        await consumer.start()
        shown = await consumer.query_partitions()
        assert sorted(shown) == KEYS
        assert all(each.is_subscribable and not each.member for each in shown.values())
        assert sum(each.lag for each in shown.values()) == 200
        assert consumer.registered == frozenset()

        first = await consumer.register(KEYS[0])
        assert (first.key, first.offset, first.is_new) == (KEYS[0], 0, True)
        again = await consumer.register(KEYS[0].partition)
        assert (again.offset, again.is_new) == (0, False), "a repeat changes nothing"
        assert await consumer.wait_ready(WAIT_S)
        batch = await taken(consumer, KEYS[0])
        assert batch.offsets[0] == 0

        # What is not confirmed comes again, and what is confirmed does not.
        await consumer.confirm(batch, ok=False)
        repeated = await taken(consumer, KEYS[0])
        assert (repeated.offsets[0], repeated.redeliveries(0)) == (0, 1)
        await consumer.confirm(repeated)
        offsets = [place[1] for place in notes.all_of("consume")]
        assert offsets == sorted([*batch.offsets, *repeated.offsets])
        assert [len(notes.all_of(word)) for word in ("nack", "ack")] == [1, 1]
        cursor = (await consumer.offsets())[KEYS[0]].cursor
        assert cursor == repeated.offsets[-1] + 1

        # An offset replaces the cursor of the group; one that is not there is clamped.
        end = shown[KEYS[1]].end
        second = await consumer.register(KEYS[1], offset=end - 1)
        assert (second.offset, second.is_clamped) == (end - 1, False)
        assert (await taken(consumer, KEYS[1])).offsets[0] == end - 1
        third = await consumer.register(KEYS[2], offset=10**9)
        assert (third.offset, third.is_clamped) == (shown[KEYS[2]].end, True)

        with pytest.raises(FencedError, match="not registered by this consumer"):
            await consumer.get(KEYS[3])
        assert consumer.registered == set(KEYS[:3])
        assert {each.member for each in (await consumer.offsets()).values()} == {"a"}

        # Given back, it goes on where it was when it is registered again.
        assert await consumer.unregister(KEYS[0])
        assert not await consumer.unregister(KEYS[0]), "a repeat changes nothing"
        assert consumer.registered == set(KEYS[1:3])
        with pytest.raises(FencedError):
            await consumer.confirm(repeated)
        assert (await consumer.register(KEYS[0])).offset == cursor


@pytest.mark.req("TUB-24", "TUB-25", "TUB-27", "TUB-30", "TUB-32", "TUB-34")
async def test_two_nodes_never_have_the_same_partition_or_number(broker):
    await publish(broker, 40)
    async with consumer_of(broker, "a") as a, consumer_of(broker, "b") as b:
        await a.start(2, 0)
        with pytest.raises(SourceCountError, match="a has 2"):
            await b.start(3, 1)
        with pytest.raises(NodeInUseError, match="node_id 0 is that of member a"):
            await b.start(2, 0)
        with pytest.raises(BadRequestError, match="got node_id 2 with source_count 2"):
            await b.start(2, 2)
        assert (b.source_count, b.node_id) == (None, None)
        await b.start(2, 1)
        await b.start(2, 1)
        assert (b.source_count, b.node_id) == (2, 1)
        await a.register(KEYS[0])
        batch = await taken(a, KEYS[0])
        with pytest.raises(PartitionInUseError, match="member a"):
            await b.register(KEYS[0])
        assert b.registered == frozenset()
        shown = await b.query_partitions()
        assert (shown[KEYS[0]].member, shown[KEYS[0]].node_id) == ("a", 0)
        # What it has in hand when its time to give back is over goes to the next holder.
        assert await a.unregister(KEYS[0], timeout_s=0)
        with pytest.raises(FencedError):
            await a.confirm(batch)
        await b.register(KEYS[0])
        assert (await taken(b, KEYS[0])).offsets[0] == batch.offsets[0]
        await a.close()
        # Closed, its number is free.
        async with consumer_of(broker, "c") as c:
            await c.start(2, 0)


@pytest.mark.req("TUB-33", "SOL-20")
async def test_what_cannot_be_registered_says_why(broker):
    async with consumer_of(broker, "a") as consumer:
        await consumer.start()
        options = ConnectionOptions(broker.url, "orders", token=broker.tokens.admin)
        async with Session(options) as admin:
            path, kind = "/partitions/1.2/subscribable", Subscribable
            body = {"is_subscribable": False, "reason": "disk"}
            await admin.ask("PUT", path, kind, body)
            shown = await consumer.query_partitions()
            assert not shown[KEYS[2]].is_subscribable
            assert "disk" in shown[KEYS[2]].reason
            with pytest.raises(NotSubscribableError, match="disk"):
                await consumer.register(KEYS[2])
            await admin.ask("PUT", path, kind, {"is_subscribable": True})
        await consumer.register(KEYS[2])
        with pytest.raises(SettingsError, match="one of another queue, expected orders"):
            await consumer.register(PartitionKey("audit", PartitionId(1, 0)))
        with pytest.raises(SettingsError, match="filters: got conditions for orders, expected"):
            await consumer.start(filters={"orders": ["red"]})
    async with consumer_of(broker, "s", group="served") as served:
        with pytest.raises(ServerAssignedError):
            await served.start(1, 0)


async def test_a_plain_consumer_says_why_it_gets_nothing(broker, caplog):
    """Once, however often it looks at the layout; where the coordinator assigns it says nothing."""

    def told():
        return [text for text in caplog.messages if "a Consumer registers no partition" in text]

    options = {"queue": "orders", "token": broker.tokens.consume, "handle_signals": False}
    async with Consumer(broker.url, group="served", **options), consumer_of(broker, "a"):
        assert told() == []
        async with Consumer(broker.url, group="workers", member="p", **options) as consumer:
            assert len(told()) == 1
            assert "group workers has assignment: Client" in told()[0]
            assert "member p gets no messages" in told()[0]
            consumer._layout_watch._on_layout(consumer._layout_watch.queue_layout)
    assert len(told()) == 1


@pytest.mark.req("TUB-29")
@pytest.mark.parametrize("broker", [pytest.param(3.0, id="short leases")], indirect=True)
async def test_registrations_outlive_a_broker(broker):
    await publish(broker, 40)
    async with consumer_of(broker, "a") as consumer:
        await consumer.start(1, 0)
        for key in KEYS:
            await consumer.register(key)
        assert await consumer.wait_ready(WAIT_S)
        killed = broker.queue.brokers[0]
        await killed.kill()
        assert consumer.registered == set(KEYS)

        async def is_whole():
            return consumer.partitions == {key.partition for key in KEYS}

        await eventually(lambda: consumer.partitions != {key.partition for key in KEYS}, "a loss")
        await eventually(is_whole, "all partitions are delivered again")
        shown = await consumer.query_partitions()
        assert {each.member for each in shown.values()} == {"a"}
        assert consumer.registered == set(KEYS)


async def test_closing_gives_everything_back(broker):
    await publish(broker, 40)
    async with consumer_of(broker, "a") as consumer:
        await consumer.start(1, 0)
        for key in KEYS:
            await consumer.register(key)
        batch = await taken(consumer, KEYS[0])
        assert not consumer.is_closed
        with pytest.raises(RuntimeError, match="entered before"):
            await consumer.__aenter__()
    assert consumer.is_closed
    assert consumer.registered == frozenset()
    for call in (
        consumer.start, consumer.query_partitions, consumer.wait_ready, consumer.offsets,
        consumer.getmany, lambda: consumer.run(print), lambda: consumer.get(KEYS[0]),
        lambda: consumer.register(KEYS[0]), lambda: consumer.unregister(KEYS[0]),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=r"was closed.*: make another one"):
            await call()
    async with consumer_of(broker, "b") as other:
        await other.start(1, 0)

        async def are_free():
            shown = await other.query_partitions()
            return not any(each.member for each in shown.values())

        await eventually(are_free, "nobody holds anything")
        await other.register(KEYS[0])
        assert (await taken(other, KEYS[0])).offsets[0] == batch.offsets[0]


async def test_what_is_called_wrongly_says_how_it_is_called(broker):
    with pytest.raises(SettingsError, match="priority: got 2, expected 0: members that choose"):
        consumer_of(broker, "a", priority=2)
    closed = consumer_of(broker, "a")
    for call in (
        closed.query_partitions, closed.wait_ready, closed.offsets,
        lambda: closed.get(KEYS[0]), lambda: closed.register(KEYS[0]),
        lambda: closed.unregister(KEYS[0]),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=r"not open; call start\(\)"):
            await call()
    assert not closed._entered_loop.is_entered, "no call but start opens it"
    async with closed as consumer:
        for wrong in ("orders:1.3", "1.3", None, (1, 3)):
            for call in (consumer.register, consumer.unregister, consumer.get):
                with pytest.raises(SettingsError, match="expected a PartitionKey, as query_part"):
                    await call(wrong)
        with pytest.raises(TypeError, match="confirm: got NoneType"):
            await consumer.confirm(None)
        with pytest.raises(TypeError, match="confirm: got NoneType"):
            await consumer.confirm(None, ok=False)


async def test_a_block_may_follow_a_start_and_a_start_that_fails_leaves_nothing_open(broker):
    consumer = consumer_of(broker, "a")
    await consumer.start(1, 0)
    async with consumer:
        await consumer.register(KEYS[0])
        with pytest.raises(RuntimeError, match="entered before"):
            await consumer.__aenter__()
    assert consumer.is_closed
    served = consumer_of(broker, "s", group="served")
    with pytest.raises(ServerAssignedError):
        await served.start(1, 0)
    assert served.is_closed
    assert not [each for each in served._flows if each.connection.is_up]


@pytest.mark.req("TUB-08", "TUB-U01", "TUB-23")
async def test_it_says_what_it_is(broker):
    consumer = consumer_of(broker, "a")
    with pytest.raises(RuntimeError, match="not open"):
        await consumer.query_partitions()
    await consumer.start(4, 3)  # opens it
    try:
        assert consumer.client_version.startswith("partq ")
        assert (consumer.member, consumer.source_count, consumer.node_id) == ("a", 4, 3)
        assert (consumer.is_filtering, consumer.is_closed) == (False, False)
        assert consumer.settings["group"] == "workers"
        assert "token" not in consumer.settings
        assert await consumer.wait_ready(0)
    finally:
        await consumer.close()
    assert consumer.is_closed


async def cut_off(consumer):
    """End a consumer as the death of its process does: nothing is given back or said."""
    for connection in list(consumer._session._http.connector._acquired):
        connection.transport.abort()  # without a close frame
    await consumer._layout_watch.close()
    await consumer._flows.close()
    await consumer._session.__aexit__()


async def holder_of(consumer, key):
    return (await consumer.query_partitions())[key].member


async def test_after_a_restart_under_its_name_it_gives_back_what_it_had(broker):
    await publish(broker, 40)
    first = consumer_of(broker, "a")
    await first.start(1, 0)
    for key in KEYS[:2]:
        await first.register(key)
    batch = await taken(first, KEYS[0])
    await cut_off(first)
    async with consumer_of(broker, "a") as again, consumer_of(broker, "b") as other:
        await again.start(1, 0)  # waits until the earlier process is lost
        # One that this process has not heard of, and one that a broker delivers to it.
        assert await again.unregister(KEYS[0])
        assert await holder_of(other, KEYS[0]) == ""
        await eventually(lambda: KEYS[1] in again.registered, "a broker delivers it")
        assert await again.unregister(KEYS[1])
        assert await holder_of(other, KEYS[1]) == ""
        assert not await again.unregister(KEYS[0])
        assert not await again.unregister(KEYS[3]), "it never had it"
        await other.register(KEYS[0])
        assert not await again.unregister(KEYS[0]), "another member has it"
        assert await holder_of(again, KEYS[0]) == "b"
        assert (await taken(other, KEYS[0])).offsets[0] == batch.offsets[0]


async def test_unregister_looks_again_when_its_epoch_is_of_the_past(broker):
    """A broker that has claimed the partition since knows no earlier epoch."""
    async with consumer_of(broker, "a") as a, consumer_of(broker, "b") as b:
        await a.register(KEYS[0])
        assert await a.wait_ready(WAIT_S)
        (assigned,) = a._membership.assigned
        a._registrations._registered_epochs.clear()
        object.__setattr__(assigned, "token", (assigned.token[0], 1))
        assert await a.unregister(KEYS[0])
        assert await holder_of(b, KEYS[0]) == ""


async def test_leaving_gives_back_first_and_then_says_so(broker):
    """While it gives back, a lost connection is opened again, and acks are taken."""
    await publish(broker, 40)
    async with (
        consumer_of(broker, "b") as other,
        consumer_of(broker, "a", leave_timeout_s=WAIT_S) as consumer,
    ):
        await consumer.register(KEYS[0])
        batch = await taken(consumer, KEYS[0])
        consumer.leave()
        consumer.leave()
        assert not any(flow.connection._is_retired for flow in consumer._flows)
        assert not consumer.has_ended
        await consumer.confirm(batch)
        async for _ in consumer:
            raise AssertionError("nothing comes while it is given back")
        assert consumer.has_ended
        shown = (await other.query_partitions())[KEYS[0]]
        assert (shown.member, shown.cursor) == ("", batch.offsets[-1] + 1)
        assert all(flow.connection._is_retired for flow in consumer._flows)


async def test_what_a_cancelled_call_has_left_of_a_partition_comes_first(broker):
    await publish(broker, 40)
    async with consumer_of(broker, "a") as consumer:
        await consumer.start()
        await consumer.register(KEYS[0])
        lag = (await consumer.query_partitions())[KEYS[0]].lag
        gathering = asyncio.ensure_future(consumer.getmany(1000, WAIT_S))
        await eventually(lambda: len(consumer._held) == lag, "all are gathered")
        gathering.cancel()
        await asyncio.wait([gathering])
        await publish(broker, 40)
        found = []
        while len(found) < 2 * lag:
            found += (await taken(consumer, KEYS[0])).offsets
    assert found == list(range(2 * lag))


async def test_what_is_registered_while_the_consumer_leaves_is_given_back(broker, monkeypatch):
    consumer = consumer_of(broker, "a")
    await consumer.start()
    calls = consumer._registrations._calls
    register = calls.register

    async def register_late(*args, **options):
        answer = await register(*args, **options)
        consumer.leave()
        return answer

    monkeypatch.setattr(calls, "register", register_late)
    with pytest.raises(RuntimeError, match="has left"):
        await consumer.register(KEYS[0])
    async with consumer_of(broker, "b") as other:
        await other.start()
        assert await holder_of(other, KEYS[0]) == ""
    await consumer.close()


def held_up(consumer, monkeypatch):
    """Return two events: the consumer has begun to register, and what it asks may be sent."""
    calls, begun, may_go = consumer._registrations._calls, asyncio.Event(), asyncio.Event()
    register = calls.register

    async def register_late(*args, **options):
        begun.set()
        await may_go.wait()
        return await register(*args, **options)

    monkeypatch.setattr(calls, "register", register_late)
    return begun, may_go


async def test_leaving_waits_for_registrations_that_are_under_way(broker, monkeypatch):
    async with consumer_of(broker, "b") as other, consumer_of(broker, "a") as consumer:
        begun, may_go = held_up(consumer, monkeypatch)
        registering = asyncio.ensure_future(consumer.register(KEYS[0]))
        await begun.wait()
        consumer.leave()
        for _ in range(3):
            assert await holder_of(other, KEYS[0]) == ""
        assert not consumer.has_ended
        may_go.set()
        with pytest.raises(RuntimeError, match="has left or was closed: make another one"):
            await registering
        async for _ in consumer:
            raise AssertionError("nothing comes while it is given back")
        assert await holder_of(other, KEYS[0]) == ""


async def test_a_registration_that_outlasts_the_closing_says_that_the_consumer_has_left(
    broker, monkeypatch
):
    monkeypatch.setattr("partq.client.client_assigned_consumer.CALL_TIMEOUT_S", 0.01)
    consumer = consumer_of(broker, "a", leave_timeout_s=0)
    await consumer.start()
    begun, may_go = held_up(consumer, monkeypatch)
    registering = asyncio.ensure_future(consumer.register(KEYS[0]))
    await begun.wait()
    await consumer.close()
    may_go.set()
    with pytest.raises(RuntimeError, match=r"has left or was closed.*partition 1\.0 is registered"):
        await registering


async def test_get_takes_nothing_beside_a_run(broker):
    """It would hand out the next message of a key whose last one is still processed."""
    async with consumer_of(broker, "a") as consumer:
        await consumer.register(KEYS[0])
        waiting = asyncio.ensure_future(consumer.get(KEYS[0], timeout_s=WAIT_S))
        await eventually(lambda: consumer._uses.get.count, "it waits")
        with pytest.raises(RuntimeError, match=r"run: .* to get, which has not ended"):
            await consumer.run(print)
        await publish(broker, 40)
        assert (await waiting).offsets[0] == 0
        running = asyncio.ensure_future(
            consumer.run(lambda _: asyncio.sleep(WAIT_S), concurrency=2)
        )
        await eventually(lambda: consumer._uses.has_run, "it runs")
        with pytest.raises(RuntimeError, match=r"get: .* to run, which has not ended"):
            await consumer.get(KEYS[0])
        running.cancel()
        await asyncio.wait([running])
        await publish(broker, 40)
        assert await taken(consumer, KEYS[0])
