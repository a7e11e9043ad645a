"""The audit: silent on what went well, and each fault that is planted is found, and only that."""

import asyncio
from collections import Counter

import pytest

from partq.errors import SettingsError
from partq.spark.pipeline.audit.job import FINDINGS, run_audit
from partq.spark.pipeline.audit.verdict import CLEAN, FAULTS_FOUND, Found, Totals, Verdict
from partq.spark.pipeline.watch import StoppedError, Watch
from tests.spark.audit.frames import write_archive
from tests.spark.audit.model import clean_run
from tests.spark.audit.plants import PLANTS, busy, plant_all
from tests.spark.audit.real_run import COUNT, recorded_run

# One run of the job lays out some hundred Spark jobs: on a busy machine that takes its time.
pytestmark = pytest.mark.timeout(900)

SMALL = {"spark.sql.adaptive.enabled": "false"}
"""For a few hundred rows, planning anew between stages takes longer than running them."""


@pytest.fixture(scope="module", autouse=True)
def small(spark):
    before = {name: spark.conf.get(name) for name in SMALL}
    for name, value in SMALL.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("audit")


@pytest.fixture(scope="module")
def clean(folder):
    """Runs and their records: of a real queue, of the model, and what the plants begin with."""
    runs = [*clean_run(partitions=3, steps=250, seed=11), busy("2.9")]
    recorded = [(run, run.rows) for run in asyncio.run(recorded_run())]
    return recorded + [(run, run.rows()) for run in runs]


@pytest.fixture(scope="module")
def clean_report(spark, folder, clean):
    root = write_archive(folder / "clean", clean)
    return run_audit(spark, root, str(folder / "clean-report"), Watch())


@pytest.fixture(scope="module")
def planted():
    return plant_all()


@pytest.fixture(scope="module")
def found(spark, folder, planted):
    """The findings of a run in which each partition has one fault."""
    root = write_archive(folder / "planted", [(each.partition, each.read()) for each in planted])
    where = str(folder / "planted-report")
    report = run_audit(spark, root, where, Watch())
    assert report.verdict.text == FAULTS_FOUND
    return spark.read.parquet(f"{where}/{FINDINGS}").collect()


def test_a_clean_run_gives_no_finding(clean_report):
    assert clean_report.verdict.found == []
    assert clean_report.verdict.text == CLEAN


def test_a_real_run_is_part_of_what_is_clean(clean):
    recorded = [rows for run, rows in clean if run.name.startswith("1.")]
    kinds = Counter(row.kind for rows in recorded for row in rows)

    assert (
        sum(row.stop - row.first for rows in recorded for row in rows if row.kind == "publish")
        == 3 * COUNT
    )
    assert kinds["claim"] > len(recorded)
    assert kinds["pause"] > 0


def test_everything_is_counted(clean, clean_report):
    totals = clean_report.verdict.totals

    assert totals.partitions == len(clean)
    assert totals.published == totals.archived == sum(run.end for run, _ in clean)
    assert totals.records == sum(len(rows) for _, rows in clean)


def test_each_duplicate_has_the_cause_that_it_was_sent_for(clean, clean_report):
    expected = sum((duplicates_of(rows) for _, rows in clean), Counter())

    assert set(expected) == {"nack", "flow_lost", "forced_commit", "broker_change"}
    assert clean_report.verdict.by_cause() == expected


def test_duplicates_of_a_forced_handoff_are_what_it_cut(clean_report):
    verdict = clean_report.verdict
    cut = sum(each.messages_cut for each in verdict.handoffs if each.is_forced)

    assert cut == verdict.by_cause()["forced_commit"]
    assert all(each.messages_cut == 0 for each in verdict.handoffs if not each.is_forced)
    assert sum(each.keys_continued or 0 for each in verdict.handoffs) > 0


@pytest.mark.parametrize("at", range(len(PLANTS)), ids=[plant.__name__ for plant in PLANTS])
def test_a_planted_fault_is_found_and_nothing_else(at, planted, found):
    plant = planted[at]
    here = [row for row in found if row.partition == plant.partition.name]

    assert [row.what for row in here] == [plant.what]
    (row,) = here
    assert row.severity == "fault"
    if plant.first is not None:
        assert (row.first, row.stop) == (plant.first, plant.stop)
        keys = {each.offset: each.key for each in plant.partition.messages}
        assert row.key == keys.get(plant.first)
    if plant.sequence is not None:
        assert row.sequence == plant.sequence


def test_without_a_record_there_is_no_audit(spark, tmp_path):
    run = busy("1.0")
    root = write_archive(tmp_path / "none", [(run, [])])

    with pytest.raises(SettingsError, match="holds no audit record; set `audit: true`"):
        run_audit(spark, root, str(tmp_path / "report"), Watch())


def test_a_stopped_audit_leaves_no_report(spark, folder, clean_report, tmp_path):
    watch = Watch()
    watch.stop()

    with pytest.raises(StoppedError):
        run_audit(spark, str(folder / "clean"), str(tmp_path / "report"), watch)

    assert not [path for path in (tmp_path / "report").rglob("*") if path.is_file()]


TOTALS = Totals(
    partitions=1, records=1, published=1, delivered=1, acknowledged=1, dead_lettered=0, expired=0,
    archived=None, from_ms=0, until_ms=1,
)  # fmt: skip


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([], "clean"),
        ([("log", "archive_behind", "warning")], "clean"),
        ([("handoffs", "handoff_under_way", "information")], "clean"),
        ([("chain", "missing_range", "fault")], "incomplete"),
        ([("chain", "missing_range", "fault"), ("loss", "lost", "fault")], "faults found"),
    ],
)
def test_verdict(found, text):
    verdict = Verdict(totals=TOTALS, found=[Found(*each, 1) for each in found])

    assert verdict.text == text
    assert verdict.is_clean == (text == "clean")


def duplicates_of(rows):
    """Count what came again in a record, one offset after the other: slow, and plainly right."""
    counts = Counter()
    in_hand = {}
    for row in rows:
        had = in_hand.setdefault(row.group, set())
        if row.kind == "release":
            in_hand[row.group] = {each for each in had if each < row.first}
        if row.kind == "deliver":
            offsets = set(range(row.first, row.stop))
            if again := len(offsets & had):
                counts[row.cause] += again
            had |= offsets
    return counts
