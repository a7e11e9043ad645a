"""The map of a group: a character for each partition, coloured by member on a terminal."""

from collections.abc import Iterable, Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import NamedTuple

from rich.text import Text

from partq.cli.queues.problems import MARKS
from partq.core.partition_problems import ProblemKind

LETTERS = ascii_uppercase + ascii_lowercase
EVERYONES = "*"
"""The mark of a partition that any member may have messages of."""
OTHER = "#"
"""The mark of every member beyond the letters."""
COLOURS = (
    *("green", "cyan", "yellow", "magenta", "blue", "white"),
    *("bright_green", "bright_cyan", "bright_yellow", "bright_magenta", "bright_blue"),
)
LINE_PARTITIONS = 64
BLOCK_PARTITIONS = 16
"""A line is divided into blocks of this many partitions."""
MAX_LINES = 32
"""A larger map shows the lines where something is wrong; or that all partitions are ready."""


class Square(NamedTuple):
    """A partition on the map."""

    name: str
    member: str
    """Empty: no member holds it."""
    problem: ProblemKind | None
    is_everyones: bool = False
    """No member holds it, as any member may have messages of it."""


class MemberMarks:
    """The letters of the members of a group; each keeps its letter as long as this object lives."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def add(self, members: Iterable[str]) -> None:
        """Give each member that has none a letter, in the order of their names."""
        for member in sorted(set(members) - self._numbers.keys()):
            self._numbers[member] = len(self._numbers)

    def letter(self, member: str) -> str:
        """Return the letter of a member that was added."""
        number = self._numbers[member]
        return LETTERS[number] if number < len(LETTERS) else OTHER

    def colour(self, member: str) -> str:
        """Return the colour of a member that was added."""
        return COLOURS[self._numbers[member] % len(COLOURS)]


def render_map(squares: Sequence[Square], marks: MemberMarks) -> Text:
    """Return the map of a group, with what the marks of problems mean.

    `squares`: in the order of the partitions; `marks` has every member of them.
    """
    lines = [
        found[at : at + LINE_PARTITIONS]
        for found in _by_generation(squares)
        for at in range(0, len(found), LINE_PARTITIONS)
    ]
    shown = lines
    if len(lines) > MAX_LINES:
        shown = [line for line in lines if any(square.problem for square in line)][:MAX_LINES]
    width = max((len(line[0].name) for line in shown), default=0)
    text = Text()
    for line in shown:
        text.append(f"{line[0].name.rjust(width)}  ")
        for number, square in enumerate(line):
            if number and number % BLOCK_PARTITIONS == 0:
                text.append(" ")
            text.append(*_cell(square, marks))
        text.append("\n")
    if not shown and lines:
        text.append(f"all {len(squares):,} partitions are ready\n")
    elif left_out := len(lines) - len(shown):
        text.append(f"and {left_out} lines of {LINE_PARTITIONS} partitions that are not shown\n")
    found = {square.problem for square in squares}
    told = [f"{mark} {problem.text}" for problem, mark in MARKS.items() if problem in found]
    if any(square.is_everyones and square.problem is None for square in squares):
        told.insert(0, f"{EVERYONES} any member gets its messages")
    if told:
        text.append("   ".join(told) + "\n")
    text.right_crop(1)
    return text


def _by_generation(squares: Sequence[Square]) -> list[list[Square]]:
    """Return the partitions of each generation, in their order."""
    found: dict[str, list[Square]] = {}
    for square in squares:
        found.setdefault(square.name.partition(".")[0], []).append(square)
    return list(found.values())


def _cell(square: Square, marks: MemberMarks) -> tuple[str, str]:
    """Return the character of a partition, and its style."""
    colour = marks.colour(square.member) if square.member else ""
    match square.problem:
        case None if square.is_everyones:
            return EVERYONES, "black on green"
        case None:
            return marks.letter(square.member), f"black on {colour}"
        case ProblemKind.BLOCKED | ProblemKind.UNSERVED:
            return MARKS[square.problem], "bold white on red"
        case problem:
            return MARKS[problem], f"bold {colour}" if colour else "bold red"
