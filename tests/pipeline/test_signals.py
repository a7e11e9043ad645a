"""Commands that are told to end: in order, with their exit status, and gone on with afterwards."""

import json
import os
import signal
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict

import pytest
from click.testing import CliRunner

from partq.cli.commands import cli
from partq.pipeline.archive_files import read_archive
from partq.pipeline.job import Job
from partq.pipeline.watch import JobWatch
from tests.spark.live_queue import live_queue

COUNT = 600
LOOK_S = 0.02
DEADLINE_S = 60.0
TERM, INT = signal.SIGTERM, signal.SIGINT


@pytest.fixture(scope="module")
def queue():
    audited = {"audit": True}
    with live_queue(partitions=2, groups=["archive"], spec=audited) as running:
        running.publish(range(COUNT))
        yield running


def run(queue, *arguments):
    """Run a command in the main thread, as its own process would; returns its result."""
    environ = {
        "PARTQ_URL": queue.broker.url,
        "PARTQ_QUEUE": queue.name,
        "PARTQ_TOKEN": queue.broker.tokens.admin,
    }
    return CliRunner().invoke(cli, ["pipeline", *map(str, arguments), "--json"], env=environ)


@contextmanager
def told(number, *, once):
    """Send this process a signal as soon as `once()` is true; whoever handles signals gets it."""
    strays, over = [], threading.Event()

    def watch():
        while not over.wait(LOOK_S):
            if once():
                os.kill(os.getpid(), number)
                return

    before = signal.signal(number, lambda *_: strays.append(number))
    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()
        signal.signal(number, before)
    assert not strays, "the command had ended, or had not begun"


def entries(root):
    return len(list((root / "_partq" / "log").glob("*.json")))


def archived(spark, root):
    rows = read_archive(spark, str(root)).select("value").collect()
    return Counter(int(row.value) for row in rows)


@pytest.fixture(scope="module")
def root(spark, queue, tmp_path_factory):
    """An archive of the whole queue; a signal has cut it off, and it was run again."""
    place = tmp_path_factory.mktemp("signals") / "root"
    given = ("archive", place, "--group", "archive", "--once")
    with told(TERM, once=lambda: entries(place) >= 2):
        first = run(queue, *given, "--max-rows", "20")
    assert first.exit_code == 128 + TERM, first.output
    done = json.loads(first.stdout)
    assert not done["is_complete"]
    assert 0 < archived(spark, place).total() < COUNT
    assert "Exception" not in first.stderr
    again = run(queue, *given)
    assert (again.exit_code, json.loads(again.stdout)["is_complete"]) == (0, True)
    return place


def test_an_archive_goes_on_behind_a_sigterm(spark, queue, root):
    assert archived(spark, root) == Counter(range(COUNT))


def test_an_archive_that_follows_ends_in_order(spark, queue, root):
    before = entries(root)
    queue.publish(range(COUNT, COUNT + 10))
    follow = ("archive", root, "--group", "archive", "--follow", "--every", "0.1", "--no-audit")
    with told(INT, once=lambda: entries(root) > before):
        done = run(queue, *follow)
    assert done.exit_code in (0, 128 + INT), done.output
    assert (done.exit_code == 0) == json.loads(done.stdout)["is_complete"]
    assert archived(spark, root) == Counter(range(COUNT + 10))


def test_a_replay_goes_on_behind_a_signal(spark, queue, root):
    with live_queue(queue="copy", partitions=3) as copy:
        given = ("replay", root, "--rate", "100", "--id", "signals")

        def stored():
            bounds = copy.reading(lambda reader: reader.bounds())
            return sum(each.end for each in bounds.values())

        with told(INT, once=stored):
            first = run(copy, *given)
        assert first.exit_code == 128 + INT, first.output
        assert "Exception" not in first.stderr
        again = run(copy, *given)
        assert again.exit_code == 0, again.output
        assert stored() == archived(spark, root).total(), "each message once"


def test_an_audit_that_is_told_to_end_says_so(spark, queue, root, tmp_path):
    given = ("audit", root, "--report", tmp_path / "report", "--engine", "spark")
    active = spark.sparkContext.statusTracker().getActiveJobsIds
    with told(TERM, once=active):
        first = run(queue, *given)
    check_stopped(first)
    again = run(queue, *given)
    assert (again.exit_code, json.loads(again.stdout)["verdict"]) == (0, "clean"), again.output


def test_an_audit_without_spark_that_is_told_to_end_says_so(queue, root, tmp_path, monkeypatch):
    begun, check = threading.Event(), JobWatch.check

    def wait(watch):
        begun.set()
        watch.wait(DEADLINE_S)
        check(watch)

    monkeypatch.setattr(JobWatch, "check", wait)
    with told(TERM, once=begun.is_set):
        first = run(queue, "audit", root, "--report", tmp_path / "report", "--engine", "arrow")
    check_stopped(first)


@pytest.mark.parametrize("number", [INT, TERM])
def test_a_signal_before_the_job_is_told(queue, root, monkeypatch, number):
    def be_told(*_, **__):
        signal.raise_signal(number)

    monkeypatch.setattr(Job, "open", be_told)
    result = run(queue, "archive", root, "--group", "archive", "--engine", "spark")
    assert result.exit_code == 128 + number
    assert json.loads(result.stdout)["error"]["code"] == "stopped"
    assert "partq: stopped before the job began" in result.stderr


@pytest.mark.parametrize("number", [INT, TERM])
def test_a_signal_after_the_job_does_not_take_its_result(queue, root, monkeypatch, number):
    def tell(done):
        signal.raise_signal(number)
        return asdict(done)

    monkeypatch.setattr("partq.cli.pipeline.archive.asdict", tell)
    result = run(queue, "archive", root, "--group", "archive", "--engine", "arrow")
    assert (result.exit_code, json.loads(result.stdout)["is_complete"]) == (0, True)


def check_stopped(result):
    """Check the status, the one JSON object and the sentence of a job that SIGTERM has ended."""
    assert result.exit_code == 128 + TERM, result.output
    assert json.loads(result.stdout)["error"]["code"] == "stopped"
    assert "stopped before the end" in result.stderr
    assert "Exception" not in result.stderr
