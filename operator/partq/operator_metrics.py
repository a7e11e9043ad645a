"""Declares every metric of the operator, with a method for each change of one.

They are set in `kube/reconcile/reporter.py`, `kube/reconcile/queue_worker.py` and `kube/app.py`.
"""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class OperatorMetrics:
    """The metrics of the operator process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        queue, group = ("namespace", "queue"), ("namespace", "queue", "group")
        self._leader = self._gauge("partq_leader", "1: this replica acts.", ())
        self._queues = self._gauge("partq_queues", "Queues that are there.", ())
        self._api_calls = self._gauge("partq_kubernetes_calls", "Calls made since the start.", ())
        self._api_errors = self._gauge(
            "partq_kubernetes_errors", "Calls without an answer, or refused.", ()
        )
        self._reconciles = Counter(
            "partq_reconcile",
            "Reconciliations of queues.",
            ("result",),
            registry=self.registry,
        )
        self._reconcile_s = Histogram(
            "partq_reconcile_duration_seconds",
            "How long a reconciliation took.",
            buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 30),
            registry=self.registry,
        )
        self._rebalances = Counter(
            "partq_rebalances",
            "Rebalances that are over.",
            (*group, "trigger"),
            registry=self.registry,
        )
        self._moves = Counter(
            "partq_rebalance_moves", "Partitions that moved.", group, registry=self.registry
        )
        self._pause_s = Histogram(
            "partq_rebalance_longest_pause_seconds",
            "The longest time that a partition of a rebalance had no consumer.",
            group,
            buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
            registry=self.registry,
        )
        self._ready = self._gauge("partq_queue_ready", "1: the queue is Ready.", queue)
        self._members = self._gauge("partq_group_members", "Members.", (*group, "state"))
        self._partitions = self._gauge("partq_partitions", "Partitions.", (*group, "state"))
        self._waiting = self._gauge(
            "partq_group_moves_waiting", "Moves for balance that wait for the budget.", group
        )
        self._lag = self._gauge("partq_group_lag", "Messages not yet acknowledged.", group)
        self._rescale = self._gauge(
            "partq_rescale_phase",
            "1: the latest change of the number of partitions is in this phase.",
            (*queue, "phase"),
        )
        self._advised = self._gauge(
            "partq_advised_partitions", "How many partitions the operator suggests.", queue
        )
        self._retired_bytes = self._gauge(
            "partq_retired_bytes", "What partitions hold that take no messages any more.", queue
        )

    def render(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.registry)

    def observe_process(self, *, is_leading: bool, queues: int, calls: int, errors: int) -> None:
        """Set what is true of the process as a whole."""
        self._leader.set(int(is_leading))
        self._queues.set(queues)
        self._api_calls.set(calls)
        self._api_errors.set(errors)

    def reconciled(self, duration_s: float, *, is_done: bool) -> None:
        """Count a reconciliation."""
        self._reconciles.labels("done" if is_done else "failed").inc()
        self._reconcile_s.observe(duration_s)

    def rebalanced(
        self, group: tuple[str, str, str], trigger: str, *, moved: int, pause_ms: int
    ) -> None:
        """Count a rebalance that is over; `group`: namespace, queue, group."""
        self._rebalances.labels(*group, trigger).inc()
        self._moves.labels(*group).inc(moved)
        self._pause_s.labels(*group).observe(pause_ms / 1000)

    def observe_queue(self, namespace: str, queue: str, *, is_ready: bool) -> None:
        """Set what is true of a queue."""
        self._ready.labels(namespace, queue).set(int(is_ready))

    def observe_rescale(
        self, namespace: str, queue: str, phase: str | None, retired_bytes: int
    ) -> None:
        """Set how far the latest change of the number of partitions is; None: there was none."""
        self._rescale.remove_by_labels({"namespace": namespace, "queue": queue})
        if phase is not None:
            self._rescale.labels(namespace, queue, phase).set(1)
        self._retired_bytes.labels(namespace, queue).set(retired_bytes)

    def observe_advice(self, namespace: str, queue: str, partitions: int) -> None:
        """Set how many partitions are suggested for a queue."""
        self._advised.labels(namespace, queue).set(partitions)

    def observe_group(
        self,
        group: tuple[str, str, str],
        *,
        members: Mapping[str, int],
        partitions: Mapping[str, int],
        waiting_moves: int,
        lag: int | None,
    ) -> None:
        """Set what is true of a group; counts by state."""
        for state, count in members.items():
            self._members.labels(*group, state).set(count)
        for state, count in partitions.items():
            self._partitions.labels(*group, state).set(count)
        self._waiting.labels(*group).set(waiting_moves)
        if lag is not None:
            self._lag.labels(*group).set(lag)

    def forget(self, namespace: str, queue: str, group: str | None = None) -> None:
        """Drop what is shown of a queue that is gone and of its groups, or of one of these."""
        labels = {"namespace": namespace, "queue": queue}
        if group is None:
            for gauge in (self._ready, self._rescale, self._retired_bytes, self._advised):
                gauge.remove_by_labels(labels)
        else:
            labels["group"] = group
        for gauge in (self._members, self._partitions, self._waiting, self._lag):
            gauge.remove_by_labels(labels)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...]) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)
