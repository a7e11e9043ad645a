"""The dead-letter queues that resources ask for without declaring them."""

from collections.abc import Iterable, Mapping
from typing import Any

from partq.resources.models import API_GROUP, API_VERSION, MAX_MESSAGE_BYTES, PartitionedQueue

ORIGIN_LABEL = f"{API_GROUP}/dead-letters-of"
"""At a dead-letter queue that was made: the queue for whose groups it was made first."""
HEADERS_BYTES = 1024
"""How much larger a message may become by the headers that tell how it died."""


def wanted(groups: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of the dead-letter queues that are to be made where they are missing.

    `groups`: their effective specs. A group without a limit of redeliveries, whose expired messages
    are dropped, never has a dead letter, and so needs no queue for them.
    """
    return sorted({spec["deadLetter"]["queue"] for spec in groups if _may_need_one(spec)})


def _may_need_one(spec: Mapping[str, Any]) -> bool:
    # What an older version has on record may lack any of it.
    letters = spec.get("deadLetter", {})
    has_limit = spec.get("ack", {}).get("maxRedeliveries") is not None
    return bool(letters.get("create") and (has_limit or letters.get("expired")))


def body_of(name: str, origin: PartitionedQueue) -> dict[str, Any]:
    """Return the PartitionedQueue `name` for what the groups of `origin` do not get done.

    It is run and stored as `origin` is, with as many partitions, and takes its largest message with
    the headers of a dead letter. It keeps what it gets: no quota, no time to live, and no dead
    letters of its own. Nobody owns it: it outlives the queue and the groups that it was made for.
    """
    as_there = {"partitions", "brokers", "redis", "tls", "deletion_policy"}
    spec = origin.spec.model_dump(by_alias=True, exclude_none=True, include=as_there)
    largest = min(origin.spec.limits.max_message_bytes + HEADERS_BYTES, MAX_MESSAGE_BYTES)
    return {
        "apiVersion": API_VERSION,
        "kind": "PartitionedQueue",
        "metadata": {
            "name": name,
            "namespace": origin.metadata.namespace,
            "labels": {
                "app.kubernetes.io/name": "partq",
                "app.kubernetes.io/component": "dead-letters",
                ORIGIN_LABEL: origin.metadata.name,
            },
        },
        "spec": {**spec, "limits": {"maxMessageBytes": largest}},
    }
