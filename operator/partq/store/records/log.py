"""The logs of partitions: appending as a chain of numbered calls, reading, trimming."""

import asyncio
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from partq.core.model import BrokerEpoch, Offset, PartitionId
from partq.core.producer_record import ProducerRecord
from partq.core.producer_series import is_series, producer_of
from partq.errors import AppendGapError, BadBatchError
from partq.store.codec import decode_producer
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.refusals import FENCED, fenced
from partq.store.server import Channel
from partq.wire.batch import read_header, read_slots
from partq.wire.calls.browse import MAX_PIN_MS

Status = Literal[
    "stored",
    "duplicate",
    "resend_from",
    "out_of_sequence",
    "unknown_producer",
    "number_reused",
    "quota_exceeded",
    "moved",
    "parked",
    "known_id",
    "gone",
]

AppendKind = Literal["append", "schedule", "park", "enqueue"]

_STATUS: dict[str, Status] = {
    "S": "stored",
    "D": "duplicate",
    "R": "resend_from",
    "O": "out_of_sequence",
    "U": "unknown_producer",
    "N": "number_reused",
    "Q": "quota_exceeded",
    "M": "moved",
    "P": "parked",
    "I": "known_id",
    "G": "gone",
}
_NO_LIMIT = -1

# What answers of scripts mean; `store/refusals.py` has those that more modules share.
END_DIFFERS = -1
"""Of `append_batches`: the log ends elsewhere, or the number is old."""
_MAX_READ_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class AppendBatch:
    """A batch that is to be stored as one entry."""

    producer: str
    """Empty: not numbered, so stored whenever it comes."""
    first: int
    """The producer's number of the first message, from 0."""
    count: int
    data: bytes
    """Empty: its slots have left the partition; only the answer to a repeat is asked for."""
    ttl_ms: int = 0
    """How long its messages may wait; 0: the batch says nothing of it."""
    digest: str = ""
    """By which a repeat is told from other messages (`wire.batch.digest`); empty: by nothing."""
    age_ms: int = 0
    """How long ago it was first sent; 0: never before."""
    fixed_generation: int = 0
    """Of fixed numbers: the partition's generation that they were counted for; 0: not fixed."""
    start: int = -1
    """The number that is due if the partition has no record of the producer, as the predecessor
    says that had the slots; -1: none says anything."""
    content_crc: int = -1
    """For the audit record: `wire.batch.content_crc`; -1: the record says nothing of it."""
    kind: AppendKind = "append"
    """`schedule`: it waits beside the log until `due_ms`, or else for `after_ms`; `park`: also if
    that is over. `enqueue`: it is the entry with the number `first`, which has waited, and
    `producer` is empty."""
    due_ms: int = 0
    """By Redis's clock; 0: `after_ms` says it."""
    after_ms: int = 0
    message_id: str = ""
    """32 hex digits of a digest of its id; empty: it has none."""

    @property
    def extras(self) -> str:
        """What the script is told beside the rest; empty: nothing."""
        if self.kind == "append" and not self.message_id:
            return ""
        return f"{self.kind} {self.due_ms} {self.after_ms} {self.message_id or '-'}"


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Outcome of an append of a batch."""

    status: Status
    offset: int
    """Of the first message if stored or a duplicate; -1: not stored, or its place is forgotten."""
    due: int
    """The number that the partition takes next from this producer; -1: unknown."""
    entry: int = -1
    """The number of the entry that waits, or has waited: of a batch that was parked, of its repeat,
    of what is there with its id, of an entry that is gone; -1: none, or it is forgotten."""
    due_ms: int = -1
    """When a parked batch is due, by Redis's clock."""
    retry_after_ms: int = -1
    """In how many ms an id more may be known; -1: it was not refused for that."""


@dataclass(frozen=True, slots=True)
class Appended:
    """The outcome of an append call."""

    results: list[AppendResult]
    """One per batch, in their order."""
    next: Offset
    """The end of the log after the call."""
    at_ms: int
    """Of all batches stored by the call; Redis's time, never falling within a partition."""


class Trim(NamedTuple):
    """The outcome of a trim."""

    first: Offset
    """The first offset that is still in the log."""
    held: Offset
    """The lowest offset that a group or a pin holds."""
    retained_bytes: int
    """Bytes in the log that all groups have acknowledged; 0: none are to stay."""


