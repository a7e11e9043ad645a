"""The handoffs of a group that are under way: what a coordinator that starts continues with."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from partq.core.group.records import HandoffRecord
from partq.core.model import PartitionId
from partq.core.parts.part_id import parse_seat
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.groups import GroupHash, Terms

_LAST_ATTEMPT = b"last_attempt"


class Handoffs:
    """The handoffs of one queue's groups.

    What writes raises UnknownGroupError when the group is not stored, and FencedError when another
    coordinator has begun; then nothing is written.
    """

    def __init__(self, store: Store, keys: Keys, terms: Terms | None = None) -> None:
        """`terms`: those of the coordinator that writes; None: the writer is no coordinator."""
        self._store = store
        self._keys = keys
        self._hash = GroupHash(store, keys, keys.handoffs, terms)

    async def draw_attempt(self, group: str) -> int:
        """Return an attempt that was never drawn before, whatever Redis forgot."""
        return await self._hash.run("draw_attempt", group)

    async def read(self, group: str) -> dict[PartitionId, HandoffRecord]:
        """Return every handoff under way."""
        flat = await self._store.read("HGETALL", self._keys.handoffs(group))
        return {
            parse_seat(field.decode()): HandoffRecord(**json.loads(value))
            for field, value in zip(flat[::2], flat[1::2], strict=True)
            if field != _LAST_ATTEMPT
        }

    async def record(self, group: str, partition: PartitionId, record: HandoffRecord) -> None:
        """Write a partition's handoff, in the place of one that is there."""
        args = (1, str(partition), json.dumps(asdict(record)))
        await self._write(group, args)

    async def remove(self, group: str, partition: PartitionId) -> None:
        """Remove a partition's handoff: it is over. A repeat changes nothing."""
        await self._write(group, (0, str(partition)))

    async def _write(self, group: str, arguments: Sequence[str | int]) -> None:
        await self._hash.write_fields(group, arguments)
