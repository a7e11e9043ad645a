"""How the errors of a command look, and its exit status."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from partq.cli import interrupts
from partq.cli.interrupts import INTERRUPTED
from partq.errors import BadRequestError, InternalError, PartqError, SettingsError

USAGE = "usage"
NOT_INSTALLED = "not_installed"
"""Codes of failures for which partq has no error."""


class ExpectedError(click.ClickException):
    """An error that partq raises on purpose: its sentence, without a trace."""

    def __init__(self, error: PartqError) -> None:
        super().__init__(error.message)

    def show(self, file: Any = None) -> None:
        """Write each line of the message to standard error."""
        for line in self.message.splitlines():
            click.echo(f"partq: {line}", err=True)


class WrongInputError(ExpectedError):
    """What the command was given can never work."""

    exit_code = 2


@contextmanager
def command_errors() -> Iterator[None]:
    """End a command with a sentence and an exit status, where partq or a signal stops it.

    Raises:
        WrongInputError: a setting or the input of the command is wrong.
        ExpectedError: any other error of partq.
        Exit: the command was interrupted.
    """
    try:
        yield
    except (SettingsError, BadRequestError) as error:
        raise WrongInputError(error) from error
    except PartqError as error:
        raise ExpectedError(error) from error
    except KeyboardInterrupt:
        interrupts.end_at_once()  # there is nothing left to be left in order
        raise click.exceptions.Exit(INTERRUPTED) from None


class JsonCommand(click.Command):
    """A command that prints one JSON object with `--json`, also when it fails.

    Of a failure that is `{"error": {"code": CODE, "message": SENTENCE}}`. The exit status and what
    stands on standard error are those of any command.
    """

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the arguments; wrong ones are told as JSON, too."""
        is_json = "--json" in args
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.ClickException as error:
            if is_json:
                _print_failure(USAGE, error.format_message())
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        if not ctx.params.get("as_json"):
            return super().invoke(ctx)
        try:
            return super().invoke(ctx)
        except PartqError as error:
            _print_failure(error.code, error.message)
            raise
        except click.ClickException as error:
            _print_failure(USAGE, error.format_message())
            raise
        except click.exceptions.Exit as end:
            # One with a cause failed; others have printed their result.
            if isinstance(end.__cause__, PartqError):
                _print_failure(end.__cause__.code, end.__cause__.message)
            raise
        except ModuleNotFoundError as error:
            _print_failure(NOT_INSTALLED, str(error))
            raise
        except Exception as error:
            _print_failure(InternalError.code, f"{type(error).__name__}: {error}")
            raise


def _print_failure(code: str, message: str) -> None:
    click.echo(json.dumps({"error": {"code": code, "message": message}}))
