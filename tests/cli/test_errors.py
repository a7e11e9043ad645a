"""What users see of an error of a command, and its exit status."""

import json

import click
import pytest
from click.testing import CliRunner

from partq.cli import interrupts
from partq.cli.commands import cli
from partq.cli.errors import JsonCommand
from partq.errors import BadRequestError, SettingsError, UnavailableError


def run(*arguments):
    return CliRunner().invoke(cli, arguments)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (SettingsError("wrong file"), 2),
        (BadRequestError("wrong line"), 2),
        (UnavailableError("no broker"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_are_sentences(monkeypatch, error, status):
    @click.command()
    def failing():
        raise error

    monkeypatch.setattr("partq.cli.queues.status.status", failing)
    try:
        result = run("status")
    finally:
        interrupts.raise_again()

    assert result.exit_code == status
    assert result.stderr == (f"partq: {error}\n" if str(error) else "")


def test_surprises_keep_their_trace(monkeypatch):
    @click.command()
    def failing():
        raise ZeroDivisionError

    monkeypatch.setattr("partq.cli.queues.status.status", failing)

    assert isinstance(run("status").exception, ZeroDivisionError)


def _stopped():
    raise click.exceptions.Exit(143) from UnavailableError("stopped before the end")


def _done_with_faults():
    click.echo('{"verdict": "faults"}')
    raise click.exceptions.Exit(1)


def _failing(error):
    def fail():
        raise error

    return fail


@pytest.mark.parametrize(
    ("work", "status", "printed"),
    [
        (
            _failing(UnavailableError("no broker")),
            1,
            {"error": {"code": "unavailable", "message": "no broker"}},
        ),
        (
            _failing(click.BadParameter("wrong file")),
            2,
            {"error": {"code": "usage", "message": "Invalid value: wrong file"}},
        ),
        (
            _failing(ModuleNotFoundError("No module named 'x'")),
            1,
            {"error": {"code": "not_installed", "message": "No module named 'x'"}},
        ),
        (
            _failing(ZeroDivisionError("by 0")),
            1,
            {"error": {"code": "internal", "message": "ZeroDivisionError: by 0"}},
        ),
        (
            _stopped,
            143,
            {"error": {"code": "unavailable", "message": "stopped before the end"}},
        ),
        (_done_with_faults, 1, {"verdict": "faults"}),
    ],
)
def test_with_json_there_is_one_object_whatever_happens(monkeypatch, work, status, printed):
    @click.command(cls=JsonCommand)
    @click.option("--json", "as_json", is_flag=True)
    def command(*, as_json):
        work()

    monkeypatch.setattr("partq.cli.queues.status.status", command)
    result = run("status", "--json")
    assert result.exit_code == status
    assert json.loads(result.stdout) == printed
    if "error" in printed:
        assert run("status").stdout == ""
