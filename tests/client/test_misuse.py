"""What a client says to those who hold it the wrong way round."""

import asyncio
import inspect
import subprocess
import sys
from datetime import timedelta
from types import SimpleNamespace

import pytest

import partq
from partq import (
    BadRequestError,
    Batch,
    Browser,
    Cause,
    Consumer,
    ForbiddenError,
    LogReader,
    PartitionId,
    Position,
    Positions,
    Producer,
    SettingsError,
    UnavailableError,
)
from partq.client.audit_reader import AuditReader
from partq.client.produce.batch_producer import BatchProducer
from partq.client.produce.batching import ReadyBatch
from partq.core.model import NAME_RULE
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from partq.wire import frames
from tests.client.member import P0, WAIT_S, Member, bound, deliver

NOBODY = "http://127.0.0.1:9"


def producer_of(url, **settings):
    return Producer(url, queue="orders", **settings)


def consumer_of(url, **settings):
    return Consumer(url, queue="orders", group="workers", handle_signals=False, **settings)


@pytest.fixture(params=[producer_of, consumer_of], ids=["producer", "consumer"])
def client_of(request):
    return request.param


async def test_entering_twice_is_an_error(peer, client_of):
    client = client_of(peer.url)
    async with asyncio.timeout(WAIT_S), client:
        with pytest.raises(RuntimeError, match="entered before"):
            await client.__aenter__()
    with pytest.raises(RuntimeError, match="entered before"):
        await client.__aenter__()


async def use(client):
    if isinstance(client, Producer):
        await client.send(b"x")
    else:
        await anext(client)


async def test_using_what_is_not_open_is_no_matter_of_settings(client_of):
    with pytest.raises(RuntimeError, match="is not open; use it inside `async with`"):
        await use(client_of(NOBODY))


async def browse(**settings):
    return [message async for message in Browser(NOBODY, **settings).messages()]


async def read(**settings):
    return await LogReader(NOBODY, **settings).partitions()


async def read_audit_record(**settings):
    return await AuditReader(NOBODY, **settings).partitions()


def batches_of(**settings):
    return BatchProducer(
        NOBODY, producer="p", max_pending_bytes=1, delivery_timeout_s=5, **settings
    )


async def send_a_batch(**settings):
    await batches_of(**settings).send(PartitionId(1, 0), ReadyBatch(b"", 1, 1))


async def look_at_the_queue(**settings):
    return batches_of(**settings).state


@pytest.mark.parametrize("call", [browse, read, read_audit_record, send_a_batch, look_at_the_queue])
async def test_so_it_is_for_each_kind_of_client(call):
    with pytest.raises(RuntimeError, match="is not open; use it inside `async with`"):
        await call(queue="orders", token=None)


@pytest.mark.parametrize("call", [use, lambda client: client.close()], ids=["use", "close"])
async def test_another_event_loop_is_refused_at_once(peer, client_of, call):
    async with asyncio.timeout(WAIT_S), client_of(peer.url) as client:
        with pytest.raises(RuntimeError, match="run_coroutine_threadsafe"):
            await asyncio.to_thread(asyncio.run, call(client))


BATCH = Batch(SimpleNamespace(partition=P0), deliver(0, 1), [partq.Message("k", b"v")], range(1))
GIVEN = {
    **dict.fromkeys(("done", "failed", "begun", "message"), BATCH),
    "where": "latest",
    "callback": lambda message: None,
    "partition": P0,
    "value": b"v",
    "messages": [],
    "scheduled": "1.3/0001795324574173",
}
"""An argument of each parameter that has no default."""
CLIENTS = [
    lambda: producer_of(NOBODY),
    lambda: consumer_of(NOBODY),
    lambda: partq.ClientAssignedConsumer(NOBODY, queue="orders", group="workers"),
    lambda: partq.QueuesConsumer(find=dict, queues=["orders"], group="workers"),
    lambda: partq.Reader(NOBODY, "orders"),
    lambda: Browser(NOBODY, queue="orders"),
]


CLIENT_IDS = [
    "Producer",
    "Consumer",
    "ClientAssignedConsumer",
    "QueuesConsumer",
    "Reader",
    "Browser",
]


