"""docs/dead-letters.md quotes what brokers say of dead letters that do not arrive."""

import ast
import re
from pathlib import Path

import pytest

from partq.errors import MessageTooLargeError

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "dead-letters.md").read_text(encoding="utf-8")
(TABLE,) = re.findall(r"^\| it says \| do \|\n\|.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
QUOTED = [
    text
    for row in TABLE.splitlines()
    for text in re.split(r", (?=no |gave )", row.split("|")[1].strip())
]


@pytest.fixture(scope="module")
def said():
    """The texts of the brokers, each with X for what it fills in."""
    too_large = re.sub(r"\d+", "X", MessageTooLargeError.of(2, 1).message)
    return [too_large] + [
        "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
        for folder in ("broker", "wire")
        for path in (ROOT / "operator" / "partq" / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.JoinedStr)
    ]


@pytest.mark.parametrize("text", QUOTED)
def test_a_broker_says_so(said, text):
    wanted = re.sub(r"\b(QUEUE|N|M)\b", "X", text)
    assert any(wanted in each for each in said)
