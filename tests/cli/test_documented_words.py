"""docs/cli.md has the words that programs find in `--json`."""

import re
from dataclasses import fields
from pathlib import Path

import msgspec

from partq.cli.queues.groups import row
from partq.cli.queues.partition_map import OTHER
from partq.cli.queues.problems import MARKS
from partq.cli.queues.queue_list import ListedGroup, QueueRow
from partq.core.group.partition_wait import WaitsFor
from partq.wire.calls.status import GroupStatus

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def section(command):
    return PAGE.split(f"\n## `partq {command}`\n")[1].split("\n## ")[0]


def test_all_that_a_partition_waits_for_is_told():
    told = re.findall(r"^ *\| `(\w+)` \|", section("explain"), re.MULTILINE)
    assert sorted(told) == sorted(each.value for each in WaitsFor)


def test_each_mark_of_the_map_is_explained():
    told = re.findall(r"^\| `([^`\w])` \|", section("status"), re.MULTILINE)
    assert told == [*MARKS.values(), OTHER]


def test_all_that_is_told_of_a_group_is_named():
    told = row("workers", GroupStatus("Partitioned", 0, 0, [], {}, [], []))
    assert set(msgspec.to_builtins(told)) - set(re.findall(r"`(\w+)`", section("groups"))) == set()


def test_all_that_is_told_of_a_queue_is_named():
    told = {field.name for kind in (QueueRow, ListedGroup) for field in fields(kind)}
    assert told - set(re.findall(r"`(\w+)`", section("queues"))) == set()
