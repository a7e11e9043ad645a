"""Tables that cut nothing: names are there to be copied."""

from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.table import Table

PIPE_COLUMNS = 10_000
"""Width of what is not a terminal: nobody's lines end there."""


def open_console() -> Console:
    """Return standard output: as wide as the terminal, or as wide as what is printed."""
    # What messages hold is shown as it is: `[true]` is no style, and `:x:` no picture.
    console = Console(markup=False, emoji=False)
    if not console.is_terminal:
        console.width = PIPE_COLUMNS
    return console


def show(part: RenderableType) -> None:
    """Print a table, or several."""
    open_console().print(part)


def add_columns(table: Table, names: Sequence[str], *, is_number: bool = False) -> None:
    """Add columns whose texts wrap where the terminal is narrow; numbers stay in one line."""
    for name in names:
        table.add_column(
            name,
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=is_number or name == "partition",
        )
