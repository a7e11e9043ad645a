"""The order of an archive's steps, and what makes one not count: without a queue."""

import pytest

from partq import PartitionId
from partq.errors import InternalError
from partq.pipeline.archive.archiver import Archiver, ArchiveSettings
from partq.pipeline.archive_log import ArchivedQueue, ArchiveLog
from partq.pipeline.manifest import ArchivePosition, DataFile, ManifestEntry
from partq.pipeline.planning import LogExtent
from partq.pipeline.storage.local_files import LocalFiles
from partq.pipeline.watch import JobWatch

PARTITION, END = PartitionId(1, 0), 3


class ListedFeed:
    """A feed of one partition that notes what it is asked."""

    access = None  # there is no queue to read

    def __init__(self, stream, calls):
        self.stream, self._calls = stream, calls

    def beginnings(self):
        return {str(PARTITION): ArchivePosition(0)}

    def extents(self):
        self._calls.append(f"extents of {self.stream}")
        return {PARTITION: LogExtent(0, END)}

    def stops(self, spans):
        return {each: ArchivePosition(span.stop) for each, span in spans.items()}

    def acknowledge(self, positions):
        told = [at.offset for at in positions.values()]
        self._calls.append(f"acknowledge {self.stream}: {told}")


class WritingEngine:
    """Writes an empty file for what it was asked, less so many rows."""

    def __init__(self, lacking=0, meanwhile=lambda: None):
        self._lacking, self._meanwhile = lacking, meanwhile

    def write(self, staging, feed, starts, stops):
        self._meanwhile()
        ((name, first),) = starts.items()
        stop = stops[name].offset
        path = f"{staging.folder}/{feed.stream}/date=2026-01-01/partition={name}/part"
        staging.files.create(path, b"")
        rows = stop - first.offset - self._lacking
        return [DataFile(path, feed.stream, name, first.offset, stop, rows, 0, 0, 0)]


@pytest.fixture
def log(tmp_path):
    return ArchiveLog.open_for(LocalFiles(str(tmp_path)), ArchivedQueue("default", "orders", "u"))


def archive(log, engine=None, watch=None, streams=("audit", "messages")):
    """Archive what the feeds have; return what came of it and what they were asked."""
    calls = []
    feeds = [ListedFeed(stream, calls) for stream in streams]
    watch = watch or JobWatch()
    settings = ArchiveSettings()
    job = Archiver(engine or WritingEngine(), watch, log, feeds, settings, now_ms=lambda: 0)
    return job.run(), calls


def test_the_record_is_asked_for_its_end_first_and_acknowledged_last_at_the_beginning(log):
    """So no record speaks of a message that is not taken, and a rollback frees no record."""
    archive(log)
    _, calls = archive(log)

    assert calls == [
        f"acknowledge messages: [{END}]", f"acknowledge audit: [{END}]",
        "extents of audit", "extents of messages",
    ]  # fmt: skip


def test_where_an_archive_begins_is_not_made_up_of_one_that_has_begun(log):
    """An entry of an earlier version says how far it is, and not where it began."""
    entry = ManifestEntry(
        number=0, attempt="made", kind="archive", at_ms=0, added=(),
        positions={"messages": {str(PARTITION): ArchivePosition(1)}},
    )  # fmt: skip
    log.commit(log.load(), lambda _: entry)
    archive(log, streams=["messages"])
    state = log.load()

    assert state.positions["messages"][str(PARTITION)].offset == END
    assert not state.beginnings.get("messages")


def test_files_that_lack_a_row_are_not_put_in_place(log, tmp_path):
    with pytest.raises(InternalError, match="nothing of it counts"):
        archive(log, WritingEngine(lacking=1), streams=["messages"])

    assert log.load().number == 0
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["archive.json"]


def test_what_was_being_written_when_the_job_was_stopped_does_not_count(log):
    watch = JobWatch()
    done, calls = archive(log, WritingEngine(meanwhile=watch.stop), watch)

    assert (done.is_complete, done.steps, log.load().number) == (False, 0, 0)
    assert calls[-1] == "extents of messages"
