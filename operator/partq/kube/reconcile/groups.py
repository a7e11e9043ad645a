"""The groups of one queue: their specs as they hold, what is wrong with them, their lag."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime

from partq.coordinator.provision import provision
from partq.coordinator.rules import check_key_shared, check_partition_count, section
from partq.coordinator.view import QueueView, SessionTotals
from partq.core.group.membership import MemberState
from partq.core.views.partition_advice import GroupLoad
from partq.errors import SettingsError
from partq.kube import names
from partq.kube.bodies import Body
from partq.kube.member_pods import MemberPods
from partq.kube.names import ConditionReason, ConditionType, QueueKey
from partq.kube.ports import QueueStore
from partq.kube.status.conditions import Finding, bad
from partq.kube.watch import parse
from partq.kube.watch.object_cache import ObjectCache, group_models
from partq.kube.watch.parse import Pod
from partq.resources import (
    ConsumerGroup,
    PartitionedQueue,
    dead_letter_queues,
    effective_group,
    effective_queue,
)
from partq.resources.rebalance import RebalancePolicy
from partq.resources.status import MAX_MESSAGE_CHARS

MAX_DOUBTFUL = 20
"""How many pods one look verifies."""

Spec = dict[str, object]


_START_FIELDS = "start", "startAtMs"


class Groups:
    """What a worker keeps of its queue's groups."""

    def __init__(self, cache: ObjectCache, key: QueueKey) -> None:
        self._cache = cache
        self._key = key
        self._specs: dict[str, Spec] = {}
        self._is_whole = False
        """The last call to `provision` went through."""
        self._refused: dict[str, Finding] = {}
        """Changes that the store's records do not allow."""
        self.lag: dict[str, int] = {}
        self.sessions: dict[str, SessionTotals] = {}
        """Of the groups of the type Session, as they were when lag was looked at."""
        self._largest_lag: dict[str, int] = {}
        """Of one partition."""
        self.hurried: dict[str, str] = {}
        """The annotation `rebalance-now` that was carried out last, by group."""

    @property
    def names(self) -> Collection[str]:
        """The groups whose specs were usable last."""
        return self._specs.keys()

    @property
    def dead_letter_queues(self) -> list[str]:
        """The names of the dead-letter queues that are to be made where they are missing."""
        return dead_letter_queues.wanted(self._specs.values())

    def policy_of(self, group: str) -> RebalancePolicy:
        """Return the rebalance policy of a group: whether pods count, or time alone."""
        policy = section(self._specs.get(group, {}), "rebalance").get("policy")
        return "Timer" if policy == "Timer" else "KubernetesAware"

    def delay_s_of(self, group: str) -> float:
        """Return how long a lost member of a group is waited for, as far as its spec is known."""
        delay_s = section(self._specs.get(group, {}), "rebalance").get("delaySeconds")
        return float(delay_s) if isinstance(delay_s, int | float) else math.inf

    def problem(self, name: str, body: Body) -> Finding | None:
        """Return what is wrong with a group's spec; the one that was valid last continues."""
        _, problems = group_models({name: body})
        if name in problems:
            return bad(ConditionType.SPEC_VALID, ConditionReason.INVALID_SPEC, problems[name])
        if body["spec"].get("queue") != self._key.name:
            text = f"spec.queue: a group cannot move to another queue; it stays at {self._key.name}"
            return bad(ConditionType.SPEC_VALID, ConditionReason.QUEUE_IMMUTABLE, text)
        return self._refused.get(name)

    async def check_partition_count(self, queue: PartitionedQueue) -> None:
        """Refuse a partition count with which a group has too many parts, as coordinators do.

        Raises:
            SettingsError: it names the field and the group.
        """
        try:
            check_partition_count(effective_queue(queue, ()), self._specs)
        except SettingsError as error:
            raise SettingsError(f"spec.{error}") from None

    async def provision(
        self,
        store: QueueStore,
        queue: PartitionedQueue,
        uid: str,
        *,
        queue_uid: str,
        is_paused: bool,
    ) -> int:
        """Bring the store's records in line, and return how many partitions take messages.

        The coordinator changes their number, if the spec has another one. `uid`: what the keys
        are named by; `queue_uid`: that of the resource, by which brokers know that there is one.

        Raises:
            SettingsError: the store does not allow it; see `coordinator.provision`.
            StoreUnavailableError: no answer.
        """
        bodies = self._cache.groups(self._key)
        models, _ = group_models(bodies)
        specs: dict[str, Spec] = {}
        for name, body in bodies.items():
            spec = await self._spec(
                store, queue, name, str(body["metadata"]["uid"]), models.get(name)
            )
            if spec is not None:
                paused = is_paused or parse.is_on(body, names.PAUSE_REBALANCE)
                rebalance = {**section(spec, "rebalance"), "paused": paused}
                specs[name] = {**spec, "uid": str(body["metadata"]["uid"]), "rebalance": rebalance}
        self._specs = specs
        self.lag = {name: lag for name, lag in self.lag.items() if name in specs}
        self.sessions = {name: each for name, each in self.sessions.items() if name in specs}
        was_whole, self._is_whole = self._is_whole, False
        await provision(
            store.records,
            name=str(self._key),
            uid=uid,
            partition_count=queue.spec.partitions,
            spec={**effective_queue(queue, ()), "uid": queue_uid},
            groups=specs,
            keeps_others=False,
            repairs=not was_whole,
        )
        self._is_whole = True
        return (await store.ports.layouts.read()).layout.partition_count

    async def _spec(
        self,
        store: QueueStore,
        queue: PartitionedQueue,
        name: str,
        uid: str,
        model: ConsumerGroup | None,
    ) -> Spec | None:
        """Return the spec that holds for a group; None: it never had one."""
        stored = await store.records.configs.read_group(name)
        before = dict(stored.spec) if stored is not None else None
        if before is not None and before.get("uid", uid) != uid:
            before = None  # of a resource that had the name, and is gone
        if model is None or model.spec.queue != self._key.name:
            return before
        spec = effective_group(model, queue)
        self._refused.pop(name, None)
        try:
            check_key_shared(effective_queue(queue, ()), spec, before)
        except SettingsError as error:
            self._refused[name] = bad(
                ConditionType.SPEC_VALID, ConditionReason.INVALID_SPEC, f"spec.{error}"
            )
            return before
        if before is not None and _start(before) != _start(spec):
            text = (
                "spec.start, spec.startAt: they count when the group is made; "
                f"{_shown_start(before)} holds"
            )
            self._refused[name] = bad(
                ConditionType.SPEC_VALID, ConditionReason.START_IMMUTABLE, text
            )
            spec.pop("startAtMs", None)
            spec |= {name: before[name] for name in _START_FIELDS if name in before}
        return spec

    def hurry(self, rebalance_now: Callable[[str], bool]) -> None:
        """Carry out annotations that ask for a rebalance and are new."""
        for name, body in self._cache.groups(self._key).items():
            value = parse.annotation(body, names.REBALANCE_NOW)
            done = self.hurried.get(name) or (body.get("status") or {}).get("rebalanceNow")
            if value is None:
                continue
            value = value[:MAX_MESSAGE_CHARS]  # status has room for no more
            if value == done or rebalance_now(name):
                self.hurried[name] = value

    async def measure(self, store: QueueStore, view: QueueView) -> None:
        """Read every group's lag, and note its sessions: both change with each message.

        Raises:
            StoreUnavailableError: no answer.
        """
        for name in list(self._specs):
            lags = await store.lags(name, view.partitions)
            self.lag[name] = sum(lags.values())
            self._largest_lag[name] = max(lags.values(), default=0)
            found = view.groups[name].sessions if name in view.groups else None
            if found is not None:
                self.sessions[name] = found

    def sample(self, view: QueueView) -> dict[str, GroupLoad]:
        """Return members and lag of the groups whose members share the partitions."""
        return {
            name: GroupLoad(
                sum(state is MemberState.BOUND for state in group.members.values()),
                self.lag[name],
                self._largest_lag.get(name, 0),
            )
            for name, group in view.groups.items()
            if name in self.lag and self._specs.get(name, {}).get("type") == "Partitioned"
        }

    def held_counts(self, view: QueueView, member_pods: MemberPods) -> dict[str, int]:
        """Return how many partitions each pod of the groups holds, by uid; 0: it stands by."""
        found: Counter[str] = Counter()
        for name, group in view.groups.items():
            pods = self._cache.members(self._key.namespace, name)
            found.update(dict.fromkeys((pod.uid for pod in pods), 0))
            held = Counter(each.member for each in group.partitions.values())
            for member, count in held.items():
                pod = member_pods.pod_of(member) if member is not None else None
                if pod is not None:
                    found[pod.uid] += count
        return dict(found)

    def doubtful_pods(self, view: QueueView | None, member_pods: MemberPods) -> list[Pod]:
        """Return pods that the cache still has, of members that are not connected."""
        found = {pod.uid: pod for pod in self._lost_pods(view, member_pods)}
        return list(found.values())[:MAX_DOUBTFUL]

    def _lost_pods(self, view: QueueView | None, member_pods: MemberPods) -> Iterator[Pod]:
        for group in view.groups.values() if view is not None else ():
            for member, state in group.members.items():
                if state in (MemberState.WAITING, MemberState.GONE):
                    pod = member_pods.pod_of(member)
                    if pod is not None and self._cache.pod(pod.uid) is pod:
                        yield pod


def _start(spec: Mapping[str, object]) -> object:
    """Return where a group's effective spec has it begin: a time comes before a place."""
    return spec.get("startAtMs", spec.get("start", "Earliest"))


def _shown_start(spec: Mapping[str, object]) -> str:
    """Return the same as people write it."""
    start = _start(spec)
    if not isinstance(start, int):
        return str(start)
    try:
        at = datetime.fromtimestamp(start / 1000, UTC).isoformat(timespec="milliseconds")
    except ValueError:  # after the year 9999, in UTC
        return f"{start} ms since 1970"
    return at.replace("+00:00", "Z")
