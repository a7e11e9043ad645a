"""Replaying an archive into a real queue: in the order of each key, each message once."""

import json
from collections import Counter, defaultdict

import pytest
from click.testing import CliRunner

from partq import Browser
from partq.cli.commands import cli
from partq.cli.pipeline.replay import as_text, preview_text
from partq.errors import ConflictError, SettingsError
from partq.pipeline import replay as replaying
from partq.pipeline.access import QueueAccess
from partq.pipeline.archive_log import ArchiveLog
from partq.pipeline.compaction import compact
from partq.pipeline.job import Job
from partq.pipeline.manifest import ArchiveGap, ManifestEntry, Predecessor
from partq.pipeline.replay import Preview, preview, step_rows
from partq.pipeline.replay_plan import ReplayFilter, ReplayPlan, find_awaited
from partq.pipeline.storage.local_files import LocalFiles
from partq.pipeline.watch import JobWatch
from tests.pipeline.crashing import Crash, CrashingFiles
from tests.pipeline.rows import DAY_MS, NOW_MS, QUEUE, add, rows_of
from tests.spark.live_queue import live_queue

PARTITIONS = {"1.0": 40, "1.1": 25, "2.0": 30}
"""How many messages the archive has of each."""


def key_of(partition):
    """Return the keys of a partition's offsets; those of 1.0 go to 2.0, as after a rescale."""
    family = {"1.0": "a", "1.1": "b", "2.0": "a"}[partition]
    return lambda offset: None if offset % 10 == 9 else f"{family}{offset % 4}"


EXPECTED = [
    (key_of(partition)(offset), f"{partition}:{offset}")
    for partition, count in PARTITIONS.items()
    for offset in range(count)
]


