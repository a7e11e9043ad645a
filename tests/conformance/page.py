"""docs/conformance.md: what is asked of partitioned queues, row by row, and which test shows it.

The rows are in rows.toml, what they may not leave out is in asked.toml, the tests carry
`@pytest.mark.req("SOL-07")`. All are read as text, so that the page can be made, and checked,
without importing a test.
"""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "conformance.md"
ROWS: Final = Path(__file__).with_name("rows.toml")
ASKED: Final = Path(__file__).with_name("asked.toml")
FOLDERS: Final = ("tests", "e2e")
SECTIONS: Final = {
    "SOL": "Partitioned queues",
    "HND": "The handoff of a partition",
    "SOL-U": "What reference pages add",
    "PUL": "Messages, subscriptions and acknowledgements",
    "PUL-U": "Keys that are split within a partition",
    "AZR": "Keys by other names, peeking, and partitions that are away",
    "TUB": "Clients that choose their partitions",
    "TUB-U": "The interface of such clients",
    "MEM": "Membership",
    "FAIL": "What has gone wrong elsewhere",
    "CRASH": "The crash table: which part dies, and when",
}
"""The families of rows, in the order of the page. No mark may name another one."""
SYSTEMS: Final = {
    "Solace PubSub+": ("SOL", "HND", "SOL-U"),
    "Apache Pulsar": ("PUL", "PUL-U"),
    "Azure Service Bus": ("AZR",),
    "Apache InLong TubeMQ": ("TUB", "TUB-U"),
}
"""Whose promises the rows of a family are; those of the other families are partq's."""
KINDS: Final = frozenset("FBSRLEDG")
SHOWN: Final = ("met", "differently", "in part")
"""Results that a test shows; the others have none."""
RESULTS: Final = (*SHOWN, "not built", "refused")

_ROW_ID = re.compile(r"(?P<family>[A-Z]{3,5}(?:-U)?)(?:(?<=-U)|-)\d{2,3}")
_HEAD = """\
# Conformance

What four systems promise of partitioned queues, and what partq promises, row by row: what partq
does, and the tests that show it. `make conformance` writes this page from
`tests/conformance/rows.toml` and from the marks of the tests (`@pytest.mark.req("SOL-07")`). A test
fails when it is not up to date, when a row leaves out a part of what is asked, or when a mark names
an unknown row. `pytest -m req` runs what is listed here.

*met*: as asked. *differently*: by another way, on purpose. *in part*: what is missing is named.
*not built*: not yet; what there is instead is named. *refused*: it will not be built, and the row
says why a user is better off without it. Kinds: F feature, B behaviour, S state, R rule,
L limit, E error, D default, G guidance.
"""


