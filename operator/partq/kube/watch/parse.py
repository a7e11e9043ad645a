"""From the bodies that Kubernetes sends to values; what cannot be read becomes a sentence."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from partq.errors import SettingsError
from partq.kube import names
from partq.kube.bodies import Body, Fields, Manifest
from partq.kube.names import QueueKey
from partq.kube.watch.nodes import PodToleration, tolerations
from partq.resources import ConsumerGroup, PartitionedQueue, parse_resource

R = TypeVar("R", PartitionedQueue, ConsumerGroup)

NAME_KEEPERS = frozenset({"StatefulSet"})
"""Owners that give a new pod the name of the one before it."""
_UID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
BACK_OFF_S = 10.0
"""The kubelet's first back-off, for a message that does not name its length."""
_BACK_OFF = re.compile(r"back-off (?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_MEMBER = re.compile(rf"(?P<uid>{_UID})(?:[/.-](?P<container>[a-z0-9]([-a-z0-9]*[a-z0-9])?))?")


class MemberName(NamedTuple):
    """Which pod a member is: by its uid, else by its name; and perhaps which container."""

    uid: str | None
    pod: str | None
    container: str | None


class BrokerPort(NamedTuple):
    """The port of a broker's container."""

    scheme: str
    """`http` or `https`: what the port is called."""
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """What the operator keeps of a pod."""

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str]
    addresses: tuple[str, ...]
    is_ready: bool
    is_terminating: bool
    """It is being deleted with a grace period; a pod that is deleted by force has none."""
    grace_s: float
    """Its grace period, in seconds; 0: none, or it is not terminating."""
    has_ended: bool
    """No process of it runs any more, as the kubelet says."""
    is_over: bool
    """None of its containers will be started again: its phase is Failed or Succeeded."""
    back_offs_s: Mapping[str, float]
    """Of each container, in seconds, how long the kubelet waits before it starts it again."""
    node: str
    """Name of its node; empty: not scheduled yet."""
    tolerations: tuple[PodToleration, ...]
    """The taints of nodes that it tolerates without a time limit."""
    broker_port: BrokerPort | None
    """Where a broker listens; None: it is no pod of a broker."""
    keeps_name: bool
    """Its owner makes another pod of the same name when it is gone."""
    makes_successor: bool
    """Its owner makes another pod, of a new name, when it is gone."""
    created_at: str
    template: str
    """The version of its owner's template; empty: not known."""
    replica_set: str
    """Name of the ReplicaSet that it belongs to; empty: none."""
    deployment: str
    """Name of the Deployment that it belongs to; empty: none."""
    deletion_cost: str
    """Its deletion cost, as annotated; empty: not annotated."""
    our_deletion_cost: str
    """The cost that the operator has written; empty: none."""
    priority: str
    """As an annotation says it; empty: none does."""


def member_name(member: str) -> MemberName:
    """Read a member id.

    POD_UID, or POD_UID, one of `/`, `.` and `-`, and CONTAINER: that pod. Anything else is
    POD_NAME or POD_NAME/CONTAINER: whichever pod has the name, for owners that keep names.
    """
    if found := _MEMBER.fullmatch(member):
        return MemberName(found["uid"], None, found["container"])
    pod, _, container = member.partition("/")
    return MemberName(None, pod, container or None)


def queue_key(body: Body) -> QueueKey:
    """Return a queue's namespace and name."""
    return QueueKey(body["metadata"]["namespace"], body["metadata"]["name"])


def queue_of_group(body: Body) -> QueueKey | None:
    """Return the queue that a group belongs to: the one it has had, else the one it names.

    None: it names none that could be.
    """
    has_had = (body.get("status") or {}).get("queue")
    named = has_had or body.get("spec", {}).get("queue")
    return QueueKey(body["metadata"]["namespace"], named) if isinstance(named, str) else None


def queue(body: Body) -> PartitionedQueue:
    """Read a queue.

    Raises:
        SettingsError: the spec is broken; one line per problem.
    """
    return _read(body, PartitionedQueue)


def whereabouts(body: Body) -> PartitionedQueue | None:
    """Read where a queue is stored, who may call it and what becomes of its data; no more.

    For a spec that is broken elsewhere; None: it is broken here, too.
    """
    try:
        return queue({**body, "spec": _whereabouts(body)})
    except SettingsError:
        return None


def was_served(body: Body) -> bool:
    """Say whether an operator has come as far as the Secrets of a queue."""
    return bool((body.get("status") or {}).get("tokensSecret"))


def recorded_queue(body: Body, recorded: Fields) -> PartitionedQueue:
    """Read a queue from the effective spec that the store has, which has no whereabouts.

    What only says how broker pods are run is not in it: no objects are made from it.

    Raises:
        SettingsError: the record or the whereabouts are broken.
    """
    spec = {**recorded, **_whereabouts(body)}
    spec.pop("uid", None)
    letters = spec.get("deadLetter") or {}
    if letters.get("queue") == body["metadata"]["name"]:  # as earlier versions recorded it
        spec["deadLetter"] = {**letters, "queue": None}
    return queue({**body, "spec": spec})


