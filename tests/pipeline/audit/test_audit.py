"""The audit: silent on what went well, and each fault that is planted is found, and only that."""

import asyncio
import json
import re
from collections import Counter
from math import inf
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyarrow import parquet

from partq.cli.commands import cli
from partq.pipeline.audit.engines import spark as spark_engine
from partq.pipeline.audit.engines.arrow import ArrowAuditEngine
from partq.pipeline.audit.job import DUPLICATES, FINDINGS, HANDOFFS, PAGE, VERDICT, run_audit
from partq.pipeline.audit.schema import FAULT, KINDS
from partq.pipeline.audit.verdict import AuditTotals, AuditVerdict, FindingCount
from partq.pipeline.storage.local_files import LocalFiles
from partq.pipeline.watch import JobWatch, StoppedError
from tests.pipeline.audit.change_plants import CHANGE_PLANTS, changed
from tests.pipeline.audit.chosen_run import CHOSEN, chosen_run
from tests.pipeline.audit.content.real_archive import OF_ARCHIVE
from tests.pipeline.audit.frames import write_archive
from tests.pipeline.audit.model import clean_run
from tests.pipeline.audit.page_reader import read_page
from tests.pipeline.audit.planting import busy
from tests.pipeline.audit.plants import HOSTILE, PLANTS, plant_all
from tests.pipeline.audit.real_run import COUNT, EXPIRED, TROUBLED, recorded_run, troubled_run

# Real runs wait for timers of brokers, and members are killed: minutes on two cores at load 24.
pytestmark = pytest.mark.timeout(1800)

SMALL = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "2"}
"""For a few hundred rows, planning anew between stages takes longer than running them."""

NAMES = [plant.__name__ for plant in (*PLANTS, *CHANGE_PLANTS)]
REAL = (recorded_run, troubled_run, chosen_run)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("audit")


@pytest.fixture(scope="module")
def clean(folder):
    """Runs and their records: of a real queue, of the model, and what the plants begin with."""
    runs = [*clean_run(partitions=3, steps=250, seed=11), busy("2.9"), *changed(0)]
    recorded = [(run, run.rows) for run in asyncio.run(real_runs())]
    return recorded + [(run, run.rows()) for run in runs]


async def real_runs():
    """Return the partitions of all real runs, which wait for timers side by side."""
    runs = await asyncio.gather(*(make() for make in REAL))
    return [each for run in runs for each in run]


@pytest.fixture(scope="module")
def clean_report(folder, clean):
    return Audited(write_archive(folder / "clean", clean), folder / "clean-report")


@pytest.fixture(scope="module")
def planted():
    return plant_all()


@pytest.fixture(scope="module")
def faulty_report(folder, planted):
    """The report of a run in which each partition has one fault."""
    root = write_archive(
        folder / "planted",
        [(each.partition, each.read()) for each in planted]
        + [(other, other.rows()) for each in planted for other in each.others],
        stops={
            each.partition.name: each.archived_to
            for each in planted
            if each.archived_to is not None
        },
        gaps=[each.gap for each in planted if each.gap is not None],
        begins={each.partition.name: each.begins for each in planted},
    )
    return Audited(root, folder / "planted-report")


class Audited:
    """What the command said of an archive, and the report that it left."""

    def __init__(self, root, where, *options):
        given = ["pipeline", "audit", root, "--report", str(where), *options]
        self.result = CliRunner().invoke(cli, given)
        assert self.result.exception is None or isinstance(self.result.exception, SystemExit)
        self.said = self.result.stdout
        self.where = where

    def verdict(self):
        return json.loads((self.where / VERDICT).read_text(encoding="utf-8"))

    def page(self):
        return read_page((self.where / PAGE).read_text(encoding="utf-8"))

    def findings(self):
        return self.rows(FINDINGS)

    def rows(self, name):
        return parquet.read_table(self.where / name).to_pylist()


def messages_by_cause(verdict):
    counts = Counter()
    for each in verdict["duplicates"]:
        counts[each["cause"]] += each["messages"]
    return counts


