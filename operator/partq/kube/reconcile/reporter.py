"""Writes the status of a queue and its groups where it differs, and Events about changes."""

from collections.abc import Mapping, Sequence
from typing import cast

from partq.coordinator.view import GroupView
from partq.core.group.membership import MemberState
from partq.core.model import MemberId
from partq.kube.api import group_path, queue_path
from partq.kube.bodies import Body, Fields, Manifest
from partq.kube.events import Subject
from partq.kube.member_pods import MemberPods
from partq.kube.names import ConditionType, QueueKey
from partq.kube.reconcile.context import Context
from partq.kube.status import event_diff, render
from partq.kube.status.conditions import Finding
from partq.kube.status.event_diff import PendingEvent
from partq.kube.status.facts import GroupFacts, QueueFacts
from partq.kube.watch import parse
from partq.kube.watch.object_cache import is_older


class Reporter:
    """Reports of one queue's worker: status and Events. An unchanged status is not written."""

    def __init__(self, context: Context, key: QueueKey, member_pods: MemberPods) -> None:
        self._context = context
        self._key = key
        self._member_pods = member_pods
        self._findings: dict[str, Sequence[Finding]] = {}
        self._views: dict[str, GroupView] = {}
        self._written: dict[str, Body] = {}
        """Bodies as the last write returned them, by uid: a watch may not have shown them yet."""
        self._groups: dict[str, str] = {}
        """The names of groups that have metrics, by uid."""

    async def queue(self, body: Body, facts: QueueFacts) -> None:
        """Write the queue's status.

        Raises:
            KubernetesError: not written; the next call tries again.
        """
        before = self._status(body)
        status, findings = render.queue_status(facts, before, self._context.now())
        await self._write(queue_path(*self._key, "/status"), body, before, status)
        subject = Subject.of(body, "PartitionedQueue")
        self._tell(subject, event_diff.of_conditions(self._findings.get(subject.uid, ()), findings))
        self._findings[subject.uid] = findings
        ready = next(each for each in findings if each.type is ConditionType.READY)
        self._context.metrics.observe_queue(*self._key, is_ready=ready.is_true is True)

    async def group(self, name: str, body: Body, facts: GroupFacts) -> None:
        """Write a group's status.

        Raises:
            KubernetesError: not written; the next call tries again.
        """
        before = self._status(body)
        status, findings = render.group_status(facts, before, self._context.now(), self.pod_name)
        status["queue"] = self._key.name if facts.queue_ready is not None else before.get("queue")
        path = group_path(self._key.namespace, name, "/status")
        await self._write(path, body, before, status)
        subject = Subject.of(body, "ConsumerGroup")
        self._tell(subject, event_diff.of_conditions(self._findings.get(subject.uid, ()), findings))
        self._findings[subject.uid] = findings
        if facts.view is not None:
            last = self._views.get(subject.uid)
            view = event_diff.with_members(last, facts.view)
            self._tell(subject, event_diff.of_group(last, view, self.pod_name))
            self._views[subject.uid] = view
            self._groups[subject.uid] = name
            self._context.metrics.observe_group(
                (*self._key, name),
                members=cast(Mapping[str, int], status["members"]),
                partitions=cast(Mapping[str, int], status["partitions"]),
                waiting_moves=facts.view.waiting_count,
                lag=facts.lag,
            )

    def unselected(self, group: str, view: GroupView | None) -> list[str]:
        """Say which connected pods of a group its selector does not match any more."""
        members = view.members.items() if view is not None else ()
        bound = [member for member, state in members if state is MemberState.BOUND]
        return self._member_pods.unselected(group, bound)

    def tell(self, body: Body, kind: str, note: PendingEvent) -> None:
        """Write one Event about a queue or a group."""
        self._tell(Subject.of(body, kind), [note])

    def pod_name(self, member: MemberId) -> str:
        """Return the name of a member for people: its pod, and its container if it names one."""
        pod, container = self._member_pods.pod_of(member), parse.member_name(member).container
        if pod is None:
            return member
        return f"{pod.name}/{container}" if container else pod.name

    def _tell(self, subject: Subject, notes: Sequence[PendingEvent]) -> None:
        for note in notes:
            self._context.events.emit(subject, note.reason, note.text, is_warning=note.is_warning)

    def keep_only(self, bodies: Sequence[Body]) -> None:
        """Forget the reports of deleted resources."""
        uids = {body["metadata"]["uid"] for body in bodies}
        for uid in self._groups.keys() - uids:
            self._context.metrics.forget(*self._key, self._groups[uid])
        for known in (self._findings, self._views, self._written, self._groups):
            for uid in known.keys() - uids:
                del known[uid]

    def _status(self, body: Body) -> Fields:
        """Return the latest status that is known: the one written last, or what a watch showed."""
        written = self._written.get(body["metadata"]["uid"])
        latest = body if written is None or not is_older(body, written) else written
        return latest.get("status") or {}

    async def _write(self, path: str, body: Body, before: Fields, status: Manifest) -> None:
        """Write what differs; a field that is None is removed."""
        changed = {
            field: _patch(before.get(field), value)
            for field, value in status.items()
            if (value is not None or field in before) and before.get(field) != value
        }
        if not changed:
            return
        answer = await self._context.api.merge(path, {"status": changed})
        if answer is not None:
            self._written[body["metadata"]["uid"]] = answer


def _patch(before: object, after: object) -> object:
    """Return what makes one value the other in a merge patch, which keeps what it does not name."""
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return after
    return {**dict.fromkeys(before.keys() - after.keys()), **after}
