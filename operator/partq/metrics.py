"""Declares every metric of a broker, with a method for each change of one.

Broker code raises counters where the thing happens. `broker/operations/gauges.py` and
`broker/api/routes/info.py` set gauges when somebody scrapes; quota, expiry, clocks and the audit
record set theirs at their own looks. The values of labels are names of resources and of partitions,
and words that the code has: no name that a client chooses.
"""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


_QUEUE = ("namespace", "queue")
_PARTITION = (*_QUEUE, "partition")
"""Labels."""


class BrokerMetrics:
    """The metrics of one broker process."""

    def __init__(self, queue: str, namespace: str) -> None:
        self.registry = CollectorRegistry()
        self._names = (namespace, queue)
        self._declare_messages()
        self._declare_partitions()
        self._declare_memory()
        self._declare_rescale()
        self._declare_audit()
        self._declare_connections()

    def _declare_messages(self) -> None:
        scope = _QUEUE
        self._accepted = self._counter(
            "partq_messages_accepted", "Messages that passed the checks of a publish.", scope
        ).labels(*self._names)
        self._accepted_bytes = self._counter(
            "partq_bytes_accepted", "Bytes of the batches that passed the checks.", scope
        ).labels(*self._names)
        self._refused = self._counter(
            "partq_publishes_refused", "Batches that were refused.", (*scope, "code")
        )
        self._delivered = self._counter(
            "partq_messages_delivered", "Messages sent to consumers.", (*scope, "group", "cause")
        )
        self._acked = self._counter(
            "partq_messages_acked", "Messages acknowledged.", (*scope, "group")
        )
        self._taken_back = self._counter(
            "partq_messages_taken_back",
            "Messages that were nacked, or not acknowledged in time.",
            (*scope, "group", "cause"),
        )
        self._dead_lettered = self._counter(
            "partq_messages_dead_lettered",
            "Messages that the dead-letter queue has stored.",
            (*scope, "group", "reason"),
        )
        self._undecodable = self._counter(
            "partq_messages_undecodable",
            "Undecodable messages, which become dead letters.",
            (*scope, "group"),
        )
        self._skipped = self._counter(
            "partq_messages_skipped",
            "Messages that a group's record spoke of and the log did not hold.",
            (*scope, "group"),
        )
        self._expired = self._counter(
            "partq_messages_expired", "Messages dropped because of their age.", (*scope, "group")
        )
        self._expiry_suspended = self._gauge(
            "partq_expiry_suspended",
            "1: no message expires, because the clock of Redis has jumped.",
            scope,
        )

    def _declare_partitions(self) -> None:
        scope, by_partition = _QUEUE, _PARTITION
        by_group = (*by_partition, "group")
        self._end = self._gauge("partq_partition_end", "Offset of the next message.", by_partition)
        self._lag = self._gauge("partq_lag", "Messages not yet acknowledged.", by_group)
        self._in_flight = self._gauge("partq_in_flight", "Messages sent, not acked.", by_group)
        self._ack_ranges = self._gauge(
            "partq_ack_ranges", "Ranges of messages acked above the cursor, in memory.", by_group
        )
        self._waiting = self._gauge(
            "partq_dead_letters_waiting", "Dead letters on their way to their queue.", by_group
        )
        self._blocked = self._gauge(
            "partq_dead_letters_blocked", "1: deliveries wait until they are stored.", by_group
        )
        self._parked = self._gauge(
            "partq_dead_letters_parked",
            "1: dead letters wait for their queue, and deliveries continue.",
            by_group,
        )
        self._parked_keys = self._gauge(
            "partq_parked_keys",
            "In groups of order Key: keys that wait for the redelivery of a message.",
            by_group,
        )
        self._held_keys = self._gauge(
            "partq_held_keys",
            "Of these, keys that wait until they are released: blocked, or in quarantine.",
            (*by_group, "state"),
        )
        self._sessions = self._gauge(
            "partq_sessions",
            "In groups of the type Session: sessions that have messages, and those locked.",
            (*by_group, "state"),
        )
        self._waiting_accepts = self._gauge(
            "partq_waiting_accepts",
            "In groups of the type Session: accepts that wait here for a session.",
            (*scope, "group"),
        )
        self._stalled = self._gauge(
            "partq_partition_stalled",
            "1: too many keys wait, or one for too long, and nothing new is sent.",
            by_group,
        )
        self._missing = self._gauge(
            "partq_messages_missing",
            "1: deliveries stopped at a message that the log does not hold.",
            by_group,
        )
        self._flows = self._gauge("partq_flows", "Bound flows.", (*scope, "group"))
        self._owned = self._gauge("partq_partitions_owned", "Partitions of this broker.", scope)
        self._clock_ahead = self._gauge(
            "partq_partition_clock_ahead_seconds",
            "By how much the last message is from the future of Redis's clock.",
            by_partition,
        )

    def _declare_memory(self) -> None:
        scope = _QUEUE
        self._quota = self._gauge("partq_quota_bytes", "The most that the queue may store.", scope)
        self._stored = self._gauge("partq_stored_bytes", "What a queue with a quota stores.", scope)
        self._retained = self._gauge(
            "partq_retained_bytes", "What this broker keeps of acknowledged messages.", scope
        )
        self._known_ids = self._gauge(
            "partq_known_ids", "Ids of messages that partitions of this broker know.", scope
        )
        self._scheduled = self._gauge(
            "partq_scheduled_messages", "Scheduled entries of partitions of this broker.", scope
        )
        self._scheduled_bytes = self._gauge("partq_scheduled_bytes", "Their size.", scope)
        self._scheduled_late = self._gauge(
            "partq_scheduled_late_seconds", "For how long the first of them is due.", scope
        )
        by_buffer = (*scope, "buffer")
        self._buffer_bytes = self._gauge(
            "partq_buffer_bytes", "Batches in the memory of this broker.", by_buffer
        )
        self._buffer_limits = self._gauge(
            "partq_buffer_limit_bytes", "The most of them that it holds.", by_buffer
        )
        self._store_memory = self._gauge(
            "partq_store_memory_bytes", "Memory that Redis uses; of a cluster the fullest.", scope
        )
        self._store_max_memory = self._gauge(
            "partq_store_max_memory_bytes", "Redis's maxmemory; 0: no limit.", scope
        )
        self._store_aof = self._gauge(
            "partq_store_aof_bytes", "Redis's append-only file; of a cluster the largest.", scope
        )

    def _declare_rescale(self) -> None:
        self._gated = self._gauge(
            "partq_partition_gated",
            "1: after a change of the number of partitions the group has older messages to read.",
            (*_PARTITION, "group"),
        )
        self._publish_pause = Histogram(
            "partq_rescale_publish_pause_seconds",
            "How long publishes waited for a new partition of a change.",
            _QUEUE,
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
            registry=self.registry,
        )

    def _declare_audit(self) -> None:
        by_partition = _PARTITION
        self._audit_bytes = self._gauge(
            "partq_audit_bytes", "Audit record that waits for its archive.", by_partition
        )
        self._audit_groups = self._gauge(
            "partq_audit_groups", "Groups of the audit record that wait.", by_partition
        )

    def _declare_connections(self) -> None:
        scope = _QUEUE
        self._connections = self._gauge(
            "partq_connections",
            "Open connections, by whether they showed a token.",
            (*scope, "caller"),
        )
        self._connections_cut = self._counter(
            "partq_connections_cut",
            "Connections that were cut or refused because of a bound.",
            (*scope, "reason"),
        )
        self._request_bytes = self._gauge(
            "partq_request_memory_bytes", "What bodies and answers of calls hold.", scope
        )
        self._overloaded = self._counter(
            "partq_requests_overloaded", "Calls sent away because others held too much.", scope
        )
        self._certificate_refused = self._gauge(
            "partq_certificate_refused",
            "1: the certificate's files hold what cannot be used; the previous one stays in use.",
            scope,
        )

    def render(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.registry)

    def accepted_count(self) -> int:
        """Return how many messages have passed the checks of a publish since the start."""
        return sum(count for _, count in _totals(self._accepted))

    def delivered_counts(self) -> dict[str, int]:
        """Return how many messages were sent to each group since the start, for every cause."""
        counts: dict[str, int] = {}
        for labels, count in _totals(self._delivered):
            counts[labels["group"]] = counts.get(labels["group"], 0) + count
        return counts

    def connection_cut(self, reason: str) -> None:
        """Count a connection that was cut or refused because of a bound."""
        self._connections_cut.labels(*self._names, reason).inc()

    def overloaded(self) -> None:
        """Count a call that was sent away because others held too much memory."""
        self._overloaded.labels(*self._names).inc()

    def observe_server(self, *, known: int, unknown: int, request_bytes: int) -> None:
        """Set how many connections are open, and what calls hold."""
        self._connections.labels(*self._names, "token").set(known)
        self._connections.labels(*self._names, "none").set(unknown)
        self._request_bytes.labels(*self._names).set(request_bytes)

    def accepted(self, messages: int, size_bytes: int) -> None:
        """Count a batch on its way to the log."""
        self._accepted.inc(messages)
        self._accepted_bytes.inc(size_bytes)

    def refused(self, code: str) -> None:
        """Count a batch that was refused."""
        self._refused.labels(*self._names, code).inc()

    def delivered(self, group: str, cause: str, messages: int) -> None:
        """Count a window that was sent."""
        self._delivered.labels(*self._names, group, cause).inc(messages)

    def acked(self, group: str, messages: int) -> None:
        """Count acknowledged messages."""
        self._acked.labels(*self._names, group).inc(messages)

    def taken_back(self, group: str, cause: str, messages: int) -> None:
        """Count messages that are redelivered because they were not done with."""
        self._taken_back.labels(*self._names, group, cause).inc(messages)

    def dead_lettered(self, group: str, reason: str) -> None:
        """Count a message that the dead-letter queue has stored."""
        self._dead_lettered.labels(*self._names, group, reason).inc()

    def undecodable(self, group: str, messages: int) -> None:
        """Count undecodable messages."""
        self._undecodable.labels(*self._names, group).inc(messages)

    def skipped(self, group: str, messages: int) -> None:
        """Count messages that a group cannot get, because the log does not hold them."""
        self._skipped.labels(*self._names, group).inc(messages)

    def expired(self, group: str, messages: int) -> None:
        """Count messages that were dropped because of their age."""
        self._expired.labels(*self._names, group).inc(messages)

    def observe_expiry(self, *, is_suspended: bool) -> None:
        """Set whether nothing expires, because the clock of Redis has jumped."""
        self._expiry_suspended.labels(*self._names).set(int(is_suspended))

    def observe_certificate(self, *, is_refused: bool) -> None:
        """Set what has become of the last change of the certificate; only with TLS."""
        self._certificate_refused.labels(*self._names).set(int(is_refused))

    def observe_quota(self, limit_bytes: int | None, used_bytes: int) -> None:
        """Set what the whole queue may store and does, by the last sum; None: no quota."""
        if limit_bytes is None:
            self._quota.clear()
            self._stored.clear()
            return
        self._quota.labels(*self._names).set(limit_bytes)
        self._stored.labels(*self._names).set(used_bytes)

    def observe_retained(self, size_bytes: int | None) -> None:
        """Set what stays in logs of acknowledged messages; None: nothing is to stay."""
        if size_bytes is None:
            self._retained.clear()
        else:
            self._retained.labels(*self._names).set(size_bytes)

    def observe_known_ids(self, count: int | None) -> None:
        """Set how many ids of messages are known; None: the queue does not ask for them."""
        if count is None:
            self._known_ids.clear()
        else:
            self._known_ids.labels(*self._names).set(count)

    def observe_scheduled(self, *, count: int, size_bytes: int, late_s: float) -> None:
        """Set how much waits until it is due, and for how long the first of it is due."""
        self._scheduled.labels(*self._names).set(count)
        self._scheduled_bytes.labels(*self._names).set(size_bytes)
        self._scheduled_late.labels(*self._names).set(late_s)

    def observe_buffers(self, sizes: Mapping[str, tuple[int, int]]) -> None:
        """Set what of batches is in memory, and may be: (bytes, limit) by buffer."""
        for buffer, (used_bytes, max_bytes) in sizes.items():
            self._buffer_bytes.labels(*self._names, buffer).set(used_bytes)
            self._buffer_limits.labels(*self._names, buffer).set(max_bytes)

    def observe_store(
        self,
        *,
        memory_bytes: int,
        max_memory_bytes: int,
        aof_bytes: int,
        ahead_ms: Mapping[str, int],
    ) -> None:
        """Set what Redis says of itself; `ahead_ms`: partitions that are ahead of its clock."""
        self._store_memory.labels(*self._names).set(memory_bytes)
        self._store_max_memory.labels(*self._names).set(max_memory_bytes)
        self._store_aof.labels(*self._names).set(aof_bytes)
        self._clock_ahead.clear()
        for partition, ahead in ahead_ms.items():
            self._clock_ahead.labels(*self._names, partition).set(ahead / 1000)

    def observe_audit(self, sizes: Mapping[str, tuple[int, int]]) -> None:
        """Set how much of the audit records is stored: (bytes, groups) by partition."""
        for gauge in (self._audit_bytes, self._audit_groups):
            gauge.clear()
        for partition, (size_bytes, groups) in sizes.items():
            self._audit_bytes.labels(*self._names, partition).set(size_bytes)
            self._audit_groups.labels(*self._names, partition).set(groups)

    def rescale_paused(self, pause_s: float) -> None:
        """Count a new partition that takes messages now; `pause_s`: how long it was waited for."""
        self._publish_pause.labels(*self._names).observe(pause_s)

    def observe_parked_keys(
        self, parked: Mapping[tuple[str, str], tuple[int, int, int, bool]]
    ) -> None:
        """Tell how many keys wait, and whether nothing new is sent, by partition and group.

        All that wait, and of these those that are blocked, and those in quarantine.
        """
        for gauge in (self._parked_keys, self._held_keys, self._stalled):
            gauge.clear()
        for (partition, group), (count, blocked, quarantined, is_stalled) in parked.items():
            self._parked_keys.labels(*self._names, partition, group).set(count)
            for state, held in (("blocked", blocked), ("quarantined", quarantined)):
                self._held_keys.labels(*self._names, partition, group, state).set(held)
            self._stalled.labels(*self._names, partition, group).set(int(is_stalled))

    def observe_sessions(
        self, sessions: Mapping[tuple[str, str], tuple[int, int]], waiting: Mapping[str, int]
    ) -> None:
        """Tell how many sessions have messages, and how many are locked, by partition and group.

        `waiting`: how many accepts wait for a session, by group.
        """
        self._waiting_accepts.clear()
        for group, count in waiting.items():
            self._waiting_accepts.labels(*self._names, group).set(count)
        self._sessions.clear()
        for (partition, group), (with_messages, locked) in sessions.items():
            place = (*self._names, partition, group)
            self._sessions.labels(*place, "with_messages").set(with_messages)
            self._sessions.labels(*place, "locked").set(locked)

    def observe_gates(self, gated: Iterable[tuple[str, str]]) -> None:
        """Set which groups wait for older messages: (partition, group) of each."""
        self._gated.clear()
        for partition, group in gated:
            self._gated.labels(*self._names, partition, group).set(1)

    def observe(
        self,
        *,
        ends: dict[str, int],
        lags: dict[tuple[str, str], tuple[int, int, int]],
        outboxes: dict[tuple[str, str], tuple[int, bool, bool]],
        missing: dict[tuple[str, str], bool],
        flows: dict[str, int],
    ) -> None:
        """Set the gauges.

        End by partition; (lag, in flight, ranges acked above the cursor), (dead letters waiting,
        whether they stop deliveries, whether they wait while deliveries continue) and whether
        deliveries stopped at a missing message by (partition, group); flows by group.
        """
        outbox = (self._waiting, self._blocked, self._parked)
        by_group = (self._lag, self._in_flight, self._ack_ranges)
        for gauge in (self._end, *by_group, *outbox, self._missing):
            gauge.clear()
        self._flows.clear()
        self._owned.labels(*self._names).set(len(ends))
        for partition, end in ends.items():
            self._end.labels(*self._names, partition).set(end)
        for (partition, group), values in lags.items():
            for gauge, value in zip(by_group, values, strict=True):
                gauge.labels(*self._names, partition, group).set(value)
        for (partition, group), (waiting, is_blocked, is_parked) in outboxes.items():
            self._waiting.labels(*self._names, partition, group).set(waiting)
            self._blocked.labels(*self._names, partition, group).set(int(is_blocked))
            self._parked.labels(*self._names, partition, group).set(int(is_parked))
        for (partition, group), is_missing in missing.items():
            self._missing.labels(*self._names, partition, group).set(int(is_missing))
        for group, count in flows.items():
            self._flows.labels(*self._names, group).set(count)

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...]) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)


def _totals(counter: Counter) -> Iterator[tuple[dict[str, str], int]]:
    """Yield the labels and the value of a counter, or of each of its children."""
    for metric in counter.collect():
        for sample in metric.samples:
            if sample.name.endswith("_total"):
                yield sample.labels, int(sample.value)
