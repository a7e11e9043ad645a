"""The engine that has Spark judge an archive: a task judges a partition.

Where all machines see the archive under one path, a task reads the files of its partition. Else
Spark reads them, and sorts the rows of each partition: the record's first; what that says of the
log goes to the tasks that judge the messages.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from partq.pipeline.archive_columns import PLACE
from partq.pipeline.archive_files import read_files
from partq.pipeline.audit.archived.messages import MessageJudge, MessageOutcome
from partq.pipeline.audit.engines.arrow import ArrowAuditEngine
from partq.pipeline.audit.engines.port import (
    AuditScope,
    JudgedPartition,
    JudgedRecord,
    Place,
    log_of,
)
from partq.pipeline.audit.judge.feeding import whole_sequences
from partq.pipeline.audit.judge.lines import RecordLine
from partq.pipeline.audit.judge.record import RecordJudge
from partq.pipeline.manifest import Stream
from partq.pipeline.storage.files import Files
from partq.pipeline.storage.local_files import LocalFiles
from partq.pipeline.watch import JobProgress, JobWatch

_JUDGED = "partition string, judged binary"
MAX_TASKS = 4_096

Batches = Iterator[pa.RecordBatch]
T = TypeVar("T")


class SparkAuditEngine:
    """Judges an archive wherever Spark can read it.

    Args:
        spark: to read with.
        files: of the archive.
        watch: is told how far it is; a stop is noticed between two steps.
    """

    def __init__(self, spark: SparkSession, files: Files, watch: JobWatch) -> None:
        self._spark = spark
        self._files = files
        self._watch = watch

    def judge(self, scope: AuditScope) -> Iterator[JudgedPartition]:
        """Yield what each partition came to, in the order of partitions."""
        if isinstance(self._files, LocalFiles):
            yield from self._judge_files(scope, self._files.root)
            return
        stops = {each: scope.record_stop(each) for each in scope.partitions()}
        is_from_start, expected = scope.is_from_start, scope.expected

        def judge_record(partition: str, batches: Batches) -> JudgedRecord:
            judge = RecordJudge(
                partition, is_from_start=is_from_start, expected=expected.get(partition)
            )
            for lines in whole_sequences(batches):
                judge.judge(lines)
            outcome = judge.finish(stops.get(partition))
            return JudgedRecord(outcome, judge.findings, judge.repeats)

        self._show(0, "judging the record")
        records = self._judge(scope, "audit", RecordLine._fields, judge_record)
        for partition in stops:
            records.setdefault(partition, judge_record(partition, iter(())))
        messages: Mapping[str, MessageOutcome] = {}
        if scope.with_messages:
            self._show(1, "judging the messages")
            messages = self._judge_messages(scope, records)
        self._show(2, "writing the report")
        for partition in stops:
            yield JudgedPartition.of(records[partition], messages.get(partition))

    def _judge_files(self, scope: AuditScope, root: str) -> Iterator[JudgedPartition]:
        """Yield what each partition came to, where a task can read its files."""
        partitions = scope.partitions()

        def judge_all(batches: Iterable[pa.RecordBatch]) -> Batches:
            engine = ArrowAuditEngine(root, JobWatch())
            for batch in batches:
                for partition in batch.column("partition").to_pylist():
                    judged = engine.judge_partition(scope, partition)
                    yield pa.RecordBatch.from_pydict(
                        {"partition": [partition], "judged": [pickle.dumps(judged)]}
                    )

        self._show(0, "judging the partitions")
        rows = self._spark.sparkContext.parallelize(
            [(each,) for each in partitions], max(1, min(MAX_TASKS, len(partitions)))
        )
        judged = (
            self._spark.createDataFrame(rows, "partition string")
            .mapInArrow(judge_all, _JUDGED)
            .collect()
        )
        self._show(2, "writing the report")
        for row in judged:
            # Written by the tasks of this very job.
            yield pickle.loads(bytes(row["judged"]))  # noqa: S301

    def keys(self, scope: AuditScope, places: Iterable[Place]) -> Mapping[Place, str]:
        """Return the keys of messages; those that have none, or are not there, are left out."""
        wanted = self._spark.createDataFrame(list(places), "partition string, offset bigint")
        rows = (
            self._rows(scope, "messages")
            .where("key is not null")
            .select("partition", "offset", "key")
            .join(f.broadcast(wanted), ["partition", "offset"])
            .collect()
        )
        return {(row["partition"], row["offset"]): row["key"] for row in rows}

    def published_at(
        self, scope: AuditScope, places: Iterable[Place]
    ) -> Mapping[Place, tuple[int, int]]:
        """Return sequence and time of the last records up to these offsets that tell publishing."""
        wanted = self._spark.createDataFrame(list(places), "partition string, offset bigint")
        rows = (
            self._rows(scope, "audit")
            .where("kind = 'publish'")
            .select("partition", "sequence", "at_ms", "first")
            .join(f.broadcast(wanted), "partition")
            .where("first <= offset")
            .groupBy("partition", "offset")
            .agg(f.max(f.struct("first", "sequence", "at_ms")).alias("found"))
            .collect()
        )
        return {
            (row["partition"], row["offset"]): (row["found"]["sequence"], row["found"]["at_ms"])
            for row in rows
        }

    def _judge_messages(
        self, scope: AuditScope, records: Mapping[str, JudgedRecord]
    ) -> Mapping[str, MessageOutcome]:
        known = {
            partition: (log_of(record), scope.reach(partition))
            for partition, record in records.items()
        }
        shared = self._spark.sparkContext.broadcast(known)

        def judge_messages(partition: str, batches: Batches) -> MessageOutcome:
            judge = MessageJudge(*shared.value[partition])
            for batch in batches:
                judge.judge(batch)
            return judge.finish()

        columns = {name for each in known.values() for name in MessageJudge(*each).columns}
        found = self._judge(scope, "messages", sorted(columns), judge_messages, frozenset(known))
        for partition, each in known.items():
            found.setdefault(partition, MessageJudge(*each).finish())
        return found

    def _judge(
        self,
        scope: AuditScope,
        stream: Stream,
        columns: Iterable[str],
        judge: Callable[[str, Batches], T],
        partitions: frozenset[str] | None = None,
    ) -> dict[str, T]:
        """Return what each partition came to, of which there are rows."""
        others = [name for name in columns if name != "partition"]
        rows = self._rows(scope, stream).select("partition", *others)
        if partitions is not None:
            rows = rows.where(f.col("partition").isin(*partitions))
        tasks = max(1, min(MAX_TASKS, len(scope.partitions())))

        def judge_all(batches: Iterable[pa.RecordBatch]) -> Batches:
            for partition, own in groupby(_of_one_partition(batches), lambda each: each[0]):
                judged = judge(partition, (batch for _, batch in own))
                yield pa.RecordBatch.from_pydict(
                    {"partition": [partition], "judged": [pickle.dumps(judged)]}
                )

        judged = (
            rows.repartition(tasks, "partition")
            .sortWithinPartitions("partition", *PLACE[stream])
            .mapInArrow(judge_all, _JUDGED)
            .collect()
        )
        # Written by the tasks of this very job.
        return {row["partition"]: pickle.loads(bytes(row["judged"])) for row in judged}  # noqa: S301

    def _rows(self, scope: AuditScope, stream: Stream) -> DataFrame:
        paths = [each.path for each in scope.state.files.values() if each.stream == stream]
        return read_files(self._spark, self._files, stream, paths)

    def _show(self, done: int, what: str) -> None:
        self._watch.check()
        self._watch.show(JobProgress(done, 2, what, unit="steps"))


def _of_one_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield batches of one partition each, and which."""
    for batch in batches:
        names = pc.dictionary_encode(batch.column("partition"))
        start = 0
        codes = names.indices.to_numpy()
        while start < len(codes):
            # Rows stand in the order of partitions.
            stop = int(codes.searchsorted(codes[start], side="right"))
            yield names.dictionary[int(codes[start])].as_py(), batch.slice(start, stop - start)
            start = stop
