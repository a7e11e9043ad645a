"""A directory for one run, which stays only when there is something to look into."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from partq.errors import PartqError


class Scratch:
    """The directory of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_kept = False

    def keep(self) -> None:
        """Let the directory stay: journals, data and logs show what went wrong."""
        self.is_kept = True


@contextmanager
def scratch(name: str) -> Iterator[Scratch]:
    """Make a directory, and remove it again unless it is kept or the run ends with a PartqError."""
    made = Scratch(Path(tempfile.mkdtemp(prefix=f"partq-{name}-")))
    try:
        yield made
    except PartqError:
        made.keep()
        raise
    finally:
        if made.is_kept:
            click.echo(f"journals, data and logs are left in {made.path}", err=True)
        else:
            shutil.rmtree(made.path, ignore_errors=True)
