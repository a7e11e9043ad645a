"""The coordinator's assignment for each partition of a group: an index, the record decides."""

import json
from collections.abc import Collection, Mapping

from partq.core.group.records import AssignmentEntry
from partq.core.model import Epoch, PartitionId
from partq.core.parts.part_id import parse_seat
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.groups import GroupHash, Terms

_CHUNK = 1000


class Assignments:
    """The assignments of one queue's groups."""

    def __init__(self, store: Store, keys: Keys, terms: Terms | None = None) -> None:
        """`terms`: those of the coordinator that writes; None: the writer is no coordinator."""
        self._store = store
        self._keys = keys
        self._hash = GroupHash(store, keys, keys.assignment, terms)

    async def read(self, group: str) -> dict[PartitionId, AssignmentEntry]:
        """Return what was written for each partition; empty: nothing yet."""
        flat = await self._store.read("HGETALL", self._keys.assignment(group))
        found = {}
        for field, value in zip(flat[::2], flat[1::2], strict=True):
            member, epoch, state = json.loads(value)
            found[parse_seat(field.decode())] = AssignmentEntry(member, Epoch(epoch), state)
        return found

    async def write(self, group: str, mapping: Mapping[PartitionId, AssignmentEntry]) -> None:
        """Write the partitions of `mapping`; others stay as they are.

        A thousand partitions are written in one step; more are not one step.

        Raises:
            UnknownGroupError: the group is not stored; nothing is written.
            FencedError: another coordinator has begun; nothing is written.
        """
        items = list(mapping.items())
        for start in range(0, len(items), _CHUNK):
            chunk = items[start : start + _CHUNK]
            args: list[str | int] = [len(chunk)]
            for partition, assigned in chunk:
                value = [assigned.member, assigned.epoch, assigned.state]
                args += (str(partition), json.dumps(value))
            await self._hash.write_fields(group, args)

    async def remove(self, group: str, partitions: Collection[PartitionId]) -> None:
        """Remove partitions that the queue has no more; a repeat changes nothing.

        Raises the same as `write`.
        """
        await self._hash.write_fields(group, [0, *map(str, sorted(partitions))])
