"""Archiving a real queue: each offset once, whatever dies in between."""

import asyncio
import json
import os
import signal
import subprocess
import threading
from dataclasses import dataclass, replace

import pytest

from partq import Consumer, PartitionId
from partq.errors import (
    ConflictError,
    DataLossError,
    InternalError,
    SettingsError,
    UnauthorizedError,
    UnknownGroupError,
)
from partq.pipeline.access import QueueAccess
from partq.pipeline.archive.archiver import Archiver, ArchiveSettings, check_written
from partq.pipeline.archive.arrow_engine import ArrowEngine
from partq.pipeline.archive.feeds import MessageFeed
from partq.pipeline.archive.spark_engine import SparkEngine
from partq.pipeline.archive_files import read_archive, read_state
from partq.pipeline.archive_log import ArchiveLog
from partq.pipeline.manifest import ArchiveGap, ArchivePosition, DataFile, ManifestEntry
from partq.pipeline.planning import Span
from partq.pipeline.storage.local_files import LocalFiles
from partq.pipeline.watch import JobWatch
from partq.testing import eventually_blocking
from tests.cli.processes import PARTQ
from tests.pipeline.crashing import Crash, CrashingFiles, crash_points
from tests.spark.live_queue import live_queue
from tests.spark.session import JAVA_OPTIONS, NO_CODEGEN, SETTINGS

GROUP = "archive"
DEADLINE_S = 500.0
QUICK_JVM = [f"--conf={name}={SETTINGS[name]}" for name in (JAVA_OPTIONS, *NO_CODEGEN)]


@pytest.fixture(scope="module")
def queue():
    with live_queue(partitions=3, groups=[GROUP, "workers"]) as running:
        yield running


def access(queue, **changed):
    given = {
        "url": queue.broker.url,
        "queue": queue.name,
        "namespace": "default",
        "token": queue.broker.tokens.consume,
    }
    return QueueAccess(**(given | changed))


@dataclass(frozen=True)
class Engines:
    """The engine of a test's jobs, and the other one, which continues what they began."""

    name: str
    spark: object

    @property
    def other(self):
        return replace(self, name="spark" if self.name == "arrow" else "arrow")

    def open(self, watch, root):
        if self.name == "spark":
            return SparkEngine(self.spark)
        return ArrowEngine(watch, LocalFiles(str(root)))


@pytest.fixture(params=["arrow", "spark"])
def engine(request, spark):
    return Engines(request.param, spark)


def archive(engine, queue, root, *, files=None, group=GROUP, watch=None, feed=None, **settings):
    """Run the job as its command does."""
    reached = access(queue)
    watch = watch or JobWatch()
    log = ArchiveLog.open_for(files or LocalFiles(str(root)), reached.identity())
    return Archiver(
        engine.open(watch, root),
        watch,
        log,
        [feed or MessageFeed(reached, group)],
        ArchiveSettings(**settings),
        now_ms=lambda: 1_800_000_000_000,
    ).run()


def places(spark, root):
    return sorted((row.partition, row.offset) for row in read_archive(spark, str(root)).collect())


def stored(queue, first):
    """Return every place from these cursors on."""
    found = queue.reading(lambda reader: reader.bounds())
    return sorted(
        (str(partition), offset)
        for partition, bounds in found.items()
        for offset in range(first[str(partition)], bounds.end)
    )


def test_what_is_there_is_archived_and_the_cursors_follow(engine, spark, queue, tmp_path):
    first = queue.cursors(GROUP)
    sent = queue.publish(range(200))
    done = archive(engine, queue, tmp_path, max_rows=150)

    rows = {
        (row.partition, row.offset): row for row in read_archive(spark, str(tmp_path)).collect()
    }
    assert sorted(rows) == stored(queue, first)
    assert (done.rows, done.steps) == ({"messages": 200}, 2)
    assert (done.is_complete, done.lag, done.gaps) == (True, 0, [])
    for number, place in enumerate(sent):
        row = rows[str(place.partition), place.offset]
        assert (row.key, row.value, row.headers) == (
            f"key-{number % 10}", b"%d" % number, {"n": str(number)},
        )  # fmt: skip
        assert row.append_broker_epoch > 0
    assert queue.cursors(GROUP) == done.positions["messages"]

    assert archive(engine, queue, tmp_path).rows == {}
    queue.publish(range(10))
    assert archive(engine.other, queue, tmp_path).rows == {"messages": 10}
    assert places(spark, tmp_path) == stored(queue, first)


class _CrashingFeed(MessageFeed):
    """A job that dies before or after its cursors move."""

    def __init__(self, reached, *, is_done):
        super().__init__(reached, GROUP)
        self._is_done = is_done
        self._has_acknowledged = False

    def acknowledge(self, positions):
        if self._has_acknowledged and not self._is_done:
            raise Crash
        super().acknowledge(positions)
        if self._has_acknowledged:
            raise Crash
        self._has_acknowledged = True  # what an earlier job could not