def asynchronous_calls(client):
    """Return the public calls of a client that are awaited or iterated over, by their names."""
    return {
        name: getattr(client, name)
        for name, call in inspect.getmembers(type(client), callable)
        if (not name.startswith("_") or name == "__anext__")
        if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call)
    }


@pytest.mark.parametrize("make", CLIENTS, ids=CLIENT_IDS)
async def test_every_asynchronous_call_from_another_event_loop_is_refused(make):
    client = make()
    client._entered_loop.enter()

    async def use_elsewhere(call):
        needed = [
            name for name, each in inspect.signature(call).parameters.items()
            if each.default is each.empty
        ]  # fmt: skip
        made = call(**{name: GIVEN[name] for name in needed})
        await (anext(made) if inspect.isasyncgen(made) else made)

    for name, call in asynchronous_calls(client).items():
        with pytest.raises(RuntimeError, match="belongs to the event loop") as refusal:
            await asyncio.to_thread(asyncio.run, use_elsewhere(call))
        assert refusal.value, name


async def test_an_ack_from_a_thread_is_refused(peer, member, stored_batch):
    await bound(peer, stored_batch, b"a")
    message = await member.next()
    with pytest.raises(RuntimeError, match="run_coroutine_threadsafe"):
        await asyncio.to_thread(member.consumer.ack_nowait, message)


async def test_leaving_from_a_thread_is_refused_and_begins_nothing(peer, member, stored_batch):
    flow = await bound(peer, stored_batch, b"a")
    with pytest.raises(RuntimeError, match="call_soon_threadsafe"):
        await asyncio.to_thread(member.consumer.leave)
    await member.consumer.ack(await member.next())
    first = await flow.next()
    assert isinstance(first, frames.Ack), "and no Leave before it"
    await flow.send(frames.AckConfirmed(first.request))
    await member.consumer.flush()


def test_leaving_before_the_block_is_entered_needs_no_event_loop(caplog):
    """As from a handler of signals that is there before the loop: the block ends at once."""
    consumer = consumer_of(NOBODY, connect_timeout_s=3600)
    consumer.leave()

    async def consume():
        async with asyncio.timeout(WAIT_S), consumer:
            return [message async for message in consumer]

    assert asyncio.run(consume()) == []
    assert "group workers is told to leave before it was entered" in caplog.text


async def test_a_closed_consumer_waits_for_nothing_and_says_so(peer, member, stored_batch):
    """An empty list again and again would keep a loop busy for ever."""
    await bound(peer, stored_batch, b"a")
    consumer = member.consumer
    waiting = asyncio.create_task(consumer.getmany(2, timeout_s=WAIT_S))
    await eventually(lambda: consumer._uses.getmany.count, "it waits")
    await consumer.close()
    with pytest.raises(RuntimeError, match="getmany: the consumer has left"):
        await waiting
    for call in (consumer.getmany, lambda: consumer.run(print)):
        with pytest.raises(RuntimeError, match="the consumer was closed: make another one"):
            await call()
    with pytest.raises(RuntimeError, match="the consumer was closed: make another one"):
        await consumer.seek("earliest")
    assert [message async for message in consumer] == []


@pytest.mark.parametrize("in_thread", [False, True])
async def test_what_cannot_be_called_is_refused_before_a_message_is_taken(
    peer, member, stored_batch, in_thread
):
    await bound(peer, stored_batch, b"a")
    with pytest.raises(TypeError, match="run: got NoneType, expected a function"):
        await member.consumer.run(None, in_thread=in_thread)
    with pytest.raises(TypeError, match=r"can be called as callback\(message\)"):
        await member.consumer.run(lambda: None, in_thread=in_thread)
    assert (await member.next()).value == b"a"


async def test_no_key_has_no_partition(peer):
    async with asyncio.timeout(WAIT_S), producer_of(peer.url) as producer:
        with pytest.raises(BadRequestError, match="got NoneType, expected str: a message without"):
            producer.partition_of(None)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (("k", "text"), "element 2: value: got str, expected bytes"),
        ((5, b"v"), "element 2: partition key: got int"),
        (("k", b"v", {"a": 1}), "element 2: headers "),
        (("k", b"v" * 20_000_000), "element 2: a message of 20000"),
    ],
    ids=["value", "key", "headers", "size"],
)
async def test_of_many_messages_the_wrong_one_is_named(peer, wrong, words):
    """By its place in what was given, in whichever partition it would be."""
    given = [("a", b"v"), (None, b"v"), wrong, wrong]
    messages = [partq.Message(*each) for each in given]
    async with asyncio.timeout(WAIT_S), producer_of(peer.url) as producer:
        with pytest.raises(BadRequestError, match=words):
            await producer.send_many(messages)


