"""Positions of a queue, and ranges between two, as Spark keeps them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from partq.core.model import PartitionId
from partq.errors import BadRequestError


class ReadPosition(NamedTuple):
    """A place in a partition's log: everything below it has been read."""

    offset: int
    append_broker_epoch: int = 0
    """Of the message below it; 0: there was none, or it is not known. A log that was rolled back
    and written again holds another one there."""


Offsets = Mapping[PartitionId, ReadPosition]
"""Where a whole queue is read up to."""

ORIGIN = "queue"
"""The key in a checkpoint's offsets that is no partition."""


class QueueLife(NamedTuple):
    """A queue from its creation to its removal; a later one of the same name has another uid."""

    namespace: str
    queue: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.queue} (uid {self.uid})"


class OffsetsOrigin(NamedTuple):
    """Whose offsets these are."""

    life: QueueLife
    query: str
    """Drawn when a query begins without a checkpoint, and the same for as long as it has one."""


@dataclass
class Range:
    """Messages of one partition that one task reads."""

    partition: PartitionId
    start: int
    stop: int
    start_epoch: int = 0
    """Append broker_epoch of the message below `start`; 0: not known, or there was none."""
    stop_epoch: int = 0
    """The same of the one below `stop`; 0: not known."""
    most_epoch: int = 0
    """The highest that a message of the range may have: a later one has replaced what was read up
    to when the range was planned; 0: any."""
    kept_from: int = 0
    """Where the read begins in this partition: what a pin keeps."""

    @property
    def size(self) -> int:
        """How many messages it has at most."""
        return self.stop - self.start


@dataclass
class TaskRanges(InputPartition):
    """What one task reads, range by range."""

    ranges: tuple[Range, ...]
    pin: str | None = None
    """Under which name the rest of the logs is kept meanwhile; None: something else does."""


def pin_name(kept_from: Mapping[PartitionId, int]) -> str:
    """Return the name of the pin of all reads that keep what is stored from these offsets on.

    So reads that are repeated, as in a notebook, renew one pin: a partition has only a few.
    """
    places = " ".join(f"{partition}:{at}" for partition, at in sorted(kept_from.items()))
    return f"spark-{hashlib.sha256(places.encode()).hexdigest()[:16]}"


def to_json(offsets: Offsets, origin: OffsetsOrigin | None = None) -> dict[str, object]:
    """Return offsets as Spark writes them into its checkpoint: equal ones are equal as text."""
    body: dict[str, object] = {}
    if origin is not None:
        body[ORIGIN] = {**origin.life._asdict(), "query": origin.query}
    for partition, position in sorted(offsets.items()):
        body[str(partition)] = {
            "broker_epoch": position.append_broker_epoch,
            "offset": position.offset,
        }
    return body


def from_json(body: Mapping[str, object]) -> dict[PartitionId, ReadPosition]:
    """Read the positions of what `to_json` has made.

    Raises:
        BadRequestError: it is something else: a checkpoint of another source, say.
    """
    try:
        partitions = {
            PartitionId.parse(name): value for name, value in body.items() if name != ORIGIN
        }
    except ValueError as error:
        raise BadRequestError(f"checkpoint: {error}; was it made by another source?") from error
    return {
        partition: position_of(f"checkpoint: partition {partition}", value)
        for partition, value in partitions.items()
    }


def origin_of(name: str, body: Mapping[str, object]) -> OffsetsOrigin | None:
    """Read whose offsets these are; None: they were written before offsets said so.

    Raises:
        BadRequestError: that is unusable; names it by `name`.
    """
    origin = body.get(ORIGIN)
    if origin is None:
        return None
    fields = (*QueueLife._fields, "query")
    if not (
        isinstance(origin, dict)
        and set(origin) == set(fields)
        and all(isinstance(each, str) for each in origin.values())
    ):
        raise BadRequestError(f"{name}: {ORIGIN}: {origin!r}; expected texts: {', '.join(fields)}")
    return OffsetsOrigin(QueueLife(*(origin[each] for each in QueueLife._fields)), origin["query"])


def position_of(name: str, body: object) -> ReadPosition:
    """Read one partition's position.

    Raises:
        BadRequestError: `body` is no position; names it by `name`.
    """
    if not isinstance(body, dict) or set(body) != {"broker_epoch", "offset"}:
        raise BadRequestError(f'{name}: {body!r}; expected {{"broker_epoch": 0, "offset": 0}}')
    numbers = body["offset"], body["broker_epoch"]
    if not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
        raise BadRequestError(f"{name}: {body!r}; expected two integers from 0 on")
    return ReadPosition(*numbers)
