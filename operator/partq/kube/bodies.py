"""Objects of Kubernetes as JSON: those that the API server sends, and those that are written here.

What is read of a kind is read in one place (`watch/parse.py`, `watch/nodes.py`, the writer of the
kind); everything else takes the values that are made there.
"""

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

Fields = Mapping[str, Any]
"""The fields of a spec or a status that was sent: which there are goes by its kind."""
Manifest = dict[str, object]
"""An object, or a part of one, that is written and not taken apart."""


class OwnerReference(TypedDict, total=False):
    """The owner of an object."""

    kind: str
    name: str
    uid: str
    controller: bool


class BodyMetadata(TypedDict):
    """What every object has."""

    name: str
    namespace: str
    uid: str
    generation: NotRequired[int]
    resourceVersion: NotRequired[str]
    labels: NotRequired[dict[str, str] | None]
    annotations: NotRequired[dict[str, str] | None]
    ownerReferences: NotRequired[list[OwnerReference] | None]
    finalizers: NotRequired[list[str] | None]
    creationTimestamp: NotRequired[str]
    deletionTimestamp: NotRequired[str | None]
    deletionGracePeriodSeconds: NotRequired[int | None]


class Body(TypedDict):
    """An object that was sent."""

    apiVersion: NotRequired[str]
    kind: NotRequired[str]
    metadata: BodyMetadata
    spec: NotRequired[Fields]
    status: NotRequired[Fields | None]
    data: NotRequired[dict[str, str] | None]


ListMetadata = TypedDict("ListMetadata", {"continue": NotRequired[str | None]})
"""Where the next page of a list begins."""


class BodyList(TypedDict, total=False):
    """A page of objects that was sent."""

    items: list[Body]
    metadata: ListMetadata | None