class RetainedMessages(NamedTuple):
    """What stays in a log of the messages that all groups have acknowledged."""

    first: int
    """From this offset on."""
    max_bytes: int | None = None
    """The newest of them, in so many bytes; None: no limit."""


class LogBounds(NamedTuple):
    """Extent of a log, and the append broker epochs below some offsets."""

    first: Offset
    """The first offset that is in the log."""
    end: Offset
    """The offset of the next message."""
    epochs: list[BrokerEpoch]
    """Per offset: of the message just below it; 0: the log does not have it."""


class Extent(NamedTuple):
    """Entries of a log that follow each other."""

    first_id: bytes
    last_id: bytes
    size_bytes: int
    """Of their batches."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored batch."""

    first: Offset
    count: int
    broker_epoch: BrokerEpoch
    """That it was appended under."""
    at_ms: int
    data: bytes
    ttl_ms: int = 0
    """How long its messages may wait from `at_ms` on; 0: the batch says nothing of it."""
    series: str = ""
    """Under which name the producer's numbers are counted; empty: it has none, or the entry was
    stored by a version that did not keep it."""
    number: int = -1
    """The producer's number of the first message; -1: as above."""

    @property
    def producer(self) -> str:
        """Its producer's id; empty: unknown."""
        return producer_of(self.series)

    @property
    def slots(self) -> "array[int]":
        """The slot of each message, read from the batch; all 0 where its header is damaged.

        One slot keeps the order of the messages, whatever their keys are.
        """
        try:
            slots = read_slots(self.data, read_header(self.data))
        except BadBatchError:
            slots = array("H")
        return slots if len(slots) == self.count else array("H", bytes(2 * self.count))

    def sequence(self, offset: int) -> int:
        """Return the producer's number of one of its messages; -1: unknown."""
        return self.number if self.number < 0 else self.number + offset - self.first


