"""`partq explain`, `members` and `plan` of groups that assign no partition to anybody."""

import io
import json

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from rich.console import Console

from partq.cli.commands import cli
from partq.cli.members import members
from partq.cli.queues import explain, plan_live
from partq.cli.queues.status import render
from partq.core.layout import Layout
from partq.wire.calls.answers import UNSET
from partq.wire.calls.state import (
    BrokerAnswer,
    BrokerState,
    FlowDetail,
    GroupDetail,
    ListedMember,
    PartitionDetail,
    Picture,
    SessionCounts,
)
from partq.wire.calls.status import (
    GroupPartition,
    GroupStatus,
    MemberStatus,
    PartitionStatus,
    QueueTotals,
    StatusAnswer,
)

AT = ("--queue", "orders", "--url", "http://127.0.0.1:1", "--token", "t")


def picture(group_type, bound="ab", *, is_withheld=False):
    is_shared = group_type == "Shared"
    detail = GroupDetail(
        member="", epoch=3, attempt=0, is_bound=False, state="Ready", lag=2, is_withheld=is_withheld
    )
    partitions = {
        name: PartitionDetail(broker_epoch=7, held_s=60, end=9, groups={"workers": detail})
        for name in ("1.0", "1.1")
    }
    flows = [
        FlowDetail(
            group="workers",
            member=member,
            incarnation="i",
            bound_s=60,
            unacked=41,
            credit=7 if is_shared else UNSET,
            turns=2 if is_shared else UNSET,
            sessions=UNSET if is_shared else 3,
            priority=6 if is_shared else 0,
        )
        for member in bound
    ]
    state = BrokerState("b-0", "i", partitions, flows, [])
    return Picture(
        now_ms=1, queue_spec={}, group_spec={"type": group_type}, partitions=[*partitions],
        members={member: ListedMember("10.0.0.1", None) for member in bound}, heirs={}, refused={},
        assignment={}, handoffs={}, past={}, waiting={}, brokers={"b-0": BrokerAnswer(state)},
    )  # fmt: skip


@pytest.fixture
def run(monkeypatch):
    """Run a command on a group, without any process."""

    async def layout(_connection):
        return Layout.first(2)

    def run(found, *arguments):
        async def ask(_connection, _group):
            return "workers", found

        for each in (explain, members, plan_live):
            monkeypatch.setattr(each, "ask_for_group", ask)
        monkeypatch.setattr(explain, "find_layout", layout)
        printed = CliRunner().invoke(
            cli, [*arguments, *AT], env={"COLUMNS": "200"}, catch_exceptions=False
        )
        assert printed.exit_code == 0, printed.output
        return printed.output

    return run


TYPES = pytest.mark.parametrize(("group_type", "says", "has"), [
    ("Shared", "any member gets its next message", "all, in turns"),
    ("Session", "members lock its sessions", "its sessions of all"),
])  # fmt: skip


@TYPES
def test_a_partition_is_at_all_members_and_moves_to_nobody(run, group_type, says, has):
    text = run(picture(group_type), "explain", "0")
    assert "now: Ready, at all members, served by b-0; 2 messages not acknowledged" in text
    assert f"waits for: nothing: {says}\n" in text
    assert f"moves: none, as the type {group_type} assigns nothing\n" in text
    assert json.loads(run(picture(group_type), "explain", "0", "--json"))["waits_for"]["what"] == (
        "nothing"
    )


@TYPES
def test_without_a_member_a_partition_waits_for_one(run, group_type, says, has):
    text = run(picture(group_type, bound=""), "explain", "0")
    assert "waits for: a member: no member that is connected" in text
    assert "now: Unassigned, at no member, served by b-0" in text


def test_an_application_that_has_paused_a_partition_does_not_hold_up_the_others(run):
    text = run(picture("Shared", is_withheld=True), "explain", "0")
    assert "waits for: nothing: any member gets its next message\n" in text
    assert "all members has paused" not in text
    assert "paused" in text


