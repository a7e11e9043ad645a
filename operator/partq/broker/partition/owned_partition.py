"""A partition that this broker owns: its log's end in memory, its appender, its groups."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from partq.aio import Signal
from partq.broker.log.appender import LogAppender
from partq.broker.log.buffers import Buffers
from partq.broker.log.known_ids import IdProgress, KnownIds
from partq.broker.log.quota import StorageQuota
from partq.broker.log.tail import Tail
from partq.broker.partition.audit_writer import AuditWriter
from partq.broker.partition.books import BookMaker
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.broker.partition.share_epochs import ShareEpochs
from partq.broker.partition.unstored_states import UnstoredStates
from partq.core.dead_letters import LetterFilter
from partq.core.model import BrokerEpoch, BrokerId, Cause, PartitionId
from partq.core.samples.waits import WaitCounts
from partq.core.sessions.session_locks import SessionLocks, StoredLock
from partq.errors import AppendGapError, PartqError, UnknownGroupError
from partq.store.records.audit import Audits
from partq.store.records.log import Entry, Log
from partq.store.records.stored_partition import Claim, CursorRecord, Mended, PartitionLayout


class ReplayProgress(NamedTuple):
    """How far a replay of the dead letters in a partition has come."""

    at: int
    """What comes next. All before it was sent back, is set aside or was not asked for."""
    end: int
    """The end of the log when the replay began."""
    wanted: LetterFilter
    """Which dead letters it sends back."""


class StoredLately(NamedTuple):
    """Where in a log the messages begin that were stored within a time."""

    first: int
    within_s: float
    at: float
    """When that was found out, on the broker's clock."""


