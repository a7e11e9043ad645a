"""The job that writes a queue to Parquet, each message once.

One step: plan which offsets come next, write them beside the archive, read back what was written,
move the files into place, and write the entry that has them count (`archive_log`). Only then the
group's cursors move. The entry says how far the archive is, so a job that is killed at any point
continues behind the last entry: what it had written without one is never read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from partq.core.model import PartitionId
from partq.errors import ConflictError, InternalError, PartqError, UndecodableError
from partq.pipeline.archive.engine import ArchiveEngine
from partq.pipeline.archive.feeds import Feed
from partq.pipeline.archive.undecodable import UndecodableMessages, UndecodableRange
from partq.pipeline.archive_log import ArchiveLog
from partq.pipeline.manifest import (
    ArchiveGap,
    ArchivePosition,
    ArchiveState,
    DataFile,
    ManifestEntry,
    Stream,
)
from partq.pipeline.planning import (
    LogExtent,
    Span,
    check_record_begins,
    lineage_of,
    order_of,
    plan,
    removed_extents,
)
from partq.pipeline.staging import Staging
from partq.pipeline.watch import JobProgress, JobWatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettings:
    """How a queue is archived."""

    every_s: float | None = None
    """How often to look for more, in seconds; None: end with what was there at the beginning."""
    max_rows: int = 1_000_000
    """The most messages, or groups of the audit record, of one step: what a crash can cost."""
    skips_lost: bool = False
    """Note messages that are no longer stored as a gap, and continue, instead of refusing."""
    takes_over_audit: bool = False
    """Continue an audit record of which another archive has groups that this one lacks, and note
    them as a gap, instead of refusing."""
    skips_undecodable: bool = False
    """Keep the batches of undecodable messages, note those as a gap, and continue."""


@dataclass(slots=True)
class Archived:
    """What an archive job did."""

    rows: dict[Stream, int] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    steps: int = 0
    gaps: list[ArchiveGap] = field(default_factory=list)
    positions: dict[Stream, dict[str, int]] = field(default_factory=dict)
    """How far the archive is."""
    lag: int = 0
    """Messages that were stored and not archived, when the job looked last."""
    is_complete: bool = True
    """Whether it has all that it was to have; False: it was stopped before."""


class Archiver:
    """Archives feeds until there is no more, or until it is stopped.

    Args:
        engine: reads and writes rows.
        watch: over the job.
        archive: where to; of the same queue.
        feeds: in this order; the audit record comes before the messages, so that no record that is
            archived speaks of a message that is not.
        settings: how.
        now_ms: the time, in unix ms.
    """

    def __init__(
        self,
        engine: ArchiveEngine,
        watch: JobWatch,
        archive: ArchiveLog,
        feeds: Sequence[Feed],
        settings: ArchiveSettings,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._watch = watch
        self._archive = archive
        self._feeds = feeds
        self._settings = settings
        self._now_ms = now_ms
        self._state = ArchiveState()
        self._begun_at: dict[Stream, dict[str, ArchivePosition]] = {}
        self._done = Archived()
        self._undecodable: dict[Stream, UndecodableMessages] = {
            feed.stream: UndecodableMessages(
                feed.access, archive.files, watch, is_passed=settings.skips_undecodable
            )
            for feed in feeds
            if feed.stream == "messages"
        }

    def run(self) -> Archived:
        """Archive, and return what is durable.

        Raises:
            ConflictError: another job archives to the same place, a member of the group is
                connected, or another archive has the beginning of the audit record.
            DataLossError: what comes next is no longer stored.
            RolledBackError: the store has lost what the archive has, or other messages stand there.
            UndecodableError: what comes next does not decode.
            PartqError: the brokers refuse, or do not answer in time.
            InternalError: what was written is not what was to be read; it does not count.
        """
        try:
            self._run()
        except PartqError:
            # An engine says in many ways that it was cancelled.
            if not self._watch.is_stopped:
                raise
            self._done.is_complete = False
        return self._done

    def _run(self) -> None:
        self._state = self._archive.load()
        # The messages first: a store that has lost some is to free no audit record.
        for feed in reversed(self._feeds):
            self._begin(feed)
        every_s = self._settings.every_s
        # In the order of the feeds: what the first ones speak of is there when the last one looks.
        ends = {feed.stream: feed.extents() for feed in self._feeds}
        while True:
            for feed in self._feeds:
                while self._step(feed, ends[feed.stream]):
                    pass
            if every_s is None:
                return
            if self._watch.wait(every_s):
                return
            ends = {feed.stream: feed.extents() for feed in self._feeds}

    def _begin(self, feed: Feed) -> None:
        """Find out how far the archive is, and tell the queue what an earlier job could not."""
        self._watch.check()
        stored = self._state.positions.get(feed.stream, {})
        feed.acknowledge(stored)
        begun = feed.beginnings()
        if feed.stream == "audit" and not self._settings.takes_over_audit:
            check_record_begins(stored, begun)
        self._begun_at[feed.stream] = begun
        self._note()

    def _step(self, feed: Feed, extents: Mapping[PartitionId, LogExtent]) -> bool:
        """Archive what comes next; False: nothing does."""
        self._watch.check()
        positions = self._positions(feed.stream)
        # Groups of the audit record are lost to another archive alone, which has them trimmed.
        is_audit = feed.stream == "audit"
        settings = self._settings
        order = order_of(extents)
        removed = {} if is_audit else removed_extents(self._state, extents)
        spans = plan(
            positions,
            {**extents, **removed},
            most=settings.max_rows,
            skips_lost=settings.takes_over_audit if is_audit else settings.skips_lost,
            skip_option="--take-over-audit" if is_audit else "--skip-lost",
            order=order,
        )
        self._show(feed.stream, positions, extents)
        if not spans:
            return False
        undecodable = self._undecodable.get(feed.stream)
        passed: Mapping[PartitionId, UndecodableRange] = {}
        if undecodable is not None:
            spans, passed = undecodable.around(spans, order)
        stored_spans = {each: span for each, span in spans.items() if each not in removed}
        stops = {str(each): at for each, at in feed.stops(stored_spans).items()}
        stops |= {str(each): ArchivePosition(spans[each].stop) for each in removed if each in spans}
        if undecodable is not None:
            undecodable.check(passed, stops)
        with Staging(self._archive.files) as staging:
            filled = {each: span for each, span in spans.items() if span.size}
            written: list[DataFile] = []
            if filled:
                starts = positions | {str(each): span.start for each, span in spans.items()}
                try:
                    written = self._engine.write(staging, feed, starts, stops)
                except UndecodableError as error:
                    if undecodable is None:
                        raise
                    undecodable.find(filled, error)
                    return True  # the next step passes what was found
            check_written(feed.stream, filled, written)
            self._watch.check()
            beginnings = self._beginnings(feed.stream, extents)
            stored = self._state.positions.get(feed.stream, {})
            # Of an empty partition, too, the entry says how far the archive is.
            begun = {
                each: positions.get(each, ArchivePosition(first))
                for each, first in beginnings.items()
                if each not in stored
            }
            entry = ManifestEntry(
                number=0,
                attempt=staging.attempt,
                kind="archive",
                at_ms=self._now_ms(),
                added=staging.place(written),
                positions={feed.stream: begun | stops},
                beginnings={feed.stream: beginnings},
                gaps=_gaps(feed.stream, spans, passed),
                lineage={
                    each: givers
                    for each, givers in lineage_of(extents).items()
                    if each not in self._state.lineage
                },
            )
            before = {each: stored.get(each) for each in begun | stops}
            self._state = self._archive.commit(
                self._state, lambda now: self._unless_moved(now, entry, feed.stream, before)
            )
        self._count(entry)
        feed.acknowledge(stops)
        self._show(feed.stream, self._positions(feed.stream), extents)
        return True

    def _unless_moved(
        self,
        now: ArchiveState,
        entry: ManifestEntry,
        stream: Stream,
        before: Mapping[str, ArchivePosition | None],
    ) -> ManifestEntry:
        """Return the entry if the archive is where it was when it was planned."""
        there = now.positions.get(stream, {})
        moved = next((each for each in before if there.get(each) != before[each]), None)
        if moved is not None:
            raise ConflictError(
                f"ROOT {self._archive.files.root}: another job archives to it, partition {moved} "
                "has moved on; nothing is lost or doubled; let one of the two end"
            )
        return entry

    def _beginnings(
        self, stream: Stream, extents: Mapping[PartitionId, LogExtent]
    ) -> dict[str, int]:
        """Return where the archive of each partition begins, as far as that is known."""
        firsts = {str(partition): extent.first for partition, extent in extents.items()}
        firsts |= {partition: at.offset for partition, at in self._begun_at[stream].items()}
        # Of those that an earlier version began to archive, nothing tells it.
        begun = self._state.positions.get(stream, {})
        known = self._state.beginnings.get(stream, {})
        return {each: at for each, at in firsts.items() if each not in begun} | known

    def _positions(self, stream: Stream) -> dict[str, ArchivePosition]:
        return self._begun_at[stream] | self._state.positions.get(stream, {})

    def _count(self, entry: ManifestEntry) -> None:
        done = self._done
        for each in entry.added:
            done.rows[each.stream] = done.rows.get(each.stream, 0) + each.rows
            done.bytes += each.bytes
        done.files += len(entry.added)
        done.steps += 1
        done.gaps += entry.gaps
        for gap in entry.gaps:
            what = "are no longer stored; the archive notes the gap"
            if gap.undecodable_path:
                what = (
                    "are undecodable; the archive notes that, and keeps their batch in "
                    f"ROOT/{gap.undecodable_path}"
                )
            self._watch.tell(
                f"{gap.stream} of partition {gap.partition}: {gap.first} to {gap.stop - 1} {what}"
            )
        self._note()

    def _note(self) -> None:
        self._done.positions = {
            feed.stream: {
                partition: at.offset for partition, at in self._positions(feed.stream).items()
            }
            for feed in self._feeds
            if feed.stream in self._begun_at
        }

    def _show(
        self,
        stream: Stream,
        positions: Mapping[str, ArchivePosition],
        extents: Mapping[PartitionId, LogExtent],
    ) -> None:
        lags = {}
        for partition, extent in extents.items():
            begun = positions.get(str(partition))
            lags[str(partition)] = extent.end - (extent.first if begun is None else begun.offset)
        lag = sum(lags.values())
        if stream == "messages":
            self._done.lag = lag
        done = sum(self._done.rows.values())
        behind = max(lags, key=lambda each: lags[each], default="")
        detail = f"{stream}: lag {lag:,}"
        if lag:
            detail += f", most in partition {behind}: {lags[behind]:,}"
        self._watch.show(JobProgress(done, detail=detail))


def _gaps(
    stream: Stream,
    spans: Mapping[PartitionId, Span],
    passed: Mapping[PartitionId, UndecodableRange],
) -> tuple[ArchiveGap, ...]:
    return tuple(
        ArchiveGap(
            stream,
            str(partition),
            span.lost_from,
            span.start.offset,
            passed[partition].path if partition in passed else "",
        )
        for partition, span in spans.items()
        if span.lost_from is not None
    )


def check_written(
    stream: Stream, spans: Mapping[PartitionId, Span], written: Sequence[DataFile]
) -> None:
    """Check that what was written is what was to be read: each place once, and no other.

    Raises:
        InternalError: it is not.
    """
    for partition, span in spans.items():
        files = [each for each in written if each.partition == str(partition)]
        found = (
            min((each.first for each in files), default=None),
            max((each.stop for each in files), default=None),
            # A group of the audit record has rows as it has records.
            sum(each.rows for each in files) if stream == "messages" else span.size,
        )
        expected = (span.start.offset, span.stop, span.size)
        if found != expected:
            raise InternalError(
                f"{stream} of partition {partition}: got (first, stop, rows) {found}, expected "
                f"{expected}; nothing of it counts"
            )
    names = {str(partition) for partition in spans}
    if others := [each.partition for each in written if each.partition not in names]:
        raise InternalError(f"{stream}: got rows of partition {others[0]}, which were not read")
