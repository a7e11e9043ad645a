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


class UnstoredStates:
    """Those of one group in one partition: held until the flush that stores them with their acks.

    Args:
        stored_count: how many keys have a state in the record.
    """

    __slots__ = (
        "_added",
        "_guards",
        "_new",
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
        self._guards: dict[str, list[StateGuard]] = {}
        """Of states that the store may refuse."""
        self._added = 0
        """Entries of both that are no removals: at most so many more keys have a state."""
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
        if guard is None:
            self._guards.pop(key, None)
        else:
            self._guards.setdefault(key, []).append(guard)
        self._added += (state is not None) - (self._new.get(key) is not None)
        self._new[key] = state

    def find(self, key: str) -> bytes | EllipsisType | None:
        """Return the state of a key that is not stored yet; `...`: the record has its state."""
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
        if not self._new and not self._written:
            return NO_STATES
        self._written = {**self._written, **self._new}
        self._new = {}
        self._added = _count(self._written)
        return self._written

    @property
    def guarded_slots(self) -> list[int]:
        """The slots of states that are not to be stored once these have left."""
        return [guards[0].slot for guards in self._guards.values()]

    def refuse_guarded(self, slot: int) -> None:
        """Forget the states of a slot that may not be stored here any more, as the store says."""
        refused = {key: each for key, each in self._guards.items() if each[0].slot == slot}
        for key, guards in refused.items():
            del self._guards[key]
            self._new.pop(key, None)
            self._written.pop(key, None)
            for guard in guards:
                guard.is_refused = True
        self._added = _count(self._new) + _count(self._written)

    def stored(self, count: int | None) -> None:
        """Note that what was taken is stored; `count`: how many keys have a state then.

        None: nothing says so, as nothing was taken, or a repeat was answered.
        """
        if count is not None:
            self.stored_count = count
        elif self._written:
            self.stored_count += _count(self._written)
        self._guards = {key: each for key, each in self._guards.items() if key in self._new}
        self._written = {}
        self._added = _count(self._new)

    def begin_at(self, stored_count: int) -> None:
        """Follow the record, whose states were written past the book."""
        self.stored_count = stored_count


def _count(states: Mapping[str, bytes | None]) -> int:
    return sum(state is not None for state in states.values())