class Log:
    """The logs of one queue's partitions."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    def server_of(self, partition: PartitionId) -> str | None:
        """Return the name of the server that has a partition; None: nobody has it now."""
        return self._store.server_of(self._keys.log(partition))

    async def append(
        self,
        partition: PartitionId,
        *,
        broker_epoch: BrokerEpoch,
        number: int,
        expected: Offset,
        batches: Sequence[AppendBatch],
        room_bytes: int | None,
        passed_ms: int = 0,
        id_window_ms: int = 0,
        max_ids: int = 0,
    ) -> Appended:
        """Append batches in one step, each judged on its own, in their order.

        `number` counts the calls under this broker epoch, from 0; a call whose outcome is unknown
        is repeated unchanged, under the same number, and is never stored twice. `expected` is the
        offset that the caller believes to be next. `room_bytes` bounds what the call may add;
        None: no limit; 0: nothing new is stored, only duplicates are answered. `passed_ms`: how
        much time has passed, at least, since the caller's last call or its claim. Records of
        producers age by the sum of it, and by no clock that may jump. `id_window_ms`: for how long
        an id is known, and its message is not stored again; `max_ids`: how many may be known; 0:
        ids mean nothing. A batch with a new id is refused above that. What is parked counts as what
        is stored; an entry that is enqueued adds nothing.

        Raises:
            FencedError: another broker has claimed the partition; nothing is stored.
            AppendGapError: the log ends elsewhere; nothing is stored.
            QuotaExceededError: Redis is full; nothing is stored.
            StoreUnavailableError: no answer; stored or not, unless `is_outcome_known`.
        """
        keys = self._keys
        places = (
            *(keys.meta, keys.log, keys.producers, keys.audit, keys.series),
            *(keys.due, keys.scheduled, keys.ids, keys.id_entries),
        )
        args: list[str | bytes | int] = [
            broker_epoch,
            number,
            expected,
            _NO_LIMIT if room_bytes is None else room_bytes,
            passed_ms,
            id_window_ms,
            max_ids,
        ]
        for batch in batches:
            args += (batch.producer, batch.first, batch.count, batch.data, batch.ttl_ms)
            args += (batch.digest, batch.age_ms)
            args.append("" if batch.content_crc < 0 else batch.content_crc)
            args.append("" if batch.start < 0 else batch.start)
            args.append(batch.extras)
        answer = await self._store.run(
            "append_batches",
            [place(partition) for place in places],
            args,
            channel=Channel.APPEND,
            needs_replica=True,
        )
        if answer == FENCED:
            raise fenced(partition, broker_epoch)
        if answer == END_DIFFERS:
            raise AppendGapError(
                f"partition {partition}: append {number} expects the log to end at {expected}, "
                "and it does not; forget it and claim the partition again"
            )
        end, at_ms, *verdicts = answer.decode().split()
        return Appended([_result(verdict) for verdict in verdicts], Offset(int(end)), int(at_ms))

    async def read(
        self, partition: PartitionId, start: Offset, *, max_bytes: int, max_entries: int
    ) -> list[Entry]:
        """Return entries from the one that contains `start` on; trimmed ones are left out.

        As many as make about `max_bytes`, judged by the size of the first one; at least one if
        there is one, and never far above 64 MiB.
        """
        key = self._keys.log(partition)
        below, largest = await asyncio.gather(
            self._store.read("XREVRANGE", key, f"{start}-1", "-", "COUNT", 1),
            self._store.read("HGET", self._keys.meta(partition), "largest_bytes"),
        )
        entries = [_entry(*raw) for raw in below]
        after = f"({entries[0].first}-1" if entries else "-"
        typical = max(1, len(entries[0].data) if entries else int(largest or 0))
        if entries and entries[0].first + entries[0].count <= start:
            entries = []
        fitting = max_bytes // typical + 1
        count = min(fitting, _MAX_READ_BYTES // max(1, int(largest or 0)) + 1, max_entries)
        if count > len(entries):
            raw_entries = await self._store.read(
                "XRANGE", key, after, "+", "COUNT", count - len(entries)
            )
            entries += [_entry(*raw) for raw in raw_entries]
        return entries

    async def find(self, partition: PartitionId, offset: Offset) -> Entry | None:
        """Return the entry that contains `offset`; None: it is not in the log."""
        entries = await self.read(partition, offset, max_bytes=1, max_entries=1)
        found = (each for each in entries if each.first <= offset < each.first + each.count)
        return next(found, None)

    async def read_within(
        self,
        partition: PartitionId,
        start: Offset,
        stop: Offset,
        *,
        max_bytes: int,
        max_entries: int,
    ) -> list[Entry]:
        """Return the entries that hold the messages [start, stop); trimmed ones are left out.

        As many as make at most `max_bytes`; at least one if there is one from `start` on, wherever
        it begins. Nothing more is read.
        """
        extent = await self.measure(partition, start, stop, max_bytes=max_bytes)
        if extent is None:
            return []
        return await self.read_extent(partition, extent, max_entries=max_entries)

    async def measure(
        self, partition: PartitionId, start: Offset, stop: Offset, *, max_bytes: int
    ) -> Extent | None:
        """Return which entries `read_within` would read; None: no entry."""
        keys = [self._keys.meta(partition), self._keys.log(partition)]
        found = await self._store.run(
            "find_bytes", keys, [start, max_bytes, stop], channel=Channel.BULK
        )
        return Extent(*found) if found else None

    async def read_extent(
        self, partition: PartitionId, extent: Extent, *, max_entries: int
    ) -> list[Entry]:
        """Return the first of some entries; what was trimmed meanwhile is left out."""
        key, ends = self._keys.log(partition), (extent.first_id, extent.last_id)
        raw = await self._store.read("XRANGE", key, *ends, "COUNT", max_entries)
        return [_entry(*each) for each in raw]

    async def read_positions(
        self, partition: PartitionId, offsets: Sequence[int], *, broker_epoch: BrokerEpoch
    ) -> LogBounds:
        """Return what the log holds, and under which broker epochs the messages below came.

        Raises:
            FencedError: another broker has claimed the partition.
        """
        answer = await self._store.run(
            "read_positions",
            [self._keys.meta(partition), self._keys.log(partition)],
            [broker_epoch, *offsets],
            channel=Channel.BULK,
        )
        if answer == FENCED:
            raise fenced(partition, broker_epoch)
        first, end, *epochs = map(int, answer)
        return LogBounds(Offset(first), Offset(end), list(map(BrokerEpoch, epochs)))

    async def trim(
        self,
        partition: PartitionId,
        *,
        broker_epoch: BrokerEpoch,
        expired: int = 0,
        is_dry_run: bool = False,
        kept: RetainedMessages | None = None,
    ) -> Trim:
        """Free what every group has behind it, and no pin holds.

        Cuts at the start of the entry that contains the lowest mark. Without any group that is
        `expired`: all below has outlived its time to live. One call frees at most about
        10,000 entries: call again later. A dry run frees nothing, and says to where all the
        calls together would. `kept`: what stays although every group has it behind it; None:
        nothing of it.

        Raises:
            FencedError: another broker has claimed the partition; nothing is freed.
        """
        bounds = ("" if each is None else each for each in kept or (None, None))
        answer = await self._store.run(
            "trim_log",
            [key(partition) for key in (self._keys.meta, self._keys.log, self._keys.audit)],
            [broker_epoch, MAX_PIN_MS, expired, "1" if is_dry_run else "", *bounds],
            channel=Channel.BULK,
        )
        if answer == FENCED:
            raise fenced(partition, broker_epoch)
        first, held, retained = map(int, answer)
        return Trim(Offset(first), Offset(held), retained)

    async def find_time(self, partition: PartitionId, at_ms: int) -> Offset:
        """Return the first offset that was appended at `at_ms` (Redis's clock) or later.

        The log's end if no message is. Its first message if that is later: what was before it is
        trimmed, and nothing says when that was appended.
        """
        keys = [self._keys.meta(partition), self._keys.log(partition)]
        return Offset(await self._store.run("find_time", keys, [at_ms], channel=Channel.BULK))

    async def read_times(
        self, partition: PartitionId, offsets: Sequence[int]
    ) -> tuple[int, list[int | None]]:
        """Return Redis's time, and when each message was appended; None: the log has it not."""
        keys = [self._keys.log(partition)]
        now_ms, *times = await self._store.run("read_times", keys, offsets, channel=Channel.BULK)
        return int(now_ms), [None if at_ms < 0 else int(at_ms) for at_ms in times]

    async def last_batch(self, partition: PartitionId, producer: str) -> tuple[int, Entry] | None:
        """Return the number of the first message of a producer's last batch, and the batch.

        None: the partition does not know the producer, or the batch is not stored any more, or was
        not appended with its number.
        """
        text = await self._producer(partition, producer)
        if text is None:
            return None
        batches = decode_producer(text).batches
        if not batches:
            return None
        last = batches[-1]
        if last.offset < 0:
            return None  # it waits, or has waited, beside the log; or its id was known
        entry = await self.find(partition, Offset(last.offset))
        return (last.first, entry) if entry is not None and entry.first == last.offset else None

    async def producer_due(self, partition: PartitionId, producer: str) -> int | None:
        """Return the number that is due from a producer; None: the partition does not know it."""
        record = await self.producer_record(partition, producer)
        return None if record is None else record.due

    async def producer_record(self, partition: PartitionId, producer: str) -> ProducerRecord | None:
        """Return what the partition knows of a producer; None: nothing."""
        text = await self._producer(partition, producer)
        return None if text is None else decode_producer(text)

    async def _producer(self, partition: PartitionId, producer: str) -> bytes | None:
        """Return a producer's record; an earlier version had series among the producers."""
        tables = [self._keys.producers(partition)]
        if is_series(producer):
            tables.insert(0, self._keys.series(partition))
        found = await self._store.read_all(*(("HGET", table, producer) for table in tables))
        return next(filter(None, found), None)


def _entry(entry_id: bytes, fields: list[bytes]) -> Entry:
    """Read an entry as `append_batches.lua` writes it: the fields stand in its order."""
    return Entry(
        Offset(int(entry_id.removesuffix(b"-1"))),
        int(fields[1]),
        BrokerEpoch(int(fields[3])),
        int(fields[5]),
        fields[9],
        int(fields[11]) if len(fields) > 10 else 0,
        fields[13].decode() if len(fields) > 12 else "",
        int(fields[15]) if len(fields) > 12 else -1,
    )


def _result(verdict: str) -> AppendResult:
    letter, offset, due, *more = verdict.split(":")
    result = AppendResult(_STATUS[letter], int(offset), int(due))
    if not more:
        return result
    entry, ms = map(int, more)
    if letter == "Q":
        return replace(result, retry_after_ms=ms)
    if letter == "D" and entry < 0:
        return replace(result, status="known_id")  # as its first try was answered
    return replace(result, entry=entry, due_ms=ms)
