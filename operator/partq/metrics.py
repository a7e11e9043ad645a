"""Every metric that a broker shows, by name. Labels are bounded: queue, group, partition, code."""

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class BrokerMetrics:
    """The metrics of one broker process."""

    def __init__(self, queue: str, namespace: str) -> None:
        self.registry = CollectorRegistry()
        self._names = (namespace, queue)
        scope = ("namespace", "queue")
        self._accepted = self._counter(
            "partq_messages_accepted", "Messages that passed the checks of a publish.", scope
        )
        self._accepted_bytes = self._counter(
            "partq_bytes_accepted", "Bytes of the batches that passed the checks.", scope
        )
        self._refused = self._counter(
            "partq_publishes_refused", "Batches that were refused.", (*scope, "code")
        )
        self._delivered = self._counter(
            "partq_messages_delivered", "Messages sent to consumers.", (*scope, "group", "cause")
        )
        self._acked = self._counter(
            "partq_messages_acked", "Messages acknowledged.", (*scope, "group")
        )
        by_partition = (*scope, "partition")
        by_group = (*by_partition, "group")
        self._end = self._gauge("partq_partition_end", "Offset of the next message.", by_partition)
        self._lag = self._gauge("partq_lag", "Messages not yet acknowledged.", by_group)
        self._in_flight = self._gauge("partq_in_flight", "Messages sent, not acked.", by_group)
        self._flows = self._gauge("partq_flows", "Bound flows.", (*scope, "group"))
        self._owned = self._gauge("partq_partitions_owned", "Partitions of this broker.", scope)

    def render(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.registry)

    def accepted(self, messages: int, size_bytes: int) -> None:
        """Count a batch on its way to the log."""
        self._accepted.labels(*self._names).inc(messages)
        self._accepted_bytes.labels(*self._names).inc(size_bytes)

    def refused(self, code: str) -> None:
        """Count a batch that was refused."""
        self._refused.labels(*self._names, code).inc()

    def delivered(self, group: str, cause: str, messages: int) -> None:
        """Count a window that was sent."""
        self._delivered.labels(*self._names, group, cause).inc(messages)

    def acked(self, group: str, messages: int) -> None:
        """Count acknowledged messages."""
        self._acked.labels(*self._names, group).inc(messages)

    def observe(
        self,
        *,
        ends: dict[str, int],
        lags: dict[tuple[str, str], tuple[int, int]],
        flows: dict[str, int],
    ) -> None:
        """Set the gauges: end by partition, (lag, in flight) by (partition, group), flows."""
        for gauge in (self._end, self._lag, self._in_flight, self._flows):
            gauge.clear()
        self._owned.labels(*self._names).set(len(ends))
        for partition, end in ends.items():
            self._end.labels(*self._names, partition).set(end)
        for (partition, group), (lag, in_flight) in lags.items():
            self._lag.labels(*self._names, partition, group).set(lag)
            self._in_flight.labels(*self._names, partition, group).set(in_flight)
        for group, count in flows.items():
            self._flows.labels(*self._names, group).set(count)

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...]) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)
