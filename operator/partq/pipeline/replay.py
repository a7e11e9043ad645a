"""The job that publishes an archive again: in the order of each key, each message once.

A replay is cut into steps, and a step into one part for each partition of the archive. Steps follow
one another. The messages of a key stand in one partition, or in several if the partition count was
changed. What an older one of these has of the key was sent in earlier steps: so a key's messages
are sent in their order, into however many partitions. What a replay
consists of is written down before anything is sent. A step has a separate name, by which the
brokers know what of it is stored, so that one that was cut off is repeated without doubling.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody names it

from partq.core.model import PartitionId
from partq.errors import ConflictError, InternalError, PartqError, SettingsError
from partq.excerpts import excerpt
from partq.pipeline.access import QueueAccess
from partq.pipeline.archive_files import read_files
from partq.pipeline.archive_log import STATE, ArchiveLog
from partq.pipeline.failures import spark_failures
from partq.pipeline.job import Job
from partq.pipeline.manifest import DataFile, select
from partq.pipeline.planning import Span
from partq.pipeline.replay_plan import ReplayFilter, ReplayPlan, find_awaited
from partq.pipeline.watch import JobProgress

REPLAYS = f"{STATE}/replays"
STEP_ROWS = 100_000
"""The most messages of a step."""
MIN_STEP_ROWS = 200
"""The fewest, where a rate is asked for: the brokers remember each step for a day."""
STEP_S = 2.0
"""How much of a rate is one step, in seconds."""
MAX_ID_CHARS = 40


@dataclass(slots=True)
class Replayed:
    """What a replay did."""

    replay: str
    """Its id."""
    sent: int = 0
    """Messages that this run sent, or found stored in a step that an earlier one had not ended."""
    skipped: int = 0
    """Messages of steps that earlier runs had ended."""
    steps: int = 0
    is_complete: bool = True
    undecodable: int = 0
    """Undecodable messages of these partitions: the archive has no rows of them, so none is sent.
    Their keys are unknown, so a choice of keys or times does not change the number."""


@dataclass(slots=True)
class Preview:
    """What a replay would send."""

    messages: int
    keys: int
    first_ms: int | None
    """When the first of them was stored, in unix ms."""
    last_ms: int | None
    partitions: dict[str, int] = field(default_factory=dict)
    """Of the archive: how many are from each."""
    undecodable: int = 0
    """As of `Replayed`."""


def preview(job: Job, archive: ArchiveLog, wanted: ReplayFilter) -> Preview:
    """Return what a replay would send; nothing is sent or written.

    Raises:
        SettingsError: a partition is not in the archive.
    """
    files = _files(archive, wanted)
    rows = _rows(job, archive, files, wanted)
    at_ms = F.expr("unix_millis(publish_time)")
    found = (
        rows.groupBy("partition")
        .agg(
            F.count("*").alias("count"),
            F.min(at_ms).alias("first_ms"),
            F.max(at_ms).alias("last_ms"),
        )
        .collect()
    )
    return Preview(
        messages=sum(row["count"] for row in found),
        keys=rows.select("key").where("key is not null").distinct().count(),
        first_ms=min((row["first_ms"] for row in found), default=None),
        last_ms=max((row["last_ms"] for row in found), default=None),
        partitions={
            row["partition"]: row["count"]
            for row in sorted(found, key=lambda row: PartitionId.parse(row["partition"]))
        },
        undecodable=_undecodable(archive, wanted),
    )


def replay(
    job: Job,
    archive: ArchiveLog,
    target: QueueAccess,
    wanted: ReplayFilter,
    *,
    replay_id: str | None,
    rate: float | None,
    clock: Callable[[], float] = time.monotonic,
) -> Replayed:
    """Send what is wanted of an archive to a queue, or what an earlier run has left of it.

    Args:
        job: to run in.
        archive: to read.
        target: where to.
        wanted: which messages.
        replay_id: 1 to 40 letters, digits, `-` and `_`; None: made of what is sent and where to, so
            that the same call continues where it was.
        rate: messages per second, at most, over a step; None: as fast as it goes.
        clock: seconds that never go back.

    Raises:
        SettingsError: the id is not such a name, or a partition is not in the archive.
        ConflictError: the id is that of another replay.
        PartqError: the target refuses, or cannot be reached; run it again for the rest.
    """
    identity = target.identity()
    extents = _extents(archive, wanted)
    whole = ReplayPlan(
        source=str(archive.identity),
        target=str(identity),
        wanted=wanted,
        extents=extents,
        step_rows=step_rows(rate),
        awaited=find_awaited(archive.load().lineage, extents),
    )
    name = replay_id or _default_id(whole)
    agreed = _agree(archive, name, whole)
    return _send(job, archive, target, agreed, name, rate, clock)


def step_rows(rate: float | None) -> int:
    """Return how many messages are sent at once: about two seconds of the rate."""
    if rate is None:
        return STEP_ROWS
    return max(MIN_STEP_ROWS, min(STEP_ROWS, round(rate * STEP_S)))


def _send(
    job: Job,
    archive: ArchiveLog,
    target: QueueAccess,
    agreed: ReplayPlan,
    name: str,
    rate: float | None,
    clock: Callable[[], float],
) -> Replayed:
    """Send the steps that are not done, one after the other."""
    done = Replayed(name, undecodable=_undecodable(archive, agreed.wanted))
    folder = f"{REPLAYS}/{name}"
    ended = set(archive.files.names(folder))
    total = sum(stop - first for first, stop in agreed.extents.values())
    passed = 0
    for number, spans in enumerate(agreed.steps()):
        size = sum(span.size for span in spans.values())
        passed += size
        mark = f"{number:09d}.json"
        if mark in ended:
            done.skipped += size
            continue
        if job.watch.wait(0):
            return _stopped(done)
        files = [
            each
            for each in _files(archive, agreed.wanted)
            if (span := spans.get(PartitionId.parse(each.partition))) is not None
            and each.first < span.stop
            and each.stop > span.start.offset
        ]
        rows = _rows(job, archive, files, agreed.wanted).where(_within(spans))
        begun_at = clock()
        try:
            with spark_failures():
                _write(rows, len(spans), target, f"{name}/{number}")
        except PartqError:
            # Spark says in many ways that it was cancelled.
            if not job.watch.is_stopped:
                raise
            return _stopped(done)
        archive.files.create(f"{folder}/{mark}", b"{}")
        if not done.steps:
            # Spark's start took most of it, and the messages went at its end.
            begun_at = clock()
        done.sent += size
        done.steps += 1
        job.watch.show(JobProgress(passed, total, f"replay {name}"))
        if rate is not None and passed < total:
            # By the step: time that one has taken too long is not caught up by the next ones.
            job.watch.wait(max(0.0, begun_at + size / rate - clock()))
    return done


def _stopped(done: Replayed) -> Replayed:
    done.is_complete = False
    return done


def _write(rows: DataFrame, part_count: int, target: QueueAccess, write_id: str) -> None:
    """Publish a step. The same rows are in the same task in the same order, however often.

    That holds whatever files they come from: the task follows from the partition's name, the order
    from the offsets.
    """
    (
        rows.repartition(part_count, F.col("partition"))
        .sortWithinPartitions("generation", "partition_index", "offset")
        .select("key", "value", "headers", "event_time")
        .write.format("partq")
        .options(**target.options())
        .option("writeId", write_id)
        .option("keyHeaders", "keep")  # what is stored is repeated as it is
        .mode("append")
        .save()
    )


def _within(spans: Mapping[PartitionId, Span]) -> Any:
    """Return the condition that a row is in a step."""
    condition = F.lit(False)
    for partition, span in spans.items():
        condition |= (
            (F.col("partition") == str(partition))
            & (F.col("offset") >= span.start.offset)
            & (F.col("offset") < span.stop)
        )
    return condition


def _rows(job: Job, archive: ArchiveLog, files: list[DataFile], wanted: ReplayFilter) -> DataFrame:
    """Return the messages that are wanted of files."""
    paths = [each.path for each in files]
    rows = read_files(job.spark, archive.files, "messages", paths)
    at_ms = F.expr("unix_millis(publish_time)")
    if wanted.from_ms is not None:
        rows = rows.where(at_ms >= wanted.from_ms)
    if wanted.until_ms is not None:
        rows = rows.where(at_ms < wanted.until_ms)
    if wanted.keys is not None:
        rows = rows.where(F.col("key").isin(list(wanted.keys)))
    return rows


def _files(archive: ArchiveLog, wanted: ReplayFilter) -> list[DataFile]:
    """Return the files that may hold what is wanted, as the archive is now.

    Raises:
        SettingsError: a partition is not in the archive.
    """
    files = archive.load().files.values()
    known = {each.partition for each in files if each.stream == "messages"}
    for name in wanted.partitions or ():
        if name not in known:
            raise SettingsError(
                f"--partition: the archive has no messages of {name!r}; it has those of "
                f"{', '.join(sorted(known)) or 'none'}"
            )
    return select(
        files,
        "messages",
        partitions=wanted.partitions,
        from_ms=wanted.from_ms,
        until_ms=wanted.until_ms,
    )


def _undecodable(archive: ArchiveLog, wanted: ReplayFilter) -> int:
    """Return how many messages of the partitions are undecodable, as the archive notes them."""
    return sum(
        each.stop - each.first
        for each in archive.load().gaps
        if each.undecodable_path
        and (wanted.partitions is None or each.partition in wanted.partitions)
    )


def _extents(archive: ArchiveLog, wanted: ReplayFilter) -> dict[str, tuple[int, int]]:
    extents: dict[str, tuple[int, int]] = {}
    for each in _files(archive, wanted):
        first, stop = extents.get(each.partition, (each.first, each.stop))
        extents[each.partition] = min(first, each.first), max(stop, each.stop)
    return extents


def _agree(archive: ArchiveLog, name: str, whole: ReplayPlan) -> ReplayPlan:
    """Write down what a replay consists of, or return what was written down at its first start.

    Raises:
        SettingsError: the name is not one of 1 to 40 letters, digits, `-` and `_`.
        ConflictError: it is that of another replay.
    """
    if not (0 < len(name) <= MAX_ID_CHARS and name.replace("-", "").replace("_", "").isalnum()):
        raise SettingsError(
            f"--id: got {excerpt(name)!r}, expected 1 to {MAX_ID_CHARS} letters, digits, - and _"
        )
    path = f"{REPLAYS}/{name}.json"
    archive.files.create(path, whole.to_json())
    stored = archive.files.read(path)
    if stored is None:
        raise InternalError(f"{archive.files.root}/{path}: was written, and is not there")
    agreed = ReplayPlan.from_json(path, stored)
    for what in ("source", "target", "wanted"):
        if getattr(agreed, what) != getattr(whole, what):
            raise ConflictError(
                f"replay {name!r}: was begun with {what} {getattr(agreed, what)}, and is asked to "
                f"continue with {getattr(whole, what)}; choose another --id"
            )
    return agreed


def _default_id(whole: ReplayPlan) -> str:
    """Return a name for these messages to this queue, whatever the archive got since."""
    told = json.dumps([whole.source, whole.target, asdict(whole.wanted)])
    return f"replay-{sha256(told.encode()).hexdigest()[:16]}"