@pytest.fixture(scope="module")
def archive(spark, tmp_path_factory):
    archive = ArchiveLog.open_for(LocalFiles(str(tmp_path_factory.mktemp("root"))), QUEUE)
    halves = [
        rows_of(spark, partition, first, stop, key=key_of(partition))
        for partition, count in PARTITIONS.items()
        for first, stop in ((0, count // 2), (count // 2, count))
    ]
    for frame in halves:
        add(spark, archive, frame.coalesce(1))
    return archive


@pytest.fixture(scope="module")
def target():
    with live_queue(partitions=5, groups=["workers"]) as running:
        yield running


@pytest.fixture
def job(spark):
    return Job(spark, JobWatch())


def send(job, archive, queue, name, wanted=None, **changed):
    reached = QueueAccess(
        url=queue.broker.url,
        queue=queue.name,
        namespace="default",
        token=queue.broker.tokens.produce,
    )
    given = {"replay_id": name, "rate": None} | changed
    return replaying.replay(job, archive, reached, wanted or ReplayFilter(), **given)


class Received:
    """What a queue got since this was made, partition by partition in its order."""

    def __init__(self, queue):
        self._queue = queue
        self._first = queue.reading(lambda reader: reader.positions("latest"))

    def messages(self):
        async def look():
            tokens = self._queue.broker.tokens
            async with Browser(
                self._queue.broker.url, queue=self._queue.name, token=tokens.consume
            ) as browser:
                first = {partition: at.offset for partition, at in self._first.items()}
                return [each async for each in browser.messages(offsets=first)]

        found = self._queue.run(look())
        return sorted(found, key=lambda each: (each.partition, each.offset))


def by_key(pairs):
    found = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return found


def check(received, expected=EXPECTED):
    """Each message is there once, and those of a key stand in their order in one partition."""
    got = [(each.message.key, each.message.value.decode()) for each in received]
    assert Counter(got) == Counter(expected)
    ours, theirs = by_key(got), by_key(expected)
    for key in theirs.keys() - {None}:
        assert ours[key] == theirs[key], key


@pytest.fixture
def small_steps(monkeypatch):
    """Steps of some messages, as a rate would make them of more."""
    monkeypatch.setattr(replaying, "STEP_ROWS", 30)


@pytest.mark.usefixtures("small_steps")
def test_a_replay_that_dies_is_gone_on_with(spark, job, archive, target):
    """It dies when a step is stored and not noted; the archive is compacted; it is stopped."""
    received = Received(target)
    crashing = CrashingFiles(archive.files, at=2, is_done=False)
    with pytest.raises(Crash):
        send(job, ArchiveLog(crashing, QUEUE), target, "again")
    assert len(received.messages()) == 60

    compact(job, archive, now_ms=lambda: NOW_MS, target_bytes=2**20, keep_ms=DAY_MS)

    watch = JobWatch(lambda progress: watch.stop())
    stopped = send(Job(spark, watch), archive, target, "again")
    assert (stopped.is_complete, stopped.skipped, stopped.sent) == (False, 30, 30)

    done = send(job, archive, target, "again")
    assert (done.is_complete, done.skipped, done.sent) == (True, 60, 35)
    check(received.messages())
    one = received.messages()[0].message
    assert (one.headers, one.event_time_ms) == ({"h": "x"}, 0)

    assert send(job, archive, target, "again").sent == 0
    assert len(received.messages()) == len(EXPECTED)


def test_parts_are_sent_by_time_partition_and_key(job, archive, target):
    wanted = ReplayFilter(
        from_ms=NOW_MS, until_ms=NOW_MS + DAY_MS, partitions=("1.0", "1.1"), keys=("a1", "b2")
    )
    expected = [
        (key, value)
        for key, value in EXPECTED
        if key in ("a1", "b2")
        and (partition := value.partition(":")[0]) != "2.0"
        # Rows were archived in two halves, the later half of each a day later.
        and int(value.partition(":")[2]) % (half := PARTITIONS[partition] // 2) < half // 2
    ]
    shown = preview(job, archive, wanted)
    assert shown == Preview(
        messages=len(expected), keys=2, first_ms=NOW_MS, last_ms=NOW_MS,
        partitions=dict(Counter(value.partition(":")[0] for _, value in expected)),
    )  # fmt: skip

    received = Received(target)
    send(job, archive, target, None, wanted, rate=1_000_000.0)
    check(received.messages(), expected)


def test_an_id_stands_for_one_replay(job, archive, target, spark, tmp_path):
    empty = ArchiveLog.open_for(LocalFiles(str(tmp_path)), QUEUE)
    assert send(job, empty, target, "one").is_complete
    with pytest.raises(ConflictError, match="choose another --id"):
        send(job, empty, target, "one", ReplayFilter(keys=("k",)))
    with pytest.raises(SettingsError, match="letters, digits"):
        send(job, empty, target, "a/b")
    first, second = (
        send(job, empty, target, None, ReplayFilter(keys=(key,))).replay for key in "ab"
    )
    assert first != second
    assert send(job, empty, target, None, ReplayFilter(keys=("a",))).replay == first


def test_a_partition_that_is_not_archived_is_named(job, archive):
    with pytest.raises(SettingsError, match=r"no messages of '1.7'; it has those of 1.0, 1.1, 2.0"):
        preview(job, archive, ReplayFilter(partitions=("1.7",)))


@pytest.mark.parametrize(
    ("rate", "rows"), [(None, 100_000), (1.0, 200), (1_000.0, 2_000), (10_000_000.0, 100_000)]
)
def test_steps_are_about_two_seconds_long(rate, rows):
    assert step_rows(rate) == rows


def test_a_rate_is_kept_in_each_step(spark, archive, target, monkeypatch):
    """A step that took long is not caught up, the first one with Spark's start included."""
    now = 0.0
    waits = []

    class Waiting(JobWatch):
        def wait(self, length_s):
            nonlocal now
            now += length_s
            waits.append(length_s)
            return False

    lengths = iter([100.0, 12.0, 1.0, 500.0, 0.0])
    write = replaying._write

    def write_slowly(*given):
        nonlocal now
        write(*given)
        now += next(lengths)

    monkeypatch.setattr(replaying, "MIN_STEP_ROWS", 8)
    monkeypatch.setattr(replaying, "_write", write_slowly)
    done = send(
        Job(spark, Waiting()), archive, target, "slowly", ReplayFilter(partitions=("1.0",)),
        rate=0.5, clock=lambda: now,
    )  # fmt: skip
    assert (done.steps, done.is_complete) == (5, True)
    assert [each for each in waits if each] == [16.0, 4.0, 15.0]


def test_a_plan_is_stored_as_it_is():
    plan = ReplayPlan(
        source="s", target="t", wanted=ReplayFilter(keys=("a",), from_ms=3),
        extents={"1.0": (0, 5), "2.0": (0, 1)}, step_rows=7, awaited={"2.0": {"1.0": 3}},
    )  # fmt: skip
    assert ReplayPlan.from_json("n", plan.to_json()) == plan

    body = json.loads(plan.to_json())
    del body["awaited"]
    of_earlier_version = ReplayPlan.from_json("n", json.dumps(body).encode())
    assert of_earlier_version.awaited == {"2.0": {"1.0": 5}}


def test_a_partition_is_sent_in_later_steps_than_what_it_follows():
    extents = {"1.0": (0, 10), "1.1": (0, 4), "2.0": (0, 6)}
    plan = ReplayPlan(
        source="s", target="t", wanted=ReplayFilter(), extents=extents, step_rows=100,
        awaited=find_awaited({"2.0": {"1.0": Predecessor(((0, 9),), 7)}}, extents),
    )  # fmt: skip
    steps = [{str(each): span.stop for each, span in step.items()} for step in plan.steps()]
    assert steps == [{"1.0": 10, "1.1": 4}, {"2.0": 6}]


def test_what_partitions_follow_by_an_archive():
    extents = {"1.0": (0, 10), "1.1": (0, 4), "2.0": (0, 6), "3.0": (0, 1)}
    taken = ((0, 9),)
    known = {
        "2.0": {"1.0": Predecessor(taken, 7)},
        "3.0": {"2.5": Predecessor(taken, 0), "2.0": Predecessor(taken, 9)},
        "2.5": {"1.1": Predecessor(taken, 2), "1.7": Predecessor(taken, 8)},
    }
    assert find_awaited(known, extents) == {
        "2.0": {"1.0": 7},
        # 2.0 was chosen by time, so it ends below its seal; nothing is there of 2.5 and 1.7.
        "3.0": {"2.0": 6, "1.1": 2},
    }
    del known["2.5"]
    assert find_awaited(known, extents)["3.0"] == {"2.0": 6, "1.0": 10, "1.1": 4}


def test_the_command_says_what_it_would_send_and_sends_it(archive, target):
    def run(*arguments):
        given = ["pipeline", "replay", archive.files.root, "--key", "b1", *arguments]
        result = CliRunner().invoke(cli, given)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    count = sum(key == "b1" for key, _ in EXPECTED)
    assert json.loads(run("--dry-run", "--json"))["messages"] == count
    assert run("--dry-run").startswith(
        f"{count} messages of 1 keys would be sent, stored from 2027"
    )

    received = Received(target)
    where = ["--url", target.broker.url, "--queue", target.name]
    secret = ["--token", target.broker.tokens.produce]
    done = json.loads(run("--id", "by-command", "--json", *where, *secret))
    assert (done["replay"], done["is_complete"], done["steps"]) == ("by-command", True, 2)
    check(received.messages(), [pair for pair in EXPECTED if pair[0] == "b1"])
    assert "it is complete" in run("--id", "by-command", *where, *secret)


def test_undecodable_messages_are_counted_and_not_sent(spark, job, target, tmp_path):
    archive = ArchiveLog.open_for(LocalFiles(str(tmp_path)), QUEUE)
    add(spark, archive, rows_of(spark, "1.0", 0, 5, key=key_of("1.0")).coalesce(1))
    gaps = (
        ArchiveGap("messages", "1.0", 5, 8, "_partq/undecodable/a.batch"),
        ArchiveGap("messages", "1.1", 0, 2, "_partq/undecodable/b.batch"),
        ArchiveGap("messages", "1.0", 8, 9),
    )
    noted = ManifestEntry(number=0, attempt="a", kind="archive", at_ms=NOW_MS, gaps=gaps)
    archive.commit(archive.load(), lambda _: noted)

    wanted = ReplayFilter(partitions=("1.0",))
    shown = preview(job, archive, wanted)
    assert (shown.messages, shown.undecodable) == (5, 3)
    assert "3 undecodable messages of these partitions are not sent" in preview_text(shown)
    done = send(job, archive, target, "some", wanted)
    assert (done.sent, done.undecodable) == (5, 3)
    assert "3 undecodable messages of these partitions are not sent" in as_text(done)
    assert preview(job, archive, ReplayFilter()).undecodable == 5
