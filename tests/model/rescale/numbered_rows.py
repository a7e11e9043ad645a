"""A producer with fixed numbers across one change: Spark repeats tasks and has to write rows once.

Each attempt of a task has the same rows in the same order, and numbers the rows of each partition
from 0. The name of its producer carries the layout of the partition's last seal, so a partition
that was sealed begins a new series, and rows are due in the series of its present layout alone. An
attempt under the new layout first asks how far the old series came. That answer is final: a sealed
partition stores nothing more in the old series. Rows below it are left out.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explorer import Step, Violation
from tests.model.rescale.cluster_state import replaced

ROWS = ("move", "stay", "move", "move")
"""The slots of the rows. All are written to partition 0 first; *move* goes to partition 1."""
MAX_ATTEMPTS = 3
RUNNING, REFUSED, DONE = "running", "refused", "done"
UNKNOWN = -1


class Attempt(NamedTuple):
    """One attempt. Several may run side by side, as Spark's speculative ones do."""

    layout: int
    """What it has read: 0 before the change, 1 after it."""
    row: int = 0
    old_due: int = UNKNOWN
    """How many rows the old series of partition 0 has, as it was answered."""
    staying: int = 0
    """Rows that it has numbered in the new series of partition 0."""
    moving: int = 0
    """Rows that it has numbered in partition 1."""
    state: str = RUNNING


class TaskState(NamedTuple):
    """Two partitions, three series of numbers, and the attempts."""

    is_committed: bool = False
    is_sealed: bool = False
    is_open: bool = False
    old_due: int = 0
    """The next number of the series in partition 0 for layout 0."""
    staying_due: int = 0
    """The same for layout 1."""
    moving_due: int = 0
    """The next number in partition 1."""
    stored: tuple[bool, ...] = (False,) * len(ROWS)
    attempts: tuple[Attempt, ...] = ()


class NumberedRows:
    """Attempts of one task across one change."""

    liveness = "R6"

    def __init__(self, mutant: str = "") -> None:
        self._mutant = mutant

    def initial(self) -> TaskState:
        """Return a queue before its change, and no attempt."""
        return TaskState()

    def steps(self, state: TaskState) -> Iterator[Step]:
        """Yield the steps of the change, and of each attempt."""
        if not state.is_committed:
            yield Step("the change is committed", state._replace(is_committed=True))
        elif not state.is_sealed:
            yield Step("partition 0 is sealed", state._replace(is_sealed=True))
        elif not state.is_open:
            yield Step("partition 1 opens", state._replace(is_open=True))
        if len(state.attempts) < MAX_ATTEMPTS:
            for layout in range(1 + state.is_committed):
                attempts = (*state.attempts, Attempt(layout))
                label = f"attempt {len(attempts) - 1} begins with layout {layout}"
                yield Step(label, state._replace(attempts=attempts))
        for number, attempt in enumerate(state.attempts):
            if attempt.state == RUNNING:
                write = self._write_new if attempt.layout else self._write_old
                for label, after, changed in write(state, attempt):
                    done = finished(after, number, changed)
                    yield Step(f"attempt {number} {label}", done)

    def _write_old(
        self, state: TaskState, attempt: Attempt
    ) -> Iterator[tuple[str, TaskState, Attempt]]:
        """The next row of an attempt that knows the layout before the change."""
        row, following = attempt.row, attempt._replace(row=attempt.row + 1)
        if row < state.old_due:
            yield f"repeats row {row}", state, following
        elif state.is_sealed and self._mutant != "attempt_not_frozen":
            yield f"is refused with row {row}", state, attempt._replace(state=REFUSED)
        else:
            stored = with_row(state, row)._replace(old_due=state.old_due + 1)
            yield f"stores row {row} in partition 0", stored, following

    def _write_new(
        self, state: TaskState, attempt: Attempt
    ) -> Iterator[tuple[str, TaskState, Attempt]]:
        """The next row of an attempt that knows the changed layout."""
        row, following = attempt.row, attempt._replace(row=attempt.row + 1)
        if attempt.old_due == UNKNOWN:
            if state.is_sealed or self._mutant == "due_read_early":
                known = attempt._replace(old_due=state.old_due)
                yield f"reads that {state.old_due} rows are stored", state, known
        elif row < attempt.old_due:
            yield f"leaves out row {row}", state, following
        elif ROWS[row] == "stay" and state.is_sealed:
            following = following._replace(staying=attempt.staying + 1)
            if attempt.staying < state.staying_due:
                yield f"repeats row {row}", state, following
            else:
                stored = with_row(state, row)._replace(staying_due=state.staying_due + 1)
                yield f"stores row {row} in partition 0", stored, following
        elif ROWS[row] == "move" and state.is_open:
            following = following._replace(moving=attempt.moving + 1)
            if attempt.moving < state.moving_due:
                yield f"repeats row {row}", state, following
            else:
                stored = with_row(state, row)._replace(moving_due=state.moving_due + 1)
                yield f"stores row {row} in partition 1", stored, following

    def check_rest(self, state: TaskState) -> None:
        """Check R6: of three attempts one that knows the changed layout ends."""
        states = {attempt.state for attempt in state.attempts}
        if RUNNING in states and DONE not in states:
            raise Violation("R6", f"no attempt ends: {state}")


def with_row(state: TaskState, row: int) -> TaskState:
    """Return the state with a row stored.

    Raises:
        Violation: it was stored before (R1).
    """
    if state.stored[row]:
        raise Violation("R1", f"row {row} is stored twice")
    return state._replace(stored=replaced(state.stored, row, True))


def finished(state: TaskState, number: int, attempt: Attempt) -> TaskState:
    """Return the state with an attempt changed, which is done behind its last row.

    Raises:
        Violation: it is done, and not all rows are stored (R5).
    """
    if attempt.state == RUNNING and attempt.row == len(ROWS):
        attempt = attempt._replace(state=DONE)
        if not all(state.stored):
            raise Violation("R5", f"attempt {number} is done, stored are {state.stored}")
    return state._replace(attempts=replaced(state.attempts, number, attempt))
