"""docs/protocol.md says of every frame what a client in another language has to know."""

import ast
import json
import re
import typing
from pathlib import Path

import msgspec
import pytest

from partq.core.model import Cause
from partq.wire import frames
from partq.wire.calls import answers

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "operator" / "partq"
PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## Frames of the WebSockets\n")[1].split("\n## ")[0]

KINDS = {kind.__name__: kind for kind in typing.get_args(frames.AnyFrame)}
TYPES = {
    int: "",
    str: ": text",
    bytes: ": bytes",
    bool: ": bool",
    list[tuple[int, int]]: ": pairs",
    list[str]: ": texts",
    str | None: ": text or null",
    bytes | None: ": bytes or null",
}


def told_field(field):
    """A field as the table has it: its name, its type unless an integer, its default."""
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    default = default.decode() if isinstance(default, bytes) else default
    told = "" if default is msgspec.NODEFAULT else f" = {json.dumps(default)}"
    return f"`{field.name}{TYPES[field.type]}{told}`"


def sent_by(package):
    """The frames that the modules of a package make."""
    calls = [
        node.func
        for module in (SOURCE / package).rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]
    names = {func.attr for func in calls if isinstance(func, ast.Attribute)}
    return (names | {func.id for func in calls if isinstance(func, ast.Name)}) & KINDS.keys()


SESSION_CALLS = {"AcceptSession", "RenewSession", "CloseSession", "CancelAccept"}
FROM_CLIENTS = sent_by("client") | SESSION_CALLS
"""A broker makes some of these, too: a pull's acks are judged as a flow's."""


def expected(kind):
    direction = "client → broker" if kind.__name__ in FROM_CLIENTS else "broker → client"
    fields = ", ".join(told_field(field) for field in msgspec.structs.fields(kind))
    cells = (kind.__struct_config__.tag, f"`{kind.__name__}`", direction, fields or "none")
    return "| {} | {} | {} | {} |".format(*cells)


def rows(start):
    """The rows of the section whose first cell is a number, from a heading of theirs on."""
    table = SECTION.split(start)[1].split("\n\n")[0]
    return [line for line in table.splitlines() if re.match(r"\| \d", line)]


def test_every_frame_is_in_the_table_in_the_order_of_its_tags():
    tags = [int(row.split("|")[1]) for row in rows("| tag |")]
    assert tags == sorted(kind.__struct_config__.tag for kind in KINDS.values())


@pytest.mark.parametrize("name", KINDS)
def test_a_frame_stands_there_as_it_is_sent(name):
    (row,) = [row for row in rows("| tag |") if f"| `{name}` |" in row]
    *_, meaning, end = row.split("|")
    assert (row.removesuffix(f"{meaning}|"), end) == (expected(KINDS[name]), "")
    assert re.search("[a-z]+", meaning)


def test_each_frame_is_sent_by_one_side():
    answers_of_sessions = {name for name in KINDS if name.startswith("Session")}
    sent = FROM_CLIENTS | sent_by("broker") | {"AskBack"} | answers_of_sessions
    assert sent == KINDS.keys()


def test_causes_are_named_by_number_and_word():
    cells = [[cell.strip(" `") for cell in row.split("|")] for row in rows("| number |")]
    told = {int(number): word for _, number, word, *_ in cells}
    assert told == {cause.value: "" if cause is Cause.NONE else str(cause) for cause in Cause}


def test_a_pulled_message_has_the_documented_fields():
    section = PAGE.split("## Consuming by HTTP pull\n")[1].split("\n## ")[0]
    message = section.split('"messages": [')[1].split("]}")[0]
    told = {*re.findall(r'"(\w+)":', message), *re.findall(r'`"(error)": ', section)}
    assert told == {field.name for field in msgspec.structs.fields(answers.PulledMessage)}
