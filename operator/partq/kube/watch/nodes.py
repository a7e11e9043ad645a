"""Which nodes evict their pods: cordoned ones, and those with a taint `NoExecute`. Pure."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from partq.kube.bodies import Body


class Taint(NamedTuple):
    """Of a node: it evicts the pods that do not tolerate it."""

    key: str
    value: str


class PodToleration(NamedTuple):
    """Of a pod: it tolerates such taints without a time limit."""

    key: str
    """Empty: any."""
    value: str | None
    """None: any."""

    def bears(self, taint: Taint) -> bool:
        """Whether a taint does not evict the pod."""
        return self.key in ("", taint.key) and self.value in (None, taint.value)


@dataclass(frozen=True, slots=True)
class KubeNode:
    """What the operator keeps of a node."""

    is_cordoned: bool
    """It gets no new pods: in most cases it is about to be emptied."""
    taints: tuple[Taint, ...]

    def sheds(self, tolerations: Collection[PodToleration]) -> bool:
        """Whether a pod with these tolerations is about to be moved away."""
        return self.is_cordoned or any(
            not any(toleration.bears(taint) for toleration in tolerations) for taint in self.taints
        )


def node(body: Body) -> KubeNode:
    """Read a node."""
    spec = body.get("spec") or {}
    return KubeNode(
        is_cordoned=bool(spec.get("unschedulable")),
        taints=tuple(
            Taint(each.get("key") or "", each.get("value") or "")
            for each in spec.get("taints") or ()
            if each.get("effect") == "NoExecute"
        ),
    )


def tolerations(pod: Body) -> tuple[PodToleration, ...]:
    """Read the tolerations without a time limit; a limit only delays the eviction."""
    return tuple(
        PodToleration(
            each.get("key") or "",
            None if each.get("operator") == "Exists" else each.get("value") or "",
        )
        for each in (pod.get("spec") or {}).get("tolerations") or ()
        if each.get("effect") in (None, "", "NoExecute") and each.get("tolerationSeconds") is None
    )
