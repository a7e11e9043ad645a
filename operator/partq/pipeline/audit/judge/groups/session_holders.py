"""Checks that one member at a time had each session, and was sent nothing without its lock (S1)."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from partq.core.hashing import slot_of_stored
from partq.pipeline.audit.judge.finding import OWNERS, of_line
from partq.pipeline.audit.judge.groups.history import FlowName
from partq.pipeline.audit.judge.groups.session_lanes import SessionLanes
from partq.pipeline.audit.judge.groups.state import GroupState
from partq.pipeline.audit.judge.lines import RecordLine

MAX_ENDED: Final = 10_000
"""Sessions whose last lock is remembered after its end."""


@dataclass(slots=True)
class _HeldLock:
    """The lock of a session, as the record has it."""

    session: str
    number: int
    member: str
    incarnation: str
    holder: FlowName | None
    """What a flow has under it; None: its member is not connected."""


class SessionHolders:
    """Follows which process of which member has which session locked.

    A lock outlives its broker. So it is held until the record says that it has ended.
    """

    def __init__(self, state: GroupState, lanes: SessionLanes) -> None:
        self._state = state
        self._segment = state.segment
        self._lanes = lanes
        self._locks: dict[str, _HeldLock] = {}
        self._of_holders: dict[FlowName, _HeldLock] = {}
        self._ended: OrderedDict[str, RecordLine] = OrderedDict()
        """Session → the end of its last lock that has ended."""
        self._first: FlowName | None = None
        """The first one in this segment, under the broker epoch that is claimed."""

    def lock(self, line: RecordLine, holder: FlowName) -> None:
        """Judge that a flow has a session from now on."""
        session, number = line.target, line.number
        known = self._locks.get(session)
        process = (line.member, line.incarnation)
        if known is not None:
            is_same = known.number == number and (known.member, known.incarnation) == process
            if not is_same or known.holder is not None:
                self._report(
                    "session_shared",
                    line,
                    f"session {session} was given to {line.member} under lock {number}, while "
                    f"{known.member} had it under lock {known.number}",
                )
        elif (last := self._ended.get(session)) is not None and _is_older(line, last):
            self._report(
                "lock_not_raised",
                line,
                f"session {session} was given to {line.member} under lock {number}; lock "
                f"{last.number} of it, of {last.member}, had ended",
            )
        if known is not None and known.holder is not None:
            del self._of_holders[known.holder]
        lock = _HeldLock(session, number, *process, holder)
        self._locks[session] = self._of_holders[holder] = lock
        self._first = self._first or holder

    def unbind(self, holder: FlowName) -> None:
        """Note that a flow has its session no more; the lock lasts on."""
        lock = self._of_holders.pop(holder, None)
        if lock is not None:
            lock.holder = None

    def unlock(self, line: RecordLine) -> FlowName | None:
        """Note the end of a lock; return what a flow had under it."""
        session, number = line.target, line.number
        last = self._ended.pop(session, line)
        self._ended[session] = line if number >= last.number else last
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)
        lock = self._locks.get(session)
        if lock is None or lock.number > number:
            return None
        del self._locks[session]
        if lock.holder is not None:
            del self._of_holders[lock.holder]
        return lock.holder

    def claim(self) -> None:
        """Note that another broker has the partition: no flow has anything, and locks last on."""
        for lock in self._of_holders.values():
            lock.holder = None
        self._of_holders.clear()
        self._first = None

    def holds(self, line: RecordLine, holder: FlowName) -> bool:
        """Return whether a delivery is under a lock that lasts, as far as the record tells.

        Where the record begins later than the broker, flows may have had sessions before.
        """
        if holder in self._of_holders:
            return True
        has_all = self._segment.claim is not None
        return not has_all and (self._first is None or holder[2] < self._first[2])

    def deliver(self, line: RecordLine, holder: FlowName) -> None:
        """Judge whether a delivery is of messages of its session, and note of which they are."""
        lock = self._of_holders.get(holder)
        if lock is None:
            return
        session, slot = lock.session, slot_of_stored(lock.session.encode("utf-8", "replace"))
        partition = self._segment.partition
        for offset, published in self._segment.slots.within(line.first, line.stop):
            if published != slot and session != f"@{partition}:{offset}":
                text = (
                    f"offset {offset}, of slot {published}, was delivered to {line.member} under "
                    f"the lock of session {session}, of slot {slot}"
                )
                self._report("outside_lock", line, text, offset)
                return
        keyless = session == f"@{partition}:{line.first}" and line.stop == line.first + 1
        other = self._lanes.learn(line.first, line.stop, None if keyless else session)
        if other is not None:
            text = (
                f"offset {other}, of session {self._lanes.session(other)}, was delivered to "
                f"{line.member} under the lock of session {session}"
            )
            self._report("outside_lock", line, text, other)

    def report_outside(self, line: RecordLine) -> None:
        """Report a delivery under a lock that the record does not have, or that has ended."""
        text = (
            f"{line.first} to {line.stop - 1} were delivered to {line.member} under "
            f"({line.broker_epoch}, {line.epoch}), under which no session was locked then"
        )
        self._report("outside_lock", line, text)

    def _report(self, what: str, line: RecordLine, text: str, offset: int | None = None) -> None:
        stop = None if offset is None else offset + 1
        self._segment.found(
            of_line(OWNERS, what, self._segment.partition, line, text, offset, stop)
        )


def _is_older(line: RecordLine, last: RecordLine) -> bool:
    """Return whether a lock is one that may not come after the end of the last one.

    The process that had a lock may have it again while nobody else has had it: Redis may not have
    its end, or the lock itself.
    """
    if line.number == last.number:
        return (line.member, line.incarnation) != (last.member, last.incarnation)
    return line.number < last.number and line.broker_epoch == last.broker_epoch
