"""Checks archived rows against the record of the batches that they were stored in."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from partq.arrow.encoding import ROW_COLUMNS, places_of, stored_bytes
from partq.core.hashing import slot_of_stored
from partq.core.model import PartitionId
from partq.pipeline.audit.content.batches import Ints, RecordedBatches
from partq.pipeline.audit.content.encoded import differing_encodings
from partq.pipeline.audit.content.times import PublishTimes
from partq.pipeline.audit.judge.finding import CONTENT, AuditFinding, finding
from partq.pipeline.audit.judge.outcome import RecordedBatch
from partq.wire.batch import extend_content_crc

CONTENT_COLUMNS: Final = (
    *("queue", "partition", "generation", "partition_index", "offset", *ROW_COLUMNS),
    *("publish_time", "append_broker_epoch", "encoded"),
)
"""The columns that the check looks at: all that an archive has."""
MAX_ENCODED_BYTES: Final = 256 * 1024 * 1024
"""How many bytes of keys, values and headers are encoded at once, about."""
_TIME: Final = pa.timestamp("us", tz="UTC")


@dataclass(slots=True)
class _ComparedBatch:
    """A batch of which some rows have come, in their order and without a gap."""

    batch: RecordedBatch
    due: int
    crc: int = 0


class ContentCheck:
    """Checks the rows of one partition, which come in the order of their offsets.

    Rows whose batch the record does not tell are left to the check of the log, and so is a batch of
    which rows are missing or there twice.

    Args:
        partition: its name.
        queue: the name that each row must have; None: not known.
        batches: of the partition, as the record has them.
    """

    def __init__(self, partition: str, queue: str | None, batches: Sequence[RecordedBatch]) -> None:
        self._partition = PartitionId.parse(partition)
        self._queue = queue
        self._of_epoch = RecordedBatches.by_epoch(batches)
        self._open: _ComparedBatch | None = None
        self._times = PublishTimes(batches)
        self._unchecked: list[tuple[int, int]] = []
        """Ranges of batches whose record has no checksum."""
        self.verified = 0
        """How many messages gave the bytes that were stored."""
        self._findings: list[AuditFinding] = []

    def check(self, rows: pa.RecordBatch) -> None:
        """Check rows; columns as `CONTENT_COLUMNS`, without `encoded` in old archives."""
        for part in _in_parts(rows):
            self._check(part)

    def finish(self) -> list[AuditFinding]:
        """Return what was found."""
        if self._unchecked:
            first, stop = self._unchecked[0][0], self._unchecked[-1][1]
            count = sum(stop - first for first, stop in self._unchecked)
            self._note(
                "content_not_recorded",
                f"the record has no checksum of {count} of the messages from {first} to "
                f"{stop - 1}: an older broker stored them, and their content is not compared",
                first,
                stop,
            )
        return self._findings

    def _check(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        key_slots = _slots_of(rows.column("key"))
        rows = _plain_rows(rows)
        offsets = _ints(rows.column("offset"))
        self._check_places(rows, offsets)
        self._check_encodings(rows, offsets)
        epochs = _ints(rows.column("append_broker_epoch"))
        times = _ints(rows.column("publish_time").cast(pa.int64()))
        body, ends = places_of(stored_bytes(rows))
        for first, stop in _runs(epochs[1:] != epochs[:-1], len(epochs)):
            recorded = self._of_epoch.get(int(epochs[first]))
            if recorded is None:
                self._open = None
                continue
            places = recorded.places(offsets[first:stop])
            is_other = (places[1:] != places[:-1]) | (
                offsets[first + 1 : stop] != offsets[first : stop - 1] + 1
            )
            for low, high in _runs(is_other, stop - first):
                if places[low] < 0:
                    self._open = None
                    continue
                batch = recorded.batches[int(places[low])]
                begin, end = first + low, first + high
                self._check_time(batch, offsets, times, begin, end)
                self._check_slots(batch, offsets, key_slots, begin, end)
                self._check_bytes(
                    batch, int(offsets[begin]), end - begin, body[ends[begin] : ends[end]]
                )

    def _check_places(self, rows: pa.RecordBatch, offsets: Ints) -> None:
        """Check that rows name the queue and the partition that they are archived for."""
        wanted: dict[str, object] = {
            **({} if self._queue is None else {"queue": self._queue}),
            "partition": str(self._partition),
            "generation": self._partition.generation,
            "partition_index": self._partition.index,
        }
        for name, value in wanted.items():
            column = rows.column(name)
            is_right = pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False)
            if pc.all(is_right).as_py():
                continue
            for low, high, text in _wrong_values(column, is_right, offsets):
                self._note(
                    "other_queue",
                    f"the archived messages {offsets[low]} to {offsets[high - 1]} name {name} "
                    f"{text}; expected {value}",
                    int(offsets[low]),
                    int(offsets[high - 1]) + 1,
                )

    def _check_encodings(self, rows: pa.RecordBatch, offsets: Ints) -> None:
        for row in differing_encodings(rows):
            offset = int(offsets[row])
            self._note(
                "content_differs",
                f"message {offset}: the stored bytes that the archive has beside it do not decode "
                "to its key, value, headers and event time",
                offset,
                offset + 1,
            )

    def _check_time(
        self, batch: RecordedBatch, offsets: Ints, times: Ints, begin: int, end: int
    ) -> None:
        """Check the publish time of the rows of a batch: all have the same one."""
        found = times[begin:end]
        is_one = bool((found == found[0]).all())
        at = next(
            (
                each
                for each in (found[:1] if is_one else np.unique(found)).tolist()
                if self._times.may_be(batch, each)
            ),
            None,
        )
        is_right = found == at if at is not None else np.zeros(len(found), np.bool_)
        if at is not None:
            self._times.note(batch, at)
        if is_right.all():
            return
        for low, high in _true_runs(~is_right):
            first, stop = int(offsets[begin + low]), int(offsets[begin + high - 1]) + 1
            self._note(
                "wrong_publish_time",
                f"the archived messages {first} to {stop - 1} have publish time "
                f"{found[low] / 1e6:.6f}; their batch was recorded at {batch.at_ms / 1e3:.3f}",
                first,
                stop,
                batch,
            )

    def _check_slots(
        self, batch: RecordedBatch, offsets: Ints, key_slots: Ints, begin: int, end: int
    ) -> None:
        """Check that the slot of each key is the recorded one; without a key any slot is right."""
        whole = len(batch.slots) // 2 * 2
        slots = np.frombuffer(batch.slots[:whole], "<u2").astype(np.int64)
        at = offsets[begin:end] - batch.first
        if int(at[-1]) >= len(slots):
            return  # the slots are not whole: the hash of the record's group tells it
        found = key_slots[begin:end]
        is_wrong = (found >= 0) & (found != slots[at])
        if not is_wrong.any():
            return
        for low, high in _true_runs(is_wrong):
            first, stop = int(offsets[begin + low]), int(offsets[begin + high - 1]) + 1
            self._note(
                "wrong_slot",
                f"messages {first} to {stop - 1}: the archived key has slot {found[low]}, and the "
                f"message was stored under slot {slots[at[low]]}",
                first,
                stop,
                batch,
            )

    def _check_bytes(
        self, batch: RecordedBatch, first: int, count: int, stored: npt.NDArray[np.uint8]
    ) -> None:
        """Add the bytes of rows to the checksum of their batch, and compare it at the end."""
        now = self._open
        if first == batch.first:
            now = _ComparedBatch(batch, first)
        self._open = None
        if now is None or now.batch is not batch or now.due != first:
            return
        now.crc = extend_content_crc(now.crc, stored.data)
        now.due += count
        if now.due < batch.stop:
            self._open = now
        elif batch.content_crc < 0:
            self._note_unchecked(batch)
        elif now.crc == batch.content_crc:
            self.verified += batch.stop - batch.first
        else:
            self._note(
                "content_differs",
                f"the archived messages {batch.first} to {batch.stop - 1} do not give the bytes "
                f"that were stored: their CRC-32C is {now.crc}, recorded is {batch.content_crc}; "
                "a key, value, header or event time differs, or rows are exchanged",
                batch.first,
                batch.stop,
                batch,
            )

    def _note_unchecked(self, batch: RecordedBatch) -> None:
        if self._unchecked and self._unchecked[-1][1] == batch.first:
            self._unchecked[-1] = (self._unchecked[-1][0], batch.stop)
        else:
            self._unchecked.append((batch.first, batch.stop))

    def _note(
        self, what: str, detail: str, first: int, stop: int, batch: RecordedBatch | None = None
    ) -> None:
        known: dict[str, int | str | None] = {"first": first, "stop": stop}
        if batch is not None:
            known |= {"sequence": batch.sequence, "at_ms": batch.at_ms}
            known |= {"broker_epoch": batch.append_broker_epoch}
        self._findings.append(finding(CONTENT, what, str(self._partition), detail, **known))


def _in_parts(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield rows in parts that are not too large to be encoded at once."""
    if rows.num_rows < 2 or rows.nbytes <= MAX_ENCODED_BYTES:
        yield rows
        return
    half = rows.num_rows // 2
    # Of a slice `nbytes` counts what lies in the slice.
    yield from _in_parts(rows.slice(0, half))
    yield from _in_parts(rows.slice(half))


