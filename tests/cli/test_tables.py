"""Tables in pipes and on narrow terminals: names are whole."""

from io import StringIO

import pytest
from rich.console import Console
from rich.table import Table

from partq.cli import tables

MEMBER = "0f3a9c1e-1111-4222-8333-123456789abc/a-container-with-a-long-name-of-its-team"


def table():
    made = Table()
    tables.add_columns(made, ("partition", "broker", "member", "state"))
    tables.add_columns(made, ("cursor", "end"), is_number=True)
    made.add_row("1.4095", "orders-with-a-long-name-broker-0", MEMBER, "Ready", "123456", "123457")
    return made


def test_in_a_pipe_nothing_is_cut(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    tables.show(table())
    assert f"│ {MEMBER} │" in capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 60])
def test_on_a_narrow_terminal_names_wrap(width):
    console = Console(file=StringIO(), force_terminal=True, width=width, color_system=None)
    console.print(table())
    lines = console.file.getvalue().splitlines()
    cells = [[cell.strip() for cell in line.split("│")] for line in lines if "│" in line]
    assert "".join(row[3] for row in cells) == MEMBER
    assert "1.4095" in cells[0]
    assert "…" not in console.file.getvalue()


def test_what_looks_like_markup_is_shown_as_it_is(capsys):
    texts = ("[true]", "[red]x", ":smile:", "[/]")
    made = Table("value")
    for text in texts:
        made.add_row(text)
    tables.show(made)
    printed = capsys.readouterr().out
    assert all(f"│ {text} " in printed for text in texts)