def test_crashes_at_every_change_lose_and_repeat_nothing(engine, spark, queue, tmp_path):
    """One job after the other dies, each at another point, and the next one continues from there.

    The changes of a first step are: the header, a file of each partition put in its place, the
    entry, and the folder removed that the files were in. Then the cursors move.
    """
    first = queue.cursors(GROUP)
    for at, is_done in [(0, True), (0, False), *crash_points([2, 3]), (4, False)]:
        queue.publish(range(20))
        crashing = CrashingFiles(LocalFiles(str(tmp_path)), at=at, is_done=is_done)
        with pytest.raises(Crash):
            archive(engine, queue, tmp_path, files=crashing)
    for is_done in (False, True):
        queue.publish(range(20))
        with pytest.raises(Crash):
            archive(engine, queue, tmp_path, feed=_CrashingFeed(access(queue), is_done=is_done))

    archive(engine.other, queue, tmp_path)
    assert places(spark, tmp_path) == stored(queue, first)
    state = read_state(spark, str(tmp_path))
    assert state.number >= 3, "some of them died when their step counted already"
    assert queue.cursors(GROUP) == {
        partition: at.offset for partition, at in state.positions["messages"].items()
    }


def test_a_job_that_is_stopped_returns_what_is_durable(engine, spark, queue, tmp_path):
    queue.publish(range(60))

    def stop_after_a_step(progress):
        if progress.done:
            watch.stop()

    watch = JobWatch(stop_after_a_step)
    done = archive(engine, queue, tmp_path, watch=watch, max_rows=20)

    assert (done.is_complete, done.rows, done.lag) == (False, {"messages": 20}, 40)
    assert len(places(spark, tmp_path)) == 20
    assert archive(engine.other, queue, tmp_path).rows == {"messages": 40}


def test_of_two_jobs_one_ends_and_nothing_is_doubled(engine, spark, queue, tmp_path):
    first = queue.cursors(GROUP)
    queue.publish(range(20))

    class Slower(LocalFiles):
        def create(self, path, data):
            if path.startswith("_partq/log/") and not meddled:
                meddled.append(archive(engine.other, queue, tmp_path))
            return super().create(path, data)

    meddled = []
    with pytest.raises(ConflictError, match="another job archives to it"):
        archive(engine, queue, tmp_path, files=Slower(str(tmp_path)))

    assert places(spark, tmp_path) == stored(queue, first)


def test_what_is_no_longer_stored_is_refused_or_noted(engine, spark, queue, tmp_path):
    queue.publish(range(30))
    late, early = tmp_path / "late", tmp_path / "early"
    archive(engine, queue, late)
    before = read_state(spark, str(late)).positions["messages"]
    queue.publish(range(30))
    archive(engine, queue, early)
    ends = queue.reading(lambda reader: reader.positions("latest"))
    queue.reading(lambda reader: reader.commit("workers", ends))
    eventually_blocking(
        lambda: all(
            bounds.first == bounds.end for bounds in queue.reading(lambda r: r.bounds()).values()
        ),
        "the expiry of all messages",
        timeout_s=DEADLINE_S,
    )

    with pytest.raises(DataLossError, match="with --skip-lost it notes the gap"):
        archive(engine, queue, late)
    said = []
    done = archive(engine, queue, late, watch=JobWatch(on_line=said.append), skips_lost=True)

    lost = [
        ArchiveGap("messages", str(partition), before[str(partition)].offset, at.offset)
        for partition, at in sorted(ends.items())
    ]
    assert sorted(done.gaps, key=lambda gap: gap.partition) == lost
    assert sorted(read_state(spark, str(late)).gaps, key=lambda gap: gap.partition) == lost
    assert len(said) == len(lost)
    assert archive(engine, queue, late).gaps == []


def test_a_group_with_a_member_is_refused(engine, queue, tmp_path):
    async def consume():
        consumer = Consumer(
            queue.broker.url, queue=queue.name, group=GROUP, token=queue.broker.tokens.consume
        )
        async with consumer:
            delivery = await anext(aiter(consumer))
            refused.append(await asyncio.to_thread(_refusal, engine, queue, tmp_path))
            await delivery.ack()

    refused = []
    queue.publish(range(5))
    queue.run(consume())
    assert "member" in refused[0]


def _refusal(engine, queue, root):
    with pytest.raises(ConflictError) as caught:
        archive(engine, queue, root)
    return caught.value.message


