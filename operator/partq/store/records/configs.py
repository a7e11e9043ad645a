"""The configs of a queue and its groups: their effective specs, which brokers read."""

import hashlib
import json
from collections.abc import Sequence

from partq.core.records import ConfigRecord
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records import groups
from partq.store.records.stored_partition import pairs
from partq.wire.effective_specs import EffectiveSpec

FULL_READ_EVERY = 30
"""Every so many-th read of the groups' configs reads them all, whatever the queue's config says."""
_VERSION = b"group:"
_FIELDS = ("resource_generation", "json", "born")


class Configs:
    """The configs of one queue and its groups."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._reads = 0
        self._seen: dict[str, tuple[bytes | None, ConfigRecord]] = {}
        """The config of each group as it was read last, under which version."""

    async def write_queue(self, spec: EffectiveSpec, *, resource_generation: int) -> bool:
        """Write the queue's config, under a generation above that of the config it was made from.

        False: another one of that generation, or of a later one, is there. A repeat is True.
        """
        return await self._write(self._keys.config(), spec, resource_generation, None)

    async def read_queue(self) -> ConfigRecord | None:
        """Return the queue's config; None: never written."""
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
        return ConfigRecord(number, spec, versions, int(fields.get(b"born", 0)))

    async def begin_group(self, group: str) -> int:
        """Return the `born` under which the config of a group is to be written that has none.

        `erase_group` takes it back: the config is refused if it arrives after that.
        """
        return int(await self._store.run("begin_group", [self._keys.group_config(group)]))

    async def write_group(
        self,
        group: str,
        spec: EffectiveSpec,
        *,
        resource_generation: int,
        born: int | None = None,
    ) -> bool:
        """Write a group's config, as `write_queue` does.

        `born` is that of the config it was made from, or what `begin_group` has returned: False,
        too, where another one is stored, or none. None: whatever it has.

        If the writer dies before the queue's config has its version, the next full read finds it.
        """
        key = self._keys.group_config(group)
        is_written = await self._write(key, spec, resource_generation, born)
        if is_written:
            text = json.dumps([resource_generation, spec]).encode()
            version = hashlib.blake2b(text, digest_size=8).hexdigest()
            fields = (1, _version_field(group), version)
            await self._store.run("write_fields", [self._keys.config()], fields)
        return is_written

    async def read_group(self, group: str) -> ConfigRecord | None:
        """Return a group's config; None: never written."""
        key = self._keys.group_config(group)
        return _config_of(await self._store.read("HMGET", key, *_FIELDS))

    async def read_reachable_groups(self, groups: Sequence[str]) -> dict[str, ConfigRecord | None]:
        """Return the configs of groups, None for one that was never written.

        Where a node of a Redis Cluster is silent, its groups are left out; nobody waits for it
        while the node of the queue's config answers.
        """
        commands: list[tuple[str, ...]] = [("HGET", self._keys.config(), "resource_generation")]
        commands += [("HMGET", self._keys.group_config(group), *_FIELDS) for group in groups]
        found = await self._store.read_each(commands if groups else [], only_reachable=True)
        return {
            group: _config_of(fields)
            for group, fields in zip(groups, found[1:], strict=True)
            if fields is not None
        }

    async def read_groups(self, queue: ConfigRecord) -> dict[str, ConfigRecord]:
        """Return the configs of a queue's groups, as `queue` names them.

        Reads those whose version has changed since the last call, and now and then all: the
        group's config decides. A group that has none, as it goes, is left out. Where a node of a
        Redis Cluster is silent, what was read last of its groups stays.
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
        # The queue's config is asked, too: while that node answers, no silent one is waited for.
        commands: list[tuple[str, ...]] = [("HGET", self._keys.config(), "resource_generation")]
        commands += [("HMGET", self._keys.group_config(group), *_FIELDS) for group in wanted]
        found = await self._store.read_each(commands if wanted else [], only_reachable=True)
        for group, fields in zip(wanted, found[1:], strict=True):
            if fields is None:
                continue
            if (config := _config_of(fields)) is not None:
                seen[group] = (queue.versions.get(group), config)
            else:
                seen.pop(group, None)
        self._seen = seen
        return {group: config for group, (_, config) in seen.items()}

    async def erase_group(self, group: str, *, born: int) -> None:
        """Take a group off the record, with all that is noted for it as a whole.

        `born` is that of its config; 0 where it has none.

        Raises:
            ConflictError: another group has the name by now; nothing is erased.
        """
        await groups.erase(self._store, self._keys, group, born=born)
        fields = (0, _version_field(group))
        await self._store.run("write_fields", [self._keys.config()], fields)

    async def _write(
        self, key: str, spec: EffectiveSpec, resource_generation: int, born: int | None
    ) -> bool:
        args = (resource_generation, json.dumps(spec), "" if born is None else born)
        # A config that a failover forgets would look like that of a group that is gone.
        return bool(await self._store.run("write_config", [key], args, needs_replica=True))


def _config_of(fields: Sequence[bytes | None]) -> ConfigRecord | None:
    """Read `_FIELDS` of a config; None: it has no spec."""
    generation, text, born = fields
    if generation is None or text is None:
        return None
    return ConfigRecord(int(generation), json.loads(text), born=int(born or 0))


def _version_field(group: str) -> str:
    """Name the field of the queue's config that tells whether a group's has changed."""
    return f"{_VERSION.decode()}{group}"
