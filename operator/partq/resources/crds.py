"""CustomResourceDefinitions, made from the models; `crds/` holds them, a test compares.

A ConsumerGroup has no scale subresource: it owns no replica count. Its members are the pods of
somebody else's Deployment, and scaling writes there; a second count would fight the first.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import yaml
from pydantic import BaseModel

from partq.resources.models import API_GROUP, API_VERSION, ConsumerGroup, PartitionedQueue
from partq.resources.status import ConsumerGroupStatus, PartitionedQueueStatus

Part = dict[str, Any]
"""A part of a CustomResourceDefinition: what is in it goes by the standard of schemas."""
NEW_RULES = ("x-kubernetes-validations", "selectableFields")
"""What servers before 1.25 and 1.30 refuse; the operator checks the same."""

_READY = [
    {
        "name": "Ready",
        "type": "string",
        "description": "Whether it does what its spec says.",
        "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
    },
    {
        "name": "Reason",
        "type": "string",
        "description": "Why it is ready or not.",
        "jsonPath": '.status.conditions[?(@.type=="Ready")].reason',
    },
]
_AGE = {
    "name": "Age",
    "type": "date",
    "description": "Since when it exists.",
    "jsonPath": ".metadata.creationTimestamp",
}
_DROPPED = frozenset({"title", "default", "$defs"})


def queue_crd() -> Part:
    """Return the definition of PartitionedQueue."""
    return _definition(
        PartitionedQueue,
        PartitionedQueueStatus,
        plural="partitionedqueues",
        short_name="pq",
        columns=[
            *_READY,
            _column(
                "Partitions",
                ".status.partitions.summary",
                "How many partitions it has, and is to have.",
                "string",
            ),
            _column("Brokers", ".status.brokers.ready", "How many brokers serve."),
            _column("Groups", ".status.groups", "How many consumer groups it has."),
            _column(
                "Rescale",
                ".status.rescale.phase",
                "How far the latest change of the number of partitions has come.",
                "string",
                priority=1,
            ),
            _column("URL", ".status.url", "Where clients reach it.", "string", priority=1),
            _AGE,
        ],
    )


def group_crd() -> Part:
    """Return the definition of ConsumerGroup."""
    crd = _definition(
        ConsumerGroup,
        ConsumerGroupStatus,
        plural="consumergroups",
        short_name="cg",
        columns=[
            *_READY,
            _column("Queue", ".spec.queue", "The queue that it consumes.", "string"),
            _column("Phase", ".status.phase", "What it does.", "string"),
            _column("Members", ".status.members.active", "Members that hold partitions."),
            _column("Standby", ".status.members.standby", "Members that hold none.", priority=1),
            _column(
                "Refused",
                ".status.members.refused",
                "Members that ask to be let in and may not.",
                priority=1,
            ),
            _column("Lag", ".status.lag", "Messages that are not acknowledged yet."),
            _column(
                "Locked",
                ".status.sessions.locked",
                "Sessions that members have locked, of the type Session.",
                priority=1,
            ),
            _column(
                "Pause",
                ".status.rebalances[-1:].longestPauseMilliseconds",
                "The longest pause of a partition in the last rebalance, in milliseconds.",
                priority=1,
            ),
            _AGE,
        ],
    )
    crd["spec"]["versions"][0]["selectableFields"] = [{"jsonPath": ".spec.queue"}]
    return crd


CRDS = {"partitionedqueue.yaml": queue_crd, "consumergroup.yaml": group_crd}
"""The files of `crds/`, each with what makes it."""


def render(crd: Mapping[str, object]) -> str:
    """Return a definition as YAML, as the files hold it."""
    head = "# Made by `partq crds` from operator/partq/resources; do not edit.\n"
    text: str = yaml.safe_dump(dict(crd), sort_keys=False, width=100, allow_unicode=True)
    return head + text


def without_new_rules(tree: Part) -> Part:
    """Return a copy without the rules that old servers refuse."""
    return {k: _without_new_rules(v) for k, v in tree.items() if k not in NEW_RULES}


def _without_new_rules(value: object) -> object:
    if isinstance(value, list):
        return [_without_new_rules(each) for each in value]
    return without_new_rules(value) if isinstance(value, dict) else value


def _column(
    name: str, path: str, description: str, kind: str = "integer", *, priority: int = 0
) -> Part:
    """Return a column of `kubectl get`; priority 1: only with `-o wide`."""
    column = {"name": name, "type": kind, "description": description, "jsonPath": path}
    return {**column, "priority": priority} if priority else column


def _definition(
    spec: type[BaseModel],
    status: type[BaseModel],
    *,
    plural: str,
    short_name: str,
    columns: list[Part],
) -> Part:
    kind = spec.__name__
    version = API_VERSION.removeprefix(f"{API_GROUP}/")
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{API_GROUP}"},
        "spec": {
            "group": API_GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short_name],
                "categories": ["partq"],
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": _root(spec, status)},
                }
            ],
        },
    }


def _root(spec: type[BaseModel], status: type[BaseModel]) -> Part:
    whole = structural(spec)
    fields = whole["properties"]
    name = fields["metadata"]["properties"]["name"]
    bounds = {key: name[key] for key in ("type", "maxLength", "pattern")}
    properties = {
        "apiVersion": {
            "type": "string",
            "description": "Version of the schema of this object.",
        },
        "kind": {"type": "string", "description": "What this object is."},
        # Kubernetes allows no more here than bounds of the name.
        "metadata": {"type": "object", "properties": {"name": bounds}},
        "spec": fields["spec"],
        "status": _lenient(structural(status)),
    }
    required = [each for each in whole.get("required", ()) if each == "spec"]
    return {
        "type": "object",
        "description": whole["description"],
        "properties": properties,
        **({"required": required} if required else {}),
    }


def _lenient(schema: Part, keys: Sequence[str] = ()) -> Part:
    """Return a status's schema with nothing required but the keys of lists.

    The definitions are upgraded before the operator: the old one, which does not know a new
    field, must continue writing its status.
    """
    changed = {k: v for k, v in schema.items() if k != "required"}
    if needed := [each for each in schema.get("required", ()) if each in keys]:
        changed["required"] = needed
    if "properties" in schema:
        changed["properties"] = {k: _lenient(v) for k, v in schema["properties"].items()}
    if "items" in schema:
        keys = schema.get("x-kubernetes-list-map-keys", ())
        changed["items"] = _lenient(schema["items"], keys)
    return changed


def structural(model: type[BaseModel]) -> Part:
    """Return a model's schema as Kubernetes wants it: no references, no unions with null."""
    schema = model.model_json_schema(by_alias=True)
    parts = schema.get("$defs", {})
    found = _plain(schema, parts)
    if not isinstance(found, dict):
        raise TypeError(f"{model.__name__} has no schema of an object")
    return found


