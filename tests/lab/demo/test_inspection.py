"""The demo with an audit: two verdicts side by side."""

import copy
import json
import sys
from io import StringIO
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from partq.cli.commands import cli
from partq.errors import InternalError
from partq.lab.demo.inspection import Inspection, compare, print_inspection, to_json
from partq.lab.demo.jobs import run_job
from partq.lab.demo.run import GROUP, resources
from partq.lab.verdict.judge import Verdict

VERDICT = Verdict(
    published=1000,
    delivered=1000,
    lost=0,
    foreign=0,
    out_of_order=0,
    duplicates={"broker_change": 40, "flow_lost": 3},
)
AUDIT: dict[str, Any] = {
    "verdict": "clean",
    "totals": {"published": 1000},
    "findings": [],
    "duplicates": [
        {"group": GROUP, "cause": "flow_lost", "event": "bind", "events": 1, "messages": 3},
        {"group": GROUP, "cause": "flow_lost", "event": "bind", "events": 1, "messages": 2},
        {"group": GROUP, "cause": "broker_change", "event": "claim", "events": 8, "messages": 40},
        {"group": "other", "cause": "nack", "event": "nack", "events": 1, "messages": 9},
    ],
    "report": "/tmp/report/report.html",
}


def inspection(*, rows=1000, unrecorded=0, sentences=(), **audit):
    return Inspection(
        archive={"rows": {"messages": rows}},
        audit=copy.deepcopy(AUDIT) | audit,
        unrecorded=unrecorded,
        findings=sentences,
        took_s=41.26,
    )


def test_the_record_may_have_more_repeats_than_the_journals():
    found = inspection()
    assert found.duplicates(GROUP) == {"broker_change": 40, "flow_lost": 5}
    assert compare(VERDICT, found, GROUP) == []


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        pytest.param(
            inspection(totals={"published": 999}),
            "published by the brokers' record: 999 messages, the journals have 1,000",
            id="published",
        ),
        pytest.param(
            inspection(rows=1001),
            "archived: 1,001 messages, the journals have 1,000",
            id="archived",
        ),
        pytest.param(
            inspection(duplicates=AUDIT["duplicates"][1:]),
            "the brokers' record has 2 repeats by flow_lost, the journals have 3",
            id="a cause",
        ),
        pytest.param(
            inspection(verdict="faults found"),
            "the audit of the brokers' record: faults found; see /tmp/report/report.html",
            id="the audit's verdict",
        ),
    ],
)
def test_every_difference_is_a_sentence(found, difference):
    assert compare(VERDICT, found, GROUP) == [difference]


def test_a_processing_that_no_broker_knows_of_is_a_difference():
    found = inspection(unrecorded=2, sentences=("first", "second"))
    differences = ["2 processings are not in the brokers' record", "first", "second"]
    assert compare(VERDICT, found, GROUP) == differences


def test_both_verdicts_are_shown_side_by_side():
    findings = [
        {"check": "loss", "what": "lost", "severity": "fault", "count": 4},
        {"check": "order", "what": "out_of_order", "severity": "fault", "count": 2},
    ]
    shown = StringIO()
    console = Console(file=shown, width=100)
    print_inspection(console, VERDICT, inspection(findings=findings), GROUP)
    rows = [line.split() for line in shown.getvalue().splitlines()]
    assert ["published", "1,000", "1,000"] in rows
    assert ["lost", "0", "4"] in rows
    assert ["out", "of", "order", "0", "2"] in rows
    assert ["again:", "flow_lost", "3", "5"] in rows
    assert rows[-1] == ["report:", "/tmp/report/report.html"]


def test_programs_get_all_of_it():
    found = json.loads(json.dumps(to_json(inspection())))
    assert found == {
        "archive": {"rows": {"messages": 1000}},
        "audit": AUDIT,
        "unrecorded": 0,
        "took_s": 41.3,
    }


async def test_a_job_that_fails_has_no_answer(tmp_path):
    """It prints its error as JSON, as it would print its answer."""
    with pytest.raises(InternalError, match="partq pipeline archive ended with status 2: ") as told:
        await run_job(["archive", str(tmp_path)], {}, lambda _: None)
    assert "--group is not given" in told.value.message


async def test_a_job_that_fails_is_named_with_its_last_words():
    with pytest.raises(InternalError, match="partq pipeline nothing ended with status 2: ") as told:
        await run_job(["nothing"], {}, lambda _: None)
    assert "No such command 'nothing'" in told.value.message


def test_with_an_audit_the_queue_has_a_record_and_a_group_that_keeps_the_messages():
    plain = resources(is_audited=False)
    audited = resources(is_audited=True)
    assert [group.metadata.name for group in plain.groups] == [GROUP]
    assert [group.metadata.name for group in audited.groups] == [GROUP, "archive"]
    assert [queue.spec.audit for queue in (*plain.queues, *audited.queues)] == [False, True]


def test_without_spark_the_demo_says_so_before_it_begins(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    result = CliRunner().invoke(cli, ["demo", "--with-spark"])
    assert result.exit_code == 2
    assert (
        "--with-spark needs Spark: in a checkout of partq, pip install -e '.[lab,spark]'"
        in result.output
    )


def test_without_java_the_demo_says_so_before_it_begins(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    result = CliRunner().invoke(cli, ["demo", "--with-spark"])
    assert result.exit_code == 2
    assert f"--with-spark: JAVA_HOME is {tmp_path}, and there is no bin/java" in result.output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--report", "/tmp/report"], "--report: got it without --with-audit"),
        (["--with-audit", "--with-spark"], "--with-audit: got it beside --with-spark"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, sentence):
    result = CliRunner().invoke(cli, ["demo", *options])
    assert result.exit_code == 2
    assert sentence in result.output


def test_without_arrow_the_demo_says_so_before_it_begins(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = CliRunner().invoke(cli, ["demo", "--with-audit"])
    assert result.exit_code == 2
    assert (
        "--with-audit needs pyarrow: in a checkout of partq, pip install -e '.[lab,pipeline]'"
        in result.output
    )
