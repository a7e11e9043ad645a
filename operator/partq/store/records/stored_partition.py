"""The records of a partition as values, decoded from their hashes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self, cast

from partq.core.dead_letters import DeadLetter
from partq.core.group.observation import NO_EPOCH
from partq.core.model import BrokerEpoch, BrokerId, Epoch, MemberId, Offset, PartitionId
from partq.core.parts.part_owners import PartOwners
from partq.core.sessions.session_locks import StoredLock
from partq.store.codec import (
    Range,
    decode_acks,
    decode_counts,
    decode_lock,
    decode_parked,
    decode_parts,
    decode_predecessors,
    decode_slots,
    groups_of,
)
from partq.store.records.dead_letters import decode_outbox
from partq.wire.audit import GENESIS

_SEAL = b"seal:"
"""Begins the fields of a partition's hash `meta` that hold its seals."""
_PIN = b"pin:"
"""Begins the fields that hold its pins."""
_LOCK = b"lock:"
"""Begins the fields of a group's hash `cursor` that hold locks of sessions."""
OPEN_GATE = "1"
CLOSED_GATE = "0"


@dataclass(frozen=True, slots=True)
class AuditState:
    """How far the audit record of a partition has come."""

    is_on: bool = False
    """Whether what happens is written down."""
    first: int = 0
    """Sequence of the first group that is stored."""
    next: int = 0
    """Sequence of the next group; 0: there has never been one."""
    chain: str = GENESIS
    """The chain after the last group."""
    stored_bytes: int = 0
    """Of the groups that are stored."""

    @classmethod
    def of(cls, fields: Mapping[bytes, bytes]) -> Self:
        """Read it from the hash `meta`."""
        is_on = b"audit" in fields
        state = fields.get(b"audit", fields.get(b"audit_off"))
        if state is None:
            return cls()
        following, chain, written, _ = state.decode().split(" ", 3)
        first, freed = fields.get(b"audit_trimmed", b"0 0").split(b" ")
        return cls(is_on, int(first), int(following), chain, int(written) - int(freed))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLayout:
    """What changes of the partition count have left in the record of a partition."""

    generation: int = 1
    """Of the last change that took slots away, or else that made the partition."""
    slots: tuple[range, ...] | None = None
    """The slots that it takes; None: those that generation 1 gives it."""
    predecessors: Mapping[PartitionId, tuple[range, ...]] = field(default_factory=dict)
    """Where its slots came from."""
    is_open: bool = True
    """Whether it takes messages: it has no predecessors, or all of them are sealed."""
    seals: Mapping[int, Offset] = field(default_factory=dict)
    """Generation of each change that took slots away → the end of the log at that time."""

    @classmethod
    def of(cls, fields: Mapping[bytes, bytes]) -> Self:
        """Read it from the hash `meta`."""
        slots = fields.get(b"slots")
        predecessors = decode_predecessors(fields.get(b"preds", b""))
        return cls(
            generation=int(fields.get(b"layout", b"1")),
            slots=None if slots is None else decode_slots(slots),
            predecessors=predecessors,
            is_open=not predecessors or b"open" in fields,
            seals={
                int(name.removeprefix(_SEAL)): Offset(int(stop))
                for name, stop in fields.items()
                if name.startswith(_SEAL)
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPartition:
    """The record of a partition."""

    owner: BrokerId | None
    owner_incarnation: str
    broker_epoch: BrokerEpoch
    """0: never claimed."""
    next: Offset
    """The end of the log: the offset of the next message."""
    append_number: int
    """Number of the last append call under this broker epoch; -1: none."""
    bytes: int
    """Bytes of the batches in the log."""
    trimmed: Offset
    """The first offset still in the log."""
    successor: BrokerId | None
    """The broker that is to claim a yielded partition."""
    affirmed: int
    """Changes when an owner continues whose lease had been over; 0: that has never been."""
    groups: frozenset[str]
    groups_fence: int
    """Grows before groups are removed; see `Partitions.fence_groups`."""
    at_ms: int
    """When its last message was stored, by Redis's clock as it was then; it never falls."""
    audit: AuditState
    layout: PartitionLayout
    pinned_until_ms: int = 0
    """When the last pin of its log ends, by Redis's clock."""
    has_replays: bool = False
    """Whether dead letters of it were ever sent back: `Replays` knows which."""
    state_bytes: int = 0
    """Bytes of the states of keys that its groups have, with the keys."""
    retained_bytes: int = 0
    """Bytes in the log that all groups have acknowledged and that stay for a time."""
    known_ids: int = 0
    """How many ids of messages it knew when its owner looked last."""
    scheduled_bytes: int = 0
    """Bytes of the batches that wait beside the log until they are due."""

    def is_held(self, now_ms: int) -> bool:
        """Whether a reader has a pin, or the archive has not all of the audit record.

        Or whether batches wait, which another partition is to get. `now_ms`: by Redis's clock.
        """
        is_read = now_ms < self.pinned_until_ms or self.audit.first < self.audit.next
        return is_read or self.scheduled_bytes > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorRecord:
    """The record of one group of a partition."""

    member: MemberId | None
    incarnation: str
    """Of the flow that bound last under this member; empty: none has."""
    epoch: Epoch
    """Until the first bind: when the group began, or 0 where an earlier version made it."""
    attempt: int
    """The last attempt of a handoff that a commit closed; 0: none."""
    cursor: Offset
    """Everything below is acknowledged."""
    acked: list[Range]
    """Acknowledged ranges above the cursor, rising."""
    redeliveries: dict[int, int]
    """Offset → how often it was delivered again; only where that is not 0."""
    cause: int
    """Of the last change of member."""
    outbox: list[DeadLetter]
    """Dead letters on their way, by rising numbers: done for the group, and they hold the log."""
    born: int
    """When the group began in the partition, in ms; 0: an earlier version made it."""
    gate: str = OPEN_GATE
    """Whether the group gets messages; neither open nor closed: the reset that holds it."""
    reset: str = ""
    """The last reset of all partitions that has moved the cursor; empty: none has."""
    parked: dict[int, int] = field(default_factory=dict)
    """Slot → until when its messages wait, in ms of Redis's clock."""
    parked_at_ms: int = 0
    """What that clock showed when they were written; 0: not known."""
    registered: Epoch = NO_EPOCH
    """The epoch under which the member registered the partition; 0: it got it otherwise."""
    parts: PartOwners | None = None
    """Which members have which parts; None: none was ever moved, or the type is not KeyShared."""
    state_count: int = 0
    """How many keys have a state."""
    locks: dict[str, StoredLock] = field(default_factory=dict)
    """Of sessions, in a group of type Session."""
    locks_run: str = ""
    """The run of Redis that has the last lock written; empty: none was."""


@dataclass(frozen=True, slots=True)
class Mended:
    """Dropped parts of a group's record, which named messages that the log does not hold."""

    group: str
    before: Offset
    """The cursor as it was."""
    cursor: Offset
    """The cursor as it is now."""
    letters: tuple[int, ...]
    """Offsets of the dead letters that are gone."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Snapshot that a broker gets with a claimed partition."""

    broker_epoch: BrokerEpoch
    next: Offset
    trimmed: Offset
    groups: dict[str, CursorRecord]
    is_audited: bool = False
    """Whether the partition keeps an audit record."""
    mended: tuple[Mended, ...] = ()
    layout: PartitionLayout = field(default_factory=PartitionLayout)


@dataclass(frozen=True, slots=True)
class ResetOutcome:
    """Where a reset has left a group."""

    epoch: Epoch
    cursor: Offset
    outbox: list[DeadLetter]
    """Dead letters on their way stay."""
    gate: str
    """Whether the group gets messages now, as in its record."""


@dataclass(frozen=True, slots=True)
class RegisterOutcome:
    """What a call has come to that registers a partition for a member."""

    is_new: bool
    """False: the member had the partition before, and nothing was changed."""
    epoch: Epoch
    cursor: Offset
    outbox: list[DeadLetter]
    """Dead letters on their way stay."""


def pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the fields of a hash as Redis lists them."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def record_of(fields: Mapping[bytes, bytes]) -> StoredPartition:
    """Read the hash `meta`."""
    return StoredPartition(
        owner=cast(BrokerId, fields[b"owner"].decode()) or None,
        owner_incarnation=fields[b"owner_incarnation"].decode(),
        broker_epoch=BrokerEpoch(int(fields[b"broker_epoch"])),
        next=Offset(int(fields[b"next"])),
        append_number=int(fields[b"append_number"]),
        bytes=int(fields[b"total_bytes"]) - int(fields[b"freed_bytes"]),
        trimmed=Offset(int(fields[b"trimmed"])),
        successor=cast(BrokerId, fields[b"successor"].decode()) or None,
        affirmed=int(fields.get(b"affirmed", b"0")),
        groups=groups_of(fields),
        groups_fence=int(fields.get(b"groups_fence", b"0")),
        at_ms=int(fields[b"at_ms"]),
        audit=AuditState.of(fields),
        layout=PartitionLayout.of(fields),
        pinned_until_ms=max(
            (int(pin.rsplit(b" ", 1)[-1]) for name, pin in fields.items() if name.startswith(_PIN)),
            default=0,
        ),
        has_replays=b"replay" in fields,
        state_bytes=int(fields.get(b"state_bytes", b"0")),
        retained_bytes=int(fields.get(b"retained_bytes", b"0")),
        known_ids=int(fields.get(b"ids", b"0").split(b" ")[0]),
        scheduled_bytes=int(fields.get(b"scheduled_bytes", b"0")),
    )


def mended_of(found: Sequence[bytes]) -> Mended:
    """Read what the script `claim_partition` says of a cursor that it has mended."""
    group, before, cursor, *letters = found
    return Mended(
        group.decode(), Offset(int(before)), Offset(int(cursor)), tuple(map(int, letters))
    )


def cursor_record(fields: Mapping[bytes, bytes]) -> CursorRecord:
    """Read the hash `cursor:GROUP`."""
    parked, parked_at_ms = decode_parked(fields.get(b"parked", b""))
    return CursorRecord(
        member=cast(MemberId, fields[b"member"].decode()) or None,
        incarnation=fields[b"incarnation"].decode(),
        epoch=Epoch(int(fields[b"epoch"])),
        attempt=int(fields[b"attempt"]),
        cursor=Offset(int(fields[b"cursor"])),
        acked=decode_acks(fields[b"acked"], int(fields[b"cursor"])),
        redeliveries=decode_counts(fields[b"redeliveries"]),
        cause=int(fields[b"cause"]),
        outbox=decode_outbox(fields.get(b"outbox", b"")),
        born=int(fields.get(b"born", b"0")),
        gate=fields.get(b"gate", OPEN_GATE.encode()).decode(),
        parked=parked,
        parked_at_ms=parked_at_ms,
        reset=fields.get(b"reset", b"").decode(),
        registered=Epoch(int(fields.get(b"registered", b"0").split(b" ", 1)[0])),
        parts=decode_parts(fields[b"parts"]) if b"parts" in fields else None,
        state_count=int(fields.get(b"states", b"0").split(b" ", 1)[0]),
        locks={
            name.removeprefix(_LOCK).decode(): decode_lock(value)
            for name, value in fields.items()
            if name.startswith(_LOCK)
        },
        locks_run=fields.get(b"locks_run", b"").decode(),
    )
