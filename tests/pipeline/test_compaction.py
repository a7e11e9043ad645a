"""Merging: readers see every row once, at any time, through a crash at any point."""

import os
import shutil
from itertools import pairwise

import pytest

from partq.errors import ConflictError, InternalError, SettingsError
from partq.pipeline.archive_columns import COLUMNS
from partq.pipeline.archive_files import (
    read_archive,
    read_audit,
    read_state,
)
from partq.pipeline.archive_log import ArchivedQueue, ArchiveLog
from partq.pipeline.compaction import compact, plan_merges
from partq.pipeline.job import Job
from partq.pipeline.manifest import ArchiveGap, DataFile, ManifestEntry
from partq.pipeline.storage.files import open_files
from partq.pipeline.storage.local_files import LocalFiles
from partq.pipeline.watch import JobWatch
from tests.pipeline.crashing import Crash, CrashingFiles, crash_points
from tests.pipeline.rows import DAY_MS, NOW_MS, QUEUE, add, rows_of


def now_ms():
    return NOW_MS


@pytest.fixture
def job(spark):
    return Job(spark, JobWatch())


@pytest.fixture(scope="module")
def made(spark, tmp_path_factory):
    """An archive that nobody may change: two files of a partition and a day, one of others."""
    root = tmp_path_factory.mktemp("made")
    archive = ArchiveLog.open_for(open_files(spark, str(root)), QUEUE)
    frame = rows_of(spark, "1.0", 0, 10).union(rows_of(spark, "1.10", 0, 10))
    add(spark, archive, frame.coalesce(1))
    add(spark, archive, rows_of(spark, "1.0", 10, 20).coalesce(1))
    return root


