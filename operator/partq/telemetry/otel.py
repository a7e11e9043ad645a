"""OpenTelemetry: a span for each message that is published, and for each that is processed.

It needs the extra `otel`, which is the API alone: an application brings an SDK and an exporter.
Spans follow the semantic conventions for messaging. The W3C trace context travels in the headers
`traceparent` and `tracestate` of a message.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from partq.client.consume.deliveries import Delivery
from partq.client.handout.interceptors import ConsumerInterceptor
from partq.client.produce.interceptors import ProducerInterceptor
from partq.client.produce.results import Position
from partq.errors import PartqError
from partq.wire.batch import Message

SYSTEM = "partq"
MAX_OPEN_SPANS = 1_000_000
"""Messages without an answer whose spans are kept; above it the oldest span is ended."""

_PROPAGATOR = TraceContextTextMapPropagator()
_PARENT = "traceparent"


class OpenTelemetryProducerInterceptor(ProducerInterceptor):
    """Makes a span `publish QUEUE` of each message, from the call that sends it to its answer.

    Its parent is the current span of the caller. A message that has a `traceparent` already, as one
    that is passed on, keeps it; the span has a link to it.

    Args:
        tracer_provider: None: the application's global one.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = _tracer(tracer_provider)
        self._open: dict[str, list[Span]] = {}
        """By the `traceparent` of their messages; some that are passed on may have the same."""
        self._open_count = 0

    def on_send(self, queue: str, message: Message) -> Message:
        """Begin the span, and put its context into the headers."""
        headers = dict(message.headers or {})
        span = self._tracer.start_span(
            f"publish {queue}",
            kind=SpanKind.PRODUCER,
            attributes={
                "messaging.system": SYSTEM,
                "messaging.operation.name": "publish",
                "messaging.operation.type": "send",
                "messaging.destination.name": queue,
                **_body_size(message.value),
                **_key(message.key),
            },
            links=_links(headers),
        )
        if _PARENT not in headers:  # without an SDK the context is not valid, and adds nothing
            _PROPAGATOR.inject(headers, trace.set_span_in_context(span))
        published = Message(message.key, message.value, headers, message.event_time_ms)
        if not span.is_recording():  # its context goes along all the same: "not sampled"
            return published if headers else message
        while self._open_count >= MAX_OPEN_SPANS:
            self._pop(next(iter(self._open))).end()
        self._open.setdefault(headers[_PARENT], []).append(span)
        self._open_count += 1
        return published

    def on_send_result(
        self,
        queue: str,
        message: Message,
        position: Position | None,
        error: BaseException | None,
    ) -> None:
        """End the span."""
        parent = (message.headers or {}).get(_PARENT, "")
        if parent not in self._open:
            return
        span = self._pop(parent)
        if position is not None:
            span.set_attributes(
                {
                    "messaging.destination.partition.id": str(position.partition),
                    "messaging.partq.message.offset": position.offset,
                }
            )
        if error is not None:
            _fail(span, error)
        span.end()

    def _pop(self, parent: str) -> Span:
        spans = self._open[parent]
        span = spans.pop(0)
        if not spans:
            del self._open[parent]
        self._open_count -= 1
        return span


class OpenTelemetryConsumerInterceptor(ConsumerInterceptor):
    """Makes a span `process QUEUE` of each call of `run`, below that of the message's `publish`.

    It is the current span in the handler. A loop that calls its handler itself does it by
    `with interceptor.processing(message):`.

    Args:
        group: of the consumer; it becomes an attribute. None: it is left out.
        tracer_provider: None: the application's global one.
    """

    def __init__(
        self, group: str | None = None, tracer_provider: TracerProvider | None = None
    ) -> None:
        self._group = group
        self._tracer = _tracer(tracer_provider)

    @contextmanager
    def processing(self, message: Delivery) -> Iterator[Span]:
        """Process a message in its span, which records what is raised."""
        attributes: dict[str, str | int] = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": message.queue,
            "messaging.destination.partition.id": str(message.partition),
            "messaging.partq.message.offset": message.offset,
            "messaging.partq.message.redelivery_count": message.redeliveries,
            **_body_size(message.raw_value),
            **_key(message.key),
        }
        if self._group is not None:
            attributes["messaging.consumer.group.name"] = self._group
        span = self._tracer.start_span(
            f"process {message.queue}",
            _PROPAGATOR.extract(message.headers, Context()),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=_links(message.headers),
        )
        with trace.use_span(span, end_on_exit=False):
            try:
                yield span
            except BaseException as error:
                _fail(span, error)
                raise
            finally:
                span.end()


def _tracer(provider: TracerProvider | None) -> Tracer:
    return trace.get_tracer("partq", version("partq"), provider)


def _links(headers: Mapping[str, str]) -> list[Link]:
    """Return a link to the context in which a message was created, if its headers have one."""
    created = trace.get_current_span(_PROPAGATOR.extract(headers, Context())).get_span_context()
    return [Link(created)] if created.is_valid else []


def _body_size(value: object) -> dict[str, int]:
    return {"messaging.message.body.size": len(value)} if isinstance(value, bytes) else {}


def _key(key: str | None) -> dict[str, str]:
    return {} if key is None else {"messaging.partq.message.key": key}


def _fail(span: Span, error: BaseException) -> None:
    """Say that an operation has failed: by its code where it is one of partq."""
    kind = error.code if isinstance(error, PartqError) else type(error).__qualname__
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, str(error)))
    if isinstance(error, Exception):
        span.record_exception(error)
