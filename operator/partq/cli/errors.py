"""How the errors of a command look, and its exit status."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from partq.cli import interrupts
from partq.cli.interrupts import INTERRUPTED
from partq.errors import BadRequestError, PartqError, SettingsError


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
