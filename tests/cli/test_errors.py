"""What users see of an error of a command, and its exit status."""

import click
import pytest
from click.testing import CliRunner

from partq.cli import interrupts
from partq.cli.commands import cli
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
