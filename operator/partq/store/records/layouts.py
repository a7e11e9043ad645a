"""A queue's layout: generations, seals, whether it is being deleted, what is not subscribable."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from partq.core.layout import Layout
from partq.core.model import BrokerEpoch, BrokerId, Offset, PartitionId
from partq.core.records import LayoutRecord
from partq.core.rescale import GroupProgress
from partq.errors import BatchTooLargeError, ConflictError, NotStoredError, UnknownQueueError
from partq.store.codec import (
    decode_counts,
    decode_predecessors,
    encode_counts,
    encode_predecessors,
    encode_slots,
    groups_of,
)
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.dead_letters import decode_outbox
from partq.store.refusals import FENCED, SUPERSEDED, UNKNOWN, fenced, unknown_group
from partq.store.server import Channel
from partq.wire.layout_record import FIELDS, decode_layout, encode_layout

# What answers of scripts mean; `store/refusals.py` has the answers that they share.
REVISION_DIFFERS = 0
"""Of `change_layout`: another step is stored."""
NOT_OPEN = -1
"""Of `seal_slots`: the partition waits for the seals of its predecessors."""
GATE_DIFFERS = -1
"""Of `open_gate`: a reset holds the gate that the caller has not seen."""

PRODUCERS_STAY_MS = 86_400_000
"""How long after its removal a partition's producers are known, and its predecessors."""
MAX_ERASED = 500
"""How many cursors one call removes."""
_REMOVED = "removed:"
"""Begins the fields of partitions whose keys are to be erased."""
MAX_MARKS = 65_536 + 1000
"""Every partition and every broker that a queue can have."""


class PredecessorSeal(NamedTuple):
    """What a predecessor says of one change."""

    sealed_at: Offset | None
    """The end of its log when the slots left it; None: it is not sealed."""
    audit_next: int
    """Sequence of the next group of its audit record; 0: it has no audit record."""


