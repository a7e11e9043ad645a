"""Scheduled messages as people see them: listed, cancelled one by one, dropped."""

import asyncio
from collections.abc import Callable, Mapping

from partq.broker.broker import Broker
from partq.core.hashing import slot_of
from partq.core.model import PartitionId
from partq.core.numbering.scheduled_ids import ScheduledId
from partq.errors import BadBatchError, ConflictError, UnavailableError, UndecodableError
from partq.store.records.stored_partition import StoredPartition
from partq.store.schedule.scheduled_entries import (
    ScheduledEntries,
    ScheduledEntry,
    ScheduledPart,
    ScheduledPlace,
)
from partq.wire import batch
from partq.wire.calls.answers import UNSET
from partq.wire.calls.replies import error_detail
from partq.wire.calls.scheduled import (
    DropScheduledBody,
    DropScheduledResult,
    ScheduledList,
    ScheduledMessage,
    ScheduledPage,
    ScheduledQuery,
)
from partq.wire.calls.status import StatusAnswer

READ_BYTES = 1024 * 1024
READ_ENTRIES = 256
MAX_LOOKED_AT = 4096
"""Entries of a partition that one call looks at for a key."""
MESSAGE_BYTES = 400
"""Of memory, for one message that is listed, beside its key."""
LIST_TIMEOUT_S = 3.0
DROP_TIMEOUT_S = 3.0
"""After this time a drop ends, and says that there is more; below the time-out between brokers."""

MAX_PAGE_BYTES = 256 * 1024
"""Size of what is listed of one partition: keys may be long."""
MAX_DECODED_HERE_BYTES = 256 * 1024
"""Batches that expand to more are decoded in a thread."""

Take = Callable[[int], None]
Place = tuple[int, PartitionId, int]
"""A place among the entries of all partitions: due time, partition, number."""


def _entries(broker: Broker) -> ScheduledEntries:
    return ScheduledEntries(broker.store, broker.keys)


def read_place(text: str) -> Place:
    """Return the place that an answer has named."""
    due_ms, name, number = text.split("/")
    return int(due_ms), PartitionId.parse(name), int(number)


def _place_text(due_ms: int, partition: PartitionId, number: int) -> str:
    return f"{due_ms}/{ScheduledId(partition, number)}"


def _start(after: str | None, partition: PartitionId) -> ScheduledPlace | None:
    """Return where a partition is read on after a place among those of all."""
    if after is None:
        return None
    due_ms, last, number = read_place(after)
    if partition == last:
        return ScheduledPlace(due_ms, number)
    # Of one time, those of lower partitions were shown before it.
    return ScheduledPlace(due_ms if partition < last else due_ms - 1)


async def list_page(
    broker: Broker, partition: PartitionId, query: ScheduledQuery, take: Take
) -> ScheduledPage:
    """Return scheduled messages of a partition that is owned here, by their due times.

    `take` is told how many bytes of memory the answer needs.

    Raises:
        NotOwnerError, StoreUnavailableError: nothing was read.
        OverloadedError: there is no memory for it.
        UnavailableError: not in time.
    """
    broker.find(partition)
    try:
        async with asyncio.timeout(LIST_TIMEOUT_S):
            return await _read_page(broker, partition, query, take)
    except TimeoutError:
        raise UnavailableError(
            f"partition {partition}: not read within {LIST_TIMEOUT_S:g} s; ask again",
            retry_after_s=1.0,
        ) from None


async def _read_page(
    broker: Broker, partition: PartitionId, query: ScheduledQuery, take: Take
) -> ScheduledPage:
    at = _start(query.after, partition)
    slot = None if query.key is None else slot_of(query.key)
    found: list[ScheduledMessage] = []
    page = ScheduledPage(found)
    looked_at = used = 0
    while True:
        part = await _entries(broker).read(
            partition,
            after=at,
            before_ms=query.before_ms,
            max_entries=min(READ_ENTRIES, query.limit - len(found)),
            max_bytes=READ_BYTES,
        )
        for place, entry in enumerate(part.entries, 1):
            at = ScheduledPlace(entry.due_ms, entry.number)
            shown = await _shown(partition, entry, query.key, slot, take)
            if shown is None:
                continue
            size = MESSAGE_BYTES + 2 * len(shown.key or "")
            take(size)
            used += size
            found.append(shown)
            if used >= MAX_PAGE_BYTES:
                part = ScheduledPart([], part.has_more or place < len(part.entries))
                break
        if not part.has_more:
            return page
        looked_at += len(part.entries)
        is_full = len(found) >= query.limit or used >= MAX_PAGE_BYTES
        if at is not None and (is_full or looked_at >= MAX_LOOKED_AT):
            page.upto = _place_text(at.due_ms, partition, at.number)
            return page