class ConformanceError(Exception):
    """The rows, or the marks, are not what the page can be made of."""


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that is asked."""

    id: str
    kind: str
    asks: str
    result: str
    reason: str

    @property
    def family(self) -> str:
        """The section it belongs to."""
        return family_of(self.id)


@dataclass(frozen=True, slots=True)
class AskedRow:
    """What a row consists of, so that it cannot become easier than its source has it."""

    kind: str
    terms: tuple[str, ...]
    """Terms, numbers and names, each of which `asks` or `reason` has."""


@dataclass(frozen=True, slots=True, order=True)
class MarkedTest:
    """A test that carries marks: its file, from the root of the tree, and its name."""

    path: str
    name: str

    @property
    def sentence(self) -> str:
        """What its file is about, and its name as it reads."""
        about = Path(self.path).stem.removeprefix("test_")
        return f"{about}: {self.name.removeprefix('test_')}".replace("_", " ")


Marks = Mapping[str, list[MarkedTest]]
"""The tests of each row, in the order of their files."""


def family_of(row_id: str) -> str:
    """Return the family of a row's id.

    Raises:
        ConformanceError: it is no such id.
    """
    match = _ROW_ID.fullmatch(row_id)
    if match is None:
        raise ConformanceError(f"{row_id!r} is no id of a row; expected one like SOL-07")
    return match["family"]


def read_rows(text: str) -> list[Row]:
    """Read rows.toml, in its order.

    Raises:
        ConformanceError: a row lacks something, or says what it may not; all of them are named.
    """
    rows, problems = [], []
    for row_id, fields in tomllib.loads(text).items():
        result = fields.get("result", "met")
        row = Row(row_id, fields.get("kind", ""), fields.get("asks", ""), result,
                  fields.get("reason", ""))  # fmt: skip
        rows.append(row)
        if family_of(row_id) not in SECTIONS:
            problems.append(f"{row_id}: not of {', '.join(SECTIONS)}")
        if row.kind not in KINDS or not row.asks or result not in RESULTS:
            problems.append(f"{row_id}: kind, asks or result is missing or unknown")
        if bool(row.reason) != (result != "met"):
            problems.append(f"{row_id}: every result but `met` has a reason, and `met` has none")
        if unknown := fields.keys() - {"kind", "asks", "result", "reason"}:
            problems.append(f"{row_id}: unknown fields {sorted(unknown)}")
    _raise(problems)
    return rows


def read_asked(text: str) -> Mapping[str, AskedRow]:
    """Read asked.toml.

    Raises:
        ConformanceError: a row has other fields, or no terms.
    """
    asked, problems = {}, []
    for row_id, fields in tomllib.loads(text).items():
        if fields.keys() != {"kind", "terms"} or not fields["terms"]:
            problems.append(f"{row_id}: expected kind and terms, got {sorted(fields)}")
        else:
            asked[row_id] = AskedRow(fields["kind"], tuple(fields["terms"]))
    _raise(problems)
    return asked


def compare(rows: Iterable[Row], asked: Mapping[str, AskedRow]) -> None:
    """See that the rows of the systems are all there, and say no less than is asked.

    Raises:
        ConformanceError: a row is missing or unknown, is of another kind, or leaves out a term;
            all of them are named.
    """
    of_systems = {family for families in SYSTEMS.values() for family in families}
    told = {row.id: row for row in rows if row.family in of_systems}
    problems = [f"{row_id}: not in {ROWS.name}" for row_id in asked.keys() - told.keys()]
    problems += [f"{row_id}: not in {ASKED.name}" for row_id in told.keys() - asked.keys()]
    for row_id in told.keys() & asked.keys():
        row, expected = told[row_id], asked[row_id]
        if row.kind != expected.kind:
            problems.append(f"{row_id}: of kind {row.kind}, expected {expected.kind}")
        text = f"{row.asks} {row.reason}".lower()
        if missing := [term for term in expected.terms if term.lower() not in text]:
            problems.append(f"{row_id}: neither asks nor reason says {missing}")
    _raise(sorted(problems))


def read_marks(root: Path) -> Marks:
    """Find the marks of all tests below the root.

    Raises:
        ConformanceError: a mark stands where it is not looked for, or its id is not a text.
    """
    marks: dict[str, list[MarkedTest]] = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("test_*.py")):
            where = path.relative_to(root).as_posix()
            for name, row_id in _marks_in(ast.parse(path.read_text(encoding="utf-8")), where):
                tests = marks.setdefault(row_id, [])
                if (test := MarkedTest(where, name)) not in tests:
                    tests.append(test)
    return marks


def _marks_in(tree: ast.Module, where: str) -> Iterator[tuple[str, str]]:
    """Return the tests of a module with the rows that they are marked with."""
    seen = 0
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for call in filter(_is_mark, function.decorator_list):
            seen += 1
            assert isinstance(call, ast.Call)
            for argument in call.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    raise ConformanceError(f"{where}:{call.lineno}: the id of a row is a text")
                yield function.name, argument.value
    if seen != sum(map(_is_mark, ast.walk(tree))):
        raise ConformanceError(f"{where}: a mark `req` that is not the decorator of a test")


def _is_mark(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.req"


def check(rows: Iterable[Row], marks: Marks) -> None:
    """See that rows and marks agree.

    Raises:
        ConformanceError: a row without a test or a reason, a test of a row that has none, or a
            mark that names no row; all of them are named.
    """
    results = {row.id: row.result for row in rows}
    problems = [
        f"{row_id}: {result}, and no test carries its mark"
        for row_id, result in results.items()
        if result in SHOWN and row_id not in marks
    ]
    for row_id, tests in marks.items():
        names = ", ".join(f"{test.path} {test.name}" for test in tests)
        if family_of(row_id) not in SECTIONS or row_id not in results:
            problems.append(f"{row_id}: not in {ROWS.name}; marked: {names}")
        elif results[row_id] not in SHOWN:
            problems.append(f"{row_id}: {results[row_id]}, and yet marked: {names}")
    _raise(problems)


def render(rows: list[Row], marks: Marks) -> str:
    """Return the page."""
    parts = [_HEAD, _summary(rows)]
    for family, title in SECTIONS.items():
        parts.append(f"\n## {title} ({family})\n\n| row | kind | asks | result | shown by |")
        parts.append("| --- | --- | --- | --- | --- |")
        for row in rows:
            if row.family == family:
                result = f"*{row.result}*: {row.reason}" if row.reason else row.result
                shown = "<br>".join(map(_link, marks.get(row.id, [])))
                parts.append(f"| {row.id} | {row.kind} | {row.asks} | {result} | {shown} |")
    return "\n".join(parts) + "\n"


def _summary(rows: list[Row]) -> str:
    """Return how many rows of each system and family have which result."""
    counts = Counter((row.family, row.result) for row in rows)
    lines = [f"| | rows | {' | '.join(RESULTS)} |", f"| --- | --- |{' --- |' * len(RESULTS)}"]

    def line(name: str, families: Iterable[str]) -> str:
        numbers = [sum(counts[family, result] for family in families) for result in RESULTS]
        return f"| {name} | {' | '.join(str(each or '') for each in [sum(numbers), *numbers])} |"

    of_systems = tuple(family for families in SYSTEMS.values() for family in families)
    for system, families in SYSTEMS.items():
        lines.append(line(f"**{system}**", families))
        lines += [line(family, [family]) for family in families if len(families) > 1]
    lines.append(line("**all four**", of_systems))
    own = [family for family in SECTIONS if family not in of_systems]
    lines.append(line("**partq**", own))
    lines += [line(family, [family]) for family in own]
    return "\n".join(lines)


def _link(test: MarkedTest) -> str:
    return f"[{test.sentence}](../{test.path})"


def _raise(problems: list[str]) -> None:
    if problems:
        raise ConformanceError("\n".join(problems))


def page() -> str:
    """Return what docs/conformance.md should say. Raises: as `read_rows`, `compare` and `check`."""
    rows, marks = read_rows(ROWS.read_text(encoding="utf-8")), read_marks(ROOT)
    compare(rows, read_asked(ASKED.read_text(encoding="utf-8")))
    check(rows, marks)
    return render(rows, marks)