@dataclass(eq=False, slots=True)
class OwnedPartition:
    """Everything in memory of one partition; dropped as a whole when ownership is in doubt."""

    id: PartitionId
    broker_epoch: BrokerEpoch
    claimed_at: float
    tail: Tail
    on_lost: Callable[["OwnedPartition", PartqError], None]
    make_book: BookMaker
    appender: LogAppender = field(init=False)
    audit: AuditWriter = field(init=False)
    groups: dict[str, ConsumedPartition] = field(default_factory=dict)
    locks: dict[str, tuple[Mapping[str, StoredLock], str]] = field(default_factory=dict)
    """Of groups: the locks of sessions when the partition was claimed, and which run of Redis had
    the last of them written (empty: none was)."""
    kept_locks: dict[str, SessionLocks] = field(default_factory=dict)
    """Of groups: the locks as they are now, also while the group has a book of another type."""
    writes: Iterator[int] = field(default_factory=count)
    """Numbers the writes of all books: one that is started again continues above its last."""
    share_epochs: ShareEpochs = field(default_factory=ShareEpochs)
    mended: tuple[Mended, ...] = ()
    """Repairs that the claim made in the records of groups."""
    layout: PartitionLayout = field(default_factory=PartitionLayout)
    """What changes of the partition count have left in its record; sealing and opening it as the
    owner is all that changes it."""
    opened_after_s: float | None = None
    """For how long publishes have waited until it was opened here; None: it was not opened here."""
    known_producers: set[str] = field(default_factory=set)
    """Names with a record here, so that no predecessor is asked what it knows of them."""
    ids: IdProgress = field(default_factory=IdProgress)
    """What is known of the ids of its messages."""
    is_sealing: bool = False
    """Whether a seal waits for its turn among the appends, or is being written."""
    is_yielding: bool = False
    expired: int = 0
    """All below has outlived the queue's time to live."""
    expired_at: float = float("-inf")
    """When that was found out, on the broker's clock."""
    stored_lately: StoredLately | None = None
    """What of the log may stay although it is acknowledged; None: nobody has looked."""
    stored_at_ms: int = 0
    """When its last message was stored, by Redis's clock as it was then."""
    stored_at: float | None = None
    """The same on the broker's clock, when it was answered; None: nothing since the claim."""
    replay: ReplayProgress | None = None
    """Of the dead letters in it; None: nobody has begun one here."""
    replaying: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the call that sends dead letters back: one is on its way at a time."""
    news: Signal = field(default_factory=Signal)
    """Wakes readers of the log that wait at its end: a message was stored, or all is dropped."""
    due_news: Signal = field(default_factory=Signal)
    """Set when what is due next may be another entry, or all is dropped."""
    next_due_ms: int | None = None
    """When the first entry is due that waits beside the log, by Redis's clock; None: not known."""

    @classmethod
    def from_claim(
        cls,
        partition: PartitionId,
        claim: Claim,
        *,
        clock: Callable[[], float],
        cause: Cause,
        log: Log,
        buffers: Buffers,
        quota: StorageQuota,
        audits: Audits,
        broker: BrokerId,
        append_waits: WaitCounts,
        known_ids: KnownIds,
        on_lost: Callable[["OwnedPartition", PartqError], None],
        make_book: BookMaker,
    ) -> "OwnedPartition":
        """Build what memory holds right after a claim; all up to the log's end carries `cause`."""
        tail = Tail(claim.next, buffers.tails)
        owned = cls(partition, claim.broker_epoch, clock(), tail, on_lost, make_book)
        owned.appender = LogAppender(
            log,
            partition,
            broker_epoch=claim.broker_epoch,
            end=claim.next,
            quota=quota,
            budget=buffers.pending,
            clock=clock,
            waits=append_waits,
            id_rules=lambda: (known_ids.window_ms, known_ids.max_ids),
            adopt_ids=lambda batches: known_ids.adopt(
                partition, claim.broker_epoch, batches, owned.ids, owned.layout.predecessors
            ),
            is_audited=lambda: owned.audit.is_on,
            generation=lambda: owned.layout.generation,
            on_stored=lambda entries: owned.accept(entries, clock()),
            on_parked=lambda due_ms: owned.note_parked(due_ms),
            on_lost=lambda error: on_lost(owned, error),
        )
        owned.audit = AuditWriter(
            audits,
            partition,
            broker=broker,
            broker_epoch=claim.broker_epoch,
            is_on=claim.is_audited,
            must_wait=lambda: quota.is_store_overfull,
            on_lost=lambda error: on_lost(owned, error),
        )
        owned.mended = claim.mended
        owned.layout = claim.layout
        owned.add_groups(claim.groups)
        for consumed in owned.groups.values():
            consumed.book.mark(claim.next, cause)
        return owned

    def find(self, group: str) -> ConsumedPartition:
        """Return what is in memory of a group.

        Raises:
            UnknownGroupError: it has no cursor here.
        """
        consumed = self.groups.get(group)
        if consumed is None:
            raise UnknownGroupError(
                f"partition {self.id}: has no cursor of group {group} yet; ask again"
            )
        return consumed

    def add_groups(self, cursors: Mapping[str, CursorRecord]) -> None:
        """Start the books of groups that are not here yet."""
        for group, record in cursors.items():
            if group not in self.groups:
                book = self.make_book(self.id, group, record)
                consumed = self.groups[group] = ConsumedPartition(
                    partition=self.id,
                    broker_epoch=self.broker_epoch,
                    group=group,
                    member=record.member,
                    incarnation=record.incarnation,
                    epoch=record.epoch,
                    closed_attempt=record.attempt,
                    book=book,
                    has_stale_parked=bool(record.parked) and not book.parked,
                    audit=self.audit,
                    registered=record.registered,
                    parts=record.parts,
                    born=record.born,
                    gate=record.gate,
                    writes=self.writes,
                    share_epochs=self.share_epochs,
                    states=UnstoredStates(record.state_count),
                )
                self.locks[group] = (record.locks, record.locks_run)
                self.kept_locks.pop(group, None)
                consumed.outbox.read(record.outbox)
                # Also joins what was acknowledged above a cursor that was moved.
                consumed.book.discard(
                    sorted((letter.offset, letter.offset + 1) for letter in record.outbox)
                )

    def accept(self, entries: list[Entry], now: float) -> None:
        """Take what was just stored; delivery from memory starts here, where confirmation does."""
        for entry in entries:
            if not self.tail.accept(entry):
                error = AppendGapError(
                    f"partition {self.id}: stored at {entry.first}, not at the end"
                )
                self.on_lost(self, error)
                return
        self.stored_at_ms, self.stored_at = entries[-1].at_ms, now
        self.news.pulse()
        for consumed in self.groups.values():
            consumed.wake()

    def note_parked(self, due_ms: int) -> None:
        """Take news of an entry that waits beside the log."""
        if self.next_due_ms is None or due_ms < self.next_due_ms:
            self.due_news.set()

    def drop(self, cause: Cause) -> None:
        """Forget everything: no delivery, no ack and no append counts from here on."""
        self.appender.drop()
        self.audit.drop()
        for consumed in self.groups.values():
            consumed.drop(cause)
        self.groups.clear()
        self.tail.drop()
        self.news.pulse()
        self.due_news.set()
