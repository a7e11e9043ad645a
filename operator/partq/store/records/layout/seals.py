"""Seals, openings and gates in the records of partitions, and the end of such a record."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from partq.core.lanes.parked_lanes import BLOCKED_MS, quarantined_of
from partq.core.model import BrokerEpoch, Offset, PartitionId
from partq.core.rescale.gates import GroupProgress
from partq.errors import ConflictError, NotStoredError
from partq.store.codec import (
    decode_parked,
    decode_predecessors,
    encode_parked,
    encode_predecessors,
    encode_slots,
    groups_of,
)
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.dead_letters import decode_outbox
from partq.store.refusals import FENCED, SUPERSEDED, UNKNOWN, check_gate, fenced
from partq.store.server import Channel

# What answers of scripts mean; `store/refusals.py` has the answers that they share.
NOT_OPEN = -1
"""Of `seal_slots`: the partition waits for the seals of its predecessors."""

_PROGRESS = ("cursor", "gate", "reset", "member", "outbox", "parked", "states")
PRODUCERS_STAY_MS = 86_400_000
"""How long after its removal a partition's producers are known, and its predecessors."""
MAX_ERASED = 500
"""How many cursors one call removes."""


class PredecessorSeal(NamedTuple):
    """What a predecessor says of one change."""

    sealed_at: Offset | None
    """The end of its log when the slots left it; None: it is not sealed."""
    audit_next: int
    """Sequence of the next group of its audit record; 0: it has no audit record."""


