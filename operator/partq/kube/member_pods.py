"""What the operator knows of a member's pod: may it bind, does it end, is it gone for good."""

import logging
from collections.abc import Callable, Collection, Mapping

from partq.coordinator.ports import BindRefusal
from partq.core.group.observation import MemberFact
from partq.core.model import MAX_PRIORITY, MemberId
from partq.kube import names
from partq.kube.watch import admission, parse
from partq.kube.watch.object_cache import ObjectCache
from partq.kube.watch.parse import Pod
from partq.kube.watch.rollout import NEWS_S, rollout_facts
from partq.resources.rebalance import RebalancePolicy

COMMIT_MARGIN_S = 1.0
"""What a pod's grace period leaves for the commit, after the drain."""
MAX_TOLD = 1000
"""Wrong annotations that are remembered as told; then all are told once more."""

_log = logging.getLogger(__name__)


class MemberPods:
    """The coordinator's view of the members' pods, in one namespace."""

    def __init__(
        self,
        cache: ObjectCache,
        namespace: str,
        *,
        policy_of: Callable[[str], RebalancePolicy],
        delay_s_of: Callable[[str], float],
        clock: Callable[[], float],
    ) -> None:
        """Take the view; the functions name a group's policy, and its rebalance delay."""
        self._cache = cache
        self._namespace = namespace
        self._policy_of = policy_of
        self._delay_s_of = delay_s_of
        self._clock = clock
        self._leaving_at: dict[str, dict[MemberId, float]] = {}
        """By group: when a member was first seen to leave."""
        self._told: set[tuple[MemberId, str]] = set()
        """Annotations that the log has called wrong."""

    def facts(
        self, group: str, members: Collection[MemberId], leaving: Collection[MemberId]
    ) -> Mapping[MemberId, MemberFact]:
        """Return the facts about these members; under the policy Timer, none."""
        early = self._early(group, leaving)
        if self._policy_of(group) == "Timer":
            return {}
        pods = self._cache.members(self._namespace, group)
        in_rollout = rollout_facts(pods, self._cache.ages)
        delay_s = self._delay_s_of(group)
        found = {member: self._fact(member, in_rollout, delay_s) for member in members}
        found |= dict.fromkeys(early & found.keys(), MemberFact.IS_BEING_REPLACED)
        return {m: fact for m, fact in found.items() if fact is not MemberFact.UNKNOWN}

    def priorities(self, group: str, members: Collection[MemberId]) -> Mapping[str, int]:
        """Return the priorities that annotations of the members' pods say, under every policy.

        One that is no number from 0 to 9 counts as none.
        """
        said = {m: pod.priority for m in members if (pod := self._pod(m)) and pod.priority}
        for member, text in said.items():
            if not _is_priority(text) and (member, text) not in self._told:
                if len(self._told) >= MAX_TOLD:
                    self._told.clear()
                self._told.add((member, text))
                _log.warning(
                    "annotation %s of the pod of member %s: got %r, expected 0 to %d; it is "
                    "ignored",
                    *(names.PRIORITY, member, text[:20], MAX_PRIORITY),
                )
        return {member: int(text) for member, text in said.items() if _is_priority(text)}

    def time_left_ms(self, group: str, member: MemberId) -> int | None:
        """Return how long a member that ends may still hand over; None: as long as it likes.

        What is left of its pod's grace period, less a margin for the commit.
        """
        pod = self._pod(member)
        if pod is None or not pod.is_terminating or self._policy_of(group) == "Timer":
            return None
        left_s = pod.grace_s - self._cache.ages(pod).ending_s - COMMIT_MARGIN_S
        return max(0, round(left_s * 1000))

    def refusal(self, group: str, member: MemberId, address: str) -> BindRefusal | None:
        """Return why a member may not bind: it asks from its own pod, Ready and selected, or not.

        Only members that are not listed yet ask: a listed one may bind while its pod is not Ready.
        """
        pod = self._pod(member)
        if pod is None:
            return admission.unknown(member, self._namespace)
        return admission.refusal(pod, self._cache.selector(self._namespace, group), address)

    def unselected(self, group: str, members: Collection[MemberId]) -> list[str]:
        """Say which of these members have pods that the selector of the group does not match."""
        selector = self._cache.selector(self._namespace, group)
        pods = {pod.uid: pod for member in members if (pod := self._pod(member)) is not None}
        return [
            admission.mismatch(pod, selector)
            for pod in sorted(pods.values(), key=lambda each: each.name)
            if selector is not None and not selector.matches(pod.labels)
        ]

    def pod_of(self, member: MemberId) -> Pod | None:
        """Return the pod that a member is or was; None: not known."""
        uid = parse.member_name(member).uid
        return self._pod(member) or (self._cache.gone_pod(uid) if uid else None)

    def _pod(self, member: MemberId) -> Pod | None:
        name = parse.member_name(member)
        if name.uid is not None:
            pod = self._cache.pod(name.uid)
            return pod if pod is not None and pod.namespace == self._namespace else None
        pod = self._cache.pod_named(self._namespace, name.pod or "")
        return pod if pod is not None and pod.keeps_name else None

    def _early(self, group: str, leaving: Collection[MemberId]) -> set[MemberId]:
        """Return the leaving members whose pods may be ending without the operator's knowledge yet.

        The kubelet's signal to the process may arrive before the API server's event at the
        operator. Partitions that are spread before the rollout is seen move twice, so the operator
        waits for the event.
        """
        now, before = self._clock(), self._leaving_at.pop(group, {})
        if leaving:
            self._leaving_at[group] = {m: before.get(m, now) for m in leaving}
        return {
            member
            for member, at in self._leaving_at.get(group, {}).items()
            if now - at < NEWS_S
            and (pod := self._pod(member)) is not None
            and pod.deployment
            and not (pod.is_terminating or pod.is_over)
        }

    def _fact(
        self, member: MemberId, in_rollout: Mapping[str, MemberFact], delay_s: float
    ) -> MemberFact:
        pod = self._pod(member)
        name = parse.member_name(member)
        if pod is not None and not pod.is_terminating and not pod.is_over:
            if _back_off_s(pod, name.container) > delay_s:
                return MemberFact.IS_HELD_BACK
            if not pod.is_ready or self._cache.is_shed(pod):
                return MemberFact.IS_AVOIDED
            return in_rollout.get(pod.uid, MemberFact.EXISTS)
        if name.uid is None:
            # The next pod of this name is this member again, whatever happens to the current one.
            return MemberFact.UNKNOWN if pod is None else MemberFact.IS_AVOIDED
        if pod is not None and pod.is_terminating:
            return in_rollout.get(pod.uid, MemberFact.IS_TERMINATING)
        # A pod that was removed while its processes may still run (node lost, forced deletion) is
        # waited for, as is one whose owner makes another pod of its name.
        last = pod or self._cache.gone_pod(name.uid)
        is_over = last is not None and last.makes_successor and last.has_ended
        return MemberFact.IS_GONE_FOR_GOOD if is_over else MemberFact.UNKNOWN


def _is_priority(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) == 1


def _back_off_s(pod: Pod, container: str | None) -> float:
    """Return the back-off of a member's container, in seconds; 0: none, or an unknown container."""
    if container is None or container not in pod.back_offs_s:
        waits_s = list(pod.back_offs_s.values())
        return waits_s[0] if len(waits_s) == 1 else 0.0
    return pod.back_offs_s[container]
