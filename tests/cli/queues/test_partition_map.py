"""The map of a group, as text and on a terminal."""

from io import StringIO

import pytest
from rich.console import Console

from partq.cli.queues.partition_map import MAX_LINES, MemberMarks, Square, render_map
from partq.core.partition_problems import ProblemKind

RED = "\x1b[1;37;41m"


def marks_of(squares):
    marks = MemberMarks()
    marks.add(square.member for square in squares if square.member)
    return marks


def squares_of(count, *, wrong=None):
    members = ("a-0", "b-1", "c-2", "d-3")
    found = dict(wrong or {})
    return [
        Square(
            f"1.{index}",
            "" if found.get(index) is ProblemKind.UNASSIGNED else members[index * 4 // count],
            found.get(index),
        )
        for index in range(count)
    ]


def drawn(squares, *, is_terminal=False, monkeypatch=None, no_color=None):
    if monkeypatch is not None:
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.delenv("NO_COLOR", raising=False)
        if no_color is not None:
            monkeypatch.setenv("NO_COLOR", no_color)
    console = Console(file=StringIO(), force_terminal=is_terminal, width=80)
    console.print(render_map(squares, marks_of(squares)))
    return console.file.getvalue().splitlines()


def test_sixteen_partitions_are_a_line_with_what_is_wrong():
    wrong = {
        3: ProblemKind.BLOCKED,
        7: ProblemKind.UNASSIGNED,
        8: ProblemKind.UNBOUND,
        15: ProblemKind.PAUSED,
    }
    assert drawn(squares_of(16, wrong=wrong)) == [
        "1.0  AAA!BBB-/CCCDDD~",
        "! delivers nothing   - no member   / member not connected   ~ in a handoff",
    ]
    assert drawn(squares_of(16)) == ["1.0  AAAABBBBCCCCDDDD"]
    withheld = drawn(squares_of(16, wrong={5: ProblemKind.WITHHELD}))
    assert withheld == ["1.0  AAAAB=BBCCCCDDDD", "= paused by its application"]
    assert drawn(squares_of(16, wrong={0: ProblemKind.UNSERVED}))[0] == "1.0  ?AAABBBBCCCCDDDD"


def test_1024_partitions_are_sixteen_lines_of_a_terminal():
    lines = drawn(squares_of(1024, wrong={1000: ProblemKind.UNASSIGNED}))
    assert len(lines) == 17
    assert max(map(len, lines)) <= 80
    assert lines[0] == f"  1.0  {' '.join(['A' * 16] * 4)}"
    assert lines[15] == f"1.960  {' '.join(['D' * 16] * 2)} DDDDDDDD-DDDDDDD {'D' * 16}"


def test_of_a_larger_queue_the_lines_with_something_wrong_are_shown():
    lines = drawn(squares_of(65_536, wrong={40_000: ProblemKind.PAUSED}))
    assert lines[0].startswith("1.40000  ~CCC")
    assert lines[1:] == ["and 1023 lines of 64 partitions that are not shown", "~ in a handoff"]
    assert drawn(squares_of(65_536)) == ["all 65,536 partitions are ready"]
    everywhere = dict.fromkeys(range(65_536), ProblemKind.UNSERVED)
    assert len(drawn(squares_of(65_536, wrong=everywhere))) == MAX_LINES + 2


def test_a_terminal_shows_members_and_problems_in_colours(monkeypatch):
    squares = squares_of(4, wrong={0: ProblemKind.BLOCKED})
    (line, _) = drawn(squares, is_terminal=True, monkeypatch=monkeypatch)
    assert f"{RED}!" in line
    assert len({part.split("m")[0] for part in line.split("\x1b[")[1:]} - {"0"}) == 4


@pytest.mark.parametrize("value", ["1", "yes"])
def test_no_color_is_followed_on_a_terminal(monkeypatch, value):
    squares = squares_of(4, wrong={0: ProblemKind.BLOCKED})
    line = drawn(squares, is_terminal=True, monkeypatch=monkeypatch, no_color=value)[0]
    assert not any(f"{code}m" in line for code in (30, 41, 42, 43, 44, 45, 46, 47))


def test_anything_else_gets_no_colour(monkeypatch):
    assert "\x1b" not in "".join(drawn(squares_of(16), monkeypatch=monkeypatch))


def test_a_member_keeps_its_letter_when_others_come():
    marks = MemberMarks()
    marks.add(["b", "c"])
    marks.add(["a", "c"])
    assert [marks.letter(each) for each in "abc"] == ["C", "A", "B"]
    marks.add(f"m{number:03}" for number in range(100))
    assert marks.letter("m099") == "#"
