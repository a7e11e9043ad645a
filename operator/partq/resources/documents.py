"""PartitionedQueues and ConsumerGroups that a program declares, instead of a person in YAML."""

from typing import Any

import yaml

from partq.resources.models import API_VERSION
from partq.resources.reading import Resources, parse_resources

Document = dict[str, Any]


def queue_document(name: str, /, **spec: Any) -> Document:
    """Return a PartitionedQueue as a person would write it; fields of its spec as in YAML."""
    return _document("PartitionedQueue", name, spec)


def group_document(name: str, queue: str, /, **spec: Any) -> Document:
    """Return a ConsumerGroup of a queue as a person would write it; `spec` as of a queue."""
    return _document("ConsumerGroup", name, {"queue": queue, **spec})


def yaml_of(*documents: Document) -> str:
    """Return the text of a file of these documents."""
    text: str = yaml.safe_dump_all(documents, sort_keys=False)
    return text


def resources_of(*documents: Document) -> Resources:
    """Return what these documents declare; errors as `parse_resources`."""
    return parse_resources(yaml_of(*documents))


def _document(kind: str, name: str, spec: Document) -> Document:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
