"""What pods say of the members of a queue's groups: who may bind, and who will not come back."""

from collections.abc import Callable, Collection, Mapping

from partq.core.membership import MemberFact
from partq.core.model import MemberId
from partq.kube import parse
from partq.kube.cluster import Cluster
from partq.kube.parse import Pod
from partq.kube.rollout import rollout_facts
from partq.resources.models import RebalancePolicy


class KubernetesRuntime:
    """The coordinator's view of the pods of one namespace; `policy_of` names a group's policy."""

    def __init__(
        self, cluster: Cluster, namespace: str, *, policy_of: Callable[[str], RebalancePolicy]
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._policy_of = policy_of

    def facts(self, group: str, members: Collection[MemberId]) -> Mapping[MemberId, MemberFact]:
        """Return what is known of these members; under the policy Timer, nothing."""
        if self._policy_of(group) == "Timer":
            return {}
        pods = self._cluster.members(self._namespace, group)
        in_rollout = rollout_facts(pods, self._cluster.ages)
        found = {member: self._fact(member) for member in members}
        for member in members:
            uid = parse.member_name(member).uid
            if uid in in_rollout:
                found[member] = in_rollout[uid]
        return {m: fact for m, fact in found.items() if fact is not MemberFact.UNKNOWN}

    def admits(self, group: str, member: MemberId, address: str) -> bool:
        """Whether a member asks from its own pod, which is Ready and meant by the selector.

        Only who is not listed yet asks: a listed member comes back while its pod is not Ready.
        """
        pod = self._pod(member)
        selector = self._cluster.selector(self._namespace, group)
        return (
            pod is not None
            and selector is not None
            and pod.is_ready
            and not pod.is_terminating
            and address in pod.addresses
            and selector.matches(pod.labels)
        )

    def pod_of(self, member: MemberId) -> Pod | None:
        """Return the pod that a member is or was; None: not known."""
        uid = parse.member_name(member).uid
        return self._pod(member) or (self._cluster.gone_pod(uid) if uid else None)

    def _pod(self, member: MemberId) -> Pod | None:
        name = parse.member_name(member)
        if name.uid is not None:
            pod = self._cluster.pod(name.uid)
            return pod if pod is not None and pod.namespace == self._namespace else None
        pod = self._cluster.pod_named(self._namespace, name.pod or "")
        return pod if pod is not None and pod.keeps_name else None

    def _fact(self, member: MemberId) -> MemberFact:
        pod = self._pod(member)
        uid = parse.member_name(member).uid
        if uid is None:
            # The next pod of this name is this member again, whatever becomes of the one now.
            is_there = pod is not None and not pod.is_terminating
            return MemberFact.EXISTS if is_there else MemberFact.UNKNOWN
        if pod is not None:
            return MemberFact.IS_TERMINATING if pod.is_terminating else MemberFact.EXISTS
        gone = self._cluster.gone_pod(uid)
        # A pod that was removed while its processes may still run (node lost, forced deletion) is
        # waited for, as is one whose owner makes another pod of its name.
        is_over = gone is not None and gone.makes_successor and gone.has_ended
        return MemberFact.IS_GONE_FOR_GOOD if is_over else MemberFact.UNKNOWN
