"""A story's namespace: its queue, its producers and consumers, what they wrote, and the verdict."""

import json
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from e2e import manifests
from e2e.cluster import Cluster
from partq.lab.verdict.journal import in_order
from partq.lab.verdict.journal_rows import (
    ASSIGNED,
    DeliveredRow,
    HeldRow,
    PublishedRow,
    Row,
    parse_lines,
)
from partq.lab.verdict.judge import MAX_FINDINGS, Verdict, judge
from partq.lab.verdict.sessions import find_session_faults
from partq.testing import eventually_blocking

READY_S = 120.0
POLL_S = 0.5
_MADE_UP = ("--messages", "1000000", "--per-s", "100", "--keys", "128")
"""Messages for hours: a story ends its producer."""
_DELETE_S = 120.0


class StageError(AssertionError):
    """What a story waited for did not come."""


class Stage:
    """One namespace, from nothing to nothing. A context manager: it ends with its block."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        image: str,
        *,
        group: str = manifests.GROUP,
        program: str = "consumer",
    ) -> None:
        """Prepare it. `program`: what the consumers of `group` run, of those of the workload."""
        self.cluster = cluster
        self.namespace = namespace
        self.image = image
        self._group = group
        self._program = program
        self._type = "Partitioned"
        self._is_kept = False
        self._partitions = manifests.PARTITIONS
        self._shares = manifests.PARTITIONS
        """What the members have all together: partitions, or parts of partitions."""

    def __enter__(self) -> Self:
        self.delete_namespace()  # a run that was killed leaves it behind
        self.kubectl("create", "namespace", self.namespace)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if not self._is_kept:
            self._delete_namespace("--wait=false")

    def keep(self) -> None:
        """Leave the namespace there when the block ends."""
        self._is_kept = True

    def kubectl(self, *args: str, stdin: str = "", timeout_s: float = READY_S) -> str:
        """Run kubectl in the namespace and return what it prints.

        Raises:
            ClusterError: it failed.
        """
        return self.cluster.kubectl(
            "--namespace", self.namespace, *args, stdin=stdin, timeout_s=timeout_s
        )

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Apply objects.

        Raises:
            ClusterError: one of them is refused.
        """
        document = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.kubectl("apply", "--filename", "-", stdin=json.dumps(document))

    def open(
        self,
        *,
        consumers: int = 2,
        arguments: Sequence[str] = (),
        publishing: Sequence[str] = (),
        group: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> None:
        """Begin: a queue that is Ready, consumers that share it, a producer that publishes.

        What is there already stays, so a story can begin where one before it has ended.

        `arguments`: of the consumers; `publishing`: of the producer; `group`: what else the
        group's spec says; `spec`: what of the queue's differs from `manifests.queue`.

        Raises:
            StageError: not all of it is there in time.
        """
        self.make(group=group, **spec)
        self.start_traffic(consumers, *arguments, publishing=publishing)

    def make(self, *, group: Mapping[str, Any] | None = None, **spec: Any) -> None:
        """Have a queue that is Ready, and its group; arguments as of `open`.

        Raises:
            StageError: one of them is not there in time.
        """
        self._partitions = spec.get("partitions", manifests.PARTITIONS)
        self.apply(manifests.queue(**spec), *manifests.journals(self.image))
        self._make_group(group or {})
        self.await_condition("pq", manifests.QUEUE)
        self.await_condition("pod", manifests.JOURNALS)

    def make_beside(self, group: str, program: str, **spec: Any) -> "Stage":
        """Have another group of the same queue; return its side, which ends with this one.

        `program`: what its consumers run, of the workload; `spec`: what else the group's spec says.

        Raises:
            StageError: the group is not there in time.
        """
        found = Stage(self.cluster, self.namespace, self.image, group=group, program=program)
        found._partitions = self._partitions
        found._make_group(spec)
        # What all groups have acknowledged before is removed.
        found.eventually(lambda: found.group_status().get("phase"), f"the group {group}")
        return found

    def start_consumers(self, count: int, *arguments: str) -> None:
        """Start consumers, and wait until they share the queue.

        Raises:
            StageError: not after `READY_S`.
        """
        self.apply(self._consumers(count, *arguments))
        self.await_pods(count)
        self.await_shared(count)

    def start_traffic(
        self, consumers: int = 2, *arguments: str, publishing: Sequence[str] = ()
    ) -> None:
        """Start consumers and a producer, and wait until messages go through all partitions.

        Raises:
            StageError: not after `READY_S`.
        """
        self.apply(manifests.producer(self.image, *_MADE_UP, *publishing))
        self.start_consumers(consumers, *arguments)
        self.await_traffic()

    def clear_traffic(self) -> None:
        """Remove consumers and producer, and what they have written down.

        Raises:
            ClusterError: they do not end.
        """
        workloads = (f"deployment/{self._group}", f"job/{manifests.PRODUCER}")
        self.kubectl("delete", *workloads, "--cascade=foreground", "--wait=true")
        self.kubectl("exec", manifests.JOURNALS, "--", *manifests.CLEAR_JOURNALS)

    def scale(self, consumers: int) -> None:
        """Let so many consumers run, by `kubectl scale`.

        Raises:
            ClusterError: it is refused.
        """
        self.kubectl("scale", "deployment", self._group, f"--replicas={consumers}")

    def await_condition(
        self, kind: str, name: str, condition: str = "Ready", timeout_s: float = READY_S
    ) -> None:
        """Wait until a condition of an object is true.

        Raises:
            ClusterError: it is not, after `timeout_s`.
        """
        wait = (f"--for=condition={condition}", f"--timeout={timeout_s:.0f}s")
        self.kubectl("wait", f"{kind}/{name}", *wait, timeout_s=timeout_s + 10)

    def await_brokers(self, count: int) -> None:
        """Wait until so many brokers are ready, and no other pod of a broker is there.

        Raises:
            StageError: not after `READY_S`.
        """

        def are_ready() -> bool:
            status = self.get("pq", manifests.QUEUE)["status"]
            pods = self.get("pods", "--selector=app.kubernetes.io/component=broker")["items"]
            return status["brokers"] == {"desired": count, "ready": count} and len(pods) == count

        self.eventually(are_ready, f"{count} brokers")
        self.await_condition("pq", manifests.QUEUE)

    def broker(self, index: int) -> dict[str, Any]:
        """Return the pod of a broker.

        Raises:
            ClusterError: the cluster has no such pod.
        """
        return self.get("pod", f"{manifests.QUEUE}-broker-{index}")

    def await_pods(self, count: int) -> None:
        """Wait until so many pods of consumers are there, and none that ends.

        Raises:
            StageError: not after `READY_S`.
        """
        self.eventually(lambda: len(self.pods()) == count, f"{count} pods of consumers")

    def await_shared(self, members: int) -> None:
        """Wait until so many members have all partitions or parts, and nothing is being moved.

        Raises:
            StageError: not after `READY_S`.
        """

        def is_shared() -> bool:
            status = self.group_status()
            found = status.get("members", {})
            return (
                status.get("phase") == "Stable"
                and (found.get("active"), found.get("lost")) == (members, 0)
                and status["partitions"]["ready"] == self._shares
            )

        self.eventually(is_shared, f"{members} members with all partitions")

    def await_traffic(self, partitions: int | None = None) -> None:
        """Wait until messages that are published from now on are processed in every partition.

        `partitions`: how many take messages; None: as many as the queue had in `open`.

        Raises:
            StageError: not after `READY_S`.
        """
        count = self._partitions if partitions is None else partitions
        before = {(row.key, row.number) for row in self._traffic()[0]}

        def goes_on() -> bool:
            published, delivered = self._traffic()
            new = {(row.key, row.number) for row in published} - before
            served = {row.partition for row in delivered if (row.key, row.number) in new}
            return len(served) >= count

        self.eventually(goes_on, "new messages processed in every partition")

    def eventually(
        self, is_true: Callable[[], object], what: str, timeout_s: float = READY_S
    ) -> None:
        """Ask again and again until `is_true` says so.

        Raises:
            StageError: it does not, for `timeout_s`; with the state of the namespace.
        """
        try:
            eventually_blocking(is_true, what, timeout_s=timeout_s, interval_s=POLL_S)
        except AssertionError as error:
            raise StageError(f"{error}\n{self.describe()}") from None

    def hold(self) -> None:
        """Let every consumer keep its present message, or the next one; see `CAN_BE_HELD`.

        Raises:
            ClusterError: the pod of the journals does not run.
        """
        self.kubectl("exec", manifests.JOURNALS, "--", *manifests.HOLD)

    def let_go(self) -> None:
        """End what `hold` began.

        Raises:
            ClusterError: as of `hold`.
        """
        self.kubectl("exec", manifests.JOURNALS, "--", *manifests.LET_GO)

    def pods(self, app: str = "") -> list[dict[str, Any]]:
        """Return the pods of an app; by default those of the consumers."""
        found = self.get("pods", "--selector", f"app={app or self._group}")
        items: list[dict[str, Any]] = found["items"]
        return items

    def get(self, *args: str) -> dict[str, Any]:
        """Return what `kubectl get` finds."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *args, "--output", "json"))
        return found

    def partq(self, *args: str) -> dict[str, Any]:
        """Run a command of `partq` with `--json`, as `printed`; return the object.

        Raises:
            ClusterError: it failed.
        """
        answer: dict[str, Any] = json.loads(self.printed(*args, "--json"))
        return answer

    def printed(self, *args: str) -> str:
        """Run a command of `partq` in a pod, as the queue's admin, and return what it prints.

        Raises:
            ClusterError: it failed.
        """
        secret = self.get("secret", f"{manifests.QUEUE}-tokens")
        token = b64decode(secret["data"]["admin"]).decode()
        settings = {**manifests.connection(self.namespace), "PARTQ_TOKEN": token}
        environment = [f"{name}={value}" for name, value in settings.items()]
        command = ("env", *environment, "partq", *args)
        return self.kubectl("exec", manifests.JOURNALS, "--", *command)

    def group_status(self) -> dict[str, Any]:
        """Return the group's status; empty at first."""
        status: dict[str, Any] = self.get("cg", self._group).get("status") or {}
        return status

    def longest_pause_ms(self) -> int:
        """Return how long a partition had no consumer at most in the last rebalance."""
        pause: int = self.group_status()["rebalances"][-1]["longestPauseMilliseconds"]
        return pause

    def rows(self) -> list[Row]:
        """Return everything that producers and the group's consumers have written, in order."""
        text = self.kubectl("exec", manifests.JOURNALS, "--", *manifests.READ_JOURNALS)
        rows, _ = parse_lines(text.encode())
        ours = f"/{self._group}"
        return in_order(
            row for row in rows if isinstance(row, PublishedRow) or row.member.endswith(ours)
        )

    def moves(self) -> int:
        """Return how often a partition went from one consumer to another."""
        owner: dict[str, str] = {}
        count = 0
        for row in self.rows():
            if isinstance(row, HeldRow) and row.change == ASSIGNED:
                count += owner.get(row.partition, row.member) != row.member
                owner[row.partition] = row.member
        return count

    def close(self) -> Verdict:
        """End the traffic, wait until all of it is processed, and judge.

        Raises:
            StageError: something that was published is not processed in time, or the verdict is
                not good.
        """
        self.kubectl("delete", "job", manifests.PRODUCER, "--wait=true")
        self.eventually(lambda: not self.pods(manifests.PRODUCER), "the producer's end")
        return self.judge()

    def judge(self) -> Verdict:
        """Wait until everything that was published is processed, and judge.

        Raises:
            StageError: as of `close`.
        """
        try:
            self.eventually(self._has_all, "every message processed")
        except StageError as error:
            raise StageError(f"{self._verdict()}\n{error}") from None
        verdict, faults = self._verdict(), find_session_faults(self.rows())
        if not verdict.is_good or not verdict.published or (self._type == "Session" and faults):
            raise StageError("\n".join([str(verdict), *faults[:MAX_FINDINGS], self.describe()]))
        return verdict

    def describe(self) -> str:
        """Return what a person would look at first."""
        kinds = "pq,cg,deployments,statefulsets,jobs,pods"
        return "\n".join(
            self.cluster.kubectl("--namespace", self.namespace, *args, check=False)
            for args in (
                ("get", kinds, "--output", "wide"),
                ("get", "cg", "--output", "jsonpath={.items[*].status}"),
                ("get", "events", "--sort-by=.lastTimestamp"),
            )
        )

    def delete_namespace(self) -> None:
        """Delete the namespace with all that is in it.

        Raises:
            ClusterError: it is still there after two minutes.
        """
        self._delete_namespace("--wait=true")

    def _make_group(self, spec: Mapping[str, Any]) -> None:
        self._type = spec.get("type", self._type)
        self._shares = self._partitions * spec.get("keyShared", {}).get("parts", 1)
        self.apply(manifests.group(self._group, **spec))

    def _consumers(self, count: int, *arguments: str) -> dict[str, Any]:
        return manifests.consumers(
            self.image, count, *arguments, group=self._group, program=self._program
        )

    def _delete_namespace(self, *options: str) -> None:
        self.cluster.kubectl(
            *("delete", "namespace", self.namespace, "--ignore-not-found", *options),
            timeout_s=_DELETE_S,
        )

    def _traffic(self) -> tuple[list[PublishedRow], list[DeliveredRow]]:
        rows = self.rows()
        published = [row for row in rows if isinstance(row, PublishedRow)]
        return published, [row for row in rows if isinstance(row, DeliveredRow)]

    def _has_all(self) -> bool:
        published, delivered = self._traffic()
        processed = {(row.key, row.number) for row in delivered}
        return all((row.key, row.number) in processed for row in published)

    def _verdict(self) -> Verdict:
        return judge(*self._traffic(), has_order=self._type != "Shared")