@pytest.mark.parametrize(
    ("changed", "group", "kind", "sentence"),
    [
        pytest.param({}, "nobody", UnknownGroupError, "nobody", id="group"),
        pytest.param({"token": "wrong"}, GROUP, UnauthorizedError, "token", id="token"),
    ],
)
def test_wrong_input_is_a_sentence(queue, changed, group, kind, sentence):
    with pytest.raises(kind, match=sentence):
        MessageFeed(access(queue, **changed), group).beginnings()


def test_the_root_of_another_queue_is_refused(engine, queue, tmp_path):
    archive(engine, queue, tmp_path)
    header = tmp_path / "_partq" / "archive.json"
    header.write_text(json.dumps({**json.loads(header.read_text()), "queue": "bills"}))
    with pytest.raises(SettingsError, match="is the archive of default/bills"):
        archive(engine, queue, tmp_path)


def test_an_archive_that_does_not_say_of_which_queue_is_refused(queue, tmp_path):
    files, identity = LocalFiles(str(tmp_path)), access(queue).identity()
    log = ArchiveLog.open_for(files, identity)
    entry = ManifestEntry(number=0, attempt="a", kind="archive", at_ms=0)
    log.commit(log.load(), lambda _: entry)
    header = tmp_path / "_partq" / "archive.json"
    header.unlink()
    told = r"archive\.json is missing, and there are entries .* put it back from a copy"
    with pytest.raises(SettingsError, match=told):
        ArchiveLog.open_for(files, identity)
    with pytest.raises(SettingsError, match=told):
        ArchiveLog.open(files)
    assert not header.exists()


@pytest.mark.parametrize(
    "planned",
    [
        pytest.param({"1.0": (3, 8)}, id="the last is missing"),
        pytest.param({"1.0": (2, 7)}, id="the first is missing"),
        pytest.param({"1.0": (3, 7), "1.1": (0, 1)}, id="a partition is missing"),
        pytest.param({}, id="a partition is too much"),
    ],
)
def test_files_that_are_not_what_was_planned_do_not_count(planned):
    spans = {
        PartitionId.parse(partition): Span(ArchivePosition(start), stop)
        for partition, (start, stop) in planned.items()
    }
    written = DataFile("messages/x", "messages", "1.0", 3, 7, 4, 100, 0, 0)
    check_written("messages", {PartitionId(1, 0): Span(ArchivePosition(3), 7)}, [written])
    with pytest.raises(InternalError):
        check_written("messages", spans, [written])
    with pytest.raises(InternalError):
        check_written("messages", spans, [replace(written, rows=3)])


def test_brokers_that_die_meanwhile_change_nothing(engine, spark, tmp_path):
    """Partitions move from broker to broker while they are read and while cursors move."""
    with live_queue(partitions=4, groups=[GROUP], broker_count=2) as queue:
        queue.publish(range(100))
        killed = []

        def kill_one(progress):
            if progress.done and len(killed) < 2:
                child = queue.broker.runtime.brokers[len(killed)]
                killed.append(child)
                os.kill(child.pid, signal.SIGKILL)

        done = archive(engine, queue, tmp_path, watch=JobWatch(kill_one), max_rows=30)
        assert (len(killed), done.rows) == (2, {"messages": 100})
        assert places(spark, tmp_path) == stored(queue, {f"1.{index}": 0 for index in range(4)})


def test_a_driver_that_is_killed_loses_and_repeats_nothing(engine, spark, queue, tmp_path):
    """The command itself, a process alone, killed with -9 while it writes."""
    first = queue.cursors(GROUP)
    root = tmp_path / "root"
    queue.publish(range(1000))
    command = [
        *PARTQ, "pipeline", "archive", str(root), "--group", GROUP, "--follow", "--every", "0.1",
        "--max-rows", "10", "--no-audit", "--engine", engine.name,
    ]  # fmt: skip
    command += ["--master", "local[2]", *QUICK_JVM] if engine.name == "spark" else []
    environ = {
        **os.environ,
        "PARTQ_URL": queue.broker.url,
        "PARTQ_QUEUE": queue.name,
        "PARTQ_TOKEN": queue.broker.tokens.consume,
    }
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        too_late = threading.Timer(DEADLINE_S, process.kill)
        too_late.start()
        try:
            log = root / "_partq" / "log"
            eventually_blocking(
                lambda: process.poll() is not None or (log / "000000000003.json").exists(),
                "the third file of the log",
                timeout_s=DEADLINE_S,
            )
            process.kill()
            _, said = process.communicate()
        finally:
            too_late.cancel()
    assert process.returncode == -signal.SIGKILL, said

    before = len(places(spark, root))
    assert 30 <= before < 1000, "it was killed in the middle"
    archive(engine.other, queue, root)
    assert places(spark, root) == stored(queue, first)