@pytest.mark.parametrize("url", ["http://h:1/v1", "http://h:1/v1/queues/q", "http://h:1?x=1"])
def test_a_url_with_a_path_is_refused(client_of, url):
    with pytest.raises(SettingsError, match="scheme, host and port alone"):
        client_of(url)


def test_a_url_that_is_no_text_is_refused(client_of):
    with pytest.raises(SettingsError, match="url: got list, expected text"):
        client_of(["http://h:1"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"token": "secret\n"}, "token: got characters .* line end of the file"),
        ({"token": b"secret"}, "token: got bytes, expected text"),
        ({"namespace": 5}, "namespace: got int, expected text"),
        ({"connect_timeout_s": "30"}, "connect_timeout_s: got str, expected a number"),
        ({"connect_timeout_s": -1}, "connect_timeout_s: got -1, expected 0 to"),
        ({"namespace": "a.b"}, f"namespace: got 'a.b', expected {NAME_RULE}"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_by_its_name(client_of, settings, words):
    with pytest.raises(SettingsError, match=words) as caught:
        client_of(NOBODY, **settings)
    assert "secret" not in str(caught.value), "a token is never shown"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"group": None}, "group: got NoneType, expected text"),
        ({"group": "Workers!"}, f"group: got 'Workers!', expected {NAME_RULE}"),
        ({"queue": "Orders!"}, f"queue: got 'Orders!', expected {NAME_RULE}"),
        ({"member": 5}, "member: got int, expected text"),
        ({"credit": "10"}, "credit: got str, expected a whole number"),
        ({"leave_timeout_s": -1}, "leave_timeout_s: got -1, expected 0 to"),
        ({"on_assigned": 5}, "on_assigned: got int, expected a function"),
        (
            {"on_revoked": lambda partition: None},
            r"on_revoked: got a function that does not take .* as on_revoked\(partition, cause\)",
        ),
    ],
)
def test_a_setting_of_a_consumer_is_refused_by_its_name(settings, words):
    with pytest.raises(SettingsError, match=words):
        Consumer(NOBODY, **{"queue": "orders", "group": "workers", **settings})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"queue": None}, "queue: got NoneType, expected text"),
        ({"queue": ""}, "queue: got '', expected a name"),
        ({"queue": "o" * 64}, f"queue: got 'o+', expected {NAME_RULE}"),
        ({"linger_ms": "5"}, "linger_ms: got str, expected a number"),
        ({"producer_id": 5}, "producer_id: got int, expected text"),
    ],
)
def test_a_setting_of_a_producer_is_refused_by_its_name(settings, words):
    with pytest.raises(SettingsError, match=words):
        Producer(NOBODY, **{"queue": "orders", **settings})


@pytest.mark.parametrize("kind", [Browser, LogReader, AuditReader])
def test_what_no_queue_can_be_called_is_not_asked_for(kind):
    with pytest.raises(SettingsError, match=f"queue: got 'Orders!', expected {NAME_RULE}"):
        kind(NOBODY, queue="Orders!")


async def test_a_timedelta_is_no_delay(peer, member, stored_batch):
    await bound(peer, stored_batch, b"a")
    message = await member.next()
    with pytest.raises(TypeError, match="delay_s: got bool, expected seconds"):
        await member.consumer.nack(message, delay_s=True)
    with pytest.raises(TypeError, match="delay_s: got timedelta, expected seconds"):
        await member.consumer.nack(message, delay_s=timedelta(seconds=5))


