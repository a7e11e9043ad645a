"""Checks the log: each offset published once, and archived once, as it was published."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from partq.pipeline.audit.archived.cover import CoveredRange, Layer, cover
from partq.pipeline.audit.judge.finding import LOG, AuditFinding, finding
from partq.pipeline.audit.judge.outcome import MAX_OFFSET, RecordedLog

_PUBLISHED, _AREA, _ARCHIVED, _GAP, _UNDECODABLE, _BEFORE = range(6)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReach:
    """How far the archive has the messages of a partition, as it says itself."""

    queue: str | None
    """Whose messages it has; None: not known."""
    first: int | None = None
    """Where it begins; None: no entry says so, and it begins with its first message."""
    stop: int | None = None
    """Everything below is archived, or was lost before; None: it has nothing of the partition."""
    gaps: Sequence[tuple[int, int]] = ()
    """Messages that were gone before they could be archived."""
    undecodable: Sequence[tuple[int, int]] = ()
    """Undecodable messages, of which the archive keeps the stored batches."""
    is_partial: bool = False
    """The record may be missing for what was stored first."""


class ArchivedRuns:
    """The archived offsets of a partition as runs of one broker epoch; offsets come in order."""

    def __init__(self) -> None:
        self._runs: list[tuple[int, int, int]] = []
        self.count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add messages; one that is there twice begins another run."""
        offsets = batch.column("offset").to_numpy(zero_copy_only=False)
        epochs = batch.column("append_broker_epoch").to_numpy(zero_copy_only=False)
        if not len(offsets):
            return
        self.count += len(offsets)
        is_new = (offsets[1:] != offsets[:-1] + 1) | (epochs[1:] != epochs[:-1])
        starts = np.concatenate([[0], np.flatnonzero(is_new) + 1])
        ends = np.append(starts[1:], len(offsets)) - 1
        rows = zip(
            offsets[starts].tolist(), (offsets[ends] + 1).tolist(), epochs[starts].tolist(),
            strict=True,
        )  # fmt: skip
        for first, stop, epoch in rows:
            last = self._runs[-1] if self._runs else None
            if last is not None and (last[1], last[2]) == (first, epoch):
                self._runs[-1] = (last[0], stop, epoch)
            else:
                self._runs.append((first, stop, epoch))

    def layers(self) -> list[Layer]:
        """Return them as ranges."""
        return [Layer(first, stop, _ARCHIVED, epoch) for first, stop, epoch in self._runs]

    @property
    def first(self) -> int | None:
        """The first offset that is archived."""
        return self._runs[0][0] if self._runs else None

    def within(self, first: int, stop: int) -> tuple[int, int, int]:
        """Return how many messages lie in [first, stop), the first of them, and their end."""
        found = [
            (max(first, low), min(stop, high))
            for low, high, _ in self._runs
            if low < stop and high > first
        ]
        if not found:
            return 0, first, first
        return sum(high - low for low, high in found), found[0][0], found[-1][1]


def check_log(
    log: RecordedLog, runs: ArchivedRuns | None, reach: MessageReach
) -> list[AuditFinding]:
    """Compare what was published with itself and with the archive.

    Args:
        log: of the record.
        runs: what is archived; None: the messages are not looked at.
        reach: how far the archive says that it is.
    """
    layers = [
        *(Layer(each.first, each.stop, _PUBLISHED, each.broker_epoch) for each in log.published),
        *(Layer(first, stop, _AREA) for first, stop in log.areas),
        *(Layer(first, stop, _GAP) for first, stop in reach.gaps),
        *(Layer(first, stop, _UNDECODABLE) for first, stop in reach.undecodable),
    ]
    if runs is not None:
        begins = runs.first if reach.first is None else reach.first
        layers += [Layer(0, begins, _BEFORE)] if begins else []
    found: list[AuditFinding] = []
    if runs is not None:
        layers += runs.layers()
        found += _outside_the_record(log, runs, is_partial=reach.is_partial)
    for stretch in cover(layers, 6):
        if not stretch.counts[_AREA]:
            continue
        told = _of_record(stretch)
        if runs is not None:
            told += _of_archive(stretch, reach.stop)
        found += [
            finding(LOG, what, log.partition, text, first=stretch.first, stop=stretch.stop)
            for what, text in told
        ]
    return found


