"""What a query's filters leave of a read, where Spark hands them over (from 4.1 on)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from partq.core.clocks.units import MAX_AT_MS, MIN_AT_MS
from partq.core.model import PartitionId
from partq.spark.read.log_thread import LogThread
from partq.spark.read.offsets import Range

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


START = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MS = 2**53 - 1
"""The latest time that the brokers can be asked for; no message was stored then."""
EXACT = frozenset({"partition", "partition_index", "generation", "offset"})
"""The columns of which a filter is done with here; Spark looks again at the others."""


class Narrowing:
    """What is wanted of the messages that a read covers."""

    def __init__(self) -> None:
        self._partitions: list[Callable[[PartitionId], bool]] = []
        self._first, self._stop = 0, 2**63 - 1
        self._from_ms, self._until_ms = 0, LAST_MS

    @property
    def has_times(self) -> bool:
        """Whether a filter is on the time at which messages were stored."""
        return (self._from_ms, self._until_ms) != (0, LAST_MS)

    def accept(self, filters: Iterable["Filter"]) -> Iterator["Filter"]:
        """Accept what is understood; yields the filters that Spark has to apply as well."""
        for each in filters:
            if not self._accept(each):
                yield each

    def narrow(self, ranges: Iterable[Range], log: LogThread) -> list[Range]:
        """Return what is left of ranges; some may be empty."""
        left = [
            _between(each, self._first, self._stop)
            for each in ranges
            if all(holds(each.partition) for holds in self._partitions)
        ]
        if not left or not self.has_times:
            return left
        partitions = [each.partition for each in left]
        begin = log.positions({"at_ms": _storing_time(self._from_ms)}, partitions)
        end = log.positions({"at_ms": _storing_time(self._until_ms)}, partitions)
        return [
            _between(each, begin[each.partition].offset, end[each.partition].offset)
            for each in left
        ]

    def _accept(self, given: object) -> bool:
        """Accept one filter; returns whether nothing of it is left to do."""
        kind = type(given).__name__
        attribute: tuple[str, ...] = getattr(given, "attribute", ())
        value: Any = getattr(given, "value", None)
        if len(attribute) != 1 or kind not in _RELATIONS:
            return False
        name = attribute[0]
        values = value if kind == "In" else (value,)
        if name == "publish_time":
            self._accept_time(kind, value)
            return False
        if name not in EXACT or not all(type(each) is _TYPES[name] for each in values):
            return False
        if name == "offset":
            return self._accept_offset(kind, value)
        holds = _RELATIONS[kind]
        self._partitions.append(lambda partition: holds(_COLUMNS[name](partition), value))
        return True

    def _accept_offset(self, kind: str, value: Any) -> bool:
        if kind == "In":
            self._first = max(self._first, min(value, default=0))
            self._stop = min(self._stop, max(value, default=0) + 1)
            return False
        if kind in {"EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"}:
            self._first = max(self._first, value + (kind == "GreaterThan"))
        if kind in {"EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual"}:
            self._stop = min(self._stop, value + (kind != "LessThan"))
        return True

    def _accept_time(self, kind: str, value: Any) -> None:
        """Messages are stored at whole milliseconds; a filter may name any microsecond."""
        if not isinstance(value, datetime) or value.tzinfo is None:
            return
        micros = (value - START) // timedelta(microseconds=1)
        below, at_most = -(-micros // 1000), micros // 1000
        if kind in {"EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"}:
            after = at_most + 1 if kind == "GreaterThan" else below
            self._from_ms = min(LAST_MS, max(self._from_ms, after))
        if kind in {"EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual"}:
            self._until_ms = max(
                0, min(self._until_ms, below if kind == "LessThan" else at_most + 1)
            )


def _storing_time(at_ms: int) -> int:
    """Return a time at which messages may have been stored: a filter may name any."""
    return 0 if at_ms < MIN_AT_MS else min(at_ms, MAX_AT_MS)


def _between(given: Range, first: int, stop: int) -> Range:
    """Return the part of a range that lies in [first, stop)."""
    low, high = max(given.start, first), min(given.stop, stop)
    return replace(
        given,
        start=low,
        stop=max(low, high),
        start_epoch=given.start_epoch if low == given.start else 0,
        stop_epoch=given.stop_epoch if high == given.stop else 0,
    )


_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda column, value: column == value,
    "EqualNullSafe": lambda column, value: column == value,
    "In": lambda column, value: column in value,
    "LessThan": lambda column, value: column < value,
    "LessThanOrEqual": lambda column, value: column <= value,
    "GreaterThan": lambda column, value: column > value,
    "GreaterThanOrEqual": lambda column, value: column >= value,
}
_COLUMNS: dict[str, Callable[[PartitionId], Any]] = {
    "partition": str,
    "partition_index": lambda partition: partition.index,
    "generation": lambda partition: partition.generation,
}
_TYPES: dict[str, type] = {
    "partition": str,
    "partition_index": int,
    "generation": int,
    "offset": int,
}