class Layouts:
    """The layout of one queue."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._values: Sequence[bytes | None] = ()
        """Of the record as last read: a table of many partitions is decoded once."""
        self._layout = Layout.first(1)

    async def create_queue(self, generations: Mapping[int, int]) -> LayoutRecord:
        """Make the layout from generation → partition count, and return the stored one.

        A layout that is there stays as it is.
        """
        text = encode_counts(generations)
        await self._store.run("create_queue", [self._keys.layout()], [text], needs_replica=True)
        return await self.read()

    async def read(self) -> LayoutRecord:
        """Return the layout.

        Raises:
            UnknownQueueError: it was never made, or is deleted.
            InternalError: the record is damaged.
        """
        values = await self._store.read(
            "HMGET", self._keys.layout(), "revision", *FIELDS, "tombstone"
        )
        if values != self._values:
            self._layout, self._values = self._decode(*values[:-1]), values
        return LayoutRecord(self._layout, values[-1] is not None)

    async def write(
        self,
        layout: Layout,
        *,
        removed: Collection[PartitionId] = (),
    ) -> None:
        """Store a layout that is one step from the stored one; a repeat changes nothing.

        `removed`: partitions that it has no more, whose keys are to be erased.

        Raises:
            ConflictError: another step is stored; read the layout again.
            UnknownQueueError: it has no layout, or is being deleted.
            StoreUnavailableError: no answer; a repeat finds out.
        """
        fields = encode_layout(layout)
        fields |= {f"{_REMOVED}{partition}": "1" for partition in sorted(removed)}
        answer = await self._store.run(
            "change_layout",
            [self._keys.layout()],
            [layout.revision - 1, *chain.from_iterable(fields.items())],
            needs_replica=True,
        )
        if answer == UNKNOWN:
            raise _unknown_queue(self._keys)
        if answer == REVISION_DIFFERS:
            raise ConflictError(
                f"layout of {self._keys.namespace}/{self._keys.queue}: another step than revision "
                f"{layout.revision} is stored; read it again"
            )

    async def read_removed(self) -> set[PartitionId]:
        """Return the partitions that the layout has no more, and whose keys may still be there."""
        names = await self._store.read("HKEYS", self._keys.layout())
        return {
            PartitionId.parse(name.decode().removeprefix(_REMOVED))
            for name in names
            if name.startswith(_REMOVED.encode())
        }

    async def forget_removed(self, partitions: Collection[PartitionId]) -> None:
        """Note that the keys of removed partitions are erased."""
        fields = [f"{_REMOVED}{partition}" for partition in sorted(partitions)]
        await self._store.run("write_fields", [self._keys.layout()], [0, *fields])

    async def now_ms(self) -> int:
        """Return Redis's time, in unix ms."""
        seconds, micros = await self._store.read("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def _decode(self, revision: bytes | None, *values: bytes | None) -> Layout:
        """Return the layout; of a queue that has never changed, what its partition count says."""
        fields = dict(zip(FIELDS, values, strict=True))
        if fields["table"] is not None:
            return decode_layout(int(revision or 0), fields)
        if fields["generations"] is None:
            raise _unknown_queue(self._keys)
        (count,) = decode_counts(fields["generations"]).values()
        return Layout.first(count)

    async def bury(self) -> None:
        """Mark the queue as being deleted: brokers refuse it from now on."""
        await self._store.run("write_fields", [self._keys.layout()], [1, "tombstone", "1"])


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
    ) -> None:
        """Make the record of a partition that gets slots of others; a repeat changes nothing.

        It takes no message before `open_partition`, and a group that is added has a closed gate.
        `slots`: those that it takes. Predecessors that are settled are not named any more. One that
        was removed lately is not made: the call is late, and its caller has an old layout.
        """
        await self._store.run(
            "create_partition",
            [self._keys.meta(partition), self._keys.removal(partition)],
            [partition.generation, encode_slots(slots), encode_predecessors(predecessors)],
            needs_replica=True,
        )

    async def erase(self, partition: PartitionId) -> None:
        """Remove the keys of a partition that the layout has no more; a repeat does the rest.

        What it knows of producers, and its predecessors, stay for `PRODUCERS_STAY_MS`. So long a
        call that comes late does not make it again.

        Raises:
            StoreUnavailableError: some may be removed; a repeat does the rest.
        """
        keys = self._keys
        fields = await self._store.read("HKEYS", keys.meta(partition))
        cursors = [keys.cursor(partition, group) for group in sorted(groups_of(fields))]
        while len(cursors) > MAX_ERASED:
            await self._store.run("unlink_keys", cursors[-MAX_ERASED:])
            del cursors[-MAX_ERASED:]
        places = (keys.meta, keys.producers, keys.series, keys.removal)
        tables = [place(partition) for place in places]
        others = [place(partition) for place in (keys.replayed, keys.log, keys.audit)]
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
    ) -> Offset:
        """End all slots of the partition but `slots`, and return the end of its log.

        Call it when no append of the partition is under way: what is stored after it has none of
        the slots. A repeat returns the end as it was, also for the next owner.

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
            [broker_epoch, generation, encode_slots(slots)],
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
    ) -> None:
        """Let a group have the partition's messages: it has done with those of its predecessors.

        `born` and `gate` are of the group's record as the caller has read it, before it read those
        of the predecessors. `passed`: of each predecessor the end of its log at the seal, and how
        far its audit record had come when it was read.

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
            [broker_epoch, group, born, gate, ",".join(evidence)],
            needs_replica=True,
        )
        if answer == FENCED:
            raise fenced(partition, broker_epoch)
        if answer == UNKNOWN:
            raise unknown_group(partition, group)
        if answer == GATE_DIFFERS:
            raise ConflictError(
                f"partition {partition}, group {group}: a reset holds its gate, which was "
                f"{gate!r} when it was read; read the records again"
            )

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

    async def earliest_now_ms(self) -> int:
        """Return Redis's time, in unix ms: of several servers the earliest.

        Raises:
            StoreUnavailableError: no answer.
        """
        return min((await self._store.read_clocks()).values())

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
            (
                ("HMGET", self._keys.cursor(*each), "cursor", "gate", "reset", "member", "outbox")
                for each in names
            ),
            only_reachable=True,
        )
        return {
            name: GroupProgress(
                int(values[0]),
                is_gate_open=values[1] in (None, b"1"),
                outbox_count=len(decode_outbox(values[4] or b"")),
                reset=(values[2] or b"").decode(),
                member=(values[3] or b"").decode(),
            )
            for name, values in zip(names, found, strict=True)
            if values is not None and values[0] is not None
        }


class Marks:
    """Partitions and brokers of one queue that an administrator has marked not subscribable."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def read(self) -> dict[str, str]:
        """Return the reason of each mark, by `name_of` what is marked."""
        flat = await self._store.read("HGETALL", self._keys.marks())
        texts = [value.decode() for value in flat]
        return dict(zip(texts[::2], texts[1::2], strict=True))

    async def find(self, *names: str) -> str | None:
        """Return the reason of the first of the names that is marked; None: none is."""
        found = await self._store.read("HMGET", self._keys.marks(), *names)
        return next((reason.decode() for reason in found if reason is not None), None)

    async def set(self, name: str, reason: str) -> None:
        """Mark what `name_of` names; a mark that is there gets the reason.

        Raises:
            BatchTooLargeError: there are too many marks; nothing is written.
        """
        marked = await self.read()
        if name not in marked and len(marked) >= MAX_MARKS:
            raise BatchTooLargeError(f"{MAX_MARKS} partitions and brokers are marked; clear some")
        await self._store.run("write_fields", [self._keys.marks()], [1, name, reason])

    async def clear(self, name: str) -> None:
        """Take a mark back; a repeat does nothing."""
        await self._store.run("write_fields", [self._keys.marks()], [0, name])


def name_of(marked: PartitionId | BrokerId) -> str:
    """Return by what a partition or a broker is known among the marks."""
    return f"partition:{marked}" if isinstance(marked, PartitionId) else f"broker:{marked}"


def _unknown_queue(keys: Keys) -> UnknownQueueError:
    name = f"{keys.namespace}/{keys.queue}"
    return UnknownQueueError(f"queue {name}: the store has no layout of it; create it")
