"""The engine that reads an archive with pyarrow, in this process, one partition after the other."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from partq.pipeline.audit.archived.messages import MessageJudge, MessageOutcome
from partq.pipeline.audit.engines.files import PartitionFiles
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
from partq.pipeline.watch import JobProgress, JobWatch

_PUBLISHES = ("sequence", "place", "kind", "at_ms", "first")


class ArrowAuditEngine:
    """Judges an archive on this machine's disk.

    Args:
        root: of the archive.
        watch: is told how far it is; a stop is noticed between two batches.
    """

    def __init__(self, root: str, watch: JobWatch) -> None:
        self._root = root
        self._watch = watch
        self._done = self._total = 0

    def judge(self, scope: AuditScope) -> Iterator[JudgedPartition]:
        """Yield what each partition came to, in the order of partitions."""
        streams = ("audit", "messages") if scope.with_messages else ("audit",)
        files = scope.state.files.values()
        self._total = sum(each.rows for each in files if each.stream in streams)
        for partition in scope.partitions():
            yield self.judge_partition(scope, partition)

    def judge_partition(self, scope: AuditScope, partition: str) -> JudgedPartition:
        """Return what one partition came to."""
        record = self._judge_record(scope, partition)
        messages = self._judge_messages(scope, record) if scope.with_messages else None
        return JudgedPartition.of(record, messages)

    def keys(self, scope: AuditScope, places: Iterable[Place]) -> Mapping[Place, str]:
        """Return the keys of messages; those that have none, or are not there, are left out."""
        found: dict[Place, str] = {}
        for partition, offsets in _by_partition(places).items():
            values = pa.array(offsets, pa.int64())
            files = self._files(scope, "messages", partition)
            for batch in files.batches(("offset", "key"), first=offsets[0], stop=offsets[-1] + 1):
                here = batch.filter(pc.is_in(batch.column("offset"), values))
                rows = zip(*(column.to_pylist() for column in here.columns), strict=True)
                found |= {(partition, offset): key for offset, key in rows if key is not None}
        return found

    def published_at(
        self, scope: AuditScope, places: Iterable[Place]
    ) -> Mapping[Place, tuple[int, int]]:
        """Return sequence and time of the last records up to these offsets that tell publishing."""
        found: dict[Place, tuple[int, int, int]] = {}
        for partition, offsets in _by_partition(places).items():
            for batch in self._files(scope, "audit", partition).batches(_PUBLISHES):
                is_shown = pc.and_(
                    pc.equal(batch.column("kind"), "publish"), pc.is_valid(batch.column("first"))
                )
                of_publish = batch.filter(is_shown)
                columns = (of_publish.column(name) for name in ("first", "sequence", "at_ms"))
                shown = sorted(zip(*(column.to_pylist() for column in columns), strict=True))
                firsts = [first for first, _, _ in shown]
                for offset in offsets:
                    if at := bisect_right(firsts, offset):
                        place, last = (partition, offset), shown[at - 1]
                        found[place] = max(found.get(place, last), last)
        return {place: (sequence, at_ms) for place, (_, sequence, at_ms) in found.items()}

    def _judge_record(self, scope: AuditScope, partition: str) -> JudgedRecord:
        judge = RecordJudge(
            partition, is_from_start=scope.is_from_start, expected=scope.expected.get(partition)
        )
        batches = self._files(scope, "audit", partition).batches(RecordLine._fields)
        for lines in whole_sequences(self._watched(batches, partition, "its record")):
            judge.judge(lines)
        outcome = judge.finish(scope.record_stop(partition))
        return JudgedRecord(outcome, judge.findings, judge.repeats)

    def _judge_messages(self, scope: AuditScope, record: JudgedRecord) -> MessageOutcome:
        partition = record.outcome.partition
        judge = MessageJudge(log_of(record), scope.reach(partition))
        batches = self._files(scope, "messages", partition).batches(judge.columns)
        for batch in self._watched(batches, partition, "its messages"):
            judge.judge(batch)
        return judge.finish()

    def _files(self, scope: AuditScope, stream: Stream, partition: str) -> PartitionFiles:
        files = scope.files(stream, partition)
        return PartitionFiles(self._root, stream, partition, files)

    def _watched(
        self, batches: Iterable[pa.RecordBatch], partition: str, what: str
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self._watch.check()
            yield batch
            self._done += batch.num_rows
            self._watch.show(JobProgress(self._done, self._total, f"partition {partition}: {what}"))


def _by_partition(places: Iterable[Place]) -> dict[str, list[int]]:
    wanted: dict[str, set[int]] = {}
    for partition, offset in places:
        wanted.setdefault(partition, set()).add(offset)
    return {partition: sorted(offsets) for partition, offsets in wanted.items()}