def _outside_the_record(
    log: RecordedLog, runs: ArchivedRuns, *, is_partial: bool
) -> Iterator[AuditFinding]:
    """Yield the archived messages of which the record tells nothing."""
    if log.stop is None:
        count, first, stop = runs.within(0, MAX_OFFSET)
        text = (
            f"{count} messages from {first} to {stop - 1} are archived, and the record tells "
            "nothing of the partition's log: they are not judged"
        )
        what = "not_recorded" if is_partial else "no_record"
        if count:
            yield finding(LOG, what, log.partition, text, first=first, stop=stop)
        return
    for each in log.unrecorded:
        count, first, stop = runs.within(each.first, each.stop)
        text = f"{count} messages from {first} to {stop - 1} were stored while the record was off"
        if count:
            places = {"sequence": each.sequence, "at_ms": each.at_ms}
            yield finding(
                LOG, "not_recorded", log.partition, text, first=first, stop=stop, **places
            )
    if not (log.unrecorded and log.unrecorded[-1].stop == MAX_OFFSET):
        count, first, stop = runs.within(log.stop, MAX_OFFSET)
        text = (
            f"{count} messages from {first} to {stop - 1} are archived; the archived record ends "
            "before them, so they are not judged: archive the queue again"
        )
        if count:
            yield finding(LOG, "record_behind", log.partition, text, first=first, stop=stop)


def _of_record(stretch: CoveredRange) -> list[tuple[str, str]]:
    offsets = f"offsets {stretch.first} to {stretch.stop - 1}"
    published, archived = stretch.counts[_PUBLISHED], stretch.counts[_ARCHIVED]
    if published > 1:
        return [("published_twice", f"{offsets} were published {published} times")]
    if not published and not archived:
        return [("no_publish", f"no record shows the publishing of {offsets}")]
    return []


def _of_archive(stretch: CoveredRange, archive_stop: int | None) -> list[tuple[str, str]]:
    offsets = f"offsets {stretch.first} to {stretch.stop - 1}"
    published, archived = stretch.counts[_PUBLISHED], stretch.counts[_ARCHIVED]
    told = []
    if not published and archived:
        text = f"{offsets} are archived; no record shows their publishing"
        told.append(("archived_not_published", text))
    if archived > 1:
        told.append(("archived_twice", f"{offsets} are in the archive {archived} times"))
    epochs = stretch.sums[_PUBLISHED], stretch.sums[_ARCHIVED]
    if published == archived == 1 and epochs[0] != epochs[1]:
        text = (
            f"{offsets} were stored under broker epoch {epochs[0]}; archived are those of "
            f"{epochs[1]}, which the store had lost"
        )
        told.append(("other_archived", text))
    if published and not archived:
        told.append(_of_lack(stretch, offsets, archive_stop))
    return told


def _of_lack(stretch: CoveredRange, offsets: str, archive_stop: int | None) -> tuple[str, str]:
    """Return what it means that published offsets are not archived."""
    if stretch.counts[_GAP]:
        text = f"{offsets} were gone from the queue before they could be archived"
        return "archive_gap", text
    if stretch.counts[_UNDECODABLE]:
        text = (
            f"{offsets} are undecodable: the archive has no rows of them, and keeps their stored "
            "batches in _partq/undecodable"
        )
        return "archive_undecodable", text
    if archive_stop is None or stretch.first >= archive_stop:
        return "archive_behind", f"{offsets} were published; the archive has not come that far"
    if stretch.counts[_BEFORE]:
        return "archive_begins_late", f"{offsets} were published before the archive begins"
    return "not_archived", f"{offsets} were published and are not in the archive"
