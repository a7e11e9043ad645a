"""Sums an archive up: messages per window of time and slot, and the keys that are the busiest."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody names it

from partq.core.hashing import slot_of
from partq.core.model import SLOT_COUNT
from partq.errors import BadRequestError
from partq.pipeline.watch import JobWatch

Counts = npt.NDArray[np.int64]

HOT_KEYS: Final = 20
"""How many keys are told by name."""
MAX_WINDOWS: Final = 1000
_FEWEST_WINDOWS: Final = 24
_MOST_WINDOWS: Final = 240
_CELLS: Final = 4_000_000
"""How many counts the driver takes: it bounds its memory to some tens of megabytes."""
_LENGTHS_S: Final = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class HotKey:
    """One of the keys with the most messages."""

    key: str
    messages: int
    share: float
    """Of all messages with a key, from 0 to 1."""
    peak_per_s: float
    """In its busiest window."""


@dataclass(frozen=True, slots=True)
class KeySpread:
    """How messages spread over keys."""

    count: int
    median_messages: int
    """Half of the keys have no more than that."""
    most_messages: int
    hot: tuple[HotKey, ...]
    """The busiest first."""


@dataclass(frozen=True, slots=True)
class Loads:
    """What a queue has carried, cut into windows of time."""

    begin_ms: int
    """When the first window begins, in unix ms."""
    window_s: int
    by_slot: Counts
    """Messages with a key, [window, slot]."""
    keyless: Counts
    """Messages without one, [window]."""
    keys: KeySpread

    @property
    def messages(self) -> int:
        """How many there are, of both kinds."""
        return int(self.by_slot.sum() + self.keyless.sum())

    @property
    def peak_per_s(self) -> float:
        """How many came per second in the busiest window."""
        return float((self.by_slot.sum(axis=1) + self.keyless).max()) / self.window_s


def load_of(
    messages: DataFrame, watch: JobWatch, *, time: str = "publish_time", window_s: int | None = None
) -> Loads:
    """Return what the messages of an archive weigh.

    Args:
        messages: columns key and the one that `time` names.
        watch: is told how far it is.
        time: the column by which they are cut into windows.
        window_s: length of a window in whole seconds; None: one that fits.

    Raises:
        BadRequestError: there is no message, or too many windows.
    """
    begin_ms, span_ms, total = _span(messages, time)
    watch.tell(f"{total:,} messages over {span_ms / 1000:,.0f} s")
    rows = messages.select("key", F.unix_millis(F.col(time)).alias("at_ms"))
    keys = rows.where("key is not null").select(F.approx_count_distinct("key")).first()
    window_s = _window_s(span_ms, int(keys[0]) if keys else 0, window_s)
    window = F.floor((F.col("at_ms") - begin_ms) / (window_s * 1000)).cast("int")
    counted = (
        rows.withColumn("window", window)
        .groupBy("key", "window")
        .agg(F.count("*").alias("messages"))
        .persist(StorageLevel.DISK_ONLY)
    )
    try:
        watch.check()
        window_count = span_ms // (window_s * 1000) + 1
        by_slot = _by_slot(counted, window_count)
        watch.check()
        keyless = np.zeros(window_count, dtype=np.int64)
        for row in counted.where("key is null").collect():
            keyless[row["window"]] = row["messages"]
        return Loads(begin_ms, window_s, by_slot, keyless, _keys(counted, window_s))
    finally:
        counted.unpersist()


def _span(messages: DataFrame, time: str) -> tuple[int, int, int]:
    at = F.unix_millis(F.col(time))
    row = messages.select(F.min(at), F.max(at), F.count(at), F.count("*")).first()
    if row is None or row[3] == 0:
        raise BadRequestError("there is no message to judge by; archive some first")
    if row[2] < row[3]:
        raise BadRequestError(
            f"{row[3] - row[2]:,} of {row[3]:,} messages have no {time}; judge by publish_time"
        )
    return int(row[0]), int(row[1] - row[0]), int(row[3])


def _window_s(span_ms: int, key_count: int, wanted_s: int | None) -> int:
    """Return the length of a window: one that a person would choose, and that memory allows."""
    span_s = span_ms // 1000 + 1
    if wanted_s is not None:
        if wanted_s < 1 or span_s // wanted_s + 1 > MAX_WINDOWS:
            raise BadRequestError(
                f"a window of {wanted_s} s: expected 1 s or more, and at most {MAX_WINDOWS} "
                f"windows in {span_s:,} s: at least {max(1, -(-span_s // (MAX_WINDOWS - 1)))} s"
            )
        return wanted_s
    fitting = _CELLS // max(1, min(SLOT_COUNT, key_count))
    most = min(_MOST_WINDOWS, max(_FEWEST_WINDOWS, fitting))
    return next((each for each in _LENGTHS_S if span_s <= each * most), -(-span_s // most))


def _by_slot(counted: DataFrame, window_count: int) -> Counts:
    """Return messages as [window, slot]; each key is hashed once per window, by its task."""
    rows = (
        counted.where("key is not null")
        .mapInArrow(_with_slots, "window int, slot int, messages bigint")
        .groupBy("window", "slot")
        .agg(F.sum("messages").alias("messages"))
        .toArrow()
    )
    found = np.zeros((window_count, SLOT_COUNT), dtype=np.int64)
    found[rows["window"].to_numpy(), rows["slot"].to_numpy()] = rows["messages"].to_numpy()
    return found


def _with_slots(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        keys = batch.column("key").dictionary_encode()
        slots = np.array([slot_of(key) for key in keys.dictionary.to_pylist()], dtype=np.int32)
        columns = [
            batch.column("window"),
            pa.array(slots[keys.indices.to_numpy(zero_copy_only=False)], pa.int32()),
            batch.column("messages"),
        ]
        yield pa.RecordBatch.from_arrays(columns, ["window", "slot", "messages"])


def _keys(counted: DataFrame, window_s: int) -> KeySpread:
    by_key = (
        counted.where("key is not null")
        .groupBy("key")
        .agg(F.sum("messages").alias("messages"), F.max("messages").alias("peak"))
    )
    row = by_key.select(
        F.count("*"), F.percentile_approx("messages", 0.5), F.max("messages"), F.sum("messages")
    ).first()
    if row is None or not row[0]:
        return KeySpread(0, 0, 0, ())
    top = by_key.orderBy(F.desc("messages"), "key").limit(HOT_KEYS).collect()
    hot = tuple(
        HotKey(each["key"], each["messages"], each["messages"] / row[3], each["peak"] / window_s)
        for each in top
    )
    return KeySpread(int(row[0]), int(row[1]), int(row[2]), hot)
