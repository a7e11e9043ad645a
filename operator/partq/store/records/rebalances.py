"""The last rebalances of a group, and its moves one by one: for people, tools, and the budget."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict

from partq.core.group.records import (
    MAX_PAST_MOVES,
    MAX_REBALANCES,
    PastMove,
    RebalanceRecord,
    RecordedMoves,
    WaitingMove,
)
from partq.core.model import PartitionId
from partq.core.parts.part_id import parse_seat
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.groups import GroupHash, Terms

_LAST = b"last"
_WAITING = b"waiting"


class Rebalances:
    """Past rebalances of the groups of one queue."""

    def __init__(self, store: Store, keys: Keys, terms: Terms | None = None) -> None:
        """`terms`: those of the coordinator that writes; None: the writer is no coordinator."""
        self._store = store
        self._keys = keys
        self._hash = GroupHash(store, keys, keys.rebalances, terms)

    async def read(self, group: str) -> list[RebalanceRecord]:
        """Return the last rebalances, the newest last."""
        text = await self._store.read("HGET", self._keys.rebalances(group), _LAST)
        return [RebalanceRecord(**each) for each in json.loads(text)] if text else []

    async def write(self, group: str, rebalances: Sequence[RebalanceRecord]) -> None:
        """Write the rebalances, the newest last, in the place of all that are there.

        Raises:
            UnknownGroupError: the group is not stored; nothing is written.
            FencedError: another coordinator has begun; nothing is written.
        """
        last = [asdict(each) for each in rebalances[-MAX_REBALANCES:]]
        args = (1, _LAST.decode(), json.dumps(last))
        await self._hash.write_fields(group, args)

    async def read_moves(self, group: str) -> RecordedMoves:
        """Return the last moves of every partition, and those that wait."""
        flat = await self._store.read("HGETALL", self._keys.rebalances(group))
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        fields.pop(_LAST, None)
        waiting = _waiting(fields.pop(_WAITING, None))
        return RecordedMoves(
            past={
                parse_seat(name.decode()): [PastMove(**each) for each in json.loads(text)]
                for name, text in fields.items()
            },
            waiting=waiting,
        )

    async def read_waiting(self, group: str) -> dict[PartitionId, WaitingMove]:
        """Return the moves that wait for the budget."""
        return _waiting(await self._store.read("HGET", self._keys.rebalances(group), _WAITING))

    async def write_moves(
        self,
        group: str,
        past: Mapping[PartitionId, Sequence[PastMove]],
        waiting: Mapping[PartitionId, WaitingMove] | None,
    ) -> None:
        """Write moves, in the place of all that are there of these partitions.

        Args:
            group: whose.
            past: the last moves of the partitions that have changed, the newest last.
            waiting: every move that waits; None: as before.

        Raises:
            UnknownGroupError: the group is not stored; nothing is written.
            FencedError: another coordinator has begun; nothing is written.
        """
        fields = {
            str(partition): [asdict(each) for each in moves[-MAX_PAST_MOVES:]]
            for partition, moves in past.items()
        }
        texts = {name: json.dumps(moves) for name, moves in fields.items()}
        if waiting is not None:
            moves = {str(partition): asdict(each) for partition, each in waiting.items()}
            texts[_WAITING.decode()] = json.dumps(moves)
        args: list[str | int] = [len(texts), *(part for field in texts.items() for part in field)]
        await self._hash.write_fields(group, args)

    async def remove_moves(self, group: str, partitions: Collection[PartitionId]) -> None:
        """Remove the moves of partitions that the queue has no more. Errors as of `write_moves`."""
        await self._hash.write_fields(group, [0, *map(str, sorted(partitions))])


def _waiting(text: bytes | None) -> dict[PartitionId, WaitingMove]:
    moves = json.loads(text) if text else {}
    return {parse_seat(name): WaitingMove(**each) for name, each in moves.items()}
