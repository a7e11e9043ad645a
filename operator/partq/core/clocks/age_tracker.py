"""How long ago stored instants were, whatever the store's clock does meanwhile.

Instants that must survive a restart are the store's time. A process that continues counts on its
steady clock, so a jump of the store's clock neither lengthens nor shortens a wait that has begun.
"""

from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)


class _SeenInstant(NamedTuple):
    stored_ms: int
    began_ms: int
    """The same instant on one's own clock."""


class AgeTracker(Generic[Key]):
    """Counts on its owner's clock from where the store's clock was when an instant was first seen.

    All times in milliseconds.
    """

    __slots__ = ("_looked_ms", "_seen")

    def __init__(self) -> None:
        self._seen: dict[Key, _SeenInstant] = {}
        self._looked_ms: int | None = None

    def observe(self, instants: Mapping[Key, int], *, store_ms: int, now_ms: int) -> dict[Key, int]:
        """Return how long ago each instant was, by key; what is not among them is forgotten.

        An instant that is new, and by the store's clock still to come, is left out: it is from
        before that clock was set back.

        Args:
            instants: the store's time, as read now.
            store_ms: the store's clock at that reading.
            now_ms: the own clock at that reading; it never falls.
        """
        seen = {}
        for key, stored_ms in instants.items():
            known = self._seen.get(key)
            if known is not None and known.stored_ms == stored_ms:
                seen[key] = known
            elif store_ms >= stored_ms:
                began_ms = now_ms - (store_ms - stored_ms)
                if self._looked_ms is not None:
                    # It was not there at the last look: it cannot be older than that.
                    began_ms = max(began_ms, self._looked_ms)
                seen[key] = _SeenInstant(stored_ms, began_ms)
        self._seen, self._looked_ms = seen, now_ms
        return {key: now_ms - each.began_ms for key, each in seen.items()}
