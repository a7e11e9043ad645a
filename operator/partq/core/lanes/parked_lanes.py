"""Lanes that wait because a message of theirs was given back, each until its time has come.

Instants are seconds of the caller's clock.
"""

from collections.abc import Collection, Mapping
from math import inf

from partq.core.cursor.due_times import DueTimes
from partq.core.model import SLOT_COUNT

ALL_LANES = SLOT_COUNT
"""In the place of a slot: every lane waits. Written where more wait than are stored one by one."""
UNTIL_RELEASED = inf
"""The due of a lane that waits until somebody releases it."""
BLOCKED_MS = -1
"""In the place of a due, as stored: the lane waits until it is released."""
QUARANTINED_MS = -2
"""The same, and its messages become dead letters."""


class ParkedLanes:
    """When each waiting lane may go on."""

    __slots__ = ("_dues", "changes", "holds_made", "max_lanes", "quarantined")

    def __init__(
        self,
        max_lanes: int,
        until: Mapping[int, float] | None = None,
        quarantined: Collection[int] = (),
    ) -> None:
        self.max_lanes = max_lanes
        """How many are stored one by one; with more, nothing new is sent."""
        self.changes = 0
        """Grows with every change: the table is stored only when it has changed."""
        self.holds_made = 0
        """Grows with every lane that is held."""
        self._dues = DueTimes()
        self.quarantined = set(quarantined)
        """Those of the lanes that wait until they are released whose messages become dead
        letters."""
        for slot, due in (until or {}).items():
            self.park(slot, due)

    def __bool__(self) -> bool:
        return bool(self._dues.by_number)

    def __len__(self) -> int:
        return len(self._dues)

    def __contains__(self, slot: int) -> bool:
        return slot in self._dues

    @property
    def until(self) -> Mapping[int, float]:
        """Lane, or `ALL_LANES` → when it may go on."""
        return self._dues.by_number

    @property
    def lanes(self) -> list[int]:
        """The lanes that wait each for their own time, rising."""
        return sorted(self.until.keys() - {ALL_LANES})

    @property
    def is_full(self) -> bool:
        """Whether more lanes wait than are stored one by one."""
        return len(self._dues) > self.max_lanes

    @property
    def next_due(self) -> float:
        """When the next lane may go on; infinity: none waits."""
        return self._dues.next_due

    def park(self, slot: int, due: float) -> None:
        """Have a lane wait until `due`, or for longer if it waits for longer already."""
        if due > self.until.get(slot, -inf):
            self._dues.put(slot, due)
            self.changes += 1

    def hold(self, slot: int, *, quarantines: bool) -> bool:
        """Have a lane wait until it is released; return whether that is news."""
        if self.is_held(slot):
            return False
        self._dues.put(slot, UNTIL_RELEASED)
        if quarantines:
            self.quarantined.add(slot)
        self.changes += 1
        self.holds_made += 1
        return True

    def is_held(self, slot: int) -> bool:
        """Whether a lane waits until it is released."""
        return self.until.get(slot) == UNTIL_RELEASED

    @property
    def held(self) -> list[int]:
        """The lanes that wait until they are released."""
        return [slot for slot, due in self.until.items() if due == UNTIL_RELEASED]

    def remove(self, slot: int) -> bool:
        """Let a lane go on; return whether it waited."""
        if not self._dues.remove(slot):
            return False
        self.quarantined.discard(slot)
        self.changes += 1
        return True

    def end_waits(self, now: float) -> list[int]:
        """Let the lanes go on whose time has come, and return them."""
        ended = self._dues.pop(now)
        self.changes += len(ended)
        return ended

    def stored(self) -> dict[int, float]:
        """Return what is stored: `max_lanes` at most one by one, and the rest as `ALL_LANES`.

        Lanes that wait until they are released are all stored one by one: no time would end the
        wait of the rest. Beyond `max_lanes` they are at most as many as were delivered then.
        """
        if not self.is_full:
            return dict(self.until)
        stored = dict.fromkeys(self.held, UNTIL_RELEASED)
        timed = [(due, slot) for slot, due in self.until.items() if due < UNTIL_RELEASED]
        # Those that wait for the longest keep their own time: the rest holds up all.
        timed.sort(reverse=True)
        room = max(0, self.max_lanes - len(stored))
        stored |= {slot: due for due, slot in timed[:room]}
        if rest := timed[room:]:
            stored[ALL_LANES] = max(stored.get(ALL_LANES, -inf), rest[0][0])
        return stored


def restored(
    until_ms: Mapping[int, int], *, written_ms: int, store_ms: int, now: float, longest_s: float
) -> dict[int, float]:
    """Return until when lanes wait, as the record says, on the clock that shows `now`.

    None waits for longer than when it was written, also if the clock of Redis was set back since.

    Args:
        until_ms: lane → until when it waits, in ms of Redis's clock.
        written_ms: what that clock showed when it was written; 0: not known.
        store_ms: what it shows at `now`.
        now: on the caller's clock, in seconds.
        longest_s: no lane waits for longer, whatever the clocks say.
    """
    since_ms = max(store_ms, written_ms)
    return {
        slot: UNTIL_RELEASED
        if until in (BLOCKED_MS, QUARANTINED_MS)
        else now + min(max(0.0, (until - since_ms) / 1000), longest_s)
        for slot, until in until_ms.items()
    }


def quarantined_of(until_ms: Mapping[int, int]) -> list[int]:
    """Return the lanes whose messages become dead letters, as the record says."""
    return [slot for slot, until in until_ms.items() if until == QUARANTINED_MS]
