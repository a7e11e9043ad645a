"""The dead-letter queues that resources ask for without declaring, or without naming, them."""

from collections.abc import Iterable, Mapping

from partq.resources.models import API_GROUP, API_VERSION, MAX_MESSAGE_BYTES, PartitionedQueue

ORIGIN_LABEL = f"{API_GROUP}/dead-letters-of"
"""At a dead-letter queue that was made: the queue for whose groups it was made first."""
HEADERS_BYTES = 1024
"""How much larger a message may become by the headers that tell how it died."""
_MAX_NAME_CHARS = 45
"""As of `base.QueueName`."""


def default_name(queue: str, group: str) -> str:
    """Return the name of a group's dead-letter queue where none is given.

    A name that would be too long for a queue loses what is too much in the middle. It is never
    the queue's own, which a dead-letter queue has that a group of the same name consumes.
    """
    name = f"{queue}-{group}-dlq"
    if len(name) <= _MAX_NAME_CHARS:
        return name
    half = (_MAX_NAME_CHARS - len("--dlq")) // 2
    head, tail = queue[:half].strip("-"), group[-half:].strip("-")
    name = f"{head}-{tail}-dlq"
    return name if name != queue else f"{head[:-1].strip('-')}-{tail}-dlq"


def wanted(groups: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the names of the dead-letter queues that are to be made where they are missing.

    `groups`: their effective specs. Any group may get undecodable messages, which become dead
    letters whatever its limits are.
    """
    # What an older version has stored may lack any of it.
    letters = [spec.get("deadLetter") for spec in groups]
    return sorted(
        {str(each["queue"]) for each in letters if isinstance(each, Mapping) and each.get("create")}
    )


def body_of(name: str, origin: PartitionedQueue) -> dict[str, object]:
    """Return the PartitionedQueue `name` for what the groups of `origin` do not get done.

    It is run and stored as `origin` is, with as many partitions, and takes its largest message with
    the headers of a dead letter. It keeps what it gets: it has no quota, no time to live and no
    dead letters. Nobody owns it: it outlives the queue and the groups that it was made for.
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
