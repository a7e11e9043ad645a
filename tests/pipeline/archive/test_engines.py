"""Both engines write the same archive; the one on Arrow needs no Spark."""

import asyncio
import errno
import gc
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from hashlib import sha256

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partq import Producer
from partq.errors import InternalError, SettingsError
from partq.pipeline.access import QueueAccess
from partq.pipeline.archive.archiver import Archiver, ArchiveSettings
from partq.pipeline.archive.arrow_engine import ArrowEngine, _in_thread
from partq.pipeline.archive.audit_feed import AuditFeed
from partq.pipeline.archive.feeds import MessageFeed
from partq.pipeline.archive.span_files import SpanFiles
from partq.pipeline.archive.span_readers import MessageSpans
from partq.pipeline.archive.spark_engine import SparkEngine
from partq.pipeline.archive_columns import COLUMNS, PLACE, arrow_schema
from partq.pipeline.archive_files import read_archive, read_audit, read_state
from partq.pipeline.archive_log import ArchiveLog
from partq.pipeline.manifest import ArchivePosition, DataFile
from partq.pipeline.staging import Staging
from partq.pipeline.storage.hadoop_files import HadoopFiles
from partq.pipeline.storage.local_files import LocalFiles
from partq.pipeline.watch import JobWatch
from tests.spark.live_queue import live_queue

READ = {"messages": read_archive, "audit": read_audit}


class UntrimmedFeed(AuditFeed):
    """Leaves the record in the queue, so that it can be archived a second time."""

    def acknowledge(self, positions):
        pass


@pytest.fixture(scope="module")
def queue():
    groups = ["spark", "tasks", "arrow", "alone", "stopped"]
    with live_queue(partitions=5, groups=groups, spec={"audit": True}) as running:
        running.run(_publish(running))
        running.publish(range(40))
        yield running


async def _publish(running):
    """Publish messages of every form that a client can send."""
    async with Producer(
        running.broker.url, queue=running.name, token=running.broker.tokens.produce
    ) as producer:
        for value, given in [
            (b"", {"key": "empty"}),
            (b"\xff\x00", {}),
            ("ä€𝄞".encode(), {"key": "ä€𝄞", "headers": {"ä": "€", "": ""}}),
            (b"x" * 200_000, {"key": "long", "event_time_ms": 1}),
            (b"no headers", {"key": "k", "headers": {}, "event_time_ms": 253_402_300_799_999}),
            (b"a time that Spark has not", {"key": "k", "event_time_ms": 2**53}),
        ]:
            await producer.send_and_wait(value, **given)


def access(queue):
    return QueueAccess(queue.broker.url, queue.name, "default", queue.broker.tokens.admin)


@pytest.fixture(scope="module")
def roots(spark, queue, tmp_path_factory):
    """The same messages and records, by either engine; by Spark in Java (`spark`) and in Python."""
    reached = access(queue)
    made = {name: tmp_path_factory.mktemp(name) for name in ("spark", "tasks", "arrow")}
    record = UntrimmedFeed(reached)
    extents = record.extents()
    record.extents = lambda: extents  # what the first archive does is on record, too
    for name, root in made.items():
        files, watch = LocalFiles(str(root)), JobWatch()
        engine = ArrowEngine(watch, files) if name == "arrow" else SparkEngine(spark)
        if name == "spark":
            files = HadoopFiles(spark, root.as_uri())
        Archiver(
            engine,
            watch,
            ArchiveLog.open_for(files, reached.identity()),
            [record, MessageFeed(reached, name)],
            ArchiveSettings(max_rows=15),
            now_ms=lambda: 1_800_000_000_000,
        ).run()
    return made


@pytest.mark.parametrize("stream", COLUMNS)
def test_the_rows_are_the_same(spark, roots, stream):
    found = {}
    for name, root in roots.items():
        frame = READ[stream](spark, str(root))
        found[name] = frame.orderBy("partition", *PLACE[stream]).collect()
    assert len(found["arrow"]) > 30
    assert found["arrow"] == found["spark"] == found["tasks"]


def test_the_entries_are_the_same_but_for_names_and_bytes(spark, roots):
    found = {}
    for name, root in roots.items():
        state = read_state(spark, str(root))
        files = {
            replace(each, path="-".join(each.path.split("-")[:-2]), bytes=0, sha256="")
            for each in state.files.values()
        }
        for path, each in state.files.items():
            assert each.sha256 == sha256((root / path).read_bytes()).hexdigest()
        assert state.beginnings == {
            stream: dict.fromkeys(positions, 0) for stream, positions in state.positions.items()
        }
        assert len(state.uids) == 1
        found[name] = (state.number, files, state.positions, state.gaps, state.removed)
    assert found["arrow"] == found["spark"] == found["tasks"]
    assert found["arrow"][0] > 4, "several steps of each stream"


