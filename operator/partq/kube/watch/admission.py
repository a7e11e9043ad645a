"""Which pods may be members of a group, and what people read of those that may not. Pure."""

from collections.abc import Iterable, Mapping

from partq.coordinator.ports import BindRefusal
from partq.core.model import MemberId
from partq.excerpts import excerpt
from partq.kube.watch import parse
from partq.kube.watch.parse import Pod
from partq.resources import Selector

UNKNOWN_S = 5.0
"""A pod that has just been made is seen by the operator within this time."""
STARTING_S = 60.0
"""A pod that is still not Ready after this time is reported."""
MAX_SHOWN_CHARS = 300
"""How much of a pod's labels or of a selector is shown."""


def refusal(pod: Pod, selector: Selector | None, address: str) -> BindRefusal | None:
    """Return why a pod that calls from `address` may not be a member; None: it may."""
    who = name_of(pod)
    if selector is None:
        return BindRefusal(f"the group of {who} has no selector that can be read", UNKNOWN_S)
    if not selector.matches(pod.labels):
        return BindRefusal(mismatch(pod, selector), is_final=True)
    if pod.is_terminating:
        return BindRefusal(f"{who} is being deleted", STARTING_S)
    if not pod.is_ready:
        return BindRefusal(f"{who} is not Ready", STARTING_S)
    if address not in pod.addresses:
        known = ", ".join(pod.addresses) or "no address yet"
        text = f"{who} has {known}, and the member asks from {address}; is PARTQ_MEMBER its own?"
        return BindRefusal(text, UNKNOWN_S)
    return None


def unknown(member: MemberId, namespace: str) -> BindRefusal:
    """Return the refusal of a member that is not a pod."""
    name = parse.member_name(member)
    if name.uid is not None:
        return BindRefusal(f"there is no pod with the uid {name.uid} in {namespace}", UNKNOWN_S)
    text = (
        f"member {member} is neither the uid of a pod of {namespace} nor the name of one that a "
        "StatefulSet owns; set PARTQ_MEMBER to the pod's uid"
    )
    return BindRefusal(text, UNKNOWN_S, is_final=True)


def mismatch(pod: Pod, selector: Selector) -> str:
    """Say that a selector does not match a pod."""
    labels = excerpt(", ".join(_labels(pod.labels)), MAX_SHOWN_CHARS)
    return f"{name_of(pod)} ({labels or 'no labels'}) does not match {_text(selector)}"


def name_of(pod: Pod) -> str:
    """Return how people know a pod."""
    return f"pod {pod.name} of {pod.namespace}"


def _text(selector: Selector) -> str:
    """Return a selector as `kubectl get --selector` takes it."""
    parts = [*_labels(selector.match_labels), *_expressions(selector)]
    return excerpt(", ".join(parts), MAX_SHOWN_CHARS)


def _labels(labels: Mapping[str, str]) -> Iterable[str]:
    return (f"{key}={value}" for key, value in sorted(labels.items()))


def _expressions(selector: Selector) -> Iterable[str]:
    for each in selector.match_expressions:
        match each.operator:
            case "Exists":
                yield each.key
            case "DoesNotExist":
                yield f"!{each.key}"
            case _:
                word = "in" if each.operator == "In" else "notin"
                yield f"{each.key} {word} ({','.join(each.values)})"
