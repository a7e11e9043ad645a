"""One trace from the call that publishes a message to the handler that processes it."""

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, StatusCode

from partq import BadRequestError, Consumer, Message, Producer, sync
from partq.telemetry import otel
from partq.telemetry.otel import (
    OpenTelemetryConsumerInterceptor,
    OpenTelemetryProducerInterceptor,
)
from partq.testing.local_broker import LocalBroker
from tests.client.member import WAIT_S

GROUPS = ["run", "threads", "loop", "batch", "blocking", "sampled"]


@pytest.fixture(scope="module")
def local():
    with asyncio.Runner() as runner:
        broker = LocalBroker(partitions=1, groups=GROUPS)
        runner.run(broker.__aenter__())
        yield broker
        runner.run(broker.__aexit__(None, None, None))


class Traced:
    """A tracer provider, and the spans that have ended."""

    def __init__(self):
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.producing = OpenTelemetryProducerInterceptor(self.provider)

    def consuming(self, group):
        return OpenTelemetryConsumerInterceptor(group, self.provider)

    def spans(self, name):
        return [each for each in self.exporter.get_finished_spans() if each.name == name]


@pytest.fixture
def traced():
    return Traced()


def producer(local, *interceptors):
    options = {"queue": "orders", "token": local.tokens.produce, "interceptors": interceptors}
    return Producer(local.url, **options)


def consumer(local, group, *interceptors, **options):
    return Consumer(
        local.url, queue="orders", group=group, token=local.tokens.consume, handle_signals=False,
        interceptors=interceptors, **options,
    )  # fmt: skip


async def publish(local, traced, *values):
    """Publish below a span of the application; return that, and where the messages are."""
    tracer = traced.provider.get_tracer("shop")
    async with producer(local, traced.producing) as opened:
        with tracer.start_as_current_span("checkout") as parent:
            sent = [await opened.send(value, key="order-17") for value in values]
        positions = [await each for each in sent]
    return parent.get_span_context(), positions


@pytest.mark.parametrize(("group", "options"), [("run", {}), ("threads", {"in_thread": True})])
async def test_a_message_is_processed_in_the_trace_that_published_it(local, traced, group, options):
    checkout, (position,) = await publish(local, traced, b"paid")
    (published,) = traced.spans("publish orders")
    assert (published.kind, published.parent.span_id) == (SpanKind.PRODUCER, checkout.span_id)
    assert dict(published.attributes) == {
        "messaging.system": "partq",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "1.0",
        "messaging.message.body.size": 4,
        "messaging.partq.message.key": "order-17",
        "messaging.partq.message.offset": position.offset,
    }
    current = []

    def handle(message):
        if message.offset == position.offset:
            current.append(trace.get_current_span().get_span_context())
            raise ZeroDivisionError("no such article")

    interceptor = traced.consuming(group)
    async with asyncio.timeout(WAIT_S), consumer(local, group, interceptor) as opened:
        with pytest.raises(ZeroDivisionError):
            await opened.run(handle, **options)
    processed = traced.spans("process orders")[-1]
    assert current == [processed.get_span_context()], "it is the current one in the handler"
    assert processed.kind is SpanKind.CONSUMER
    assert processed.parent.span_id == published.get_span_context().span_id
    assert processed.get_span_context().trace_id == checkout.trace_id
    assert [link.context.span_id for link in processed.links] == [processed.parent.span_id]
    assert dict(processed.attributes) == {
        **published.attributes,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": group,
        "messaging.partq.message.redelivery_count": 0,
        "error.type": "ZeroDivisionError",
    }
    assert processed.status.status_code is StatusCode.ERROR
    assert [event.name for event in processed.events] == ["exception"]


async def test_a_loop_enters_the_span_itself(local, traced):
    _, (position,) = await publish(local, traced, b"paid")
    interceptor = traced.consuming("loop")
    async with asyncio.timeout(WAIT_S), consumer(local, "loop", interceptor) as opened:
        async for message in opened:
            if message.offset == position.offset:
                break
        with interceptor.processing(message) as span:
            assert trace.get_current_span() is span
    assert traced.spans("process orders")[0].status.status_code is StatusCode.UNSET


async def test_each_message_of_a_list_has_its_span(local, traced):
    async with producer(local, traced.producing) as opened:
        positions = await (await opened.send_many([Message("k", b"a"), Message("k", b"b")]))
        offsets = [each.offset for each in positions]
    spans = traced.spans("publish orders")
    assert [each.attributes["messaging.partq.message.offset"] for each in spans] == offsets
    assert len({each.get_span_context().trace_id for each in spans}) == 2


async def test_a_message_that_is_refused_ends_its_span_with_the_code(local, traced):
    async with producer(local, traced.producing) as opened:
        with pytest.raises(BadRequestError):
            await opened.send("text", key="k")
    (span,) = traced.spans("publish orders")
    assert span.attributes["error.type"] == "bad_request"
    assert span.status.status_code is StatusCode.ERROR


async def test_a_message_that_is_passed_on_keeps_its_context(local, traced):
    """Its creator is told by a link; two of the same context end both their spans."""
    created = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    async with producer(local, traced.producing) as opened:
        for _ in range(2):
            await opened.send(b"v", key="k", headers=created)
        await opened.flush()
    spans = traced.spans("publish orders")
    assert [each.links[0].context.span_id for each in spans] == [int("b" * 16, 16)] * 2
    assert traced.producing._open == {}


async def test_a_message_that_is_not_sampled_is_not_sampled_where_it_is_processed(local, traced):
    """Of each trace there are both spans, or none: the consumer does not decide once more."""
    unsampled = TracerProvider(sampler=ParentBased(ALWAYS_OFF))
    async with producer(local, OpenTelemetryProducerInterceptor(unsampled)) as opened:
        position = await opened.send_and_wait(b"v", key="k")
    interceptor = traced.consuming("sampled")  # alone it samples every trace
    async with asyncio.timeout(WAIT_S), consumer(local, "sampled", interceptor) as opened:
        async for message in opened:
            if message.offset == position.offset:
                break
        with interceptor.processing(message) as span:
            assert not span.is_recording()
    assert traced.exporter.get_finished_spans() == ()


def test_spans_whose_answer_never_comes_are_bounded(traced, monkeypatch):
    monkeypatch.setattr(otel, "MAX_OPEN_SPANS", 2)
    for n in range(5):
        traced.producing.on_send("orders", Message(f"k{n}", b"v"))
    ended = [
        each.attributes["messaging.partq.message.key"]
        for each in traced.exporter.get_finished_spans()
    ]
    assert ended == ["k0", "k1", "k2"]


async def test_without_an_sdk_nothing_is_added():
    message = Message("k", b"v")
    assert (
        OpenTelemetryProducerInterceptor(trace.NoOpTracerProvider()).on_send("q", message)
        is message
    )


def test_blocking_clients_have_the_same_spans(local, traced):
    options = {"queue": "orders", "token": local.tokens.produce}
    with sync.Producer(local.url, **options, interceptors=[traced.producing]) as opened:
        position = opened.send_and_wait(b"v", key="k")

    def handle(message):
        if message.offset == position.offset:
            opened.leave()

    options = {"group": "blocking", "interceptors": [traced.consuming("blocking")]}
    token = local.tokens.consume
    with sync.Consumer(local.url, queue="orders", token=token, **options) as opened:
        opened.run(handle, concurrency=2)
    (published,) = traced.spans("publish orders")
    parents = {each.parent.span_id for each in traced.spans("process orders") if each.parent}
    assert published.get_span_context().span_id in parents
