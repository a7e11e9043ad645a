"""An archive of a real queue, and the ways in which its files and entries are changed by hand."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pyarrow as pa
import pyarrow.parquet as pq

from partq import Producer
from partq.pipeline.access import QueueAccess
from partq.pipeline.archive.archiver import Archiver, ArchiveSettings
from partq.pipeline.archive.arrow_engine import ArrowEngine
from partq.pipeline.archive.audit_feed import AuditFeed
from partq.pipeline.archive.feeds import MessageFeed
from partq.pipeline.archive_log import ArchiveLog
from partq.pipeline.audit.engines.arrow import ArrowAuditEngine
from partq.pipeline.audit.job import run_audit
from partq.pipeline.audit.schema import KINDS
from partq.pipeline.storage.local_files import LocalFiles
from partq.pipeline.watch import JobWatch
from tests.spark.live_queue import live_queue

OF_ARCHIVE = {
    *("missing_partition", "head_not_found", "messages_cut_off", "extent_not_recorded"),
    *("missing_entry", "damaged_entry", "outside_root", "wrong_columns"),
    *("missing_file", "changed_file", "unreadable_file", "other_rows"),
}
"""Kinds of findings that are planted here."""
STEPS = 3
LATE_MS = {7: 2**53, 9: 253_402_300_799_999}
"""Later than a row can hold, and the last time that it can."""
COUNT = 120
"""Messages of one step."""


def make_archives(root, other):
    """Archive a queue in several steps under `root`, and another queue under `other`."""
    for name, place in (("orders", root), ("others", other)):
        with live_queue(
            queue=name, partitions=2, groups=["archive"], spec={"audit": True}
        ) as queue:
            for step in range(STEPS):
                queue.run(_publish(queue, step))
                archive(queue, place)


def make_sparse_archive(root):
    """Archive a queue one of whose partitions has a message, and the other one none."""
    with live_queue(
        queue="orders", partitions=2, groups=["archive"], spec={"audit": True}
    ) as queue:
        queue.publish([0])
        archive(queue, root)


def audit(root, report, **options):
    """Return the verdict, and the findings as dicts; no report is there before."""
    shutil.rmtree(report, ignore_errors=True)
    return audit_again(root, report, **options)


def audit_again(root, report, *, watch=None, **options):
    """Return the same; what is there is left there."""
    watch = watch or JobWatch()
    files = LocalFiles(str(root))
    result = run_audit(
        ArrowAuditEngine(files.root, watch),
        files,
        LocalFiles(str(report)),
        watch,
        **options,
    )
    return result.verdict, pq.read_table(report / "findings").to_pylist()


async def _publish(queue, step):
    """Publish messages of every form; some event times are later than a row can hold."""
    async with Producer(
        queue.broker.url, queue=queue.name, token=queue.broker.tokens.produce
    ) as producer:
        for number in range(step * COUNT, (step + 1) * COUNT):
            await producer.send(
                b"value %06d" % number,
                key=f"key-{number % 17}" if number % 5 else None,
                headers={"number": str(number)} if number % 3 == 0 else None,
                event_time_ms=LATE_MS.get(number % 50, 1_700_000_000_000 + number),
            )


def archive(queue, root):
    """Archive what a queue has."""
    access = QueueAccess(queue.broker.url, queue.name, "default", queue.broker.tokens.admin)
    files, watch = LocalFiles(str(root)), JobWatch()
    Archiver(
        ArrowEngine(watch, files),
        watch,
        ArchiveLog.open_for(files, access.identity()),
        [AuditFeed(access), MessageFeed(access, "archive")],
        ArchiveSettings(),
        now_ms=lambda: 1_800_000_000_000,
    ).run()


class Copy:
    """A copy of an archive, to be changed."""

    def __init__(self, root):
        self.root = root

    @property
    def state(self):
        return ArchiveLog.open(LocalFiles(str(self.root))).load()

    def files(self, stream, partition="1.0"):
        """Return the files of a partition, in the order of their rows."""
        found = [each for each in self.state.files.values() if each.stream == stream]
        return sorted(
            (each for each in found if each.partition == partition), key=lambda each: each.first
        )

    def change_entries(self, change):
        """Change the body of each entry."""
        for path in sorted((self.root / "_partq" / "log").iterdir()):
            body = json.loads(path.read_bytes())
            change(body)
            path.write_text(json.dumps(body))

    def note(self, file, **changes):
        """Change what the entries say of a file."""

        def change(body):
            for each in body["added"]:
                if each["path"] == file.path:
                    each |= changes

        self.change_entries(change)

    def note_digest(self, file):
        """Have the entries name the file as it is now, as one who forges both would."""
        path = self.root / file.path
        digest = sha256(path.read_bytes()).hexdigest()
        self.note(file, sha256=digest, bytes=path.stat().st_size)

    def change_rows(self, file, change, **format_):
        """Write a file again with changed rows, and note it anew: as a faulty job would."""
        path = self.root / file.path
        rows = pq.ParquetFile(path).read().to_pylist()
        schema = pq.ParquetFile(path).schema_arrow
        change(rows)
        pq.write_table(pa.Table.from_pylist(rows, schema), path, **format_)
        self.note_digest(file)
        self.note(file, rows=len(rows), **_times(rows))

    def forget(self, wanted):
        """Delete files and their lines in the entries."""
        gone = {path for path, each in self.state.files.items() if wanted(each)}
        for path in gone:
            (self.root / path).unlink()
        self.change_entries(
            lambda body: body.update(
                added=[each for each in body["added"] if each["path"] not in gone]
            )
        )


def _times(rows):
    """Return when the first and the last of the rows were stored, as an entry says it."""
    if not rows or "publish_time" not in rows[0]:
        return {}
    since = datetime(1970, 1, 1, tzinfo=UTC)
    found = [
        (row["publish_time"].astimezone(UTC) - since) // timedelta(milliseconds=1) for row in rows
    ]
    return {"min_ms": min(found), "max_ms": max(found)}


def faults(found):
    """Return which kinds of faults were found."""
    return {each["what"] for each in found if KINDS[each["what"]] == "fault"}
