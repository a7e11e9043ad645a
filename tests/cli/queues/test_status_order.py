"""What is wrong comes first in `partq status`, and all of it fits a terminal of 80 columns."""

from collections import defaultdict
from io import StringIO

from rich.console import Console

from partq.cli.queues.partition_map import MemberMarks
from partq.cli.queues.status import MAX_ROWS, render
from partq.wire.calls.status import (
    GroupPartition,
    GroupStatus,
    MemberStatus,
    PartitionStatus,
    QueueTotals,
    StatusAnswer,
)

PODS = [f"cca83d2b-1111-4222-8333-12345678{number:04}/main" for number in range(3)]
BLOCKED = "its dead letters are not stored"


def group_of(rows, *, lag=0, members=PODS):
    held = [MemberStatus(each, 1, "Active") for each in members]
    held[-1].state = "Lost"
    return GroupStatus("Partitioned", lag, 0, held, rows, [], [])


def row(member=PODS[0], state="Ready", *, lag=0, blocked="", parked=""):
    return GroupPartition(member, 1, state, 5, lag, 1000 * lag, 0, blocked, parked)


def answer_of(unavailable=(), **groups):
    names = {name for group in groups.values() for name in group.partitions}
    return StatusAnswer(
        *("orders", "default", {}, "Available", list(unavailable), QueueTotals(8, 1204, 96_512)),
        {name: PartitionStatus("orders-broker-0", 1, 0, 5, 100) for name in names},
        groups,
    )


def shown(answer, marks=None, width=80):
    console = Console(width=width, file=StringIO())
    console.print(render(answer, None, marks))
    return console.file.getvalue()


def first_cells(text):
    return [line.split("│")[1].strip() for line in text.splitlines() if line.startswith("│")]


WORKERS = {
    "1.0": row(),
    "1.1": row(lag=2),
    "1.2": row(lag=70),
    "1.3": row(PODS[1], "Paused"),
    "1.4": row(PODS[2], "Unbound", lag=5),
    "1.5": row("", "Unassigned"),
    "1.6": row(lag=1, blocked=BLOCKED),
    "1.7": row(parked="no such queue"),
    "1.8": row(PODS[1]),
}


def test_partitions_members_and_groups_with_something_wrong_come_first():
    groups = {
        "calm": group_of({"1.0": row(lag=900)}, lag=900),
        "behind": group_of({"1.0": row(lag=901)}, lag=901),
        "workers": group_of(WORKERS, lag=78),
    }
    text = shown(answer_of(["1.8"], **groups))
    heads = [line.split(":")[0] for line in text.splitlines() if line.startswith("group ")]
    assert heads == ["group workers", "group behind", "group calm"]
    cells = [each for each in first_cells(text.split("group behind")[0]) if each]
    assert cells[:4] == ["C", "-", "A", "B"], "the lost one, nobody, then by lag"
    assert cells[4:] == ["1.6", "1.8", "1.5", "1.4", "1.3", "1.7", "1.2", "1.1"]
    assert "1.0  AAA~/-!A?\n" in text


def test_it_fits_80_columns_and_names_are_whole():
    text = shown(answer_of(workers=group_of(WORKERS)))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert all(name in text for name in (*PODS, "orders-broker-0", "Unassigned", "partition"))


def test_where_all_is_well_no_partition_has_a_row():
    text = shown(answer_of(workers=group_of({f"1.{n}": row() for n in range(4)})))
    assert "1.0  AAAA\n" in text
    assert "orders-broker-0" not in text.split("group workers")[1]


def test_of_many_the_worst_are_shown_and_the_rest_is_counted():
    rows = {f"1.{n}": row("m-00", lag=n) for n in range(1, 31)}
    text = shown(answer_of(workers=group_of(rows, members=[f"m-{n:02}" for n in range(28)])))
    cells = first_cells(text)
    assert cells[MAX_ROWS:] == [f"1.{n}" for n in range(30, 30 - MAX_ROWS, -1)]
    assert "and 10 more partitions: `partq partitions --group workers` shows all" in text
    assert "and 8 more members: `partq members --group workers` shows all" in text


def test_while_it_watches_members_keep_their_letters():
    marks = defaultdict(MemberMarks)
    assert "1.0  A\n" in shown(answer_of(g=group_of({"1.0": row("m")}, members=["m"])), marks)
    after = answer_of(g=group_of({"1.0": row("m"), "1.1": row("a")}, members=["a", "m"]))
    assert "1.0  AB\n" in shown(after, marks)


def test_of_a_group_that_nobody_consumes_the_partitions_with_a_lag_have_a_row():
    rows = {"1.0": row("", "Unassigned"), "1.1": row("", "Unassigned", lag=3)}
    nobody = group_of(rows, members=["m"])
    nobody.members[0].state = "Left"
    text = shown(answer_of(g=nobody))
    assert "1.0  --\n" in text
    assert first_cells(text)[-1] == "1.1"
    assert "Left" not in text
    nobody.members[0].state = "Active"
    assert first_cells(shown(answer_of(g=nobody)))[-2:] == ["1.1", "1.0"]
