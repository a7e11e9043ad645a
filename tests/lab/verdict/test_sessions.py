"""Every planted fault of a lock or a state is found, and nothing where there is none."""

import pytest

from partq.lab.verdict.journal_rows import (
    LOCKED,
    UNLOCKED,
    DeliveredRow,
    LockRow,
    StateRow,
    line_of,
    parse_lines,
)
from partq.lab.verdict.sessions import find_session_faults


def locked(at, member, lock):
    return LockRow(at, member, "k", lock, LOCKED)


def unlocked(at, member, lock):
    return LockRow(at, member, "k", lock, UNLOCKED)


def worked(begun, at, member, number=1, epoch=1):
    return DeliveredRow(at, member, "1.0", number, 1, epoch, 0, "k", number, begun)


def found(at, state, number):
    return StateRow(at, "a", "k", number, state)


IN_TURN = [
    locked(10, "a", 1),
    worked(11, 15, "a", 1),
    unlocked(16, "a", 1),
    locked(20, "b", 2),
    worked(21, 25, "b", 2),
    unlocked(26, "b", 2),
]


def test_one_member_after_another_is_good():
    assert find_session_faults(IN_TURN) == []


def test_locks_of_different_sessions_have_nothing_to_do_with_each_other():
    other = [locked(12, "b", 1)._replace(session="l"), unlocked(13, "b", 1)._replace(session="l")]
    assert find_session_faults(sorted([*IN_TURN, *other])) == []


def test_a_member_that_was_killed_unlocks_nothing():
    assert find_session_faults([row for row in IN_TURN if row != unlocked(16, "a", 1)]) == []


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        pytest.param(
            [locked(10, "a", 2), locked(20, "b", 2)],
            "session 'k': b has lock 2 after lock 2",
            id="a lock twice",
        ),
        pytest.param(
            [locked(10, "a", 1), locked(12, "b", 2), unlocked(16, "a", 1)],
            "session 'k': a ends lock 1 when b has lock 2",
            id="a lock beside another",
        ),
        pytest.param(
            [unlocked(16, "a", 1)], "session 'k': a ends lock 1 when nobody has it", id="no lock"
        ),
        pytest.param(
            [locked(10, "a", 1), locked(12, "b", 2), worked(11, 15, "a")],
            "session 'k': a works on number 1 when b has lock 2",
            id="done too late",
        ),
        pytest.param(
            [worked(9, 15, "a"), locked(10, "a", 1)],
            "session 'k': a works on number 1 when nobody has it",
            id="begun without a lock",
        ),
        pytest.param(
            [found(5, 3, 5)], "session 'k': a finds the state 3 at number 5", id="an old state"
        ),
        pytest.param(
            [found(5, 5, 5)], "session 'k': a finds the state 5 at number 5", id="counted twice"
        ),
    ],
)
def test_a_planted_fault_is_found(rows, fault):
    assert find_session_faults(rows) == [fault]


def test_a_member_that_was_cut_off_may_still_be_at_work():
    rows = [
        locked(10, "a", 1),
        locked(12, "b", 2),
        worked(11, 15, "a", epoch=1),
        worked(13, 16, "b", epoch=2),
    ]
    assert find_session_faults(rows) == []


def test_states_are_those_before_each_message_also_at_a_repeat():
    assert find_session_faults([found(1, 0, 1), found(2, 0, 1), found(3, 1, 2)]) == []


def test_rows_survive_their_lines():
    rows = [locked(10, "a", 1), found(1, 0, 1)]
    assert parse_lines(b"".join(map(line_of, rows)))[0] == rows