def test_a_clean_run_gives_no_finding(clean_report):
    assert clean_report.findings() == []
    assert clean_report.verdict()["findings"] == []
    assert clean_report.verdict()["verdict"] == "clean"


def test_the_command_says_that_a_run_is_clean(clean, clean_report):
    counted = f"{sum(len(rows) for _, rows in clean):,} records of {len(clean)} partitions"

    assert clean_report.result.exit_code == 0
    assert clean_report.said.startswith(f"clean\n{counted}")
    assert "findings" not in clean_report.said
    assert "forced_commit" in clean_report.said
    assert (
        f"\nreport: file://{clean_report.where}/{PAGE}\nkeep its verdict.json" in clean_report.said
    )


def test_the_command_says_which_partitions_have_no_expected_head(folder, clean_report):
    heads = clean_report.verdict()["heads"]
    known, *others = sorted(heads)
    kept = folder / "heads.json"
    kept.write_text(json.dumps({"heads": {known: heads[known]}}))
    options = ("--expect", str(kept), "--no-messages")
    report = Audited(str(folder / "clean"), folder / "expect-report", *options)

    assert report.result.exit_code == 0
    told = " ".join(report.said.split())
    assert f"--expect has no head of {len(others)} partitions" in told
    assert set(report.verdict()["not_expected"]) == set(others)
    assert "keep its verdict.json" not in told


def test_the_page_says_that_a_run_is_clean(clean_report):
    page = clean_report.page()

    assert page.title == "Audit of default/orders (uid 0123abcd): clean"
    assert page.headings[0] == "✓ Clean"
    assert not page.rows_of("severity")
    assert len(page.figures) == 4
    assert all(page.figures)


def test_a_real_run_is_part_of_what_is_clean(clean):
    recorded = [rows for run, rows in clean if run.name.startswith("1.")]
    kinds = Counter(row.kind for rows in recorded for row in rows)

    assert (
        sum(row.stop - row.first for rows in recorded for row in rows if row.kind == "publish")
        == 3 * COUNT
    )
    assert kinds["claim"] > len(recorded)
    assert kinds["pause"] > 0


def test_a_real_run_with_every_kind_of_failure_is_part_of_what_is_clean(clean):
    recorded = [row for run, rows in clean if run.name.startswith(f"{TROUBLED}.") for row in rows]
    kinds = {row.kind for row in recorded}
    causes = {row.cause for row in recorded if row.kind == "deliver"}

    assert {"nack", "release", "dead_letter", "expired", "reset"} <= kinds
    assert {"nack", "ack_timeout", "reset"} <= causes
    assert {row.cause for row in recorded if row.kind == "nack"} == {"nack", "ack_timeout"}
    stored = sum(row.stop - row.first for row in recorded if row.kind == "publish")
    assert stored == 2 * COUNT + len(EXPIRED)


def test_a_real_run_whose_members_choose_is_part_of_what_is_clean(clean):
    runs = [rows for run, rows in clean if run.name.startswith(f"{CHOSEN}.")]
    taken = {rows[0].partition: [row for row in rows if row.kind == "register"] for rows in runs}

    assert len(runs) == 4
    assert all(len(rows) > 1 for rows in taken.values()), "each was registered, free, and again"
    assert {row.member for rows in taken.values() for row in rows} == {"staying", "lost"}
    given_back = {(row.target, row.cause) for rows in runs for row in rows if row.kind == "commit"}
    assert {("", ""), ("", "drain_timeout"), ("", "source_lost")} <= given_back
    causes = {row.cause for rows in runs for row in rows if row.kind == "deliver"}
    assert {"forced_commit", "reset"} <= causes


def test_everything_is_counted(clean, clean_report):
    totals = clean_report.verdict()["totals"]

    assert totals["partitions"] == len(clean)
    assert totals["published"] == totals["archived"] == sum(run.end for run, _ in clean)
    assert totals["records"] == sum(len(rows) for _, rows in clean)


