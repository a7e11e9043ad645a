"""Prometheus: what the clients of a process have done, read when somebody scrapes.

It needs the extra `prometheus`.
"""

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from partq.client.consumer_stats import ConsumerStats
from partq.client.producer_stats import ProducerStats
from partq.errors import SettingsError

_log = logging.getLogger(__name__)


@runtime_checkable
class ProducerLike(Protocol):
    """A producer, asynchronous or blocking."""

    @property
    def queue(self) -> str:
        """The queue that it publishes to."""

    def stats(self) -> ProducerStats:
        """Return what it has done."""


@runtime_checkable
class ConsumerLike(Protocol):
    """A consumer, asynchronous or blocking."""

    @property
    def queue(self) -> str:
        """The queue that it consumes."""

    @property
    def group(self) -> str:
        """Its consumer group."""

    def stats(self) -> ConsumerStats:
        """Return what it has done."""


@runtime_checkable
class SeveralQueues(Protocol):
    """A consumer of several queues."""

    def group_of(self, queue: str) -> str:
        """Return the name of its group in a queue."""

    def stats(self) -> Mapping[str, ConsumerStats]:
        """Return what it has done, by queue."""


Client = ProducerLike | ConsumerLike | SeveralQueues
Stats = ProducerStats | ConsumerStats


class _Figure(NamedTuple):
    """A figure of the stats as a metric."""

    field: str
    name: str
    text: str
    is_gauge: bool = False


_FIGURES: Mapping[type[Stats], tuple[_Figure, ...]] = {
    ProducerStats: (
        _Figure("sent", "messages_sent", "Messages taken by a call that sends"),
        _Figure("stored", "messages_stored", "Messages that a broker has confirmed"),
        _Figure("failed", "messages_failed", "Messages not stored, or with an unknown outcome"),
        _Figure("resent", "messages_resent", "Messages sent to a broker again"),
        _Figure("in_flight", "messages_in_flight", "Messages without an answer", is_gauge=True),
        _Figure(
            "in_flight_bytes",
            "bytes_in_flight",
            "Bytes of the messages without an answer",
            is_gauge=True,
        ),
    ),
    ConsumerStats: (
        _Figure("received", "messages_received", "Messages delivered by brokers"),
        _Figure("received_bytes", "bytes_received", "Bytes of the batches that were delivered"),
        _Figure("handed_out", "messages_handed_out", "Messages taken by the application"),
        _Figure("returned", "messages_returned", "Messages given back before they were taken"),
        _Figure("acked", "messages_acked", "Messages in acks that a broker has confirmed"),
        _Figure("nacked", "messages_nacked", "Messages given back, or made dead letters"),
        _Figure("refused", "messages_refused", "Messages in acks and nacks without success"),
        _Figure("undecodable", "messages_undecodable", "Messages that could not be decoded"),
        _Figure("buffered", "messages_buffered", "Messages held ready", is_gauge=True),
        _Figure(
            "in_hand",
            "messages_in_hand",
            "Messages handed out, neither acknowledged nor given back",
            is_gauge=True,
        ),
    ),
}
_PREFIX = {ProducerStats: "partq_producer", ConsumerStats: "partq_consumer"}
_LABELS = {ProducerStats: ("queue",), ConsumerStats: ("queue", "group")}
_Found = dict[type[Stats], dict[tuple[str, ...], list[Stats]]]
"""The stats of clients, by kind and then by the values of their labels."""


class ClientCollector(Collector):
    """Collects the stats of clients: register it once, and add clients to it.

    ```python
    REGISTRY.register(ClientCollector(producer, consumer))
    ```

    Counts of clients of the same queue and group are added up; of the times of their answers the
    longest is shown. A client that was closed keeps its counts until it is removed.
    """

    def __init__(self, *clients: Client) -> None:
        self._clients: dict[int, Client] = {}
        for client in clients:
            self.add(client)

    def add(self, client: Client) -> None:
        """Show a client: asynchronous or blocking, of one queue or several. It may be repeated.

        Raises:
            SettingsError: it is no client that has such stats.
        """
        given: object = client
        if not isinstance(given, Client):
            raise SettingsError(
                f"ClientCollector: got {type(given).__name__}, expected a Producer, a Consumer, a "
                "ClientAssignedConsumer or a QueuesConsumer, of partq or partq.sync"
            )
        self._clients[id(client)] = client

    def remove(self, client: Client) -> None:
        """Show a client no more: its counts go, which Prometheus takes for a restart."""
        self._clients.pop(id(client), None)

    def describe(self) -> list[Metric]:
        """Return nothing: what is there depends on the clients."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return the metrics; a client that cannot be asked is left out, and logged.

        That is one whose event loop stands still, or that a parent of this process has opened.
        """
        found: _Found = {kind: defaultdict(list) for kind in _FIGURES}
        for client in list(self._clients.values()):
            try:
                for labels, stats in _stats_of(client):
                    found[type(stats)][labels].append(stats)
            except (TimeoutError, RuntimeError) as error:
                _log.warning("a client is left out of the metrics: %s", error)
        for kind, by_labels in found.items():
            if by_labels:
                yield from _metrics(kind, by_labels)


def _stats_of(client: Client) -> list[tuple[tuple[str, ...], Stats]]:
    """Return the stats of a client, each with the values of its labels."""
    if isinstance(client, SeveralQueues):
        return [((queue, client.group_of(queue)), each) for queue, each in client.stats().items()]
    if isinstance(client, ConsumerLike):
        return [((client.queue, client.group), client.stats())]
    return [((client.queue,), client.stats())]


def _metrics(
    kind: type[Stats], by_labels: Mapping[tuple[str, ...], list[Stats]]
) -> Iterator[Metric]:
    prefix, names = _PREFIX[kind], _LABELS[kind]
    for figure in _FIGURES[kind]:
        family = GaugeMetricFamily if figure.is_gauge else CounterMetricFamily
        metric = family(f"{prefix}_{figure.name}", f"{figure.text}.", labels=names)
        for labels, several in by_labels.items():
            metric.add_metric(labels, sum(getattr(each, figure.field) for each in several))
        yield metric
    if kind is ConsumerStats:
        yield _redelivered(by_labels)
    seconds = GaugeMetricFamily(
        f"{prefix}_ack_seconds",
        "Time from sending to the answer, of the last 1,000 answers of a client.",
        labels=(*names, "quantile"),
    )
    for labels, several in by_labels.items():
        for quantile, field in (("0.5", "ack_p50_s"), ("0.99", "ack_p99_s")):
            times = [time for each in several if (time := getattr(each, field)) is not None]
            if times:
                seconds.add_metric((*labels, quantile), max(times))
    yield seconds


def _redelivered(by_labels: Mapping[tuple[str, ...], list[Stats]]) -> Metric:
    metric = CounterMetricFamily(
        "partq_consumer_messages_redelivered",
        "Messages delivered again, by cause.",
        labels=("queue", "group", "cause"),
    )
    for labels, several in by_labels.items():
        counts: dict[str, int] = defaultdict(int)
        for each in several:
            if isinstance(each, ConsumerStats):
                for cause, count in each.redelivered.items():
                    counts[str(cause)] += count
        for cause_name, count in sorted(counts.items()):
            metric.add_metric((*labels, cause_name), count)
    return metric
