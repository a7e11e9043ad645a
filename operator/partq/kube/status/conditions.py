"""From findings to conditions: each with the time of its change, and the three that sum up."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from partq.kube.bodies import Fields, Manifest
from partq.kube.names import ConditionReason, ConditionType
from partq.resources.status import MAX_MESSAGE_CHARS

STALLING: frozenset[ConditionReason] = frozenset(
    {
        ConditionReason.INVALID_SPEC,
        ConditionReason.QUEUE_IMMUTABLE,
        ConditionReason.START_IMMUTABLE,
        ConditionReason.QUEUE_NOT_FOUND,
        ConditionReason.SECRET_MISSING,
        ConditionReason.NAME_TAKEN,
        ConditionReason.FORBIDDEN,
        ConditionReason.REFUSED,
        ConditionReason.STORE_UNUSABLE,
        ConditionReason.ADDRESS_REFUSED,
        ConditionReason.REDIS_IMMUTABLE,
        ConditionReason.STORE_EMPTY,
        ConditionReason.STORE_OWNED_BY_ANOTHER,
    }
)
"""Reasons that do not end by themselves: an administrator has to act."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One condition as it is found now."""

    type: ConditionType
    is_true: bool | None
    """None: not known."""
    reason: ConditionReason
    message: str = ""


def good(
    type_: ConditionType, reason: ConditionReason = ConditionReason.AS_SPECIFIED, message: str = ""
) -> Finding:
    """Return a condition that is as it should be."""
    return Finding(type_, True, reason, message)


def bad(type_: ConditionType, reason: ConditionReason, message: str) -> Finding:
    """Return a condition that is not as it should be."""
    return Finding(type_, False, reason, message)


def summarize(
    findings: Sequence[Finding],
    *,
    ready: Finding | None = None,
    is_moving: bool = False,
    change: Finding | None = None,
    refused: Finding | None = None,
) -> list[Finding]:
    """Return Ready, Reconciling and Stalled, and then the findings they rest on.

    Args:
        findings: those that must all be true for Ready; the first that is not gives the reason.
        ready: what Ready says when they are.
        is_moving: something is under way though everything is ready.
        change: what is under way, if it is to be named: a finding whose reason and message
            Reconciling has in the place of those of Ready.
        refused: one of the findings: a change of the spec that is not taken, while what was
            valid before continues. It is shown, and Ready does not depend on it, nor on findings
            that wait for the spec alone.
    """
    failed = next((each for each in findings if _counts(each, refused)), None)
    stalled = next(
        (each for each in findings if each.is_true is False and each.reason in STALLING), None
    )
    if failed is not None:
        is_true = False if failed.is_true is False else None
        ready = Finding(ConditionType.READY, is_true, failed.reason, failed.message)
    elif ready is None:
        ready = good(ConditionType.READY)
    if refused is not None and ready.is_true is True:
        ready = good(ConditionType.READY, refused.reason, refused.message)
    is_reconciling = stalled is None and (failed is not None or is_moving or change is not None)
    shown = change if change is not None and failed is None else ready
    return [
        ready,
        Finding(ConditionType.RECONCILING, is_reconciling, shown.reason, shown.message)
        if is_reconciling
        else Finding(ConditionType.RECONCILING, False, ready.reason),
        Finding(ConditionType.STALLED, True, stalled.reason, stalled.message)
        if stalled is not None
        else Finding(ConditionType.STALLED, False, ConditionReason.AS_SPECIFIED),
        *findings,
    ]


def _counts(finding: Finding, refused: Finding | None) -> bool:
    if finding.is_true is True or finding is refused:
        return False
    waits_for_spec = finding.type is ConditionType.OBJECTS_APPLIED and finding.is_true is None
    return refused is None or not waits_for_spec


def pauses(is_paused: bool, is_rebalance_paused: bool) -> list[Finding]:
    """Return the conditions that show the two annotations for pauses."""
    return [
        Finding(type_, is_on, ConditionReason.ANNOTATION if is_on else ConditionReason.NOT_PAUSED)
        for type_, is_on in (
            (ConditionType.PAUSED, is_paused),
            (ConditionType.REBALANCE_PAUSED, is_rebalance_paused),
        )
    ]


def render(
    findings: Iterable[Finding],
    previous: Sequence[Fields],
    *,
    generation: int,
    now: str,
) -> list[Manifest]:
    """Return the conditions as Kubernetes keeps them; the time of change stays where none was."""
    before = {each.get("type"): each for each in previous}
    return [_one(finding, before.get(finding.type), generation, now) for finding in findings]


def _one(finding: Finding, before: Fields | None, generation: int, now: str) -> Manifest:
    status = {True: "True", False: "False", None: "Unknown"}[finding.is_true]
    is_same = before is not None and before.get("status") == status
    since = before.get("lastTransitionTime", now) if is_same and before is not None else now
    return {
        "type": str(finding.type),
        "status": status,
        "reason": str(finding.reason),
        # Kubernetes 1.20 takes an empty text for null, and refuses it.
        "message": (finding.message or str(finding.reason))[:MAX_MESSAGE_CHARS],
        "observedGeneration": generation,
        "lastTransitionTime": since,
    }
