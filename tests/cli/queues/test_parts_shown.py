"""`partq status`, `members` and `explain` of a group whose members share keys."""

import json
from collections import Counter

import pytest
from click.testing import CliRunner

from partq.cli.commands import cli
from partq.cli.members.members import describe, shortened
from partq.cli.queues import explain, explain_parts
from partq.coordinator.group_snapshot import read_snapshot
from partq.core.hashing import slot_of
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.parts.part_id import PartId
from partq.wire.calls.status import PartHolder
from tests.cli.queues.test_status_order import answer_of, first_cells, group_of, row, shown
from tests.parted_group import parted_picture

MIXED = ([0, 0, 1, 1], [1, 1, -1, 1])


@pytest.fixture
def run(monkeypatch):
    """Run `partq explain` on the group, without any process."""

    async def ask(connection, group):
        return "workers", parted_picture(owners=MIXED, bound="a")

    async def layout(connection):
        return Layout.first(2)

    monkeypatch.setattr(explain, "ask_for_group", ask)
    monkeypatch.setattr(explain, "find_layout", layout)

    def run(*arguments):
        place = ("--queue", "orders", "--url", "http://127.0.0.1:1", "--token", "t")
        found = CliRunner().invoke(cli, ["explain", *arguments, *place])
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        return found.output

    return run


def test_explain_names_the_members_of_each_part(run):
    text = run("0")
    assert "partition 1.0 of queue orders, group workers" in text
    assert "now: Unbound, at its members, served by b-0; 2 messages not acknowledged" in text
    assert "cut into 4 parts" in text
    assert "  a: 0-1\n  b (not connected): 2-3\n" in text
    parts = json.loads(run("1", "--json"))["parts"]
    assert [each["member"] for each in parts] == ["b", "b", None, "b"]


def test_explain_tells_of_one_part_what_it_waits_for(run):
    text = run("1/2")
    assert "part 1.1/2 of queue orders" in text
    assert "now: Unassigned, at nobody" in text
    assert "waits for: a coordinator: it is to go to a now" in text
    assert json.loads(run("1.1/3", "--json"))["waits_for"]["what"] == "member"


def test_explain_finds_the_part_of_a_key(run):
    key = next(f"order-{n}" for n in range(99) if 40_960 <= slot_of(f"order-{n}") < 49_152)
    told = f'key "{key}", slot {slot_of(key)}, goes to part 1.1/1'
    assert told in run("--key", key)


def test_wrong_parts_are_refused(run):
    assert "partition 1.1: got part 4, expected a part from 0 to 3" in run("1/4")
    assert "expected a part of a partition such as 3/5, or 1.3/5" in run("1/x")


def test_the_part_of_a_slot_is_that_of_the_ring():
    picture = parted_picture()
    snapshot = read_snapshot("workers", picture)
    for slot in (0, 8_191, 8_192, 32_767):
        found = explain_parts.place_of(PartitionId(1, 0), None, slot, snapshot, picture)
        assert found == PartId(1, 0, slot // 8_192)


def test_members_have_parts():
    found = describe("workers", parted_picture(owners=MIXED, bound="a"))
    by_name = {each.member: each for each in found.members}
    assert shortened(by_name["a"].partitions) == ["1.0/0-1"]
    assert shortened(by_name["b"].partitions) == ["1.0/2-3", "1.1/0-1,3"]
    assert Counter(each.state for each in by_name["b"].partitions.values()) == {"Unbound": 5}
    assert found.unassigned == ["1.1/2"]
    assert by_name["a"].has_parts


def parted(*holders):
    found = row("", min(state for _, state, _ in holders), lag=3)
    found.parts = [PartHolder(member, state, parts) for member, state, parts in holders]
    return found


def test_status_shows_parts():
    pods = ["pod-a", "pod-b"]
    rows = {
        "1.0": parted(("pod-a", "Ready", [0, 1]), ("pod-b", "Ready", [2, 3])),
        "1.1": parted(("pod-b", "Ready", [0, 2]), ("", "Unassigned", [1, 3])),
    }
    text = shown(answer_of(workers=group_of(rows, members=pods)))
    assert "1.0/0  AABBB-B-" in text.replace("\n", "\n")
    assert "pod-b 0,2, nobody 1,3" in text
    assert "lag" not in text.split("member")[1].split("\n")[0]
    assert "B" in first_cells(text)
