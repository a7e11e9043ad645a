"""Positions of a queue as Spark keeps them, and how what lies between two is divided."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from partq.core.model import PartitionId
from partq.errors import BadRequestError

MAX_TASKS = 100_000
"""The most ranges of one read: Spark keeps each one in the driver's memory."""


class ReadPosition(NamedTuple):
    """A place in a partition's log: everything below it has been read."""

    offset: int
    append_broker_epoch: int = 0
    """Of the message below it; 0: there was none, or it is not known. A log that was rolled back
    and written again holds another one there."""


Offsets = Mapping[PartitionId, ReadPosition]
"""Where a whole queue is read up to."""


@dataclass
class Range(InputPartition):
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


def to_json(offsets: Offsets) -> dict[str, object]:
    """Return offsets as Spark writes them into its checkpoint: equal ones are equal as text."""
    return {
        str(partition): {"broker_epoch": position.append_broker_epoch, "offset": position.offset}
        for partition, position in sorted(offsets.items())
    }


def from_json(body: Mapping[str, object]) -> dict[PartitionId, ReadPosition]:
    """Read what `to_json` has made.

    Raises:
        BadRequestError: it is something else: a checkpoint of another source, say.
    """
    try:
        partitions = {PartitionId.parse(name): value for name, value in body.items()}
    except ValueError as error:
        raise BadRequestError(f"checkpoint: {error}; was it made by another source?") from error
    return {
        partition: position_of(f"checkpoint: partition {partition}", value)
        for partition, value in partitions.items()
    }


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


def share_out(limit: int, unread: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
    """Divide `limit` messages among partitions that have so many, oldest generation first.

    Within a generation each gets its part of what they have, give or take one. Nothing of a
    generation is taken while an earlier one has more: keys moved on from there, in order.
    """
    shares = dict.fromkeys(unread, 0)
    left = max(0, limit)
    for generation in sorted({partition.generation for partition in unread}):
        ours = {each: unread[each] for each in unread if each.generation == generation}
        total = sum(ours.values())
        taken = min(left, total)
        if total:
            shares |= {each: has * taken // total for each, has in ours.items()}
        # What rounding down has left goes to those that lost most by it, the fullest first.
        lost = sorted(ours, key=lambda each: (-(ours[each] * taken % max(total, 1)), -ours[each]))
        for each in lost[: taken - sum(shares[each] for each in ours)]:
            shares[each] += 1
        left -= taken
        if taken < total:
            break
    return shares


def divide(
    ranges: Iterable[Range], *, at_least: int | None = None, most_records: int | None = None
) -> list[Range]:
    """Return the same messages in more ranges, in order, none of them empty.

    Args:
        ranges: one per partition.
        at_least: how many ranges to make, if there are as many messages; large ones are cut first.
        most_records: the most messages of a range.

    Raises:
        BadRequestError: that makes more than `MAX_TASKS`.
    """
    whole = [each for each in ranges if each.size > 0]
    pieces = {id(each): 1 for each in whole}
    if most_records is not None:
        pieces = {id(each): -(-each.size // most_records) for each in whole}
    if (at_least or 0) > sum(pieces.values()):
        pieces = _more_pieces(whole, pieces, at_least or 0)
    if sum(pieces.values()) > MAX_TASKS:
        raise BadRequestError(
            f"the read would be cut into {sum(pieces.values())} tasks; expected at most "
            f"{MAX_TASKS}: set minPartitions lower, or maxRecordsPerPartition higher"
        )
    return [cut for each in whole for cut in _cut(each, pieces[id(each)])]


def _more_pieces(ranges: Sequence[Range], pieces: dict[int, int], at_least: int) -> dict[int, int]:
    """Return into how many pieces each range is cut so that there are `at_least`."""
    total = sum(each.size for each in ranges)
    if at_least > MAX_TASKS or not total:
        return {id(each): min(each.size, at_least) for each in ranges}
    more = {
        id(each): min(each.size, max(pieces[id(each)], at_least * each.size // total))
        for each in ranges
    }
    # What rounding down has left goes to those whose pieces are the largest.
    while sum(more.values()) < min(at_least, total):
        largest = max(
            (each for each in ranges if more[id(each)] < each.size),
            key=lambda each: each.size / more[id(each)],
        )
        more[id(largest)] += 1
    return more


def _cut(whole: Range, count: int) -> list[Range]:
    marks = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [
        replace(
            whole,
            start=low,
            stop=high,
            start_epoch=whole.start_epoch if low == whole.start else 0,
            stop_epoch=whole.stop_epoch if high == whole.stop else 0,
        )
        for low, high in pairwise(marks)
    ]
