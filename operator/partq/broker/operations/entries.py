"""Stored batches for readers that keep their progress elsewhere: as they are, none is opened."""

import asyncio
import logging
from collections.abc import Sequence

from partq.broker.broker import Broker
from partq.broker.partition.owned_partition import OwnedPartition
from partq.core.model import Offset, PartitionId
from partq.errors import (
    DataLossError,
    FencedError,
    NotOwnerError,
    RolledBackError,
    UnavailableError,
)
from partq.store.records.log import Entry, LogBounds
from partq.wire.calls.entries import EntriesQuery, StoredBatch, encode

_log = logging.getLogger(__name__)

MAX_ENTRIES = 4096
"""The most batches of an answer."""
READS_AT_ONCE = 8
"""Answers that are read side by side: bounds their memory."""
READ_TIMEOUT_S = 4.0


async def read_entries(
    broker: Broker, partition: PartitionId, query: EntriesQuery, limit: asyncio.Semaphore
) -> bytes:
    """Return stored batches of an owned partition, as `partq.wire.calls.entries` has them.

    From the one that holds the offset on, as many as `max_bytes` allow; one if there is one.
    `limit` bounds how many answers are read side by side.

    Raises:
        NotOwnerError: another broker owns the partition, or none.
        DataLossError: the offset is no longer stored, or missing in the log.
        RolledBackError: the log ends below the offset, or the message below it is another one.
        UnavailableError: not read in time, or too many others read.
        StoreUnavailableError: Redis does not answer.
    """
    owned = broker.find(partition)
    # What a replica does not have yet is not shown: a failover may take it back.
    end = owned.tail.end
    start = Offset(query.from_)
    stop = Offset(end if query.to is None else min(query.to, end))
    try:
        async with asyncio.timeout(READ_TIMEOUT_S), limit:
            entries: list[Entry] = []
            if start < stop:
                entries = await broker.log.read_within(
                    partition, start, stop, max_bytes=query.max_bytes, max_entries=MAX_ENTRIES
                )
            # Asked after the read: what is true then was true of all that was read.
            bounds = await read_bounds(broker, owned, [start])
    except TimeoutError:
        raise UnavailableError(
            f"partition {partition}: not read within {READ_TIMEOUT_S:g} s; ask again",
            retry_after_s=1.0,
        ) from None
    check_end(partition, start, end)
    check_epoch(partition, start, query.append_broker_epoch, bounds.epochs[0])
    if start < stop:
        _check_found(partition, start, stop, bounds, entries)
    chosen = _chosen(entries, stop)
    return encode(
        bounds.first,
        end,
        [StoredBatch(e.first, e.count, e.broker_epoch, e.at_ms, e.ttl_ms, e.data) for e in chosen],
    )


async def read_bounds(broker: Broker, owned: OwnedPartition, offsets: Sequence[int]) -> LogBounds:
    """Return what the log holds, as its owner: the answer is worth nothing from anybody else.

    Raises:
        NotOwnerError: the partition is not owned here any more.
        StoreUnavailableError: no answer.
    """
    try:
        bounds = await broker.log.read_positions(owned.id, offsets, broker_epoch=owned.broker_epoch)
    except FencedError as error:
        broker.ownership.lose(owned, error)
        raise NotOwnerError(error.message) from error
    if broker.owned.get(owned.id) is not owned:
        raise NotOwnerError(f"partition {owned.id}: not owned here any more; read /layout again")
    return bounds


def check_epoch(partition: PartitionId, offset: int, known: int, stored: int) -> None:
    """Refuse a position whose message below is another one by now; 0: not known.

    Raises:
        RolledBackError: it is.
    """
    if known and stored and known != stored:
        raise RolledBackError(
            f"partition {partition}: the message below {offset} was appended under broker epoch "
            f"{stored}; the position says {known}: the store has lost what the position speaks of; "
            "ask for a new position to begin at"
        )


def check_end(partition: PartitionId, offset: int, end: int) -> None:
    """Refuse a position beyond the end of the log.

    Raises:
        RolledBackError: it is.
    """
    if offset > end:
        raise RolledBackError(
            f"partition {partition}: the log ends at {end}, below {offset}: the store has lost "
            "messages, or the position is not one of this queue; ask for a new one to begin at"
        )


def _check_found(
    partition: PartitionId,
    start: Offset,
    stop: Offset,
    bounds: LogBounds,
    entries: Sequence[Entry],
) -> None:
    """Refuse to begin behind the message that is asked for.

    The owner has seen the end of the log before the read, and asked for its beginning after it:
    what lies between and was not found is not in Redis any more. Asking again finds no more.

    Raises:
        DataLossError: it is trimmed, or missing.
    """
    if entries and entries[0].first <= start:
        return
    if start < bounds.first:
        raise DataLossError(
            f"partition {partition}: {start} is no longer stored; the first message that is has "
            f"the offset {bounds.first}; begin there"
        )
    if entries:
        goes_on = f"which continues at {entries[0].first}"
    elif stop < bounds.end:
        goes_on = f"with all up to {stop}"
    else:
        goes_on = f"up to its end at {bounds.end}"
    _log.warning("partition %s: %d is missing in the log, %s", partition, start, goes_on)
    raise DataLossError(
        f"partition {partition}: {start} is missing in the log, {goes_on}; begin there"
    )


def _chosen(entries: Sequence[Entry], stop: int) -> list[Entry]:
    """Return the first entries that follow each other and begin below `stop`.

    It is not above the end of the log as its owner has confirmed it, where no entry goes beyond.
    """
    chosen: list[Entry] = []
    due = entries[0].first if entries else Offset(0)
    for entry in entries:
        if entry.first != due or entry.first >= stop:
            break
        due = Offset(due + entry.count)
        chosen.append(entry)
    return chosen