def _plain_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows without dictionaries, and with times in microseconds, however they were read."""
    columns = []
    for column in rows.columns:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        elif pa.types.is_timestamp(column.type) and column.type != _TIME:
            column = column.cast(_TIME)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def _slots_of(keys: pa.Array) -> Ints:
    """Return the slot of each key; -1: there is no key. Each different key is hashed once."""
    codes = keys if pa.types.is_dictionary(keys.type) else keys.dictionary_encode()
    names = codes.dictionary.cast(pa.binary()).to_pylist()
    slots = [-1 if name is None else slot_of_stored(name) for name in names]
    indices = pc.fill_null(codes.indices, len(slots)).to_numpy(zero_copy_only=False)
    return np.asarray(np.array([*slots, -1], np.int64)[indices], np.int64)


def _runs(is_other: npt.NDArray[np.bool_], count: int) -> Iterator[tuple[int, int]]:
    """Yield the runs of rows that are alike; `is_other`: a row differs from the one before it."""
    starts = [0, *(np.flatnonzero(is_other) + 1).tolist(), count]
    yield from pairwise(starts)


def _true_runs(holds: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield the runs of rows for which it holds."""
    for low, high in _runs(holds[1:] != holds[:-1], len(holds)):
        if holds[low]:
            yield low, high


def _wrong_values(
    column: pa.Array, is_right: pa.Array, offsets: Ints
) -> Iterator[tuple[int, int, str]]:
    """Yield the runs of rows that are not right and have one value, with that value."""
    right = np.asarray(is_right.to_numpy(zero_copy_only=False), np.bool_)
    for low, high in _true_runs(~right):
        part = column.slice(low, high - low)
        codes = part.dictionary_encode()
        numbers = pc.fill_null(codes.indices, -1).to_numpy(zero_copy_only=False)
        for begin, end in _runs(numbers[1:] != numbers[:-1], high - low):
            yield low + begin, low + end, str(part[begin].as_py())


def _ints(column: pa.Array) -> Ints:
    """Return integers; a null as what no row has."""
    filled = pc.fill_null(column, -1) if column.null_count else column
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.int64)
