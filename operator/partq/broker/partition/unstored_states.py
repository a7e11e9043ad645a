"""States of keys that came with acks and are not stored yet."""

from collections import deque
from collections.abc import Callable, Mapping
from types import EllipsisType

from partq.store.codec import NO_STATES


class StateGuard:
    """Of a state without an ack of an open message: refused once its slot has left the partition.

    Args:
        slot: of its key.
    """

    __slots__ = ("is_refused", "slot")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.is_refused = False


class _GuardedState:
    """The newest state of a key, while the store may refuse it."""

    __slots__ = ("guards", "is_taken", "state")

    def __init__(self) -> None:
        self.state: bytes | None = None
        self.guards: list[StateGuard] = []
        self.is_taken = False
        """The flush that is under way, or has failed, has it."""


class UnstoredStates:
    """Those of one group in one partition: held until the flush that stores them with their acks.

    Args:
        stored_count: how many keys have a state in the record.
    """

    __slots__ = (
        "_added",
        "_guarded",
        "_new",
        "_taken",
        "_written",
        "is_turn",
        "looked_at",
        "stored_count",
        "waiting",
    )

    def __init__(self, stored_count: int = 0) -> None:
        self.stored_count = stored_count
        self._new: dict[str, bytes | None] = {}
        self._written: dict[str, bytes | None] = {}
        """Those of a flush that has no answer, or has failed: the next one has them again."""
        self._guarded: dict[str, _GuardedState] = {}
        """Those that the store may refuse, newer than what the other two have of their keys."""
        self._taken: Mapping[str, bytes | None] = NO_STATES
        """All that this flush stores."""
        self._added = 0
        """Entries of these that are no removals: at most so many more keys have a state."""
        self.waiting: deque[tuple[str | None, Callable[[], object]]] = deque()
        """Acks with states that wait for a look at the store, and acks and reads behind them: their
        keys, None of an ack without a state; and what carries them out."""
        self.is_turn = False
        """One that has waited is being carried out."""
        self.looked_at: tuple[str, int] | None = None
        """A key, and how many other ones have a state, as a look at the store has just shown."""

    def put(self, key: str, state: bytes | None, guard: StateGuard | None = None) -> None:
        """Note the state that came with an ack which counts; the caller has the book flushed.

        `guard`: it came without one, and is not stored once its slot has left.
        """
        if guard is not None:
            # What came with acks before stays beneath it: it counts also if this one is refused.
            guarded = self._guarded.setdefault(key, _GuardedState())
            self._added += (state is not None) - (guarded.state is not None)
            guarded.state, guarded.is_taken = state, False
            guarded.guards.append(guard)
            return
        if (newest := self._guarded.pop(key, None)) is not None:
            self._added -= newest.state is not None
        self._added += (state is not None) - (self._new.get(key) is not None)
        self._new[key] = state

    def find(self, key: str) -> bytes | EllipsisType | None:
        """Return the state of a key that is not stored yet; `...`: the record has its state."""
        guarded = self._guarded.get(key)
        if guarded is not None:
            return guarded.state
        return self._new.get(key, self._written.get(key, ...))

    def has_room(self, key: str, most: int) -> bool:
        """Say whether a state of a key may be added, as far as it is known here."""
        if self.looked_at is not None and self.looked_at[0] == key:
            return self.looked_at[1] < most
        if isinstance(self.find(key), bytes):
            return True  # in its place
        return self.stored_count + self._added < most

    def to_store(self) -> Mapping[str, bytes | None]:
        """Return what the flush that begins is to store, with all that failed ones did not."""
        self._taken = NO_STATES
        if self._new or self._written or self._guarded:
            self._written = {**self._written, **self._new}
            self._new = {}
            for each in self._guarded.values():
                each.is_taken = True
            guarded = {key: each.state for key, each in self._guarded.items()}
            self._taken = {**self._written, **guarded}
            self._count_added()
        return self._taken

    @property
    def guarded_slots(self) -> list[int]:
        """The slots of states that are not to be stored once these have left."""
        return [each.guards[0].slot for each in self._guarded.values()]

    def refuse_guarded(self, slot: int) -> None:
        """Forget the states of a slot that may not be stored here any more, as the store says.

        Those that came with acks which are not stored yet are stored with them all the same.
        """
        for key, refused in list(self._guarded.items()):
            if refused.guards[0].slot == slot:
                del self._guarded[key]
                for guard in refused.guards:
                    guard.is_refused = True
        self._count_added()

    def stored(self, count: int | None) -> None:
        """Note that what was taken is stored; `count`: how many keys have a state then.

        None: nothing says so, as nothing was taken, or a repeat was answered.
        """
        if count is not None:
            self.stored_count = count
        else:
            self.stored_count += _count(self._taken)
        self._guarded = {key: each for key, each in self._guarded.items() if not each.is_taken}
        self._written, self._taken = {}, NO_STATES
        self._count_added()

    def begin_at(self, stored_count: int) -> None:
        """Follow the record, whose states were written past the book."""
        self.stored_count = stored_count

    def _count_added(self) -> None:
        guarded = {key: each.state for key, each in self._guarded.items()}
        self._added = _count(self._new) + _count(self._written) + _count(guarded)


def _count(states: Mapping[str, bytes | None]) -> int:
    return sum(state is not None for state in states.values())
