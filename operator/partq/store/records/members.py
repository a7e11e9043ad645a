"""Members that may bind in a group, since when members are lost, and their replacements."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from partq.core.group.records import MemberRecord, MemberSnapshot, NodeRecord, RefusedJoin
from partq.core.model import MemberId
from partq.errors import (
    FencedError,
    NodeInUseError,
    NotListedError,
    SourceCountError,
    UnknownGroupError,
)
from partq.excerpts import excerpt
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.groups import GroupHash, Terms

# The first number of what `register_node` answers; 1: it is noted.
_UNKNOWN_GROUP = 0
_UNLISTED = -1
_COUNT_DIFFERS = -2
"""A listed member says another number of nodes."""
_NODE_IN_USE = -3
"""A listed member has the number of the node."""
_ENDED = -4
_NODE_OF_ANOTHER = -5
"""The process has been replaced by another one of the member, or has said that it ends."""


class Members:
    """The members of one queue's groups.

    What writes raises UnknownGroupError when the group is not stored, and FencedError when another
    coordinator has begun; then nothing is written.
    """

    def __init__(self, store: Store, keys: Keys, terms: Terms | None = None) -> None:
        """`terms`: those of the coordinator that writes; None: the writer is no coordinator."""
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
        """Let a member bind no more, and forget that it is lost, and which node it was."""
        args = (0, f"member:{member}", f"lost:{member}", f"node:{member}", f"ended:{member}")
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

    async def set_node(
        self, group: str, member: MemberId, incarnation: str, node: NodeRecord
    ) -> None:
        """Note which node a listed member is, in the place of what was noted of it before.

        The number counts until the member is no longer listed, or `clear_node`.

        Raises:
            NotListedError: the member is not listed; nothing is written, as with all below.
            SourceCountError: a listed member says another count.
            NodeInUseError: another listed member has the number.
            FencedError: the process is one of the last 16 of the member that have ended.
            UnknownGroupError: the group is not stored.
        """
        verdict, *names = await self._register_node(group, member, incarnation, *node)
        if verdict == _UNKNOWN_GROUP:
            raise UnknownGroupError(f"group {group}: not stored, or removed; create it again")
        if verdict == _UNLISTED:
            raise NotListedError(
                f"member {excerpt(member)} of {group}: not listed; bind it, or ask again",
                retry_after_s=1.0,
            )
        if verdict == _ENDED:
            raise FencedError(
                f"member {excerpt(member)} of {group}: got incarnation {excerpt(incarnation)!r}, "
                "which has ended or was replaced by another process; nothing was changed: end it, "
                "or restart it"
            )
        if verdict == _COUNT_DIFFERS:
            raise SourceCountError(
                f"member {excerpt(member)} of {group}: got source_count {node.source_count}, but "
                f"member {excerpt(names[0].decode())} has {names[1]}; give all nodes the same "
                "count, or stop the others until they are not listed any more"
            )
        if verdict == _NODE_IN_USE:
            raise NodeInUseError(
                f"member {excerpt(member)} of {group}: node_id {node.node_id} is that of member "
                f"{excerpt(names[0].decode())}; choose another one, or wait until that member is "
                "not listed any more",
                retry_after_s=1.0,
            )

    async def clear_node(self, group: str, member: MemberId, incarnation: str) -> None:
        """Forget which node a member is, if this process of it said so; a repeat does nothing.

        What the process says after that is refused.

        Raises:
            FencedError: another process of the member has said so since, and its number stays.
            UnknownGroupError: the group is not stored.
        """
        verdict, *names = await self._register_node(group, member, incarnation, "", "")
        if verdict == _UNKNOWN_GROUP:
            raise UnknownGroupError(f"group {group}: not stored, or removed; nothing was changed")
        if verdict == _NODE_OF_ANOTHER:
            raise FencedError(
                f"member {excerpt(member)} of {group}: got incarnation {excerpt(incarnation)!r}, "
                f"but {excerpt(names[0].decode())!r} has said which node it is; its number stays: "
                "look again"
            )

    async def _register_node(
        self, group: str, member: MemberId, incarnation: str, count: int | str, node_id: int | str
    ) -> list[Any]:
        keys = [self._keys.members(group), self._keys.group_config(group)]
        args = [member, incarnation, count, node_id]
        answer: list[Any] = await self._store.run("register_node", keys, args)
        return answer

    async def read(self, group: str) -> MemberSnapshot:
        """Return listed members, replacements, and the time to compare `lost_at_ms` with."""
        flat, (seconds, micros) = await self._store.read_all(
            ("HGETALL", self._keys.members(group)), ("TIME",)
        )
        texts = [value.decode() for value in flat]
        fields = dict(zip(texts[::2], texts[1::2], strict=True))
        members, replacements, refused, nodes, lost_unlisted = {}, {}, {}, {}, {}
        for field, value in fields.items():
            kind, _, name = field.partition(":")
            if kind == "member":
                lost_at_ms = fields.get(f"lost:{name}")
                members[MemberId(name)] = MemberRecord(
                    value, int(lost_at_ms) if lost_at_ms else None
                )
            elif kind == "lost" and f"member:{name}" not in fields:
                lost_unlisted[MemberId(name)] = int(value)
            elif kind == "heir":
                replacements[MemberId(name)] = MemberId(value)
            elif kind == "refused":
                refused[MemberId(name)] = RefusedJoin(*json.loads(value))
            elif kind == "node":
                count, node_id, _ = value.split(" ", 2)
                nodes[MemberId(name)] = NodeRecord(int(count), int(node_id))
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        return MemberSnapshot(members, replacements, refused, now_ms, nodes, lost_unlisted)

    async def _write(self, group: str, arguments: Sequence[str | int]) -> None:
        await self._hash.write_fields(group, arguments)
