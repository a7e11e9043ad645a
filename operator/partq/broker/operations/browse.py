"""Looking at messages without consuming them: nothing is delivered, counted or acknowledged."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from partq.broker.broker import Broker
from partq.broker.operations.message_json import contents, numbering
from partq.core.model import Offset, PartitionId
from partq.core.readers.browse import Page, PageEnd, PageRow, merge
from partq.errors import BadRequestError, UnavailableError
from partq.store.records.dead_letters import SentLetters
from partq.store.records.log import Entry
from partq.store.records.stored_partition import StoredPartition
from partq.wire import batch
from partq.wire.calls import body_codec
from partq.wire.calls.answers import UNSET, ErrorDetail
from partq.wire.calls.browse import (
    BrowseAnswer,
    BrowseBody,
    BrowsedMessage,
    BrowsedPage,
    BrowsedRow,
    narrowed,
)
from partq.wire.calls.replies import error_detail

_log = logging.getLogger(__name__)

MAX_MERGED = 4096
"""The most partitions of a merged page: each costs a look at its oldest message."""
AT_ONCE = 16
"""Partitions whose messages are read for one merged page: bounds its memory."""
MIN_SHARE_BYTES = 16 * 1024
"""Smallest size of a partition's part of a merged page, in bytes."""
MESSAGE_BYTES = 256
"""Bytes that a message counts beside its content: JSON repeats the field names."""
MAX_PAGES_BYTES = 8 * 1024 * 1024
"""Size of all pages of one answer, if each partition has a separate page."""
READ_BYTES = 1024 * 1024
READ_ENTRIES = 256
READ_TIMEOUT_S = 3.0

Pages = Callable[[Sequence[PartitionId], BrowseBody], Awaitable[Mapping[PartitionId, BrowsedPage]]]
"""Gets pages from the owners of partitions: each as `read_page` returns it, or with an error."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a partition is to be shown from."""

    offset: int
    at_ms: int | None
    """When the first message from there on was stored; None: it is the end of the log. 0: all up to
    the end is missing, which the partition's page says."""
    first: int
    """The first offset that the log holds."""


async def read_page(broker: Broker, partition: PartitionId, body: BrowseBody) -> BrowsedPage:
    """Return messages of a partition that is owned here, in the order of their offsets.

    Raises:
        NotOwnerError, StoreUnavailableError: nothing was read.
        UnavailableError: not in time, or the log has changed meanwhile.
    """
    broker.find(partition)
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            return await _read_page(broker, partition, body)
    except TimeoutError:
        raise UnavailableError(
            f"partition {partition}: not read within {READ_TIMEOUT_S:g} s; ask again",
            retry_after_s=1.0,
        ) from None


async def _read_page(broker: Broker, partition: PartitionId, body: BrowseBody) -> BrowsedPage:
    record = await broker.partitions.read(partition)
    at = (await _start(broker, partition, body, record)).offset
    sent = await broker.replays.read_sent(partition) if record.has_replays else SentLetters()
    rows: list[BrowsedRow] = []
    holes: list[tuple[int, int]] = []
    used = 0
    is_full = False
    while at < record.next and not is_full:
        entries = await broker.log.read(
            partition,
            Offset(at),
            max_bytes=max(1, min(body.max_bytes - used, READ_BYTES)),
            max_entries=READ_ENTRIES,
        )
        if not entries:
            # The end was read before: what lies below it and is not found does not come back.
            holes.append((at, record.next))
            at = record.next
        for entry in entries:
            if at < entry.first:
                holes.append((at, entry.first))
                at = entry.first
            room = body.max_messages - len(rows)
            sizes = _sizes(entry, at)
            taken = 0
            for row in _rows(partition, entry, at, _within(sizes[:room], body.max_bytes), sent):
                if rows and used + row.size > body.max_bytes:
                    break
                used += row.size
                rows.append(row)
                taken += 1
            at += taken
            is_full = taken < len(sizes)
            if is_full:
                break
    if at >= record.next:
        why = PageEnd.END
    else:
        why = PageEnd.ENOUGH if len(rows) == body.max_messages else PageEnd.SIZE
    page = BrowsedPage(rows, at, why, record.trimmed, record.next)
    if holes and (missing := await _missing(broker, partition, record, holes)):
        page.missing = missing
    return page


