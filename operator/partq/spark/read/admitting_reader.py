"""Reads a stream where Spark itself says how much it takes: from 4.2 on."""

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from partq.core.model import PartitionId
from partq.spark.errors import short_errors
from partq.spark.read.offsets import ReadPosition, origin_of
from partq.spark.read.options import ReadOptions
from partq.spark.read.read_planner import CHECKPOINT
from partq.spark.read.stream_reader import StreamReader


class AdmittingReader(StreamReader, SupportsTriggerAvailableNow):
    """Ends each micro-batch where Spark's limit says, and all of them where `availableNow` does."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._target: dict[PartitionId, ReadPosition] | None = None
        self._is_new = False
        """Whether Spark has asked where the query begins: there was no checkpoint then."""

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        """Return where a query begins that has no checkpoint."""
        self._is_new = True
        return super().initialOffset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that the options set."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        """Return where the micro-batch ends that begins at `start`; all before it is processed."""
        with short_errors():
            plan = self._plan()
            origin = origin_of(CHECKPOINT, start)
            self._query = self._query if origin is None else origin.query
            # A query that continues has the group at once, also while no messages come.
            self._is_kept = self._is_kept or (origin is not None and not self._is_new)
            begin = self._known(plan, start)
            self._finish(begin)
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            # With a target the query ends there: what is too little would never be read.
            is_enough = self._delay.is_due if self._target is None else None
            end = plan.next_end(begin, limit=most, target=self._target, is_enough=is_enough)
            return self._to_json(end)

    def reportLatestOffset(self) -> dict[str, object]:  # noqa: N802
        """Return the ends of all logs, for the query's progress."""
        with short_errors():
            return self._to_json(self._plan().latest())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note what is there now: the query ends with it."""
        with short_errors():
            self._target = self._plan().latest()
