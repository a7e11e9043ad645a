"""A queue's layout, its lives and the effective specs that brokers read."""

import asyncio
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from partq.core.layout import Generation, Layout
from partq.errors import UnknownQueueError
from partq.store.codec import decode_counts, encode_counts
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records import groups
from partq.store.records.partition_records import pairs

FULL_READ_EVERY = 30
"""Every so many-th read of the groups' specs reads them all, whatever the queue's hash says."""
_VERSION = b"group:"


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
    versions: Mapping[str, bytes] = field(default_factory=dict)
    """Of a queue: which spec each of its groups has. Says whether it is another one than before; a
    group whose spec an earlier version of partq wrote last may lack, or have an old one."""
    born: int = 0
    """When it was made, in µs of Redis's time: one that is erased and made again has another; 0: an
    earlier version of partq made it."""

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the queue's groups: the field `groups` of a queue's spec."""
        return tuple(self.spec.get("groups", ()))


class Layouts:
    """The records of one whole queue."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._reads = 0
        self._seen: dict[str, tuple[bytes | None, StoredConfig]] = {}
        """The spec of each group as it was read last, under which version."""

    async def create_queue(self, generations: Mapping[int, int]) -> StoredLayout:
        """Make the layout from generation → partition count, and return the stored one.

        A layout that is there stays as it is.
        """
        text = encode_counts(generations)
        await self._store.run("create_queue", [self._keys.layout()], [text], needs_replica=True)
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
            raise UnknownQueueError(f"queue {name}: the store has no layout of it; create it")
        counts = decode_counts(generations)
        layout = Layout(tuple(Generation(*pair) for pair in sorted(counts.items())))
        return StoredLayout(layout, tombstone is not None)

    async def bury(self) -> None:
        """Mark the queue as being deleted: brokers refuse it from now on."""
        await self._store.run("write_fields", [self._keys.layout()], [1, "tombstone", "1"])

    async def register(self, uid: str) -> str:
        """Register a life of the queue's name, and return the one that is current.

        If it differs from ours, the keys of this name belong to another resource.
        """
        current = await self._store.run("register_life", [self._keys.lives()], [uid])
        return str(current, "utf-8")

    async def release(self, uid: str, *, keeps_data: bool) -> None:
        """Give up a life of the queue's name, so that another resource can take the name.

        `keeps_data`: its keys stay, and it stays listed beside later lives.
        """
        await self._store.run("release_life", [self._keys.lives()], [uid, int(keeps_data)])

    async def current_uid(self) -> str | None:
        """Return the current life of the queue's name; None: it was never registered."""
        current = await self._store.read("HGET", self._keys.lives(), "current")
        return current.decode() if current else None

    async def write_config(self, spec: Mapping[str, Any], *, resource_generation: int) -> bool:
        """Write the queue's effective spec, under a generation above the one it was made from.

        False: another one of that generation, or of a later one, is there. A repeat is True.
        """
        return await self._write(self._keys.config(), spec, resource_generation, None)

    async def read_config(self) -> StoredConfig | None:
        """Return the queue's effective spec; None: never written."""
        flat = await self._store.read("HGETALL", self._keys.config())
        fields = pairs(flat)
        if b"json" not in fields:
            return None
        versions = {
            name.removeprefix(_VERSION).decode(): version
            for name, version in fields.items()
            if name.startswith(_VERSION)
        }
        number, spec = int(fields[b"resource_generation"]), json.loads(fields[b"json"])
        return StoredConfig(number, spec, versions, int(fields.get(b"born", 0)))

    async def write_group_config(
        self,
        group: str,
        spec: Mapping[str, Any],
        *,
        resource_generation: int,
        born: int | None = None,
    ) -> bool:
        """Write a group's effective spec, as `write_config` does.

        `born` is that of the spec it was made from, 0 where there was none: False, too, where the
        stored one has another. None: whatever it has.

        Who dies before the queue's hash has its version is found by the next full read.
        """
        key = self._keys.group_config(group)
        is_written = await self._write(key, spec, resource_generation, born)
        if is_written:
            text = json.dumps([resource_generation, spec]).encode()
            version = hashlib.blake2b(text, digest_size=8).hexdigest()
            fields = (1, _version_field(group), version)
            await self._store.run("write_fields", [self._keys.config()], fields)
        return is_written

    async def read_group_config(self, group: str) -> StoredConfig | None:
        """Return a group's effective spec; None: never written."""
        return await self._read(self._keys.group_config(group))

    async def read_group_configs(self, queue: StoredConfig) -> dict[str, StoredConfig]:
        """Return the effective specs of a queue's groups, as `queue` names them.

        Reads those whose version has changed since the last call, and now and then all: the
        group's own hash decides. A group that has no spec, as it goes, is left out.
        """
        is_full = self._reads % FULL_READ_EVERY == 0
        self._reads += 1
        seen = {group: self._seen[group] for group in queue.groups if group in self._seen}
        wanted = [
            group
            for group in queue.groups
            if is_full
            or (version := queue.versions.get(group)) is None
            or group not in seen
            or seen[group][0] != version
        ]
        found = await asyncio.gather(*map(self.read_group_config, wanted))
        for group, config in zip(wanted, found, strict=True):
            if config is not None:
                seen[group] = (queue.versions.get(group), config)
            else:
                seen.pop(group, None)
        self._seen = seen
        return {group: config for group, (_, config) in seen.items()}

    async def erase_group(self, group: str, *, born: int) -> None:
        """Take a group off the record, with all that is noted for it as a whole.

        `born` is that of its spec; 0 where it has none.

        Raises:
            ConflictError: another group has the name by now; nothing is erased.
        """
        await groups.erase(self._store, self._keys, group, born=born)
        fields = (0, _version_field(group))
        await self._store.run("write_fields", [self._keys.config()], fields)

    async def _write(
        self, key: str, spec: Mapping[str, Any], resource_generation: int, born: int | None
    ) -> bool:
        args = (resource_generation, json.dumps(spec), "" if born is None else born)
        # A spec that a failover forgets would look like that of a group that is gone.
        return bool(await self._store.run("write_config", [key], args, needs_replica=True))

    async def _read(self, key: str) -> StoredConfig | None:
        found = await self._store.read("HMGET", key, "resource_generation", "json", "born")
        if found[0] is None:
            return None
        return StoredConfig(int(found[0]), json.loads(found[1]), born=int(found[2] or 0))


def _version_field(group: str) -> str:
    """Name the field of the queue's config that tells whether a group has another spec."""
    return f"{_VERSION.decode()}{group}"
