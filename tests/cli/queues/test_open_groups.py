"""`partq explain`, `members` and `plan` of groups that assign no partition to anybody."""

import json

import pytest
from click.testing import CliRunner

from partq.cli.commands import cli
from partq.cli.members import members
from partq.cli.queues import explain, plan_live
from partq.core.layout import Layout
from partq.wire.calls.state import (
    BrokerAnswer,
    BrokerState,
    FlowDetail,
    GroupDetail,
    ListedMember,
    PartitionDetail,
    Picture,
)

AT = ("--queue", "orders", "--url", "http://127.0.0.1:1", "--token", "t")


def picture(group_type, bound="ab", *, is_withheld=False):
    detail = GroupDetail(
        member="", epoch=3, attempt=0, is_bound=False, state="Ready", lag=2, is_withheld=is_withheld
    )
    partitions = {
        name: PartitionDetail(broker_epoch=7, held_s=60, end=9, groups={"workers": detail})
        for name in ("1.0", "1.1")
    }
    flows = [
        FlowDetail(group="workers", member=member, incarnation="i", bound_s=60) for member in bound
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
    ("Session", "members lock its sessions", "partq sessions list"),
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
    assert "waits for: a member: no member that is connected" in run(
        picture(group_type, bound=""), "explain", "0"
    )


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


@TYPES
def test_a_scale_moves_nothing(run, group_type, says, has):
    asked = ("plan", "--from-live", "--members", "5")
    text = run(picture(group_type), *asked)
    assert text.startswith(f"group workers: nothing would move: it has the type {group_type}")
    told = json.loads(run(picture(group_type), *asked, "--json"))
    assert (told["type"], told["moves"]) == (group_type, [])
