"""The bench of handoffs: its figures on rows made up, and a tiny run of the whole."""

import json

import pytest
from click.testing import CliRunner

from partq.cli.commands import cli
from partq.lab.bench.handoff.drive import HandoffLoad, Strike
from partq.lab.bench.handoff.figures import (
    MARGIN_NS,
    first_elsewhere,
    flow,
    gaps,
    highest_tokens,
    summary,
)
from partq.lab.bench.handoff.report import HandoffMeasurements, render, report
from partq.lab.verdict.journal_rows import DeliveredRow, PublishedRow
from partq.lab.verdict.judge import judge
from partq.lab.workload.synthetic import in_turn

MS = 1_000_000


def row(at_ms, partition, member, epoch, broker_epoch=1):
    return DeliveredRow(at_ms * MS, member, partition, at_ms, broker_epoch, epoch, 0, "k", at_ms)


MOVED = [
    row(0, "p", "a", 1),
    row(10, "q", "a", 1),
    row(20, "p", "a", 1),
    row(65, "p", "b", 2),
    row(66, "p", "a", 1),
    row(70, "q", "a", 1),
    row(75, "p", "b", 2),
]
"""p moves from a to b; what a writes down late, under its old token, is no move back."""


def test_a_gap_is_from_the_last_message_to_the_first_at_another_member():
    (gap,) = gaps(MOVED, 0, 100 * MS)
    assert (gap.partition, gap.ms) == ("p", 45.0)


def test_a_gap_belongs_to_the_time_in_which_it_ends():
    assert gaps(MOVED, 66 * MS, 100 * MS) == []
    assert gaps(MOVED, 0, 65 * MS) == []
    assert len(gaps(MOVED, 65 * MS, 66 * MS)) == 1


def test_a_member_that_is_bound_anew_makes_no_gap():
    assert gaps([row(0, "p", "a", 1), row(9, "p", "a", 2)], 0, 100 * MS) == []


def test_elsewhere_is_what_came_under_a_newer_token():
    before = highest_tokens(MOVED[:3])
    assert before == {"p": (1, 1), "q": (1, 1)}
    assert first_elsewhere(before, MOVED[3:]) == {"p": 65 * MS}
    other_broker = [row(80, "q", "a", 1, broker_epoch=2)]
    assert first_elsewhere(before, other_broker) == {"q": 80 * MS}


def test_the_flow_counts_messages_and_the_silences_that_end_in_the_windows():
    rows = [row(at, "p", "a", 1) for at in range(0, 1000, 10) if not 400 < at < 500]
    rows += [row(at, "q", "a", 1) for at in range(5, 1000, 10)]
    rows.sort()
    calm = flow(rows, [(0, 400 * MS, frozenset("pq"))])
    assert calm.per_s == pytest.approx(100)
    assert max(calm.silences_ms) == 10
    dip = flow(rows, [(450 * MS, 550 * MS, frozenset("p"))])
    assert dip.per_s == pytest.approx(50)
    assert max(dip.silences_ms) == 100


def test_a_summary_of_nothing_is_zero():
    assert summary([]) == {"count": 0, "p50": 0, "p99": 0, "max": 0}
    assert summary([1.0, 3.0, 2.26]) == {"count": 3, "p50": 2.3, "p99": 3.0, "max": 3.0}


def test_messages_go_to_the_partitions_in_turn_and_as_many_to_each():
    ordered = in_turn(["a1", "a2", "b1", "c1", "a3", "b2", "c2"], lambda key: key[0])
    assert ordered == ["a1", "b1", "c1", "a2", "b2", "c2"]


def steady(stop_ms):
    """Two partitions at `a`; p moves to b at 1 s, and has no message for 50 ms."""
    rows = []
    for at in range(0, stop_ms, 10):
        rows.append(row(at, "q", "a", 1))
        if at < 1000:
            rows.append(row(at + 1, "p", "a", 1))
        elif at >= 1040:
            rows.append(row(at + 1, "p", "b", 2))
    return rows


def test_the_report_tells_gaps_the_others_and_what_followed_each_strike():
    rows = steady(4000)
    strike = Strike(at_ns=0, elsewhere_ns=(5_100 * MS, 5_120 * MS))
    found = HandoffMeasurements(
        rows=rows,
        changes=[(900 * MS, 1100 * MS)],
        scaled_ns=4000 * MS,
        killed=[strike],
        killed_at_once=[Strike(at_ns=0, elsewhere_ns=(40 * MS,))],
        killed_standby=[Strike(at_ns=0, elsewhere_ns=(60 * MS, 90 * MS))],
        consumers_frozen=[],
        brokers_frozen=[],
        verdicts=[judge([PublishedRow(0, "p", 0, "x", 1)], [])],
    )
    told = report(HandoffLoad(partitions=2, per_s=200), found, lease_s=3.0, delay_s=5.0)
    assert told["graceful_gap_ms"] == {"count": 1, "p50": 50, "p99": 50, "max": 50}
    others = told["others"]
    assert others["rate_ratio"] == pytest.approx(1, abs=0.05)
    assert others["silence_in_moves_ms"]["max"] == 10, "that of p is its gap"
    assert (told["killed_over_delay_ms"]["p50"], told["killed_over_delay_ms"]["max"]) == (100, 120)
    assert told["killed_without_delay_ms"]["max"] == 40
    assert told["killed_standby_ms"] == {"count": 2, "p50": 60.0, "p99": 90.0, "max": 90.0}
    assert told["consumer_frozen_ms"]["count"] == 0
    assert (told["lost"], told["is_good"]) == (1, False)
    text = render(told)
    assert "lost 1" in text
    assert "120" in text
    assert MARGIN_NS < 1000 * MS


def test_a_tiny_run_moves_partitions_and_loses_nothing(tmp_path):
    file = tmp_path / "handoff.json"
    load = ["--partitions", "4", "--per-s", "200"]
    args = [*load, "--rounds", "1", "--kills", "0", "--freezes", "0", "--json"]
    result = CliRunner().invoke(cli, ["bench", "handoff", *args, str(file)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    told = json.loads(file.read_text())
    assert told["graceful_gap_ms"]["count"] >= 4, "two partitions go, two come back"
    assert told["others"]["per_s_in_moves"] > 0
    assert (told["lost"], told["out_of_order"]) == (0, 0)
    assert told["published"] > 0
