"""Merges the small files of an archive, while others read and write it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from uuid import uuid4

from partq.errors import ConflictError, InternalError
from partq.pipeline.archive_files import in_one_file_per_folder, read_files, write_rows
from partq.pipeline.archive_log import STAGING, ArchiveLog
from partq.pipeline.job import Job
from partq.pipeline.manifest import (
    STREAMS,
    ArchiveState,
    DataFile,
    ManifestEntry,
    Stream,
    select,
)
from partq.pipeline.staging import Staging
from partq.pipeline.storage.files import Files
from partq.pipeline.watch import JobProgress

MERGED_AT_ONCE = 256
"""The most files that one round merges: what a crash can cost."""
MIN_ORPHAN_MS = 3_600_000
"""How old a file that belongs to nothing must be at least: a job may be about to have it count."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compaction did."""

    files_before: int
    files_after: int
    merged: int
    """Files that were merged into others."""
    rows: int
    """Rows that were written again."""
    deleted: int
    """Files that were gone for good: merged ones after their time, and what crashes had left."""
    is_complete: bool
    """False: it was told to end before nothing was left to merge."""


def plan_merges(files: Iterable[DataFile], target_bytes: int) -> list[list[DataFile]]:
    """Return the runs of files that are to become one, each of one date and partition.

    A run is of neighbours, has two files or more, and none that has reached the target alone; it
    ends with the file that makes it reach the target. So a file is written again at most about
    as often as its run grows by as much as it holds.
    """
    runs = []
    ordered = sorted(files, key=lambda each: (each.folder, each.first, each.path))
    for _, group in groupby(ordered, key=lambda each: each.folder):
        run: list[DataFile] = []
        for each in group:
            if each.bytes >= target_bytes:
                runs.append(run)
                run = []
                continue
            run.append(each)
            if sum(member.bytes for member in run) >= target_bytes:
                runs.append(run)
                run = []
        runs.append(run)
    return [run for run in runs if len(run) > 1]


def compact(
    job: Job,
    archive: ArchiveLog,
    *,
    now_ms: Callable[[], int],
    target_bytes: int,
    keep_ms: int,
) -> Compaction:
    """Merge small files, and delete those that were merged long enough ago.

    Readers never see half of it: a round of merges counts from one moment on, when its entry is
    written. What was merged stays for `keep_ms`, for readers that began before.

    Args:
        job: to run in.
        archive: which.
        now_ms: the time, in unix ms.
        target_bytes: files of this size are left alone.
        keep_ms: how long merged files, and files that belong to nothing, are kept.

    Raises:
        SettingsError: it cannot be written.
        ConflictError: other jobs changed it all the time.
        InternalError: what was written is not what was read; nothing is changed.
    """
    state = archive.load()
    before = len(state.files)
    merged = rows = 0
    for stream in STREAMS:
        while not job.watch.is_stopped:
            runs = plan_merges(select(state.files.values(), stream), target_bytes)
            job.watch.show(
                JobProgress(rows, detail=f"{stream}: {sum(map(len, runs))} files to merge")
            )
            chosen = _round(runs)
            if not chosen:
                break
            state = _merge(job, archive, state, stream, chosen, now_ms)
            merged += sum(map(len, chosen))
            rows += sum(each.rows for run in chosen for each in run)
    is_complete = not job.watch.is_stopped
    swept = 0 if not is_complete else sweep(archive, now_ms=now_ms, keep_ms=keep_ms)
    return Compaction(before, len(archive.load().files), merged, rows, swept, is_complete)


