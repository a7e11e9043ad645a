"""Tells a rollout of a Deployment: which pods replace, and which are being replaced. Pure."""

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass

from partq.core.membership import MemberFact
from partq.kube.parse import Pod

HOLD_S = 600.0
"""How long a pod of a new template stands by; after that the rollout counts as stuck."""
MARGIN_S = 10.0
"""How much of its time to end a pod keeps for handing over, when its replacement is late."""


@dataclass(frozen=True, slots=True)
class Ages:
    """How long ago something of a pod was first seen, in seconds."""

    pod_s: float
    ending_s: float
    """Since it was given time to end; 0: it was not."""


def rollout_facts(pods: Collection[Pod], ages_of: Callable[[Pod], Ages]) -> dict[str, MemberFact]:
    """Return what a rollout makes of the pods of one group, by uid; most pods are in none.

    A Deployment is being rolled out while it has living pods of its newest template and others.
    """
    by_deployment: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.deployment and pod.template:
            by_deployment[pod.deployment].append(pod)
    facts: dict[str, MemberFact] = {}
    for members in by_deployment.values():
        if len({pod.template for pod in members}) > 1:
            facts |= _facts(members, ages_of)
    return facts


def _facts(pods: Collection[Pod], ages_of: Callable[[Pod], Ages]) -> dict[str, MemberFact]:
    newest = max(pods, key=lambda pod: (pod.created_at, pod.template)).template
    facts = {}
    for pod in pods:
        ages = ages_of(pod)
        if pod.template == newest:
            if not pod.is_terminating and ages.pod_s < HOLD_S:
                facts[pod.uid] = MemberFact.IS_REPLACEMENT
        elif pod.is_terminating and pod.grace_s - ages.ending_s > MARGIN_S:
            facts[pod.uid] = MemberFact.IS_BEING_REPLACED
    return facts