class Seals:
    """What a change of the partition count writes into the records of partitions, by their owners.

    Each of the calls only goes one way, and a repeat has the same answer: so the owner of one
    partition may read the records of others one by one, without a transaction.
    """

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def create_successor(
        self,
        partition: PartitionId,
        predecessors: Mapping[PartitionId, Sequence[range]],
        slots: Sequence[range],
    ) -> bool:
        """Make the record of a partition that gets slots of others; a repeat changes nothing.

        False: it is not as it was asked for. It was removed lately, or was there with other slots
        or predecessors, as it also is when slots have left it, or predecessors are settled.

        It takes no message before `open_partition`, and a group that is added has a closed gate.
        `slots`: those that it takes. Predecessors that are settled are not named any more. One that
        was removed lately is not made: the call is late, and its caller has an old layout.
        """
        answer = await self._store.run(
            "create_partition",
            [self._keys.meta(partition), self._keys.removal(partition)],
            [partition.generation, encode_slots(slots), encode_predecessors(predecessors)],
            needs_replica=True,
        )
        return int(answer) >= 0

    async def erase(self, partition: PartitionId) -> None:
        """Remove the keys of a partition that the layout has no more; a repeat does the rest.

        What it knows of producers, and its predecessors, stay for `PRODUCERS_STAY_MS`. So long a
        call that comes late does not make it again.

        Raises:
            StoreUnavailableError: some may be removed; a repeat does the rest.
        """
        keys = self._keys
        fields = await self._store.read("HKEYS", keys.meta(partition))
        cursors = [
            place(partition, group)
            for group in sorted(groups_of(fields))
            for place in (keys.cursor, keys.states)
        ]
        while len(cursors) > MAX_ERASED:
            await self._store.run("unlink_keys", cursors[-MAX_ERASED:])
            del cursors[-MAX_ERASED:]
        places = (keys.meta, keys.producers, keys.series, keys.removal, keys.ids)
        tables = [place(partition) for place in places]
        waiting = (keys.due, keys.scheduled, keys.leaving, keys.id_entries)
        others = [place(partition) for place in (keys.replayed, keys.log, keys.audit, *waiting)]
        names = [*tables, *cursors, *others]
        await self._store.run("erase_partition", names, [PRODUCERS_STAY_MS])

    async def read_origin(
        self, partition: PartitionId
    ) -> tuple[Mapping[PartitionId, tuple[range, ...]], bool]:
        """Return where the slots of a partition came from, also of one that was removed lately.

        And whether it had to forget series of numbers: of one that it does not know, what its
        predecessors know may be of earlier then.

        Raises:
            StoreUnavailableError: no answer.
        """
        fields = ("preds", "series_forgotten_ms")
        places = (self._keys.meta(partition), self._keys.removal(partition))
        found = await self._store.read_all(*(("HMGET", place, *fields) for place in places))
        preds, forgotten = (next(filter(None, each), b"") for each in zip(*found, strict=True))
        return decode_predecessors(preds), forgotten != b""

    async def seal(
        self,
        partition: PartitionId,
        *,
        broker_epoch: BrokerEpoch,
        generation: int,
        slots: Sequence[range],
        settled: Collection[int] = (),
    ) -> Offset:
        """End all slots of the partition but `slots`, and return the end of its log.

        Call it when no append of the partition is under way: what is stored after it has none of
        the slots. A repeat returns the end as it was, also for the next owner.

        `settled`: earlier changes whose seals the partition may forget, as the layout does not name
        it as a predecessor of their partitions any more.

        Raises:
            FencedError: another broker has claimed the partition; nothing is written.
            NotStoredError: the partition is not open yet, so it cannot be sealed; nothing is
                written.
            ConflictError: a seal of a later change is stored, and none of this one.
            StoreUnavailableError: no answer; a repeat finds out.
        """
        answer = await self._store.run(
            "seal_slots",
            [self._keys.meta(partition), self._keys.audit(partition)],
            [broker_epoch, generation, encode_slots(slots), *settled],
            channel=Channel.APPEND,  # behind the appends
            needs_replica=True,
        )
        if answer == FENCED:
            raise fenced(partition, broker_epoch)
        if answer == NOT_OPEN:
            raise NotStoredError(
                f"partition {partition}: change {generation} cannot seal it before its "
                "predecessors are sealed and it is open; try again",
                retry_after_s=0.02,
            )
        if answer == SUPERSEDED:
            raise ConflictError(
                f"partition {partition}: got a seal of change {generation}, expected one later "
                "than the change that is stored; read the layout again"
            )
        return Offset(int(answer[0]))

    async def open_partition(
        self,
        partition: PartitionId,
        *,
        broker_epoch: BrokerEpoch,
        seals: Mapping[PartitionId, int],
    ) -> None:
        """Let the partition take messages. `seals`: of all predecessors, as their records say.

        Raises:
            FencedError: another broker has claimed the partition; nothing is written.
            StoreUnavailableError: no answer; a repeat is harmless.
        """
        answer = await self._store.run(
            "open_partition",
            [self._keys.meta(partition), self._keys.audit(partition)],
            [broker_epoch, ",".join(f"{each}:{stop}" for each, stop in sorted(seals.items()))],
            needs_replica=True,
        )
        if answer == FENCED:
            raise fenced(partition, broker_epoch)

    async def open_gate(
        self,
        partition: PartitionId,
        group: str,
        *,
        broker_epoch: BrokerEpoch,
        born: int,
        gate: str,
        passed: Mapping[PartitionId, tuple[int, int]],
        parked: Mapping[int, int] | None = None,
    ) -> None:
        """Let a group have the partition's messages: it has done with those of its predecessors.

        `born` and `gate` are of the group's record as the caller has read it, before it read those
        of the predecessors. `passed`: of each predecessor the end of its log at the seal, and how
        far its audit record had come when it was read. `parked`: which keys wait from now on, as
        in `Partitions.flush`; None: those that did.

        Raises:
            FencedError: another broker has claimed the partition; nothing is written.
            ConflictError: a reset has closed the gate since; nothing is written.
            UnknownGroupError: the partition has no such group, or another one of the name.
            StoreUnavailableError: no answer; a repeat is harmless.
        """
        evidence = (f"{each}:{stop}:{at}" for each, (stop, at) in sorted(passed.items()))
        answer = await self._store.run(
            "open_gate",
            self._keys.of_cursor(partition, group),
            [broker_epoch, group, born, gate, ",".join(evidence), encode_parked(parked)],
            needs_replica=True,
        )
        check_gate(answer, partition, group, broker_epoch=broker_epoch, gate=gate)

    async def read_seals(
        self, wanted: Iterable[tuple[PartitionId, int]]
    ) -> dict[tuple[PartitionId, int], PredecessorSeal]:
        """Return what predecessors say of the changes of these generations, side by side.

        Those that have no record are left out, as are those on a silent node of a Redis Cluster.

        Raises:
            StoreUnavailableError: no answer.
        """
        names = list(dict.fromkeys(wanted))
        found = await self._store.read_each(
            (
                ("HMGET", self._keys.meta(each), "next", f"seal:{generation}", "audit", "audit_off")
                for each, generation in names
            ),
            only_reachable=True,
        )
        return {
            name: PredecessorSeal(
                None if values[1] is None else Offset(int(values[1])),
                int((values[2] or values[3] or b"0").split(b" ", 1)[0]),
            )
            for name, values in zip(names, found, strict=True)
            if values is not None and values[0] is not None
        }

    async def end_reset(self, partition: PartitionId, group: str, reset: str) -> bool:
        """Refuse further steps of a reset of all partitions in this one; a repeat is harmless.

        `reset`: its id. False: the partition has no such group.

        Raises:
            StoreUnavailableError: no answer; a repeat finds out.
        """
        name = self._keys.cursor(partition, group)
        answer = await self._store.run("end_reset", [name], [reset], needs_replica=True)
        return bool(answer != UNKNOWN)

    async def read_progress(
        self, wanted: Iterable[tuple[PartitionId, str]]
    ) -> dict[tuple[PartitionId, str], GroupProgress]:
        """Return how far groups have come in partitions, side by side.

        Those that have no cursor are left out, as are those on a silent node of a Redis Cluster.

        Raises:
            StoreUnavailableError: no answer.
        """
        names = list(dict.fromkeys(wanted))
        found = await self._store.read_each(
            (("HMGET", self._keys.cursor(*each), *_PROGRESS) for each in names),
            only_reachable=True,
        )
        return {
            name: _progress(values)
            for name, values in zip(names, found, strict=True)
            if values is not None and values[0] is not None
        }


def _progress(values: Sequence[bytes | None]) -> GroupProgress:
    cursor, gate, reset, member, outbox, parked, states = values
    held, _ = decode_parked(parked or b"")
    return GroupProgress(
        int(cursor or b"0"),
        is_gate_open=gate in (None, b"1"),
        outbox_count=len(decode_outbox(outbox or b"")),
        reset=(reset or b"").decode(),
        member=(member or b"").decode(),
        blocked=tuple(sorted(slot for slot, until in held.items() if until == BLOCKED_MS)),
        quarantined=tuple(sorted(quarantined_of(held))),
        has_states=states is not None,
    )
