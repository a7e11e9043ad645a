"""Members that may bind in a group, since when members are lost, and their replacements."""

import json
from collections.abc import Collection, Mapping, Sequence

from partq.core.group.records import MemberRecord, MemberSnapshot, RefusedJoin
from partq.core.model import MemberId
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.groups import GroupHash, Terms


class Members:
    """The members of one queue's groups.

    What writes raises UnknownGroupError when the group is not stored, and FencedError when another
    coordinator has begun; then nothing is written.
    """

    def __init__(self, store: Store, keys: Keys, terms: Terms | None = None) -> None:
        """`terms`: those of the coordinator that writes; None: who writes has none."""
        self._store = store
        self._keys = keys
        self._hash = GroupHash(store, keys, keys.members, terms)

    async def list_member(self, group: str, member: MemberId, address: str) -> None:
        """Let a member bind from `address`; whether it is lost stays as it is."""
        args = (1, f"member:{member}", address, f"refused:{member}")
        await self._write(group, args)

    async def write_refusals(
        self, group: str, refused: Mapping[MemberId, RefusedJoin], over: Collection[MemberId]
    ) -> None:
        """Note who may not bind, with address and reason; and of whom that is `over`."""
        args: list[str | int] = [len(refused)]
        for member, each in sorted(refused.items()):
            args += [f"refused:{member}", json.dumps(each)]
        await self._write(group, [*args, *(f"refused:{member}" for member in sorted(over))])

    async def unlist(self, group: str, member: MemberId) -> None:
        """Let a member bind no more, and forget that it is lost."""
        args = (0, f"member:{member}", f"lost:{member}")
        await self._write(group, args)

    async def mark_lost(self, group: str, member: MemberId) -> int:
        """Note that a member is lost; return since when, in ms: a repeat does not move it."""
        return await self._hash.run("mark_lost", group, (member,))

    async def clear_lost(self, group: str, member: MemberId) -> None:
        """Note that a member is back."""
        args = (0, f"lost:{member}")
        await self._write(group, args)

    async def pair(self, group: str, member: MemberId, replacement: MemberId) -> None:
        """Note who takes over all that a member has, in the place of one noted before."""
        await self._write(group, (1, f"heir:{member}", replacement))

    async def unpair(self, group: str, member: MemberId) -> None:
        """Forget who takes over from a member: nothing is left of its set."""
        await self._write(group, (0, f"heir:{member}"))

    async def read(self, group: str) -> MemberSnapshot:
        """Return listed members, replacements, and the time to compare `lost_at_ms` with."""
        flat, (seconds, micros) = await self._store.read_all(
            ("HGETALL", self._keys.members(group)), ("TIME",)
        )
        texts = [value.decode() for value in flat]
        fields = dict(zip(texts[::2], texts[1::2], strict=True))
        members, replacements, refused = {}, {}, {}
        for field, value in fields.items():
            kind, _, name = field.partition(":")
            if kind == "member":
                lost_at_ms = fields.get(f"lost:{name}")
                members[MemberId(name)] = MemberRecord(
                    value, int(lost_at_ms) if lost_at_ms else None
                )
            elif kind == "heir":
                replacements[MemberId(name)] = MemberId(value)
            elif kind == "refused":
                refused[MemberId(name)] = RefusedJoin(*json.loads(value))
        return MemberSnapshot(
            members, replacements, refused, int(seconds) * 1000 + int(micros) // 1000
        )

    async def _write(self, group: str, arguments: Sequence[str | int]) -> None:
        await self._hash.write_fields(group, arguments)
