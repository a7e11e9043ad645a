"""What `partq dev up` prints of a queue works for the groups that the queue has."""

import re

import pytest

from partq.cli.hosting import dev
from partq.cli.hosting.dev import introduce
from partq.embedded.runtime import EmbeddedRuntime
from partq.resources import group_document, queue_document, resources_of


async def introduced(tmp_path, **assignments):
    """Return what is printed of a queue with these groups."""
    groups = [group_document(name, "orders", assignment=how) for name, how in assignments.items()]
    resources = resources_of(queue_document("orders", partitions=1), *groups)
    async with EmbeddedRuntime(resources, tmp_path / "data", broker_count=1) as runtime:
        return introduce(runtime.queues[0], tmp_path / "data", is_only_one=True)


@pytest.mark.parametrize("has_served", [False, True])
async def test_a_group_whose_members_choose_gets_no_command_that_consumes_nothing(
    tmp_path, has_served
):
    groups = {"chosen": "Client", **({"workers": "Server"} if has_served else {})}
    said = await introduced(tmp_path, **groups)
    assert "partq consume --group chosen" not in said
    assert "groups/chosen/pull" not in said
    assert "partq partitions --group chosen" in said
    assert "group chosen has assignment: Client" in said
    assert ("partq consume --group workers" in said) is has_served
    assert ("groups/workers/pull" in said) is has_served


async def test_a_group_with_sessions_gets_no_command_that_is_refused(tmp_path):
    clerks = group_document("clerks", "orders", type="Session")
    resources = resources_of(queue_document("orders", partitions=1), clerks)
    async with EmbeddedRuntime(resources, tmp_path / "data", broker_count=1) as runtime:
        said = introduce(runtime.queues[0], tmp_path / "data", is_only_one=True)
    assert "partq consume --group" not in said
    assert "/pull" not in said, "a pull gets what was accepted before, so nothing"
    assert "partq sessions list --group clerks" in said
    assert "partq.SessionConsumer" in said


async def test_other_groups_are_introduced_as_ever(tmp_path):
    said = await introduced(tmp_path, workers="Server")
    assert "partq consume --group workers" in said
    assert "partq partitions" not in said
    assert re.search(r"\n  tokens   produce  \w{48}\n           consume  \w{48}\n", said)
    where = f"--data-dir {tmp_path / 'data'}"
    assert f'\n  eval "$(partq dev env {where})"' in said


def test_commands_are_printed_as_the_shell_finds_them(tmp_path, monkeypatch):
    def installed(name):
        command = tmp_path / name / "partq"
        command.parent.mkdir()
        command.write_text("#!/bin/sh\n")
        command.chmod(0o755)
        return command

    mine, other = installed("my venv"), installed("other")
    calls = [
        (mine, mine.parent, "partq"),
        (mine, other.parent, f"'{mine}'"),
        (mine, tmp_path, f"'{mine}'"),
        (tmp_path / "main.py", other.parent, "partq"),
        ("partq", tmp_path, "partq"),
    ]
    for path, searched, printed in calls:
        monkeypatch.setattr("sys.argv", [str(path)])
        monkeypatch.setenv("PATH", str(searched))
        assert dev.called_as() == printed
