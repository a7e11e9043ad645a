"""The lives of a queue's name: which resource has it now, and which have given it up."""

from partq.core.records import LifeRecord
from partq.store.connection import Store
from partq.store.keys import Keys

ENDED_KEEP_MS = 7 * 24 * 3_600_000
"""How long it is recorded that a life was given up: far longer than a process stands still."""


class Lives:
    """The lives of one queue's name. All of them share these keys."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def register(self, uid: str) -> LifeRecord:
        """Register a life of the queue's name, and return the one that is current.

        If it differs from ours, the keys of this name belong to another resource. One that was
        given up in the last `ENDED_KEEP_MS` is not registered again.
        """
        lives = self._keys.lives()
        current = await self._store.run("register_life", [lives, self._keys.ended_life(uid)], [uid])
        return LifeRecord(None if current == 0 else str(current, "utf-8"), lives)

    async def release(self, uid: str, *, keeps_data: bool) -> None:
        """Give up a life of the queue's name, so that another resource can take the name.

        `keeps_data`: its keys stay, and it stays listed beside later lives.
        """
        keys = [self._keys.lives(), self._keys.ended_life(uid)]
        await self._store.run("release_life", keys, [uid, int(keeps_data), ENDED_KEEP_MS])

    async def current_uid(self) -> str | None:
        """Return the current life of the queue's name; None: it was never registered."""
        current = await self._store.read("HGET", self._keys.lives(), "current")
        return current.decode() if current else None
