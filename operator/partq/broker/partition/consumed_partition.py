"""One consumer group on one partition, as its broker sees it: member, flow, pause, book."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from math import ceil, inf
from typing import ClassVar

from partq.aio import Signal
from partq.broker.partition.audit_buffer import AuditBuffer, handoff_step
from partq.broker.partition.audit_writer import AuditWriter
from partq.broker.partition.consumer_ports import FlowOf, SharesOf
from partq.broker.partition.outbox import Answer, Outbox
from partq.broker.partition.pauses import ActivePause, ClosedHandoff, PartitionState
from partq.broker.partition.share_epochs import ShareEpochs
from partq.broker.partition.unstored_states import UnstoredStates
from partq.core.cursor.book import Book
from partq.core.cursor.windows import Window
from partq.core.dead_letters import DeadLetter
from partq.core.group.observation import NO_EPOCH
from partq.core.lanes.lane_book import LaneBook
from partq.core.model import BrokerEpoch, Cause, Epoch, MemberId, Offset, PartitionId
from partq.core.parts.part_owners import PartOwners
from partq.core.rescale.gates import GateHold
from partq.core.sessions.session_book import SessionBook
from partq.core.turns.turn_book import TurnBook
from partq.errors import FencedError
from partq.store.records.stored_partition import OPEN_GATE
from partq.store.refusals import BookWrite
from partq.wire import frames

NOT_SERVED = "this broker serves it no more; what was not acknowledged is redelivered"


@dataclass(eq=False, slots=True)
class ConsumedPartition:
    """The record of one group on one partition, with what only memory knows."""

    shared_flag: ClassVar[str] = ""
    """Of its audit records, where several members have the partition."""

    partition: PartitionId
    broker_epoch: BrokerEpoch
    group: str
    member: MemberId | None
    incarnation: str
    epoch: Epoch
    closed_attempt: int
    """Attempts up to this one are over, by commit, cancel or lapse."""
    book: Book
    registered: Epoch = NO_EPOCH
    """The epoch under which the member registered the partition; 0: it got it otherwise."""
    shown: tuple[Epoch, float] = (NO_EPOCH, 0.0)
    """The last registration that a state told, and when one first did, on the broker's clock."""
    is_given_up: bool = False
    """Its member has begun to unregister it since then: such a call may still come late."""
    born: int = 0
    """When the group began in the partition: a group that is created again is another one."""
    gate: str = OPEN_GATE
    """As the record has it. Closed, nothing is delivered: messages of its slots that are older lie
    in other partitions. `broker/rescale` opens it."""
    holds: tuple[GateHold, ...] = ()
    """What keeps the gate closed, as it was last seen."""
    verified: int = -1
    """The generation of the queue's config under which the store was found to know this group."""
    writes: Iterator[int] = field(default_factory=count)
    """Numbers the writes of the stored book under the broker epoch: each try takes the next."""
    share_epochs: ShareEpochs = field(default_factory=ShareEpochs)
    outbox: Outbox = field(default_factory=Outbox)
    audit: AuditWriter | None = None
    """The partition's audit record."""
    flush_records: AuditBuffer = field(default_factory=AuditBuffer)
    """Audit records of the next flush."""
    after_counts: Callable[["ConsumedPartition"], None] | None = None
    """Called when redelivery counts have changed and are stored, before anything goes out."""
    after_take: Callable[["ConsumedPartition"], None] | None = None
    """Called while keys are held, when some of their messages may become dead letters."""
    flow: "FlowPort | None" = None
    session: str | None = None
    """Of a share in a group of type Session: the session that it is."""
    parts: PartOwners | None = None
    """Which members have which parts; None: none was ever moved, or the type is not KeyShared."""
    shares: "SharesOf[ConsumedPartition] | None" = None
    """Of a group of type KeyShared or Shared: what flows have of it; None: none was bound yet."""
    kept: tuple[int, int] = (0, 0)
    """From where to where the flow's client has the batches that are sent again."""
    is_withheld: bool = False
    """The flow's application has paused the partition: nothing is delivered to it."""
    pause: ActivePause | None = None
    last_commit: ClosedHandoff | None = None
    is_committing: bool = False
    is_awaited: bool = False
    """A reset waits for the stored book before it unbinds the member."""
    is_resetting: bool = False
    """The stored book is being moved: nothing else is written, and nothing changes in memory."""
    states: UnstoredStates = field(default_factory=UnstoredStates)
    """States of keys that came with acks."""
    parked_stored: int = 0
    """`LaneBook.parked_changes` of what is stored."""
    has_stale_parked: bool = False
    """The record has parked keys that the book does not know."""
    order_waits: str = ""
    """Why the order of the spec is not in effect here; empty: it is, or is about to be."""
    holds_stored: int = 0
    """`LaneBook.holds_made` of what is stored."""
    counts: int = 0
    """Grows whenever redelivery counts do: they are stored before the redelivery is sent."""
    counts_stored: int = 0
    """`counts` of what is stored."""
    flush_first: int = 0
    """`counts` that must be stored before anything is sent."""
    next_tick: float = 0.0
    """When the time for acks is looked at again, on the broker's clock."""
    missing: str = ""
    """Which message the log should hold and does not: nothing is delivered; empty: none."""
    is_dropped: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by binds and handoffs, never by appends, deliveries or acks."""
    is_dirty: bool = False
    """The book differs from what is stored."""
    is_flushing: bool = False
    to_hurry: Signal = field(default_factory=Signal)
    """Set when `is_urgent` may have become true."""
    flushed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after each flush, for callers that need the book stored."""
    confirmations: list[Answer] = field(default_factory=list)
    """To be called once what the book says now is stored, or never will be."""
    held_acks: deque[Callable[[], object]] = field(default_factory=deque)
    """Acks and nacks that came while a commit was under way."""

    @property
    def state(self) -> PartitionState:
        """State of the partition for this group. A pause has no effect while no flow is bound."""
        if isinstance(self.book, TurnBook):
            return PartitionState.READY if self.is_bound else PartitionState.UNASSIGNED
        if isinstance(self.book, SessionBook):
            return PartitionState.READY
        if self.member is None and (self.parts is None or not self.parts.members):
            return PartitionState.UNASSIGNED
        if not self.is_bound:
            return PartitionState.UNBOUND
        return PartitionState.READY if self.pause is None else PartitionState.PAUSED

    @property
    def root(self) -> "ConsumedPartition":
        """The partition of which this is a share; itself, where it is no share."""
        return self

    @property
    def bound_from(self) -> Epoch:
        """The lowest epoch of the deliveries whose acks count."""
        return self.epoch

    @property
    def lane_ranges(self) -> list[tuple[int, int]]:
        """The slots that its member has, as ranges; empty: all of the partition."""
        return []

    @property
    def mode(self) -> int:
        """What a message that is given back blocks, as `Assigned` tells it."""
        if self.lanes is None:
            return frames.EXCLUSIVE
        return frames.SHARED if self.keys is None else frames.KEYED

    @property
    def reader(self) -> "ConsumedPartition":
        """For whom batches are read."""
        return self

    def is_its_turn(self) -> bool:
        """Return whether its flow may take the next window: always, unless members take turns."""
        return True

    def most_at_once(self, room: int, batch: int) -> int:
        """Return how many messages of a batch that has so many its flow may be sent at once.

        `room`: for how many its client has room.
        """
        del batch
        return room

    def end_turn(self, *, has_taken: bool = False) -> bool:
        """Let others take the next window; return whether it is to look again at once."""
        del has_taken
        return False

    def leave(self) -> None:
        """Note that the member of its flow leaves: a coordinator moves what it has."""

    @property
    def is_bound(self) -> bool:
        """Whether a flow has the partition, or a share of it."""
        return bool(self.holders())

    def holders(self) -> "list[ConsumedPartition]":
        """Return what flows have of it: the partition, or its shares."""
        if self.shares is not None:
            return self.shares.holders()
        return [] if self.flow is None else [self]

    def held_by(self, flow: object, epoch: Epoch | None = None) -> "ConsumedPartition | None":
        """Return what a flow has of it: all, or its share (under an epoch, if it has several)."""
        if self.shares is not None:
            return self.shares.of_flow(flow, epoch)
        return self if self.flow is flow else None

    def wake(self) -> None:
        """Have its flows look at it again: they may have something to send."""
        if self.shares is not None:
            self.shares.wake()
        elif self.flow is not None:
            self.flow.notice(self)

    def has_changed(self) -> None:
        """Have those look again that may send something after what its flow has said."""
        if self.flow is not None:
            self.flow.notice(self)

    def discard(self, ranges: list[tuple[int, int]]) -> None:
        """Have done with messages, also those that members have."""
        holders = self.holders()
        before = [held.book.in_flight for held in holders]
        self.book.discard(ranges)
        for held, in_flight in zip(holders, before, strict=True):
            if held.flow is not None:
                held.flow.end_in_flight(in_flight - held.book.in_flight)

    @property
    def lanes(self) -> LaneBook | None:
        """The book of a group of order Key; None: the group has another order."""
        return self.book if isinstance(self.book, LaneBook) else None

    @property
    def keys(self) -> LaneBook | None:
        """The book of a group in which keys wait; None: keys do not matter there."""
        return None if isinstance(self.root.book, TurnBook) else self.lanes

    @property
    def may_end_waits(self) -> bool:
        """Whether what has waited long enough may be sent: its redelivery counts are stored."""
        # A lane whose count is not stored is blocked by its book, and no other one is.
        return self.counts_stored == self.counts or self.lanes is not None

    @property
    def is_held(self) -> bool:
        """Whether a commit or a reset is under way, which writes the book as it was before."""
        return self.is_committing or self.is_resetting

    @property
    def is_gated(self) -> bool:
        """Whether the group has to do with older messages in other partitions first."""
        return self.gate != OPEN_GATE

    @property
    def must_flush_first(self) -> bool:
        """Whether nothing may be sent before the redelivery counts are stored."""
        return self.counts_stored < self.flush_first

    @property
    def audit_writer(self) -> AuditWriter | None:
        """The partition's audit record, if it has one."""
        return self.audit if self.audit is not None and self.audit.is_on else None

    @property
    def is_open(self) -> bool:
        """Whether messages may be sent to the flow."""
        return (
            self.flow is not None and self.pause is None and not self.is_withheld and self.may_send
        )

    @property
    def may_send(self) -> bool:
        """Whether messages may be sent to anybody."""
        return (
            not self.is_gated
            and not self.is_committing
            and not self.must_flush_first
            and not self.is_held_by_letters
            and not self.missing
            and not (self.audit is not None and self.audit.is_held)
            and not self.is_dropped
        )

    @property
    def blocked(self) -> str:
        """Why the group's deliveries stop; empty: they do not."""
        return self.missing or ("" if self._holds_lanes_alone else self.outbox.blocked)

    @property
    def parked(self) -> str:
        """Why dead letters have been waiting while deliveries continue; empty: none are."""
        return self.outbox.parked or (self.outbox.blocked if self._holds_lanes_alone else "")

    @property
    def is_held_by_letters(self) -> bool:
        """Whether nothing may be delivered before dead letters are stored."""
        # In a group of order Key they hold up their lanes; the book knows when too many wait.
        return self.outbox.is_holding and self.lanes is None

    @property
    def _holds_lanes_alone(self) -> bool:
        """Whether dead letters that wait hold up their keys alone."""
        return self.lanes is not None and not self.lanes.is_crowded

    def doom(self, offsets: Iterable[int]) -> None:
        """Have offsets hold up their lanes that are to become dead letters."""
        if self.lanes is not None:
            self.lanes.doom(offsets)

    def spare(self, offset: int) -> None:
        """Let the lane of an offset go on: it is a dead letter, or done with otherwise."""
        if self.lanes is not None:
            self.lanes.spare(offset)

    @property
    def gated_by(self) -> str:
        """Which older messages in other partitions the gate waits for; empty: it is open."""
        if not self.is_gated:
            return ""
        return "; ".join(each.text for each in self.holds) or "what its predecessors have"

    def next_redelivery_ms(self, now: float) -> int:
        """Return how long the first delayed message still waits; 0: none waits, or it is due.

        `now`: of the broker's clock.
        """
        due = self.book.next_due
        return max(0, ceil((due - now) * 1000)) if due < inf else 0

    @property
    def is_urgent(self) -> bool:
        """Whether the book is to be stored at once: no further ack comes, and a call may wait.

        Those are handoffs, resets, cursors of readers, and yields of the partition.
        """
        is_quiet = self.pause is not None and self.book.in_flight == 0
        is_held_up = self.is_committing or self.is_awaited
        return not self.is_bound or is_quiet or is_held_up or self.is_dropped

    @property
    def is_drained(self) -> bool:
        """Whether nothing is in flight and all acks are stored."""
        return self.book.in_flight == 0 and not self.is_dirty and not self.is_flushing

    @property
    def mark(self) -> int:
        """The lowest offset that the group still needs in the log."""
        return min([self.book.cursor, *(letter.offset for letter in self.outbox.letters)])

    async def settle_audit(self) -> None:
        """Wait until all audit records so far are stored; at once without an audit record."""
        if self.audit is not None:
            await self.audit.settle()

    def next_write(self) -> BookWrite:
        """Return what the next try to write the book carries."""
        return BookWrite(broker_epoch=self.broker_epoch, number=next(self.writes), born=self.born)

    def take_kept(self, window: Window) -> bool:
        """Say whether the flow's client has the batch of a window that is sent now.

        The client drops with a window what it has kept of it, also if its bytes came along. What is
        sent out of turn it has begun before, and has dropped.
        """
        if not window.is_in_turn:
            return False
        start, stop = self.kept
        self.kept = (max(start, window.stop), stop)
        return start <= window.start < stop

    def begin_at(self, cursor: Offset, letters: list[DeadLetter]) -> None:
        """Follow the stored book, which was moved; the dead letters that wait stay."""
        is_stored = self.lanes is None or self.parked_stored == self.lanes.parked_changes
        self.book = self.book.moved_to(cursor)
        # The record has the keys alone that wait until they are released, unless it lacks the last
        # ones, and so has the book, which counts its changes from 0 on.
        self.parked_stored, self.has_stale_parked, self.holds_stored = 0, not is_stored, 0
        self.missing = ""
        self.refuse(
            self.outbox.forget(),
            "its cursor was moved before the dead letters were stored; nothing is stored of them",
        )
        self.outbox.read(letters)
        if letters:
            # They count as done, as after a claim; the stored book is to say so, too.
            self.book.discard(sorted((each.offset, each.offset + 1) for each in letters))
            self.is_dirty = True

    def change_book(self, book: Book) -> None:
        """Continue with a book of another order, or with other bounds; no flow is bound."""
        self.book, self.shares = book, None
        self.doom(self.outbox.scheduled)
        self.has_stale_parked = True
        # Whatever counts were made before: they are stored with the new book, before any delivery.
        self.counts += 1
        self.flush_first = self.counts
        self.is_dirty = True

    def make_letters(self) -> bool:
        """Have what is due of quarantined keys moved; return whether nothing may be sent now."""
        lanes = self.lanes
        if lanes is None or self.after_take is None or not lanes.held_lanes:
            return False
        self.after_take(self)
        return not self.is_open

    def open_gate(self) -> None:
        """Follow the record: the group may have the messages."""
        self.gate, self.holds = OPEN_GATE, ()
        self.wake()

    @property
    def lane_counts(self) -> int:
        """`LaneBook.counts_made`; 0: the group has another order."""
        return self.lanes.counts_made if self.lanes is not None else 0

    def note_counts(self, counts: int, lane_counts: int = 0) -> None:
        """Note that the redelivery counts are stored as they were at `counts` and `lane_counts`."""
        if self.lanes is not None:
            self.lanes.counts_stored(lane_counts)
        if counts > self.counts_stored:
            self.counts_stored = counts
            if self.after_counts is not None:
                self.after_counts(self)

    def unbind(self, cause: Cause) -> None:
        """Take the partition from its flow; what is in flight goes out again, for `cause`.

        Where redelivery counts have changed, the caller has them stored: before that nothing is
        sent, or nothing of the lane.
        """
        for share in self.shares.holders() if self.shares is not None else ():
            share.unbind(cause)
        flow, self.flow = self.flow, None
        if flow is None:
            return
        self.to_hurry.set()
        self.is_withheld = False
        # What waits for its audit record was never sent: it is not counted as delivered.
        unsent = flow.unsent(self.partition)
        flow.detach(self, cause)
        self.kept = (0, 0)
        if self.book.in_flight:
            self.counts += 1
            if self.lanes is None:
                self.flush_first = self.counts
        self.book.rewind(cause, unsent)

    def drop(self, cause: Cause) -> None:
        """Forget everything, for good: nothing of the partition counts here from now on.

        An ack whose flush is under way may be stored after all; then its refusal costs nothing
        but a message that is not sent again.
        """
        self.is_dropped = True
        self.end_pause()
        self.unbind(cause)
        self.flushed.set()
        waiting, self.confirmations = self.confirmations, []
        self.refuse([*waiting, *self.outbox.end_waits(for_good=True)])

    def refuse(self, answers: list[Answer], why: str = NOT_SERVED) -> None:
        """Tell who waits for an ack that the partition is not served here any more."""
        for answer in answers:
            answer(FencedError(f"partition {self.partition} of {self.group}: {why}"))

    def end_unregistering(self) -> None:
        """End the pause of a connection that was giving the partition back: a newer one consumes.

        If that one is to give it back, too, it says so.
        """
        pause = self.pause
        if pause is None or not pause.is_unregistering or self.is_committing:
            return
        if self.audit_writer is not None:
            self.audit_writer.note(handoff_step("cancel", self, pause.attempt))
        self.end_pause()

    def end_pause(self) -> None:
        """Forget the pause and close its attempt."""
        if self.pause is not None:
            if self.pause.timer is not None:
                self.pause.timer.cancel()
            self.closed_attempt = max(self.closed_attempt, self.pause.attempt)
            self.pause = None


FlowPort = FlowOf[ConsumedPartition]
"""Interface of a bound flow, for a consumed partition and the code that changes one."""
