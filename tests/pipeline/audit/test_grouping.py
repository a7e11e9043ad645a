"""Findings become lines: one for each kind, partition and owner, what came first in front."""

from partq.pipeline.audit.grouping import MAX_EXAMPLES, group_findings
from partq.pipeline.audit.judge.finding import ACKS, CHAIN, OWNERS, finding
from tests.pipeline.audit.model import START_MS


def found(what, partition="1.0", sequence=0, *, check=ACKS, at_ms=None, **places):
    at_ms = START_MS + 10 * (sequence or 0) if at_ms is None else at_ms
    given = {"group": "workers", "member": "worker-1", "sequence": sequence, "at_ms": at_ms}
    return finding(check, what, partition, f"{what} {sequence}", **(given | places))


def order(findings):
    return [(each.what, each.partition) for each in group_findings(findings)]


def test_rows_of_one_kind_become_one_line():
    rows = [
        found("stale_ack", sequence=number, first=5 * number, stop=5 * number + 5)
        for number in range(846)
    ]

    (line,) = group_findings(reversed(rows))

    assert (line.what, line.partition, line.group) == ("stale_ack", "1.0", "workers")
    assert (line.member, line.count) == ("worker-1", 846)
    assert (line.first, line.stop) == (0, 5 * 846)
    assert (line.sequence, line.last_sequence) == (0, 845)
    assert (line.at_ms, line.last_ms) == (START_MS, START_MS + 8450)
    assert list(line.examples) == rows[:MAX_EXAMPLES]


def test_owners_groups_and_partitions_have_lines_of_their_own():
    rows = [
        found("stale_ack"),
        found("stale_ack", member="worker-2"),
        found("stale_ack", group="billing"),
        found("stale_ack", "1.1"),
        found("two_owners", check=OWNERS),
    ]

    assert [each.count for each in group_findings(rows * 2)] == [2] * len(rows)


def test_what_a_partition_begins_with_stands_before_what_follows_from_it():
    rows = [found("stale_ack", sequence=each) for each in range(225, 230)]
    rows += [found("lost", sequence=400), found("bind_not_held", sequence=222, check=OWNERS)]

    assert [what for what, _ in order(rows)] == ["bind_not_held", "stale_ack", "lost"]


def test_in_one_record_the_owner_stands_before_acks():
    rows = [found("stale_ack", sequence=7), found("two_owners", sequence=7, check=OWNERS)]

    assert [what for what, _ in order(rows)] == ["two_owners", "stale_ack"]


def test_the_record_is_the_order_also_where_its_clock_went_back():
    rows = [
        found("stale_ack", sequence=3, at_ms=START_MS),
        found("lost", sequence=2, at_ms=START_MS + 9),
    ]

    assert [what for what, _ in order(rows)] == ["lost", "stale_ack"]


def test_partitions_stay_together_the_earliest_first_and_are_ordered_as_numbers():
    same = START_MS
    rows = [
        found("stale_ack", "1.10", at_ms=same),
        found("stale_ack", "1.2", at_ms=same),
        found("lost", "1.2", 90, at_ms=same + 500),
        found("lost", "1.1", at_ms=same + 1),
        found("lost", "2.0", at_ms=same - 1),
    ]

    assert [partition for _, partition in order(rows)] == ["2.0", "1.2", "1.2", "1.10", "1.1"]


def test_faults_stand_before_warnings_and_what_has_no_place_is_last():
    rows = [
        found("archive_behind"),
        found("time_went_back", check=CHAIN, sequence=1),
        found("missing_range", check=CHAIN, sequence=None, at_ms=None, member=None, group=None),
        found("stale_ack", sequence=9),
    ]
    rows[2] = rows[2]._replace(at_ms=None)

    lines = group_findings(rows)

    assert [each.what for each in lines] == [
        *("stale_ack", "missing_range"),
        *("archive_behind", "time_went_back"),
    ]
    assert (lines[1].group, lines[1].member, lines[1].at_ms) == ("", "", None)
