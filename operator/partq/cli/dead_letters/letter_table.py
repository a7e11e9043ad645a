"""The table of `partq dead-letters list`."""

from collections.abc import Mapping

from rich.table import Table

from partq.cli.formatting import one_line
from partq.cli.tables import add_columns, show
from partq.core.dead_letters import DESCRIPTION_HEADER, HEADER_PREFIX, REASON_HEADER
from partq.wire.calls.answers import UNSET
from partq.wire.calls.browse import BrowseAnswer, BrowsedMessage

MAX_VALUE_CHARS = 60


def letter_headers(row: BrowsedMessage) -> Mapping[str, str]:
    """Return the headers of a message; none where it does not decode."""
    return {} if row.headers is UNSET else row.headers


def _value(row: BrowsedMessage) -> str:
    if row.value is not UNSET:
        return row.value
    return "" if row.value_base64 is UNSET else row.value_base64


def _note(row: BrowsedMessage) -> str:
    """Return what the application said of a dead letter: its reason and its description."""
    told = letter_headers(row)
    said = [told[name] for name in (REASON_HEADER, DESCRIPTION_HEADER) if name in told]
    return ": ".join(said)


def show_letters(answer: BrowseAnswer) -> None:
    """Print a table of messages: where each came from, and why."""
    table = Table()
    # What applications said has a column only where one has said something: the line is full.
    has_notes = any(_note(row) for row in answer.messages)
    notes = ("application",) if has_notes else ()
    columns = ("partition", "offset", "key", "reason", *notes, "from", "failures", "value")
    add_columns(table, columns)
    table.columns[columns.index("reason")].no_wrap = True
    for row in answer.messages:
        told = {
            name.removeprefix(HEADER_PREFIX): value
            for name, value in letter_headers(row).items()
            if name.startswith(HEADER_PREFIX)
        }
        origin = " ".join(told.get(name, "?") for name in ("queue", "group", "partition", "offset"))
        table.add_row(
            row.partition,
            str(row.offset),
            "" if row.key is UNSET or row.key is None else one_line(row.key),
            told.get("reason", ""),
            *([_note(row)] if has_notes else []),
            origin,
            told.get("redeliveries", ""),
            one_line(_value(row))[:MAX_VALUE_CHARS],
        )
    show(table)
