"""The records of partitions: the broker of each one, and per group its member and progress."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Unpack

from partq.core.model import BrokerEpoch, BrokerId, Epoch, MemberId, Offset, PartitionId, Start
from partq.errors import (
    AttemptRefusedError,
    ConflictError,
    FencedError,
    NotOwnerError,
)
from partq.store.codec import (
    NO_STATES,
    Range,
    encode_acks,
    encode_counts,
    encode_parked,
    encode_states,
)
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.audit import NO_RECORDS, Numbered
from partq.store.records.dead_letters import decode_outbox
from partq.store.records.stored_partition import (
    Claim,
    CursorRecord,
    PartitionLayout,
    RegisterOutcome,
    ResetOutcome,
    StoredPartition,
    cursor_record,
    mended_of,
    pairs,
    record_of,
)
from partq.store.refusals import (
    FENCED,
    UNKNOWN,
    BookWrite,
    LeftSlot,
    check_book_write,
    check_reset,
    fenced,
    flushed_states,
    in_use,
    unknown_group,
    unknown_partition,
)
from partq.store.server import Channel

_MAX_CLAIM_TRIES = 5

# What -1 means as the answer of a script; `store/refusals.py` has the answers that they share.
GROUPS_DIFFER = -1
"""Of `claim_partition`: the partition has other groups than the call names."""
FENCE_DIFFERS = -1
"""Of `add_group`: another fence stands, as groups may have been removed."""
MEMBER_DIFFERS = -1
"""Of `bind_member`: the record has another member, or none."""
EPOCH_DIFFERS = -1
"""Of `register_member`: another epoch is recorded."""
KNOWN_BETTER = -5
"""Of `register_member`: the record is newer than what the caller knows of it."""
HELD = -4
"""Of `register_member`: another member holds the partition."""
HANDOFF_DIFFERS = -1
"""Of `commit_handoff`: another member or epoch is recorded, or the attempt is closed."""


class Partitions:
    """The records of one queue's partitions."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def create(self, partition: PartitionId) -> None:
        """Make the record, without owner and groups; a repeat changes nothing."""
        # Here, and for groups: a caller that has an answer does not ask again after a failover.
        names = [self._keys.meta(partition), self._keys.removal(partition)]
        await self._store.run("create_partition", names, needs_replica=True)

    async def read(self, partition: PartitionId) -> StoredPartition:
        """Return the record.

        Raises:
            UnknownPartitionError: it was never created, or is deleted.
        """
        fields = pairs(await self._store.read("HGETALL", self._keys.meta(partition)))
        if not fields:
            raise unknown_partition(partition)
        return record_of(fields)

    async def read_many(
        self, partitions: Iterable[PartitionId], *, only_reachable: bool = False
    ) -> dict[PartitionId, StoredPartition]:
        """Return the records in few round trips, without the partitions that have none.

        `only_reachable`: those, too, are left out whose node of a Redis Cluster does not answer, as
        long as another one does.

        Raises:
            StoreUnavailableError: no answer.
        """
        wanted = list(partitions)
        commands = [("HGETALL", self._keys.meta(partition)) for partition in wanted]
        found = await self._store.read_each(commands, only_reachable=only_reachable)
        return {
            partition: record_of(pairs(flat))
            for partition, flat in zip(wanted, found, strict=True)
            if flat
        }

    async def read_cursor(self, partition: PartitionId, group: str) -> CursorRecord:
        """Return a group's record.

        Raises:
            UnknownGroupError: the partition has no such group.
        """
        flat = await self._store.read("HGETALL", self._keys.cursor(partition, group))
        if not flat:
            raise unknown_group(partition, group)
        return cursor_record(pairs(flat))

    async def claim(
        self,
        partition: PartitionId,
        broker: BrokerId,
        incarnation: str,
        *,
        expected: BrokerEpoch,
        affirmed: int = 0,
        wants_audit: bool = False,
    ) -> Claim:
        """Make `broker` the owner, under a new broker epoch; every older one is over.

        `expected` and `affirmed` are of the record that the caller read *before* it found, by the
        leases, that the partition is free. With `wants_audit` the partition keeps an audit record
        from now on; without it one that is kept continues, until `Audits.switch`. After an unknown
        outcome the record says whether the claim went through.

        Raises:
            FencedError: another broker epoch is stored by now, or its owner has affirmed it
                since; nothing is written.
            UnknownPartitionError: it was never created, or is deleted.
            ConflictError: groups came and went during every try.
        """
        for _ in range(_MAX_CLAIM_TRIES):
            groups = sorted((await self.read(partition)).groups)
            answer = await self._store.run(
                "claim_partition",
                [
                    self._keys.meta(partition),
                    self._keys.audit(partition),
                    *[self._keys.cursor(partition, group) for group in groups],
                ],
                [broker, incarnation, expected, affirmed, int(wants_audit), *groups],
            )
            if answer == FENCED:
                raise fenced(partition, expected)
            if answer == UNKNOWN:
                raise unknown_partition(partition)
            if answer != GROUPS_DIFFER:
                broker_epoch, end, trimmed, cursors, is_audited, mended, layout = answer
                return Claim(
                    BrokerEpoch(int(broker_epoch)),
                    Offset(int(end)),
                    Offset(int(trimmed)),
                    {
                        group: cursor_record(pairs(flat))
                        for group, flat in zip(groups, cursors, strict=True)
                    },
                    bool(is_audited),
                    tuple(map(mended_of, mended)),
                    PartitionLayout.of(pairs(layout)),
                )
        raise ConflictError(f"partition {partition}: its groups change all the time; claim again")

    async def affirm(self, held: Mapping[PartitionId, BrokerEpoch]) -> set[PartitionId]:
        """Continue as the owner of partitions, and return those that are the caller's no more.

        Those, too, whose node of a Redis Cluster does not answer, as long as another one does.

        A claim by a broker that read the record before this is refused from now on: one that is
        still on its way, decided while the caller's lease was over, cannot overtake it.

        Raises:
            StoreUnavailableError: no answer; affirming again is harmless.
        """
        answers = await self._store.run_each(
            "affirm_partition",
            [([self._keys.meta(partition)], [epoch]) for partition, epoch in held.items()],
            only_reachable=True,
        )
        return {partition for partition, answer in zip(held, answers, strict=True) if not answer}

    async def yield_(
        self, partition: PartitionId, *, broker_epoch: BrokerEpoch, successor: BrokerId | None
    ) -> None:
        """Give the partition up. The broker epoch ends with it: flush everything before.

        Raises:
            FencedError: the partition is not the caller's, or, after a repeat, not any more.
        """
        answer = await self._store.run(
            "yield_partition",
            [self._keys.meta(partition), self._keys.audit(partition)],
            [broker_epoch, successor or ""],
        )
        if answer == FENCED:
            raise fenced(partition, broker_epoch)

    async def fence_groups(self, partition: PartitionId) -> None:
        """Void each `add_group` that was decided before, though it may arrive later.

        Raises:
            UnknownPartitionError: it was never created, or is deleted.
        """
        if await self._store.run("fence_groups", [self._keys.meta(partition)]) == UNKNOWN:
            raise unknown_partition(partition)

    async def add_group(
        self, partition: PartitionId, group: str, *, start: Start, fence: int | None = None
    ) -> None:
        """Give a group its cursor; one that is there stays as it is, whatever its start was.

        `fence` is the record's `groups_fence`, read before the caller learned that the group is
        wanted. None: no group is removed meanwhile.

        Raises:
            ConflictError: another fence stands: the group may have been removed; nothing is added.
            UnknownPartitionError: it was never created, or is deleted.
        """
        keys = [*self._keys.of_cursor(partition, group), self._keys.log(partition)]
        seen = "" if fence is None else fence
        answer = await self._store.run("add_group", keys, [group, start, seen], needs_replica=True)
        if answer == FENCE_DIFFERS:
            raise ConflictError(
                f"partition {partition}: groups may have been removed since fence {seen} was read; "
                f"check whether group {group} is still wanted, and add it again"
            )
        if answer == UNKNOWN:
            raise unknown_partition(partition)

    async def births(
        self, wanted: Iterable[tuple[PartitionId, str]], *, only_reachable: bool = False
    ) -> dict[tuple[PartitionId, str], int]:
        """Return when groups began in partitions, without those that have no cursor there.

        Each is above all before it in its partition; 0: an earlier version made the group.
        `only_reachable`: those on a silent node of a Redis Cluster are left out.
        """
        names = list(wanted)
        commands = [("HMGET", self._keys.cursor(*each), "member", "born") for each in names]
        read = await self._store.read_each(commands, only_reachable=only_reachable)
        found = ((name, *each) for name, each in zip(names, read, strict=True) if each)
        return {name: int(born or 0) for name, member, born in found if member is not None}

    async def remove_group(self, partition: PartitionId, group: str, *, born: int) -> None:
        """Remove a group's cursor, its states of keys and its hold on the log.

        A repeat changes nothing.

        `born` is when it began; 0 where it has no cursor. A group that was created again meanwhile
        stays.
        """
        keys = self._keys.of_states(partition, group)
        await self._store.run("remove_group", keys, [group, born], needs_replica=True)

    async def bind(
        self,
        partition: PartitionId,
        group: str,
        *,
        member: MemberId,
        incarnation: str,
        **write: Unpack[BookWrite],
    ) -> Epoch:
        """Let `member` consume the partition and return the epoch that its flow holds.

        Raises:
            FencedError: another broker has claimed the partition; nothing is written.
            NotOwnerError: another member, or none, is recorded; nothing is written.
            SupersededError: a later write is stored; nothing is written.
            UnknownGroupError: the partition has no such group.
            StoreUnavailableError: no answer; a new epoch may have been written, which is harmless.
        """
        answer = await self._store.run(
            "bind_member",
            self._keys.of_cursor(partition, group),
            [write["broker_epoch"], group, member, incarnation, write["number"], write["born"]],
        )
        if answer == MEMBER_DIFFERS:
            raise NotOwnerError(
                f"partition {partition}, group {group}: another member is recorded, not {member}; "
                "wait until it is assigned"
            )
        check_book_write(answer, partition, group, write)
        return Epoch(answer)

    async def register(
        self,
        partition: PartitionId,
        group: str,
        *,
        member: MemberId,
        incarnation: str,
        epoch: Epoch,
        offset: int | None,
        standing: Literal["", "held", "renewed"] = "",
        **write: Unpack[BookWrite],
    ) -> RegisterOutcome:
        """Give the partition to `member`, if it is at nobody under `epoch`, or at the member.

        `offset`: where the group is to begin; the nearest that the log holds; None: at its cursor.
        A repeat of the call that gave it to the member has the same answer and writes nothing.
        `standing`: held: the caller knows it as the member's under another epoch: nothing is
        written; renewed: the member has it and is to have it under a new epoch.

        Raises:
            FencedError: another broker has claimed the partition, or another epoch is stored;
                nothing is written, as with all below.
            PartitionInUseError: another member holds it.
            NotOwnerError: it is held by the caller's memory alone: the record is newer.
            SupersededError: a later write is stored.
            UnknownGroupError: the partition has no such group.
            StoreUnavailableError: no answer; a repeat finds out.
        """
        answer = await self._store.run(
            "register_member",
            self._keys.of_cursor(partition, group),
            [
                *(write["broker_epoch"], group, member, incarnation, epoch),
                *("" if offset is None else offset, write["number"], write["born"], standing),
            ],
            channel=Channel.APPEND,  # behind the flushes
        )
        if answer == EPOCH_DIFFERS:
            raise FencedError(
                f"partition {partition}, group {group}: epoch {epoch} is over: it was registered, "
                "unregistered or reset since it was shown; nothing was changed: look again"
            )
        check_book_write(answer, partition, group, write)
        if answer[0] == KNOWN_BETTER:
            raise NotOwnerError(
                f"partition {partition}, group {group}: the record is newer than what the broker "
                "knows of it; nothing was changed: repeat the call",
                retry_after_s=1.0,
            )
        if answer[0] == HELD:
            raise in_use(partition, group, answer[1].decode())
        is_new, new_epoch, cursor, outbox = answer
        return RegisterOutcome(
            bool(is_new), Epoch(new_epoch), Offset(cursor), decode_outbox(outbox)
        )

    async def flush(
        self,
        partition: PartitionId,
        group: str,
        *,
        cursor: Offset,
        acked: Sequence[Range] | bytes,
        redeliveries: Mapping[int, int],
        parked: Mapping[int, int] | None = None,
        parked_at_ms: int = 0,
        audit: Numbered = NO_RECORDS,
        states: Mapping[str, bytes | None] = NO_STATES,
        left_slots: Iterable[int] = (),
        **write: Unpack[BookWrite],
    ) -> int | LeftSlot | None:
        """Store how far the group has come: the broker's whole state, as it is.

        `acked`: ranges, or the bits of a lane book. `parked`: lane → until when it waits, in ms of
        Redis's clock, which shows `parked_at_ms` now; None: as they are stored.
        `audit`, where the partition keeps a record: what has happened since the last flush that
        went through. Repeat it with the same numbers: none is written twice.
        `states`: of keys, which change with the acks; None: a key has none. `left_slots`: of those
        without an ack of an open message: if one has left the partition, nothing is written, and it
        is returned. Else how many states there are then; None: none given, or stored before.

        Raises:
            FencedError: another broker has claimed the partition, or the log has lost messages
                that `cursor` speaks of; nothing is written.
            SupersededError: a later write is stored; nothing is written.
            UnknownGroupError: the partition has no such group any more, or another one of its name.
        """
        field, highest = encode_acks(acked, cursor)
        records: list[str | bytes | int] = [audit.first, *audit.records] if audit.records else []
        state_args = encode_states(states)
        answer = await self._store.run(
            "flush_cursor",
            (self._keys.of_states if states else self._keys.of_cursor)(partition, group),
            [
                *(write["broker_epoch"], group, cursor),
                *(field, encode_counts(redeliveries), encode_parked(parked, parked_at_ms), highest),
                *(write["number"], write["born"], len(state_args), ",".join(map(str, left_slots))),
                *(*state_args, *records),
            ],
            # With the appends: else it would cost Redis an fsync for which every append waits.
            channel=Channel.APPEND,
        )
        check_book_write(answer, partition, group, write)
        return flushed_states(answer)

    async def reset(
        self,
        partition: PartitionId,
        group: str,
        *,
        epoch: Epoch,
        offset: int,
        hold: str = "",
        states: Literal["keep", "clear", "none"] = "keep",
        **write: Unpack[BookWrite],
    ) -> ResetOutcome:
        """Move the group's cursor to `offset`.

        `hold`: the id of a reset of all partitions, see `core.rescale.resets`. A partition
        with predecessors is held: its gate stays shut until they are reset, too.

        `states`: what becomes of those of keys; `none`: it is refused where there are any.

        An offset that the log does not hold becomes the nearest one that it does: its first, or
        its end. All acks are forgotten, those of older tokens no longer count. A repeat under the
        stored epoch moves it again.

        Raises:
            FencedError: another broker has claimed the partition; nothing is written.
            ConflictError: another epoch is stored, or states of keys; nothing is written.
            StaleGenerationError: a change that the caller has not read has taken slots away, or
                the reset of all partitions was ended; nothing is written.
            SupersededError: a later write is stored; nothing is written.
            UnknownGroupError: the partition has no such group.
            StoreUnavailableError: no answer; read the record before anything is delivered.
        """
        answer = await self._store.run(
            "reset_cursor",
            self._keys.of_states(partition, group),
            [
                *(write["broker_epoch"], group, epoch, offset, write["number"], write["born"]),
                *(hold, states),
            ],
            channel=Channel.APPEND,  # behind the flushes
        )
        check_reset(answer, partition, group, epoch=epoch, hold=hold)
        check_book_write(answer, partition, group, write)
        new_epoch, cursor, outbox, gate = answer
        return ResetOutcome(Epoch(new_epoch), Offset(cursor), decode_outbox(outbox), gate.decode())

    async def commit(
        self,
        partition: PartitionId,
        group: str,
        *,
        source: MemberId | None,
        epoch: Epoch,
        attempt: int,
        target: MemberId | None,
        cause: int,
        cursor: Offset,
        acked: Sequence[Range] | bytes,
        redeliveries: Mapping[int, int],
        forced: str = "",
        **write: Unpack[BookWrite],
    ) -> Epoch:
        """Hand the partition from `source` to `target`, with the acks accepted so far.

        `epoch` is the stored one of `source`; why it was `forced` is for the audit record
        alone; `acked`: see `flush`. Lanes that wait stay as they are stored. Returns the new epoch;
        a repeat of the last attempt that went through, with the same target, returns the same and
        writes nothing.

        Raises:
            FencedError: another broker has claimed the partition, or the log has lost messages
                that `cursor` speaks of; nothing is written.
            AttemptRefusedError: another member or epoch is stored, or the attempt is closed;
                nothing is written.
            SupersededError: a later write is stored; nothing is written.
            UnknownGroupError: the partition has no such group.
            StoreUnavailableError: no answer; read the record before anything is delivered.
        """
        field, highest = encode_acks(acked, cursor)
        answer = await self._store.run(
            "commit_handoff",
            self._keys.of_cursor(partition, group),
            [
                *(write["broker_epoch"], group, source or "", epoch, attempt, target or ""),
                *(int(cause), cursor, field, encode_counts(redeliveries), forced),
                *(write["number"], write["born"], highest),
            ],
        )
        if answer == HANDOFF_DIFFERS:
            raise AttemptRefusedError(
                f"partition {partition}, group {group}: attempt {attempt} from {source} at epoch "
                f"{epoch} does not fit the record; read it and draw a new attempt"
            )
        check_book_write(answer, partition, group, write)
        return Epoch(answer)
