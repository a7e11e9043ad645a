"""A queue's layout, its lives and the effective specs that brokers read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from partq.core.layout import Generation, Layout
from partq.errors import UnknownQueueError
from partq.store import groups
from partq.store.codec import decode_counts, encode_counts
from partq.store.connection import Store
from partq.store.keys import Keys


@dataclass(frozen=True, slots=True)
class StoredLayout:
    """A queue's generations, and whether it is being deleted."""

    layout: Layout
    tombstone: bool


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """An effective spec, and the generation of the resource that it was made from."""

    resource_generation: int
    spec: dict[str, Any]

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the queue's groups: the field `groups` of a queue's spec."""
        return tuple(self.spec.get("groups", ()))


class Layouts:
    """What is on record for one queue as a whole."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def create_queue(self, generations: Mapping[int, int]) -> StoredLayout:
        """Make the layout from generation → partition count, and return the one on record.

        A layout that is there stays as it is.
        """
        text = encode_counts(generations)
        await self._store.run("create_queue", [self._keys.layout()], [text])
        return await self.read()

    async def read(self) -> StoredLayout:
        """Return the layout.

        Raises:
            UnknownQueueError: it was never made, or is deleted.
        """
        generations, tombstone = await self._store.read(
            "HMGET", self._keys.layout(), "generations", "tombstone"
        )
        if generations is None:
            name = f"{self._keys.namespace}/{self._keys.queue}"
            raise UnknownQueueError(f"queue {name}: the store has no layout of it")
        counts = decode_counts(generations)
        layout = Layout(tuple(Generation(*pair) for pair in sorted(counts.items())))
        return StoredLayout(layout, tombstone is not None)

    async def bury(self) -> None:
        """Mark the queue as being deleted: brokers refuse it from now on."""
        await self._store.run("write_fields", [self._keys.layout()], [1, "tombstone", "1"])

    async def register(self, uid: str) -> str:
        """Register a life of the queue's name, and return the one that is current.

        Another uid than one's own: the keys of this name belong to another resource.
        """
        current = await self._store.run("register_life", [self._keys.lives()], [uid])
        return str(current, "utf-8")

    async def release(self, uid: str, *, keeps_data: bool) -> None:
        """Give up a life of the queue's name, so that another resource can take the name.

        `keeps_data`: its keys stay, and it stays on record beside later lives.
        """
        await self._store.run("release_life", [self._keys.lives()], [uid, int(keeps_data)])

    async def current_uid(self) -> str | None:
        """Return the current life of the queue's name; None: it was never registered."""
        current = await self._store.read("HGET", self._keys.lives(), "current")
        return current.decode() if current else None

    async def write_config(self, spec: Mapping[str, Any], *, resource_generation: int) -> bool:
        """Write the queue's effective spec; False: one of a later generation is there."""
        return await self._write(self._keys.config(), spec, resource_generation)

    async def read_config(self) -> StoredConfig | None:
        """Return the queue's effective spec; None: never written."""
        return await self._read(self._keys.config())

    async def write_group_config(
        self, group: str, spec: Mapping[str, Any], *, resource_generation: int
    ) -> bool:
        """Write a group's effective spec; False: one of a later generation is there."""
        return await self._write(self._keys.group_config(group), spec, resource_generation)

    async def read_group_config(self, group: str) -> StoredConfig | None:
        """Return a group's effective spec; None: never written."""
        return await self._read(self._keys.group_config(group))

    async def erase_group(self, group: str) -> None:
        """Take a group off the record, with all that is noted for it as a whole."""
        await groups.erase(self._store, self._keys, group)

    async def _write(self, key: str, spec: Mapping[str, Any], resource_generation: int) -> bool:
        args = (resource_generation, json.dumps(spec))
        return bool(await self._store.run("write_config", [key], args))

    async def _read(self, key: str) -> StoredConfig | None:
        found = await self._store.read("HMGET", key, "resource_generation", "json")
        if found[0] is None:
            return None
        return StoredConfig(int(found[0]), json.loads(found[1]))