@TYPES
def test_connected_members_are_active_and_no_partition_is_held_by_nobody(
    run, group_type, says, has
):
    text = run(picture(group_type), "members")
    assert text.count("Active") == 2
    assert text.count(has) == 2
    assert "Standby" not in text
    assert "held by nobody" not in text
    told = json.loads(run(picture(group_type), "members", "--json"))
    assert (told["type"], told["unassigned"]) == (group_type, [])
    assert [each["state"] for each in told["members"]] == ["Active", "Active"]
    counts = {"Shared": (6, 7, 2, None), "Session": (None, None, None, 3)}[group_type]
    for each in told["members"]:
        assert (each["in_flight"], each["lag"]) == (41, 0)
        names = ("priority", "credit", "turns", "sessions")
        assert tuple(each[name] for name in names) == counts
    (row, _) = [line.split("│")[6:-1] for line in text.splitlines() if "Active" in line]
    assert [int(cell) for cell in row] == [41, *(each for each in counts if each is not None)]


@TYPES
def test_of_a_member_that_has_no_flow_nothing_is_told_in_place_of_0(run, group_type, says, has):
    found = picture(group_type, bound="")
    found = replace(found, members={"away": ListedMember("10.0.0.1", None)})
    (each,) = json.loads(run(found, "members", "--json"))["members"]
    assert [each[name] for name in ("priority", "credit", "turns", "sessions")] == [None] * 4
    (row,) = [line for line in run(found, "members").splitlines() if " away " in line]
    assert {cell.strip() for cell in row.split("│")[7:-1]} == {""}


def status(group_type, state, members):
    row = GroupPartition(member="", epoch=3, state=state, cursor=0, lag=2, lag_ms=1)
    if group_type == "Session":
        row.sessions = SessionCounts(with_messages=2, locked=1, waiting=4)
    group = GroupStatus(
        type=group_type, lag=4, lag_ms=1, members=members, partitions={"1.0": row, "1.1": row},
        handoffs=[], waiting_moves=[],
    )  # fmt: skip
    records = {
        name: PartitionStatus(broker=f"b-{name}", broker_epoch=1, first=0, end=2, bytes=9)
        for name in group.partitions
    }
    return StatusAnswer(
        queue="orders", namespace="n", store={}, availability="Available", unavailable=[],
        totals=QueueTotals(partitions=2, messages=4, bytes=18), partitions=records,
        groups={"workers": group},
    )  # fmt: skip


def shown(answer):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render(answer))
    return console.export_text()


def test_a_status_says_of_shared_members_what_they_have_and_of_no_partition_that_it_has_none():
    ann = MemberStatus("ann", 2, "Active", unacked=41, priority=6, credit=7, turns=0)
    elsewhere = MemberStatus("bob", 2, "Active")
    text = shown(status("Shared", "Ready", [ann, elsewhere]))
    assert "no member" not in text
    assert "nobody" not in text
    assert "1.0  **\n* any member gets its messages\n" in text
    columns = "│        6 │      7 │                     0 │               41 │"
    assert f"│ ann    │ Active {columns}" in text
    unknown = "│          │        │                       │                  │"
    assert f"│ bob    │ Active {unknown}" in text
    assert "│ 1.0       │ Ready │   2 │  0.0 s │ all    │ b-1.0  │" in text


def test_a_status_counts_the_sessions_of_members_and_a_request_once_that_waits_at_two_brokers():
    ann = MemberStatus("ann", 2, "Active", unacked=41, sessions=1)
    text = shown(status("Session", "Ready", [ann]))
    assert "no member" not in text
    assert "nobody" not in text
    assert "4 sessions have messages, 2 locked; 4 requests wait for one" in text
    assert "│ ann    │ Active │        1 │               41 │" in text


@pytest.mark.parametrize("group_type", ["Shared", "Session"])
def test_a_status_says_where_no_member_is_connected(group_type):
    text = shown(status(group_type, "Unassigned", []))
    assert "no member: nobody consumes" in text
    assert "1.0  --\n- no member\n" in text
    assert "any member" not in text


@TYPES
def test_a_scale_moves_nothing(run, group_type, says, has):
    asked = ("plan", "--from-live", "--members", "5")
    text = run(picture(group_type), *asked)
    assert text.startswith(f"group workers: nothing would move: it has the type {group_type}")
    told = json.loads(run(picture(group_type), *asked, "--json"))
    assert (told["type"], told["moves"]) == (group_type, [])
