"""How a limit of messages is divided among partitions, and their ranges among tasks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from partq.core.model import PartitionId
from partq.core.readers.partition_order import PartitionOrder
from partq.errors import BadRequestError
from partq.spark.read.offsets import Range

MAX_TASKS = 100_000
"""The most ranges of one read: Spark keeps each one in the driver's memory."""


def share_out(
    limit: int,
    unread: Mapping[PartitionId, int],
    order: PartitionOrder = PartitionOrder(),  # noqa: B008  it cannot be changed
    begin: Mapping[PartitionId, int] | None = None,
) -> dict[PartitionId, int]:
    """Divide `limit` messages among partitions that have so many, in an order.

    Of partitions that may be read, each gets its part of what they have, give or take one. What is
    left of the limit goes to those that may be read behind these.

    Args:
        limit: the most messages in all.
        unread: how many messages each partition has.
        order: nothing of a partition is taken before its predecessors are read.
        begin: up to where each partition is read; those that are missing are not read any more.
    """
    shares = dict.fromkeys(unread, 0)
    reached = dict(begin or {})
    waiting = set(unread)
    left = max(0, limit)
    while ready := order.due(waiting, reached):
        waiting.difference_update(ready)
        ours = {each: unread[each] for each in ready}
        total = sum(ours.values())
        taken = min(left, total)
        if total:
            shares |= {each: has * taken // total for each, has in ours.items()}
        # What rounding down has left goes to those that lost most by it, the fullest first.
        lost = sorted(ours, key=lambda each: (-(ours[each] * taken % max(total, 1)), -ours[each]))
        for each in lost[: taken - sum(shares[each] for each in ours)]:
            shares[each] += 1
        left -= taken
        reached |= {each: reached[each] + shares[each] for each in ours if each in reached}
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