def test_the_folders_are_the_same(roots):
    shapes = {
        name: {path.relative_to(root).parent for path in root.rglob("*") if path.is_file()}
        for name, root in roots.items()
    }
    assert shapes["arrow"] == shapes["spark"] == shapes["tasks"]


def test_a_root_that_executors_have_for_themselves_is_named(spark, queue, tmp_path, monkeypatch):
    def gone(task):
        return [DataFile("gone.parquet", "messages", "1.0", 0, 1, 1, 1, 0, 0)]

    monkeypatch.setattr("partq.pipeline.archive.spark_engine._run_task", gone)
    feed, files = MessageFeed(access(queue), "alone"), LocalFiles(str(tmp_path))
    ends = {"1.0": ArchivePosition(0)}, {"1.0": ArchivePosition(1)}
    with pytest.raises(InternalError, match=r"gone\.parquet: .* a ROOT that driver and executors"):
        SparkEngine(spark).write(Staging(files), feed, *ends)


@pytest.mark.parametrize("stream", COLUMNS)
def test_arrow_reads_what_spark_wrote_as_it_reads_its_own(roots, stream):
    rows = {}
    for name, root in roots.items():
        tables = [
            pq.ParquetFile(path, coerce_int96_timestamp_unit="us").read()
            for path in (root / stream).rglob("*.parquet")
        ]
        found = pa.concat_tables([table.cast(arrow_schema(stream)) for table in tables])
        rows[name] = found.sort_by([(name, "ascending") for name in ("partition", *PLACE[stream])])
    assert rows["arrow"].to_pylist() == rows["spark"].to_pylist()


def test_the_command_needs_no_spark(queue, tmp_path):
    """Neither the package nor Java; its output is the result, and lines of partq."""
    program = (
        "import sys; sys.modules |= dict.fromkeys(('pyspark', 'py4j'))\n"
        "from partq.cli.main import main\n"
        "main()\n"
    )
    given = ["pipeline", "archive", str(tmp_path), "--group", "alone", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", program, *given],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={
            **os.environ,
            "PATH": "/nowhere",
            "JAVA_HOME": "/nowhere",
            "PARTQ_URL": queue.broker.url,
            "PARTQ_QUEUE": queue.name,
            "PARTQ_TOKEN": queue.broker.tokens.admin,
        },
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"]["messages"] == 46
    assert all(line.startswith("archive: ") for line in done.stderr.splitlines())


def test_a_stop_ends_what_waits_for_a_broker(queue, tmp_path, monkeypatch):
    """Nothing is written, and nothing is left to be swept."""

    async def fetch(*_):
        watch.stop()
        await asyncio.Event().wait()
        yield

    monkeypatch.setattr(MessageSpans, "fetch", fetch)
    files, watch, reached = LocalFiles(str(tmp_path)), JobWatch(), access(queue)
    done = Archiver(
        ArrowEngine(watch, files),
        watch,
        ArchiveLog.open_for(files, reached.identity()),
        [MessageFeed(reached, "stopped")],
        ArchiveSettings(),
        now_ms=lambda: 0,
    ).run()
    assert (done.is_complete, done.rows) == (False, {})
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["archive.json"]


def test_a_disk_that_is_full_is_a_sentence(queue, tmp_path, monkeypatch):
    def add(self, batches):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(SpanFiles, "add", add)
    files, watch, reached = LocalFiles(str(tmp_path)), JobWatch(), access(queue)
    with pytest.raises(SettingsError, match="No space left on device"):
        Archiver(
            ArrowEngine(watch, files),
            watch,
            ArchiveLog.open_for(files, reached.identity()),
            [MessageFeed(reached, "stopped")],
            ArchiveSettings(),
            now_ms=lambda: 0,
        ).run()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["archive.json"]


def test_a_second_failure_of_the_disk_logs_no_trace(caplog):
    """The first one has cancelled the others, and their threads fail after that."""
    is_begun, goes_on = threading.Event(), threading.Event()

    def fail():
        is_begun.set()
        goes_on.wait()
        raise OSError(errno.ENOSPC, "No space left on device")

    async def cancel():
        task = asyncio.create_task(_in_thread(fail))
        await asyncio.to_thread(is_begun.wait)
        task.cancel()
        await asyncio.sleep(0)
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    gc.collect()
    assert caplog.messages == []
