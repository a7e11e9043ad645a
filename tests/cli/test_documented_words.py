"""docs/cli.md has the words that programs find in `--json`."""

import re
from pathlib import Path

from partq.cli.queues.groups import row
from partq.core.group.explain import WaitsFor

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def section(command):
    return PAGE.split(f"\n## `partq {command}`\n")[1].split("\n## ")[0]


def test_all_that_a_partition_waits_for_is_told():
    told = re.findall(r"^ *\| `(\w+)` \|", section("explain"), re.MULTILINE)
    assert sorted(told) == sorted(each.value for each in WaitsFor)


def test_all_that_is_told_of_a_group_is_named():
    group = {"type": "Partitioned", "lag": 0, "lag_ms": 0}
    told = row("workers", {**group, "members": [], "partitions": {}, "handoffs": []})
    assert told.keys() - set(re.findall(r"`(\w+)`", section("groups"))) == set()
