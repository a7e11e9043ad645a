"""Tells a rollout of a Deployment: which pods replace, which are or will be replaced. Pure."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from partq.core.group.observation import MemberFact
from partq.kube.watch.parse import Pod

HOLD_S = 600.0
"""How long a pod of a new template stands by; after that the rollout counts as stuck."""
MARGIN_S = 10.0
"""How much of its time to end a pod keeps for handing over, when its replacement is late."""
NEWS_S = 1.0
"""How long a terminating pod may be the first sign of a rollout: without surge, the pod of the new
template is created a moment after the old one began to terminate."""


@dataclass(frozen=True, slots=True)
class Ages:
    """How long ago something of a pod was first seen, in seconds."""

    pod_s: float
    ending_s: float
    """Since it began to terminate; 0: it is not terminating."""


AgesOf = Callable[[Pod], Ages]


def rollout_facts(pods: Collection[Pod], ages_of: AgesOf) -> dict[str, MemberFact]:
    """Return the facts about the pods of one group that are in a rollout, by uid.

    A Deployment is being rolled out while it has living pods of its newest template and others.
    """
    by_deployment: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.deployment and pod.template:
            by_deployment[pod.deployment].append(pod)
    return {
        uid: fact for members in by_deployment.values() for uid, fact in _facts(members, ages_of)
    }


def _facts(pods: Collection[Pod], ages_of: AgesOf) -> Iterator[tuple[str, MemberFact]]:
    newest = max(pods, key=lambda pod: (pod.created_at, pod.template)).template
    is_rolled_out = len({pod.template for pod in pods}) > 1
    replacements = [pod.uid for pod in pods if pod.template == newest and _is_new(pod, ages_of)]
    for pod in pods:
        if pod.is_terminating:
            ending_s = ages_of(pod).ending_s
            is_replaced = pod.template != newest or ending_s < NEWS_S
            if is_replaced and pod.grace_s - ending_s > MARGIN_S:
                yield pod.uid, MemberFact.IS_BEING_REPLACED
        elif is_rolled_out and pod.uid in replacements:
            yield pod.uid, MemberFact.IS_REPLACEMENT
        elif replacements and pod.template != newest:
            yield pod.uid, MemberFact.IS_AVOIDED


def _is_new(pod: Pod, ages_of: AgesOf) -> bool:
    return not pod.is_terminating and ages_of(pod).pod_s < HOLD_S