def sweep(archive: ArchiveLog, *, now_ms: Callable[[], int], keep_ms: int) -> int:
    """Delete what nobody reads any more, and return how many files that were.

    That is: files that were merged at least `keep_ms` ago, and files as old that belong to nothing,
    because their job died before they counted.
    """
    files = archive.files
    state = archive.load()
    until_ms = now_ms() - keep_ms
    due = [path for path, removed_at in state.removed.items() if removed_at <= until_ms]
    for path in due:
        files.remove(path)

    def deleted(now: ArchiveState) -> ManifestEntry | None:
        paths = tuple(path for path in due if path in now.removed)
        if not paths:
            return None
        attempt = uuid4().hex
        return ManifestEntry(number=0, attempt=attempt, kind="sweep", at_ms=now_ms(), deleted=paths)

    state = archive.commit(state, deleted)
    known = state.files.keys() | state.removed.keys()
    orphans_until_ms = min(until_ms, now_ms() - MIN_ORPHAN_MS)
    orphans = [
        path
        for stream in STREAMS
        for path, _, modified_ms in files.walk(stream)
        if path not in known and modified_ms <= orphans_until_ms
    ]
    for path in orphans:
        files.remove(path)
    left = _sweep_staging(files, orphans_until_ms)
    archive.forget_old_entries()
    return len(due) + len(orphans) + left


def _sweep_staging(files: Files, until_ms: int) -> int:
    """Delete what attempts have left that died before their files were in place."""
    count = 0
    for attempt in files.names(STAGING):
        folder = f"{STAGING}/{attempt}"
        found = files.walk(folder)
        if found and all(modified_ms <= until_ms for _, _, modified_ms in found):
            files.remove(folder)
            count += len(found)
    return count


def _round(runs: Sequence[list[DataFile]]) -> list[list[DataFile]]:
    """Return the runs that one Spark job merges: one for each folder, and not too many files."""
    chosen: dict[str, list[DataFile]] = {}
    count = 0
    for run in runs:
        if run[0].folder not in chosen and (not count or count + len(run) <= MERGED_AT_ONCE):
            chosen[run[0].folder] = run
            count += len(run)
    return list(chosen.values())


def _merge(
    job: Job,
    archive: ArchiveLog,
    state: ArchiveState,
    stream: Stream,
    runs: Sequence[list[DataFile]],
    now_ms: Callable[[], int],
) -> ArchiveState:
    """Write each run as one file, and have that count instead."""
    removed = tuple(each.path for run in runs for each in run)
    with Staging(archive.files) as staging:
        rows = read_files(job.spark, archive.files, stream, removed)
        folders = in_one_file_per_folder(stream, rows, len(runs))
        written = write_rows(job.spark, staging, stream, folders)
        _compare(runs, written)
        added = staging.place(written)

        def merged(now: ArchiveState) -> ManifestEntry:
            gone = next((path for path in removed if path not in now.files), None)
            if gone is not None:
                raise ConflictError(
                    f"ROOT {archive.files.root}: another job has merged {gone} meanwhile; nothing "
                    "is changed, run it again"
                )
            return ManifestEntry(
                number=0,
                attempt=staging.attempt,
                kind="compact",
                at_ms=now_ms(),
                added=added,
                removed=removed,
            )

        return archive.commit(state, merged)


def _compare(runs: Sequence[list[DataFile]], written: Sequence[DataFile]) -> None:
    """Check that what was written holds the same rows.

    Raises:
        InternalError: it does not.
    """

    def sums(files: Iterable[DataFile]) -> dict[tuple[str, ...], tuple[int, int, int]]:
        by_folder: dict[tuple[str, ...], list[DataFile]] = defaultdict(list)
        for each in files:
            by_folder[tuple(each.folder.split("/")[-2:])].append(each)
        return {
            folder: (
                min(each.first for each in group),
                max(each.stop for each in group),
                sum(each.rows for each in group),
            )
            for folder, group in by_folder.items()
        }

    expected, found = sums(each for run in runs for each in run), sums(written)
    if expected != found:
        where = next(
            folder for folder in (*expected, *found) if expected.get(folder) != found.get(folder)
        )
        raise InternalError(
            f"merging {'/'.join(where)}: got (first, stop, rows) {found.get(where)}, expected "
            f"{expected.get(where)}; nothing is changed"
        )