def _whereabouts(body: Body) -> Manifest:
    spec = body.get("spec") or {}
    return {key: spec[key] for key in ("redis", "auth", "tls", "deletionPolicy") if key in spec}


def group(body: Body) -> ConsumerGroup:
    """Read a group.

    Raises:
        SettingsError: the spec is broken; one line per problem.
    """
    found = _read(body, ConsumerGroup)
    if found.spec.selector is None:
        raise SettingsError("spec.selector: got nothing, expected it to be set")
    return found


def _read(body: Body, kind: type[R]) -> R:
    """Read a resource without the fields that it does not know.

    A typing mistake has been refused or left out by the API server. What is left is of a newer
    version's schema, whose defaults stand in every object: that must not stop an older operator.
    """
    found = parse_resource(_essence(body, kind.__name__), ignores_unknown=True)
    if not isinstance(found, kind):
        raise SettingsError(f"kind: got {found.kind}, expected {kind.__name__}")
    return found


def _essence(body: Body, kind: str) -> Manifest:
    """Return what a person wrote of a body; watched objects may come without their kind."""
    metadata = body["metadata"]
    kept = ("name", "namespace", "labels", "annotations")
    return {
        "apiVersion": body.get("apiVersion", f"partq.dev/{names.VERSION}"),
        "kind": body.get("kind", kind),
        "metadata": {key: value for key, value in metadata.items() if key in kept},
        **({"spec": body["spec"]} if "spec" in body else {}),
    }


def is_deleting(body: Body) -> bool:
    """Say whether an object is being deleted."""
    return bool(body["metadata"].get("deletionTimestamp"))


def annotation(body: Body, name: str) -> str | None:
    """Return an annotation; None: it is not there."""
    value = (body["metadata"].get("annotations") or {}).get(name)
    return str(value) if value is not None else None


def is_on(body: Body, name: str) -> bool:
    """Say whether an annotation is there, with any value but `false`."""
    value = annotation(body, name)
    return value is not None and value.lower() != "false"


def pod(body: Body) -> Pod:
    """Read a pod."""
    metadata, status = body["metadata"], body.get("status") or {}
    labels = metadata.get("labels") or {}
    owners = [each for each in metadata.get("ownerReferences") or () if each.get("controller")]
    owner_kind = owners[0]["kind"] if owners else ""
    template = labels.get("pod-template-hash", "") if owner_kind == "ReplicaSet" else ""
    suffix = f"-{template}"
    owner_name = owners[0]["name"] if owners else ""
    ips = [each.get("ip") for each in status.get("podIPs") or ()] or [status.get("podIP")]
    return Pod(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        labels=labels,
        addresses=tuple(ip for ip in ips if ip),
        is_ready=any(
            each.get("type") == "Ready" and each.get("status") == "True"
            for each in status.get("conditions") or ()
        ),
        is_terminating=is_deleting(body) and metadata.get("deletionGracePeriodSeconds") != 0,
        grace_s=float(metadata.get("deletionGracePeriodSeconds") or 0),
        has_ended=_has_ended(status),
        is_over=_is_over(status),
        back_offs_s=_back_offs_s(status),
        node=(body.get("spec") or {}).get("nodeName") or "",
        tolerations=tolerations(body),
        broker_port=_broker_port(body),
        keeps_name=owner_kind in NAME_KEEPERS,
        makes_successor=bool(owner_kind) and owner_kind not in NAME_KEEPERS,
        created_at=metadata.get("creationTimestamp", ""),
        template=template,
        replica_set=owner_name if owner_kind == "ReplicaSet" else "",
        deletion_cost=annotation(body, names.DELETION_COST) or "",
        our_deletion_cost=annotation(body, names.OUR_DELETION_COST) or "",
        priority=annotation(body, names.PRIORITY) or "",
        deployment=owner_name.removesuffix(suffix) if template else "",
    )


def _broker_port(body: Body) -> BrokerPort | None:
    for container in (body.get("spec") or {}).get("containers") or ():
        if container.get("name") == names.BROKER_CONTAINER:
            for port in container.get("ports") or ():
                if port.get("name") in ("http", "https"):
                    return BrokerPort(port["name"], int(port["containerPort"]))
    return None


def _is_over(status: Fields) -> bool:
    return status.get("phase") in ("Succeeded", "Failed")


def _has_ended(status: Fields) -> bool:
    if _is_over(status):
        return True
    containers = status.get("containerStatuses") or ()
    return bool(containers) and all("terminated" in (c.get("state") or {}) for c in containers)


def _back_offs_s(status: Fields) -> dict[str, float]:
    """Read the waits of containers that end again and again; the length stands in a sentence."""
    found = {}
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        wait_s = 0.0
        if waiting.get("reason") == "CrashLoopBackOff":
            length = _BACK_OFF.search(waiting.get("message") or "")
            parts = [int(part or 0) for part in length.groups()] if length else []
            wait_s = sum(n * u for n, u in zip(parts, (3600, 60, 1), strict=False)) or BACK_OFF_S
        found[container["name"]] = float(wait_s)
    return found