@pytest.fixture
def archive(made, tmp_path):
    """The archive that was made, copied."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return ArchiveLog.open(LocalFiles(str(tmp_path)))


def places(frame):
    return sorted((row["partition"], row["offset"]) for row in frame.collect())


EVERY = [*(("1.0", offset) for offset in range(20)), *(("1.10", offset) for offset in range(10))]


def test_files_lie_by_date_and_partition_and_say_what_they_hold(spark, archive):
    files = archive.load().files

    assert {each.folder for each in files.values()} == {
        f"messages/date={date}/queue_partition={partition}"
        for date in ("2027-01-15", "2027-01-16")
        for partition in ("1.0", "1.10")
    }
    held = sorted((each.partition, each.first, each.stop, each.rows) for each in files.values())
    assert held == [
        *(("1.0", first, first + 5, 5) for first in (0, 5, 10, 15)),
        *(("1.10", first, first + 5, 5) for first in (0, 5)),
    ]
    assert places(read_archive(spark, archive.files.root)) == EVERY
    assert LocalFiles(archive.files.root).walk("_partq/staging") == []


def test_rows_are_read_as_they_were_written(spark, archive):
    frame = read_archive(spark, archive.files.root, partitions=["1.10"])
    expected = rows_of(spark, "1.10", 0, 10).collect()
    assert sorted(frame.collect(), key=lambda row: row["offset"]) == expected
    assert dict(frame.dtypes) == COLUMNS["messages"]


def test_times_and_partitions_choose_rows(spark, archive):
    root = archive.files.root
    early = read_archive(spark, root, until_ms=NOW_MS + 1)
    late = read_archive(spark, root, from_ms=NOW_MS + DAY_MS, partitions=["1.10"])

    assert places(late) == [("1.10", offset) for offset in range(5, 10)]
    assert len(places(early)) == 15
    assert places(read_archive(spark, root, from_ms=NOW_MS + 2 * DAY_MS)) == []
    assert read_audit(spark, root).collect() == []


def test_small_files_are_merged_and_deleted_after_their_time(spark, job, archive, tmp_path):
    reader = read_archive(spark, archive.files.root)  # began before
    done = compact(job, archive, now_ms=now_ms, target_bytes=2**20, keep_ms=DAY_MS)

    assert (done.files_before, done.files_after, done.merged, done.deleted) == (6, 4, 4, 0)
    assert places(read_archive(spark, archive.files.root)) == EVERY
    assert places(reader) == EVERY

    again = compact(
        job, archive, now_ms=lambda: NOW_MS + DAY_MS, target_bytes=2**20, keep_ms=DAY_MS
    )
    assert (again.merged, again.deleted) == (0, 4)
    assert len(list(tmp_path.glob("messages/**/*.parquet"))) == 4
    assert places(read_archive(spark, archive.files.root)) == EVERY
    assert archive.load().removed == {}


@pytest.mark.parametrize(("at", "is_done"), crash_points([1, 2, 3]))
def test_a_crash_at_any_point_loses_and_doubles_nothing(spark, job, archive, at, is_done):
    crashing = CrashingFiles(archive.files, at=at, is_done=is_done)
    with pytest.raises(Crash):
        compact(job, ArchiveLog(crashing, QUEUE), now_ms=now_ms, target_bytes=2**20, keep_ms=DAY_MS)

    assert places(read_archive(spark, archive.files.root)) == EVERY

    compact(job, archive, now_ms=now_ms, target_bytes=2**20, keep_ms=0)
    assert places(read_archive(spark, archive.files.root)) == EVERY
    assert len(archive.load().files) == 4


def test_leftovers_of_crashes_are_swept_when_nobody_can_still_want_them(job, archive, tmp_path):
    known = next(iter(archive.load().files))
    for name in ("orphan", "young"):
        archive.files.create(f"messages/d/{name}.parquet", b"")
        archive.files.create(f"_partq/staging/{name}/x.parquet", b"")
    long_ago = (NOW_MS - DAY_MS) // 1000
    now = NOW_MS // 1000
    for path in tmp_path.rglob("*"):
        os.utime(path, (now, now) if "young" in str(path) else (long_ago, long_ago))

    done = compact(job, archive, now_ms=now_ms, target_bytes=1, keep_ms=0)

    assert done.deleted == 2
    assert archive.files.read("messages/d/orphan.parquet") is None
    assert archive.files.names("_partq/staging") == ["young"]
    assert archive.files.read("messages/d/young.parquet") == b""
    assert archive.files.read(known)


def test_what_another_job_merged_meanwhile_is_refused(spark, job, archive):
    class Meddling(LocalFiles):
        def create(self, path, data):
            if path.startswith("_partq/log/") and not meddled:
                meddled.append(path)
                compact(job, archive, now_ms=now_ms, target_bytes=2**20, keep_ms=DAY_MS)
            return super().create(path, data)

    meddled = []
    late = ArchiveLog(Meddling(archive.files.root), QUEUE)
    with pytest.raises(ConflictError, match="another job has merged"):
        compact(job, late, now_ms=now_ms, target_bytes=2**20, keep_ms=DAY_MS)

    assert places(read_archive(spark, archive.files.root)) == EVERY


def test_what_is_archived_meanwhile_stays(spark, job, archive):
    class Meddling(LocalFiles):
        def create(self, path, data):
            if path.startswith("_partq/log/") and not meddled:
                meddled.append(path)
                add(spark, archive, rows_of(spark, "1.0", 20, 22))
            return super().create(path, data)

    meddled = []
    slow = ArchiveLog(Meddling(archive.files.root), QUEUE)
    compact(job, slow, now_ms=now_ms, target_bytes=2**20, keep_ms=DAY_MS)

    assert places(read_archive(spark, archive.files.root)) == sorted(
        [*EVERY, ("1.0", 20), ("1.0", 21)]
    )


def test_snapshots_stand_for_old_entries(archive):
    state = archive.load()
    for number in range(160):
        entry = ManifestEntry(
            number=0, attempt=str(number), kind="archive", at_ms=0,
            gaps=(ArchiveGap("messages", "1.1", number, number + 1),),
        )  # fmt: skip
        state = archive.commit(state, lambda _, entry=entry: entry)
    archive.forget_old_entries()

    assert archive.files.names("_partq/snapshots") == ["000000000100.json", "000000000150.json"]
    assert archive.files.names("_partq/log")[0] == "000000000101.json"
    assert archive.load() == state
    assert [gap.first for gap in state.gaps] == list(range(160))

    archive.files.remove("_partq/log/000000000155.json")
    with pytest.raises(InternalError, match="entry 156 follows entry 154"):
        archive.load()


def test_a_root_that_is_no_archive_or_another_s_is_refused(spark, archive, tmp_path):
    with pytest.raises(SettingsError, match="there is no archive"):
        read_state(spark, str(tmp_path / "nothing"))
    other = ArchivedQueue("default", "orders", "ffffffff")
    with pytest.raises(SettingsError, match=r"archive of default/orders \(uid 0123abcd\)"):
        ArchiveLog.open_for(archive.files, other)
    archive.files.remove("_partq/archive.json")
    archive.files.create("_partq/archive.json", b'{"format": 2}')
    with pytest.raises(SettingsError, match="format 2, expected 1"):
        read_state(spark, str(tmp_path))


def small(first, size, folder="date=1/queue_partition=1.0"):
    return DataFile(
        f"messages/{folder}/{first}", "messages", "1.0", first, first + 1, 1, size, 0, 0
    )


def test_neighbours_are_merged_until_they_are_large_enough():
    files = [small(number, 4) for number in range(7)] + [small(7, 10), small(8, 1)]
    runs = plan_merges([*reversed(files), small(9, 1, "date=2/queue_partition=1.0")], 10)

    assert [[each.first for each in run] for run in runs] == [[0, 1, 2], [3, 4, 5]]
    assert all(a.stop == b.first for run in runs for a, b in pairwise(run))