def _plain(schema: Part, parts: Part) -> Part:
    if reference := schema.get("$ref"):
        # What stands beside the reference (the field's own description) wins.
        target = parts[reference.rpartition("/")[2]]
        return _plain({**target, **{k: v for k, v in schema.items() if k != "$ref"}}, parts)
    if "anyOf" in schema and not schema.get("x-kubernetes-int-or-string"):
        (branch,) = (each for each in schema["anyOf"] if each.get("type") != "null")
        return _plain({**branch, **{k: v for k, v in schema.items() if k != "anyOf"}}, parts)
    plain = {k: deepcopy(v) for k, v in schema.items() if k not in _DROPPED}
    if "description" in plain:
        plain["description"] = " ".join(plain["description"].split())
    if "const" in plain:
        plain["enum"] = [plain.pop("const")]
    if plain.pop("additionalProperties", None):
        plain["additionalProperties"] = _plain(schema["additionalProperties"], parts)
    if "items" in schema:
        plain["items"] = _plain(schema["items"], parts)
    if "properties" in schema:
        plain["properties"] = {
            name: _plain(field, parts) for name, field in schema["properties"].items()
        }
        needed = [name for name, field in plain["properties"].items() if _pop_required(field)]
        if needed:
            plain["required"] = [*plain.get("required", ()), *needed]
    default = schema.get("default")
    is_whole = plain.pop("x-partq-whole-default", False)
    if isinstance(default, dict) and "properties" in plain and not is_whole:
        plain["default"] = {}  # the object's own fields have their defaults
    elif default is not None and default not in ([], {}):
        plain["default"] = default
    return plain


def _pop_required(field: Part) -> bool:
    """Say whether Kubernetes needs a field that the embedded runtime can do without."""
    return bool(field.pop("x-partq-required", False))
