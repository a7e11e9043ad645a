"""Reads logs backwards: the newest messages of several partitions, by the time of storing."""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from partq.client.browser import Browsed, read_browsed
from partq.client.transport.answers import given
from partq.client.transport.partition_router import PartitionRouter
from partq.core.model import PartitionId
from partq.wire.calls.browse import BrowseBody, BrowsedPage
from partq.wire.calls.positions import PositionResult, PositionsBody

MAX_LAST = 1000
"""The most messages that a search returns."""
MAX_SEARCHED = 200_000
"""The most messages that a search reads; then it ends with what it has found."""
CALL_PARTITIONS = 64
"""Partitions that are read in one call."""
POSITIONS_PARTITIONS = 1000
"""Partitions whose ends are asked for in one call."""
CALL_BYTES = 2 * 1024 * 1024
"""Of one answer, over its partitions."""
MIN_BYTES = 16 * 1024
"""The smallest part of a partition in an answer; a message that is larger comes alone."""
MIN_PIECE, MAX_PIECE = 4, 1000
"""Messages that are read of a partition at once."""
AHEAD = 2
"""Partitions are never equally full: this many times an equal share is read first."""


_Place = tuple[int, PartitionId, int]
"""When a message was stored, its partition and offset: messages are sorted by it."""


@dataclass(slots=True)
class _UnreadLog:
    """How far back a partition's log is read."""

    partition: PartitionId
    first: int
    low: int
    """Every message from here on is read."""
    piece: int
    """How many messages the next piece has."""
    oldest_ms: float = math.inf
    """When the oldest message that is read was stored: those before it are not younger."""


@dataclass(slots=True)
class Newest:
    """What a search has found."""

    messages: list[Browsed] = field(default_factory=list)
    """The newest last."""
    ends: dict[PartitionId, int] = field(default_factory=dict)
    """Where the logs ended when the search began."""
    missing: dict[PartitionId, list[tuple[int, int]]] = field(default_factory=dict)
    """The offsets [start, stop) that were passed and that the logs do not hold."""
    searched: int = 0
    """How many messages were read."""
    is_cut: bool = False
    """Whether `MAX_SEARCHED` has ended the search: older messages may match, too."""


async def find_newest(
    router: PartitionRouter,
    partitions: Sequence[PartitionId],
    most: int,
    has: Callable[[Browsed], bool],
) -> Newest:
    """Return the newest messages for which `has` is true, at most `most` of them.

    Raises:
        PartqError: a partition could not be read in time, or the brokers refuse.
    """
    found = Newest()
    best: list[tuple[_Place, Browsed]] = []
    logs = await _open(router, partitions, most, found)
    while todo := [log for log in logs if _may_have_newer(log, best, most)]:
        if found.searched >= MAX_SEARCHED:
            found.is_cut = True
            break
        # Those whose unread messages may be the newest come first.
        todo.sort(key=lambda log: (-log.oldest_ms, log.partition))
        chosen = _within(todo[:CALL_PARTITIONS], MAX_SEARCHED - found.searched)
        for each in await _read_pieces(router, chosen, found):
            if has(each):
                # No two messages are at one place: heaps compare no messages.
                at = (each.publish_time_ms, each.partition, each.offset)
                heapq.heappush(best, (at, each))
                if len(best) > most:
                    heapq.heappop(best)
    found.messages = [each for _, each in sorted(best)]
    return found


def _may_have_newer(log: _UnreadLog, best: Sequence[tuple[_Place, Browsed]], most: int) -> bool:
    if log.low <= log.first:
        return False
    return len(best) < most or log.oldest_ms > best[0][0][0]


def _within(logs: Sequence[_UnreadLog], most: int) -> list[_UnreadLog]:
    """Return the first of the logs, whose next pieces have at most so many messages together."""
    chosen: list[_UnreadLog] = []
    for log in logs:
        if most <= 0:
            break
        log.piece = min(log.piece, most)
        most -= log.piece
        chosen.append(log)
    return chosen


async def _open(
    router: PartitionRouter, partitions: Sequence[PartitionId], most: int, found: Newest
) -> list[_UnreadLog]:
    """Find the ends of the logs."""
    piece = min(MAX_PIECE, max(MIN_PIECE, -(-AHEAD * most // max(1, len(partitions)))))
    logs = []
    for start in range(0, len(partitions), POSITIONS_PARTITIONS):
        chunk = partitions[start : start + POSITIONS_PARTITIONS]
        answers = await router.ask_each("POST", "/positions", chunk, _latest, PositionResult)
        for partition, at in answers.items():
            end = found.ends[partition] = given("positions", "end", at.end)
            logs.append(_UnreadLog(partition, given("positions", "first", at.first), end, piece))
    return logs


def _latest(partitions: list[PartitionId]) -> PositionsBody:
    return PositionsBody([str(each) for each in partitions], to="latest")


async def _read_pieces(
    router: PartitionRouter, logs: Sequence[_UnreadLog], found: Newest
) -> list[Browsed]:
    """Return the next older piece of some logs."""
    at = {log.partition: max(log.first, log.low - log.piece) for log in logs}
    starts, stops = dict(at), {log.partition: log.low for log in logs}
    read: list[Browsed] = []
    oldest: dict[PartitionId, int] = {}
    while at:
        most = max(stops[partition] - offset for partition, offset in at.items())
        share = max(MIN_BYTES, CALL_BYTES // len(at))
        pages = await _pages(router, at, most, share)
        at = {}
        for partition, page in pages.items():
            stop = stops[partition]
            rows = [row.message for row in given("browse", "rows", page.rows)]
            messages = [read_browsed(row) for row in rows if row.offset < stop]
            for each in messages[:1]:
                oldest.setdefault(partition, each.publish_time_ms)
            read += messages
            holes = page.missing or []
            found.missing.setdefault(partition, []).extend(h for h in holes if h[0] < stop)
            # A page of large messages ends early: what lies before the next newer piece follows.
            following = given("browse", "next", page.next)
            if following < stop and page.why != "end":
                at[partition] = following
    for log in logs:
        log.low = starts[log.partition]
        log.oldest_ms = min(log.oldest_ms, oldest.get(log.partition, log.oldest_ms))
        log.piece = min(MAX_PIECE, 2 * log.piece)
    found.searched += len(read)
    return read


async def _pages(
    router: PartitionRouter, offsets: dict[PartitionId, int], most: int, max_bytes: int
) -> dict[PartitionId, BrowsedPage]:
    def body(partitions: list[PartitionId]) -> BrowseBody:
        return BrowseBody(
            [str(each) for each in partitions],
            {str(each): offsets[each] for each in partitions},
            max_messages=most,
            max_bytes=max_bytes,
            is_merged=False,
        )

    return await router.ask_each("POST", "/browse", offsets, body, BrowsedPage)