async def _shown(
    partition: PartitionId, entry: ScheduledEntry, key: str | None, slot: int | None, take: Take
) -> ScheduledMessage | None:
    """Return an entry as it is listed; None: it has no message of the key."""
    name = str(ScheduledId(partition, entry.number))
    size = len(entry.data)
    try:
        header = batch.read_header(entry.data)
        if slot is not None and slot not in batch.read_slots(entry.data, header):
            return None
        stop = header.count if key is not None else 1
        if header.raw_bytes > MAX_DECODED_HERE_BYTES:
            take(2 * header.raw_bytes)
            messages = await asyncio.to_thread(batch.decode, entry.data, 0, stop)
        else:
            messages = batch.decode(entry.data, 0, stop)
    except (BadBatchError, UndecodableError) as error:
        return ScheduledMessage(name, entry.due_ms, 0, size, error=error_detail(error))
    if key is not None and all(message.key != key for message in messages):
        return None
    shown = messages[0].key if key is None else key
    return ScheduledMessage(name, entry.due_ms, header.count, size, shown, entry.ttl_ms)


def merge_pages(pages: Mapping[PartitionId, ScheduledPage], limit: int) -> ScheduledList:
    """Return the first messages of several partitions; nothing is passed over."""
    answer = ScheduledList([])
    rows: list[tuple[Place, ScheduledMessage]] = []
    ends: list[Place] = []
    failed = {}
    for partition, page in pages.items():
        if page.error is not UNSET:
            failed[str(partition)] = page.error
            continue
        if page.upto is not UNSET:
            ends.append(read_place(page.upto))
        for message in page.messages or ():
            place = (message.due_ms, partition, ScheduledId.parse(message.id).number)
            rows.append((place, message))
    if failed:
        answer.unavailable = failed
    rows.sort(key=lambda row: row[0])
    # Behind the first end there may be messages that nobody has looked at.
    end = min(ends, default=None)
    usable = [row for row in rows if end is None or row[0] <= end]
    answer.messages = [message for _, message in usable[:limit]]
    if len(usable) > limit:
        end = usable[limit - 1][0]
    elif len(usable) < len(rows) and end is None:
        end = usable[-1][0]
    if end is not None:
        answer.next = _place_text(*end)
    return answer


async def cancel(broker: Broker, partition: PartitionId, number: int) -> bool:
    """Remove a scheduled message of a partition that is owned here; False: it is not there.

    Raises:
        NotOwnerError, FencedError: nothing was removed.
        ConflictError: it may wait in another partition, or a part of what was removed may.
        StoreUnavailableError: it may be removed.
    """
    owned = broker.find(partition)
    cancelled = await _entries(broker).cancel(partition, [number], broker_epoch=owned.broker_epoch)
    (was_there,) = cancelled.were_there
    if not was_there and owned.layout.seals:
        raise ConflictError(
            f"scheduled message {ScheduledId(partition, number)}: it does not wait here, and since "
            "the partition count was changed it may wait in another partition; list the scheduled "
            "messages of its key for its present id"
        )
    if cancelled.are_parts[0]:
        raise ConflictError(
            f"scheduled message {ScheduledId(partition, number)}: it is cancelled here, and is a "
            "part of a batch that a change of the partition count has divided; list the scheduled "
            "messages of the other keys, and cancel the other parts by their ids"
        )
    return was_there


async def drop(
    broker: Broker, partition: PartitionId, body: DropScheduledBody
) -> DropScheduledResult:
    """Remove the scheduled messages of a partition that is owned here, or count them.

    Raises:
        NotOwnerError, FencedError, StoreUnavailableError: not all was removed.
    """
    owned = broker.find(partition)
    upto = await _entries(broker).last_number(partition)
    if body.is_dry_run:
        counts = await _entries(broker).count([partition], before_ms=body.before_ms)
        return DropScheduledResult(counts[partition], upto)
    upto = min(upto, body.upto.get(str(partition), upto))
    result = DropScheduledResult(dropped := 0, upto)
    ends_at = broker.clock() + DROP_TIMEOUT_S
    at: ScheduledPlace | None = None
    while True:
        part = await _entries(broker).read(
            partition,
            after=at,
            before_ms=body.before_ms,
            max_entries=READ_ENTRIES,
            max_bytes=READ_BYTES,
        )
        chosen = [each for each in part.entries if each.number <= upto]
        if chosen:
            cancelled = await _entries(broker).cancel(
                partition,
                [each.number for each in chosen],
                broker_epoch=owned.broker_epoch,
            )
            dropped += sum(cancelled.were_there)
            result.count = dropped
        if not part.has_more:
            return result
        if part.entries:
            at = ScheduledPlace(part.entries[-1].due_ms, part.entries[-1].number)
        if broker.clock() >= ends_at:
            result.more = True
            return result


async def add_scheduled_counts(
    broker: Broker, records: Mapping[PartitionId, StoredPartition], answer: StatusAnswer
) -> None:
    """Add what waits to the status of partitions of which anything does.

    Raises:
        StoreUnavailableError: nothing was read.
    """
    waiting = [partition for partition, record in records.items() if record.scheduled_bytes]
    for partition, counts in (await _entries(broker).read_counts(waiting)).items():
        row = answer.partitions[str(partition)]
        row.scheduled, row.next_due_ms = counts.entry_count, counts.next_due_ms
        row.scheduled_bytes = counts.size_bytes