def test_what_became_of_the_messages_of_each_group_adds_up(clean, clean_report):
    verdict = clean_report.verdict()
    groups = {each.pop("group"): each for each in verdict["groups"]}
    taken = {
        name: sum(run.end for run, rows in clean if any(row.group == name for row in rows))
        for name in groups
    }

    assert {"workers", "billing"} <= groups.keys()
    assert {name: each.pop("published") for name, each in groups.items()} == taken
    assert {name: sum(each.values()) for name, each in groups.items()} == taken
    assert groups["workers"]["acknowledged"] > 0
    assert groups["workers"]["lag"] == groups["workers"]["not_known"] == 0
    assert "otherwise done" in clean_report.said


def test_each_duplicate_has_the_cause_that_it_was_sent_for(clean, clean_report):
    expected = sum((duplicates_of(rows) for _, rows in clean), Counter())

    assert set(expected) == {
        *("nack", "ack_timeout", "reset"),
        *("flow_lost", "forced_commit", "broker_change"),
    }
    assert messages_by_cause(clean_report.verdict()) == expected


def test_duplicates_of_a_forced_handoff_are_what_it_cut(clean_report):
    verdict = clean_report.verdict()
    handoffs = verdict["handoffs"]
    cut = sum(each["messages_cut"] for each in handoffs if each["is_forced"])

    assert cut == messages_by_cause(verdict)["forced_commit"]
    assert all(each["messages_cut"] == 0 for each in handoffs if not each["is_forced"])
    assert sum(each["keys_continued"] or 0 for each in handoffs) > 0


@pytest.mark.parametrize("at", range(len(NAMES)), ids=NAMES)
def test_a_planted_fault_is_found_and_nothing_else(at, planted, faulty_report):
    plant = planted[at]
    here = [row for row in faulty_report.findings() if row["partition"] == plant.partition.name]

    assert [row["what"] for row in here] == [plant.what]
    (row,) = here
    assert row["severity"] == KINDS[plant.what]
    if plant.first is not None:
        assert (row["first"], row["stop"]) == (plant.first, plant.stop)
        keys = {each.offset: each.key for each in plant.partition.messages}
        assert row["key"] == keys.get(plant.first)
    if plant.sequence is not None:
        assert row["sequence"] == plant.sequence


def test_every_kind_of_finding_is_planted(planted):
    """Some of them in the files and entries of a real archive (test_real_archive)."""
    assert {plant.what for plant in planted} | OF_ARCHIVE == set(KINDS)


def test_every_kind_of_finding_is_explained():
    page = (Path(__file__).parents[3] / "docs/audit-report.md").read_text(encoding="utf-8")

    assert set(KINDS) <= set(re.findall(r"`(\w+)`", page))


def test_the_command_tells_of_faults(planted, faulty_report):
    lines = faulty_report.said.splitlines()
    listed = {line.split()[0]: line.split()[1:] for line in lines if "fault" in line.split()}

    assert faulty_report.result.exit_code == 1
    assert lines[0] == "faults found"
    assert set(listed) == {plant.what for plant in planted if KINDS[plant.what] == FAULT}
    for kind, (_, _, count) in listed.items():
        assert int(count) == sum(plant.what == kind for plant in planted)


def test_the_page_shows_each_fault_with_its_place(planted, faulty_report):
    page = faulty_report.page()
    rows = {row["partition"]: row for row in page.rows_of("severity")}

    assert page.title == "Audit of default/orders (uid 0123abcd): faults found"
    assert page.headings[0] == "✕ Faults found"
    assert len(rows) == len(planted)
    for plant in planted:
        row = rows[plant.partition.name]
        assert row["what"].startswith(plant.what.replace("_", " "))
        assert row["severity"] == KINDS[plant.what]
        if plant.first is not None:
            last = plant.stop - 1
            assert row["offsets"] == (
                f"{plant.first}" if plant.first == last else f"{plant.first} to {last}"
            )
        if plant.sequence is not None:
            assert row["record"] == f"{plant.sequence}"
    assert HOSTILE in {row["key"] for row in rows.values()}


