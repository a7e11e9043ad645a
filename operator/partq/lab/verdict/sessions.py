"""What journals say of sessions: one member at a time has each, and its state is what was left."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from partq.lab.verdict.journal_rows import LOCKED, DeliveredRow, LockRow, Row, StateRow
from partq.lab.verdict.judge import last_processings


def find_session_faults(rows: Iterable[Row]) -> list[str]:
    """Return what went wrong with locks and states, as sentences; none: nothing.

    `rows` must be in the order of their instants (`journal.in_order`). A member works on messages
    of a session between its own lock and the next lock of another member, and unlocks it before
    that. Of several processings of one message only that under the last token counts: a member
    that is cut off may still be at work on what it had. Locks of a session have ascending numbers.
    With each message number N of a session members leave the state N, so they find N - 1 at it.
    """
    locks: defaultdict[str, list[LockRow]] = defaultdict(list)
    unlocks: list[LockRow] = []
    states: list[StateRow] = []
    deliveries: list[DeliveredRow] = []
    for row in rows:
        match row:
            case LockRow(change=change):
                (locks[row.session] if change == LOCKED else unlocks).append(row)
            case StateRow():
                states.append(row)
            case DeliveredRow():
                deliveries.append(row)
    faults = [
        f"session {row.session!r}: {row.member} has lock {row.lock} after lock {before.lock}"
        for of_session in locks.values()
        for before, row in pairwise(of_session)
        if row.lock <= before.lock
    ]
    for row in unlocks:
        holder = _holder(locks[row.session], row.at_ns)
        if holder is None or (holder.member, holder.lock) != (row.member, row.lock):
            faults.append(
                f"session {row.session!r}: {row.member} ends lock {row.lock} when {_has(holder)}"
            )
    for processed in last_processings(deliveries):
        for at_ns in (processed.begun_ns, processed.at_ns):
            holder = _holder(locks[processed.key], at_ns)
            if holder is None or holder.member != processed.member:
                faults.append(
                    f"session {processed.key!r}: {processed.member} works on number "
                    f"{processed.number} when {_has(holder)}"
                )
                break
    faults += [
        f"session {row.session!r}: {row.member} finds the state {row.state} at number {row.number}"
        for row in states
        if row.state != row.number - 1
    ]
    return faults


def _holder(locks: Sequence[LockRow], at_ns: int) -> LockRow | None:
    """Return the last lock that was given up to an instant; None: there was none."""
    index = bisect_right(locks, at_ns, key=lambda row: row.at_ns)
    return locks[index - 1] if index else None


def _has(holder: LockRow | None) -> str:
    return "nobody has it" if holder is None else f"{holder.member} has lock {holder.lock}"
