"""Which member has which session of a partition locked, and until when. It has no clock.

Instants are seconds of the caller's clock.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from partq.core.model import MemberId

MAX_LOCKS: Final = 250
"""Sessions of a partition that may be locked at a time."""
MAX_LOCK_S: Final = 300.0
"""No lock lasts for longer without a renewal, whatever clocks say."""


class StoredLock(NamedTuple):
    """A lock as the record of the group has it."""

    member: MemberId
    incarnation: str
    number: int
    until_ms: int
    """In ms of Redis's clock."""


@dataclass(slots=True)
class SessionLock:
    """The lock of one session."""

    session: str
    member: MemberId
    incarnation: str
    """Of the process that has it: another process of the member does not."""
    number: int
    """Of several locks of the session the later one has the higher number."""
    until: float

    def is_of(self, member: MemberId, incarnation: str) -> bool:
        """Whether a process of a member has the lock."""
        return (self.member, self.incarnation) == (member, incarnation)


class SessionLocks:
    """The locks of one partition."""

    __slots__ = ("_by_session",)

    def __init__(self, locks: Iterable[SessionLock] = ()) -> None:
        self._by_session = {lock.session: lock for lock in locks}

    def __len__(self) -> int:
        return len(self._by_session)

    def __iter__(self) -> Iterator[SessionLock]:
        return iter(self._by_session.values())

    def find(self, session: str) -> SessionLock | None:
        """Return the lock of a session; None: nobody has it."""
        return self._by_session.get(session)

    def put(self, lock: SessionLock) -> None:
        """Give a session to a member, or renew its lock."""
        self._by_session[lock.session] = lock

    def remove(self, session: str) -> SessionLock | None:
        """End the lock of a session, and return it."""
        return self._by_session.pop(session, None)

    def over(self, now: float) -> list[SessionLock]:
        """Return the locks whose time is over."""
        return [lock for lock in self if lock.until <= now]


def restored_locks(
    stored: Mapping[str, StoredLock], *, store_ms: float | None, now: float
) -> list[SessionLock]:
    """Return locks as the record has them, on the clock that shows `now`.

    None lasts for longer than any lock may, also if Redis's clock was set back since. One whose
    time is over is left out.

    Args:
        stored: by session.
        store_ms: what Redis's clock shows at `now`; None: it is not known, and all may last on.
        now: in seconds.
    """
    locks = []
    for session, (member, incarnation, number, until_ms) in stored.items():
        left_s = MAX_LOCK_S
        if store_ms is not None:
            left_s = min((until_ms - store_ms) / 1000, MAX_LOCK_S)
        if left_s > 0:
            locks.append(SessionLock(session, member, incarnation, number, now + left_s))
    return locks