async def test_a_word_is_no_flag(peer, member, stored_batch):
    """ "no" would count as true."""
    flow = await bound(peer, stored_batch, b"a", b"b")
    message = await member.next()
    for name in ("ack", "ack_cumulative"):
        with pytest.raises(TypeError, match=f"{name}: confirmed: got 'no', expected True or False"):
            await getattr(member.consumer, name)(message, confirmed="no")
    with pytest.raises(TypeError, match="run: in_thread: got 'no', expected True or False"):
        await member.consumer.run(lambda _: None, in_thread="no")
    await member.consumer.ack(await member.next())
    first = await flow.next(frames.Ack)
    assert first.ranges == [(1, 2)], "and no ack of the message before it"
    await flow.send(frames.AckConfirmed(first.request))
    await member.consumer.flush()


async def test_a_message_has_no_nack_in_milliseconds(peer, member, stored_batch):
    await bound(peer, stored_batch, b"a")
    assert not hasattr(await member.next(), "nack")


async def test_waiting_for_a_broker_goes_on_to_the_end(peer, client_of, monkeypatch):
    """The last try is made as the time is up: a pause before it is cut short, not left out."""
    monkeypatch.setattr("partq.client.transport.session.FIRST_VIEW_BACKOFF_S", 3600.0)
    monkeypatch.setattr("partq.aio.random.uniform", lambda low, high: 3600.0)
    peer.refusal = (503, "store_unavailable")
    async with asyncio.timeout(WAIT_S):
        entering = asyncio.create_task(client_of(peer.url, connect_timeout_s=0.3).__aenter__())
        await peer.was_asked.wait()
        peer.was_asked.clear()
        await peer.was_asked.wait()
        with pytest.raises(UnavailableError):
            await entering


# ---- what a broker says of a wrong token ----


async def test_a_token_for_something_else_is_told_on_entering():
    async with asyncio.timeout(60), LocalBroker(partitions=1) as local:
        url, tokens = local.url, local.tokens
        with pytest.raises(ForbiddenError, match="role consume, every group; this call needs"):
            await producer_of(url, token=tokens.consume).__aenter__()
        with pytest.raises(ForbiddenError, match="role produce; this call needs"):
            await consumer_of(url, token=tokens.produce).__aenter__()


async def test_the_text_of_a_refused_handshake_arrives():
    async with (
        asyncio.timeout(60),
        LocalBroker(partitions=1) as local,
        producer_of(local.url, token=local.tokens.consume)._session as session,
    ):
        with pytest.raises(ForbiddenError, match="the token is for"):
            await session.connect(local.url, "/publish")


# ---- what things look like ----


async def test_things_say_what_they_are(peer, member, stored_batch):
    await bound(peer, stored_batch, b"a", b"b")
    async for batch in member.consumer.batches():
        assert isinstance(batch, Batch)
        assert repr(batch) == "Batch(1.0, offsets 0 to 1, 2 messages, cause none)"
        break
    assert f"{Cause.FLOW_LOST} {Cause.NACK!s}" == "flow_lost nack"
    assert Cause.FLOW_LOST == 1


async def test_positions_say_how_many_and_where(peer):
    async with asyncio.timeout(WAIT_S), producer_of(peer.url, linger_ms=0) as producer:
        future = await producer.send_many([partq.Message("k", b"v")])
        broker = await peer.producer()
        frame = await broker.next(frames.Publish)
        await broker.send(frames.Published(frame.request, 7))
        positions = await future
    partition = PartitionId(1, frame.partition)
    assert isinstance(positions, Positions)
    assert list(positions) == [Position(partition, 7)]
    assert repr(positions) == f"Positions(1 message in partitions {partition})"


def test_what_a_test_needs_is_named_when_it_is_missing():
    program = "import sys; sys.modules['yaml'] = None; import partq.testing.local_broker"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert "needs the extra `embedded`" in ended.stderr


async def test_iterating_a_closed_consumer_ends_at_once(peer):
    member = Member(peer)
    async with member.consumer as consumer:
        await peer.flow()
    assert [message async for message in consumer] == []


async def test_a_text_as_value_is_refused_with_what_makes_bytes_of_it(peer):
    async with asyncio.timeout(WAIT_S), producer_of(peer.url) as producer:
        with pytest.raises(BadRequestError, match=r"got str, expected bytes: a text by .encode"):
            await producer.send("text")


def test_a_name_that_no_queue_has_room_for_is_refused():
    Producer(NOBODY, queue="q" * 45)
    with pytest.raises(SettingsError, match=r"of 46 characters, expected .* at most 45"):
        Producer(NOBODY, queue="q" * 46)