async def _missing(
    broker: Broker, partition: PartitionId, record: StoredPartition, holes: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return what of some holes was not trimmed while the log was read.

    Raises:
        UnavailableError: the store has lost the end of the log meanwhile.
    """
    now = await broker.partitions.read(partition)
    if now.next < record.next:
        raise UnavailableError(
            f"partition {partition}: its log ended at {record.next}, and ends at {now.next} now; "
            "ask again",
            retry_after_s=1.0,
        )
    missing = [(max(start, now.trimmed), stop) for start, stop in holes if stop > now.trimmed]
    if missing:
        _log.warning(
            "partition %s: shown without what is missing in the log: %s", partition, missing
        )
    return missing


def _sizes(entry: Entry, at: int) -> list[int]:
    """Return what each message of a batch counts for, from an offset on."""
    ends = batch.read_ends(entry.data, batch.read_header(entry.data))
    begin = at - entry.first
    starts = [ends[begin - 1] if begin else 0, *ends[begin:]]
    return [MESSAGE_BYTES + stop - start for start, stop in pairwise(starts)]


def _within(sizes: Sequence[int], max_bytes: int) -> Sequence[int]:
    """Return the first sizes that a page may hold; one in any case."""
    count = sum(total <= max_bytes for total in accumulate(sizes))
    return sizes[: max(1, count)]


def _rows(
    partition: PartitionId, entry: Entry, at: int, sizes: Sequence[int], sent: SentLetters
) -> Iterator[BrowsedRow]:
    """Return messages, each with what it counts for: JSON may be larger than what is stored."""
    shown = contents(entry, at, at + len(sizes))
    for offset, (size, content) in enumerate(zip(sizes, shown, strict=True), at):
        producer, sequence = numbering(entry, offset)
        message = BrowsedMessage(
            partition=str(partition),
            offset=offset,
            publish_time_ms=entry.at_ms,
            append_broker_epoch=entry.broker_epoch,
            producer=producer,
            sequence=sequence,
            key=content.key,
            value=content.value,
            value_base64=content.value_base64,
            headers=content.headers,
            event_time_ms=content.event_time_ms,
            error=content.error,
            is_replayed=True if sent.has(offset) else UNSET,
        )
        yield BrowsedRow(max(size, MESSAGE_BYTES + len(body_codec.encode(content))), message)


async def browse(
    broker: Broker, partitions: Sequence[PartitionId], body: BrowseBody, ask: Pages
) -> BrowseAnswer:
    """Return the oldest messages of several partitions, by the time at which they were stored.

    A partition that nobody serves is named, and is as if it were not there: what it holds may be
    older than what is shown. What the logs miss is named beside what is shown.

    Raises:
        BadRequestError: too many partitions for one answer.
        StoreUnavailableError: nothing was read.
    """
    if len(partitions) > MAX_MERGED:
        raise BadRequestError(
            f"browse: {len(partitions)} partitions; at most {MAX_MERGED} can be merged: name some, "
            "or set is_merged to false"
        )
    starts = await _read_starts(broker, partitions, body)
    served = broker.claims.served()
    unavailable = {
        str(partition): error_detail(
            UnavailableError(f"partition {partition}: no broker serves it at the moment; ask again")
        )
        for partition in partitions
        if partition not in served or partition not in starts
    }
    # The oldest messages are in the partitions that begin with the oldest ones.
    by_time = sorted(
        (start.at_ms, partition)
        for partition, start in starts.items()
        if start.at_ms is not None and partition in served
    )
    chosen = [partition for _, partition in by_time[:AT_ONCE]]
    asked = _first_pages(body, {partition: starts[partition].offset for partition in chosen})
    pages, holes, refused = _sort_answers(await ask(chosen, asked))
    merged = merge(
        pages,
        max_messages=body.max_messages,
        max_bytes=body.max_bytes,
        before_ms=by_time[AT_ONCE][0] if len(by_time) > AT_ONCE else None,
    )
    following = {partition: start.offset for partition, start in starts.items()} | merged.next
    return BrowseAnswer(
        messages=merged.contents,
        next={str(partition): offset for partition, offset in sorted(following.items())},
        why=merged.why,
        trimmed={
            str(partition): start.first
            for partition, start in starts.items()
            if body.offsets.get(str(partition), start.first) < start.first
        },
        unavailable=unavailable | refused,
        missing=_passed(holes, merged.next),
    )


async def _read_starts(
    broker: Broker, partitions: Sequence[PartitionId], body: BrowseBody
) -> dict[PartitionId, Start]:
    """Return where each partition that has a record begins for this call."""
    records = await broker.partitions.read_many(partitions)
    found = await asyncio.gather(
        *(_start(broker, partition, body, record) for partition, record in records.items())
    )
    return dict(zip(records, found, strict=True))


async def _start(
    broker: Broker, partition: PartitionId, body: BrowseBody, record: StoredPartition
) -> Start:
    wanted = body.offsets.get(str(partition))
    if wanted is None:
        wanted = 0 if body.at_ms is None else await broker.log.find_time(partition, body.at_ms)
    offset = min(max(wanted, record.trimmed), record.next)
    if offset == record.next:
        return Start(offset, None, record.trimmed)
    _, (at_ms,) = await broker.log.read_times(partition, [offset])
    if at_ms is None:  # a hole, or trimmed meanwhile: what follows is shown
        entries = await broker.log.read(partition, Offset(offset), max_bytes=1, max_entries=1)
        at_ms = entries[0].at_ms if entries else 0
    return Start(offset, at_ms, record.trimmed)


def _page(answer: BrowsedPage) -> Page[BrowsedMessage]:
    if answer.rows is UNSET or answer.next is UNSET or answer.why is UNSET:
        raise ValueError("got neither a page nor an error")
    rows = [
        PageRow(row.message.offset, row.message.publish_time_ms, row.size, row.message)
        for row in answer.rows
    ]
    return Page(rows, answer.next, PageEnd(answer.why))


def _first_pages(body: BrowseBody, offsets: Mapping[PartitionId, int]) -> BrowseBody:
    """Return the body that asks each partition for a page from its offset, of an equal share."""
    share = {
        "offsets": {str(partition): offset for partition, offset in offsets.items()},
        "max_bytes": max(MIN_SHARE_BYTES, body.max_bytes // max(1, len(offsets))),
        "is_merged": False,
    }
    return narrowed(body, share)


class _SortedPages(NamedTuple):
    """The answers for several partitions."""

    pages: dict[PartitionId, Page[BrowsedMessage]]
    holes: dict[PartitionId, Sequence[tuple[int, int]]]
    """What the logs miss of the pages."""
    refused: dict[str, ErrorDetail]
    """Why a partition has no page."""


def _sort_answers(found: Mapping[PartitionId, BrowsedPage]) -> _SortedPages:
    """Tell the pages from the errors; an answer that is neither counts as an error."""
    answers = _SortedPages({}, {}, {})
    for partition, answer in found.items():
        if answer.error is not UNSET:
            answers.refused[str(partition)] = answer.error
            continue
        try:
            answers.pages[partition] = _page(answer)
        except ValueError as error:
            unusable = UnavailableError(
                f"partition {partition}: its broker gave no usable page ({error!r}); ask again"
            )
            answers.refused[str(partition)] = error_detail(unusable)
        else:
            answers.holes[partition] = answer.missing or []
    return answers


def _passed(
    holes: Mapping[PartitionId, Sequence[tuple[int, int]]], reached: Mapping[PartitionId, int]
) -> dict[str, list[tuple[int, int]]]:
    """Return the holes below `reached`; one that is not passed yet is named by a later page."""
    return {
        str(partition): passed
        for partition, each in sorted(holes.items())
        if (passed := [hole for hole in each if hole[1] <= reached[partition]])
    }
