"""The commits of parts: which member has which part of a group's partition."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from partq.core.model import BrokerEpoch, Epoch, PartitionId
from partq.core.parts.part_owners import PartMove
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.refusals import FENCED, UNKNOWN, fenced, unknown_group

PASSED = 1
"""A part's answer of `commit_parts`: it has passed, now or by an earlier try."""
_REFUSALS = {
    -1: "another member has it",
    -2: "its attempt is over",
    -3: "there is no such part",
}


@dataclass(frozen=True, slots=True)
class CommitPartsResult:
    """What became of the parts of one call."""

    epoch: Epoch
    """Of the record: that of the last commit, of this call or another."""
    passed: tuple[int, ...]
    """The parts that have passed, now or by an earlier try of the call."""
    refused: Mapping[int, str]
    """The others, and why each stays as it is."""


class PartRecords:
    """Commits parts of one queue's partitions."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def commit_parts(
        self,
        partition: PartitionId,
        group: str,
        *,
        broker_epoch: BrokerEpoch,
        born: int,
        count: int,
        epoch: Epoch,
        moves: Sequence[PartMove],
    ) -> CommitPartsResult:
        """Move parts, each on its own, under one new epoch; a repeat of the call is answered alike.

        Args:
            partition: of which they are parts.
            group: whose members have them.
            broker_epoch: of the caller, which owns the partition.
            born: as in `BookWrite`.
            count: of the parts; what the record says counts, if it has any.
            epoch: the highest that the caller has given to deliveries; the new one is above it.
            moves: at most one of each part.

        Raises:
            FencedError: another broker has claimed the partition; nothing is written.
            UnknownGroupError: the partition has no such group any more, or another of its name.
            StoreUnavailableError: no answer; the same call again finds out.
        """
        words = [
            word
            for part, source, attempt, target, forced in moves
            for word in (part, source or "", attempt, target or "", forced)
        ]
        answer = await self._store.run(
            "commit_parts",
            self._keys.of_cursor(partition, group),
            [broker_epoch, group, born, count, epoch, *words],
        )
        if answer == FENCED:
            raise fenced(partition, broker_epoch)
        if answer == UNKNOWN:
            raise unknown_group(partition, group)
        new_epoch, verdicts = answer
        judged = [(move.part, verdict) for move, verdict in zip(moves, verdicts, strict=True)]
        return CommitPartsResult(
            Epoch(new_epoch),
            tuple(part for part, verdict in judged if verdict == PASSED),
            {part: _REFUSALS[verdict] for part, verdict in judged if verdict != PASSED},
        )
