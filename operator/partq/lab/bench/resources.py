"""The queue that is measured."""

from collections.abc import Mapping
from typing import Any

import yaml

from partq.resources import API_VERSION, Resources, parse_resources


def resources_of(queue: str, spec: Mapping[str, Any], *groups: str) -> Resources:
    """Return a queue of this spec with these groups."""
    return parse_resources(
        yaml.safe_dump_all(
            [
                _resource("PartitionedQueue", queue, spec),
                *(_resource("ConsumerGroup", group, {"queue": queue}) for group in groups),
            ]
        )
    )


def _resource(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name},
        "spec": dict(spec),
    }