@pytest.mark.parametrize("report", ["clean_report", "faulty_report"])
def test_the_page_fetches_nothing_and_says_in_words_what_it_draws(report, request):
    page = request.getfixturevalue(report).page()

    assert page.addresses == []
    assert "script" not in page.elements
    assert page.figures
    assert all(len(figure.split()) > 3 for figure in page.figures)
    assert len(page.ids) == len(set(page.ids))


def test_part_of_a_record_is_audited_without_messages(folder):
    """Neither the beginning that is not there counts, nor a message that is not in the archive."""
    run = busy("1.0")
    del run.messages[5]
    root = write_archive(folder / "part", [(run, run.rows(since=4))])
    report = Audited(root, folder / "part-report", "--partial", "--no-messages", "--json")
    told = json.loads(report.said)

    assert report.result.exit_code == 0
    assert told == report.verdict() | {"report": f"file://{report.where}/{PAGE}"}
    assert (told["verdict"], told["findings"]) == ("clean", [])
    assert told["totals"]["archived"] is None
    assert {each["keys_continued"] for each in told["handoffs"]} == {None}


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], "holds no audit record; set `audit: true`"),
        (None, "there is no archive"),
    ],
)
def test_without_a_record_there_is_no_audit(rows, sentence, tmp_path):
    root = tmp_path / "none"
    if rows is not None:
        write_archive(root, [(busy("1.0"), rows)])
    report = Audited(str(root), tmp_path / "report")

    assert report.result.exit_code == 2
    assert sentence in report.result.stderr
    assert not [path for path in report.where.rglob("*") if path.is_file()]


def test_a_stopped_audit_leaves_no_report(folder, clean_report, tmp_path):
    files, watch = LocalFiles(str(folder / "clean")), JobWatch()
    watch.stop()

    with pytest.raises(StoppedError):
        run_audit(
            ArrowAuditEngine(files.root, watch),
            files,
            LocalFiles(str(tmp_path / "report")),
            watch,
        )

    assert not [path for path in (tmp_path / "report").rglob("*") if path.is_file()]


@pytest.mark.parametrize("what", ["clean", "planted"])
def test_spark_comes_to_the_same(what, spark, folder, clean_report, faulty_report, monkeypatch):
    if what == "planted":  # a hundred partitions; of the others each has a task for itself
        monkeypatch.setattr(spark_engine, "MAX_TASKS", 8)
    other = {"clean": clean_report, "planted": faulty_report}[what]
    conf = [f"--conf={name}={value}" for name, value in SMALL.items()]
    report = Audited(
        str(folder / what), folder / f"{what}-spark-report", "--engine", "spark", *conf
    )

    assert report.verdict() == other.verdict()
    for name in (FINDINGS, DUPLICATES, HANDOFFS):
        assert report.rows(name) == other.rows(name)
    assert report.page().rows_of("severity") == other.page().rows_of("severity")


def test_every_finding_says_when(faulty_report):
    """Where there is no record, there is no time either."""
    rows = [row for row in faulty_report.findings() if row["what"] != "no_record"]

    assert all(row["at_ms"] is not None and row["sequence"] is not None for row in rows)


TOTALS = AuditTotals(
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
    verdict = AuditVerdict(totals=TOTALS, found=[FindingCount(*each, 1) for each in found])

    assert verdict.text == text
    assert verdict.is_clean == (text == "clean")


def duplicates_of(rows):
    """Count what came again in a record, one offset after the other: slow, and plainly right."""
    counts = Counter()
    in_hand = {}
    for row in rows:
        had = in_hand.setdefault(row.group, set())
        if row.kind == "release":
            stop = row.stop if row.flags == "keyed" else inf
            in_hand[row.group] = {each for each in had if not row.first <= each < stop}
        if row.kind == "deliver":
            offsets = set(range(row.first, row.stop))
            if again := len(offsets & had):
                counts[row.cause] += again
            had |= offsets
    return counts
