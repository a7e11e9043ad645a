"""The commands of `partq pipeline`: their table, their options, and how their jobs end."""

import importlib
import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from partq.cli.commands import cli
from partq.cli.pipeline.group import PIPELINES


def run(*arguments, **options):
    return CliRunner().invoke(cli, ["pipeline", *arguments], **options)


@pytest.mark.parametrize("name", PIPELINES)
def test_every_command_is_there(name):
    entry = PIPELINES[name]
    command = getattr(importlib.import_module(entry.module), entry.attribute)

    assert isinstance(command, click.Command)
    assert command.name == name
    assert run(name, "--help").exit_code == 0


def test_help_needs_no_spark():
    names = ["", *PIPELINES]
    program = (
        "import sys; sys.modules |= dict.fromkeys(('pyspark', 'pyarrow', 'numpy', 'py4j'))\n"
        "from partq.cli.commands import cli\n"
        f"for name in {names!r}:\n"
        "    try: cli(['pipeline', *name.split(), '--help'])\n"
        "    except SystemExit as end: assert not end.code, name\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert all(entry.summary.split(",")[0] in done.stdout for entry in PIPELINES.values())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["compact"], "Missing argument 'ROOT'"),
        (["compact", "/x", "--conf", "nonsense"], "--conf: got 'nonsense', expected KEY=VALUE"),
        (["nonsense"], "No such command"),
        (["archive", "/x"], "--group is not given (PARTQ_GROUP)"),
        (
            ["replay", "/x", "--from", "noon"],
            "--from: got 'noon', expected a time with a time zone",
        ),
        (["replay", "/x", "--partition", "a"], "--partition: partition '1.a'"),
        (["replay", "/x", "--rate", "0"], "0.0 is not in the range"),
        (
            ["audit", "/x", "--report", "/r", "--expect", "/r/verdict.json"],
            "copy the file elsewhere",
        ),
    ],
)
def test_wrong_usage(arguments, sentence):
    result = run(*arguments)

    assert result.exit_code == 2
    assert sentence in result.stderr


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        pytest.param(["--nonsense"], "usage", "No such option", id="usage"),
        pytest.param(["--conf", "x"], "bad_settings", "expected KEY=VALUE", id="settings"),
    ],
)
def test_a_failure_is_json_too(name, arguments, code, sentence):
    result = run(name, "/x", *arguments, "--json")

    assert result.exit_code == 2
    error = json.loads(result.stdout)["error"]
    assert error["code"] == code
    assert sentence in error["message"]
    assert error["message"] in result.stderr
    assert run(name, "/x", *arguments).stdout == ""
