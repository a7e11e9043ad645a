"""What one flow has of a partition by the lock of a session."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Protocol, cast

from partq.broker.delivery.credit import FlowCredit
from partq.broker.partition.audit_buffer import share_step
from partq.broker.partition.consumed_partition import ConsumedPartition, FlowPort
from partq.broker.partition.flow_records import record_of
from partq.broker.partition.outbox import Answer
from partq.core.cursor.progress import Range
from partq.core.lanes.span import MAX_SHARE
from partq.core.model import Cause
from partq.core.ranges import Ranges
from partq.core.sessions.interned_sessions import keyless
from partq.core.sessions.session_book import SessionShareBook
from partq.core.sessions.session_locks import SessionLock
from partq.errors import SessionLockedError, SessionLostError
from partq.excerpts import excerpt
from partq.store.records.log import Entry
from partq.wire.audit import SESSIONS, encode_record
from partq.wire.sessions.batch_keys import keys_of

_REASONS = {Cause.FORCED_COMMIT: "forced", Cause.BROKER_CHANGE: "moved"}
"""Why a lock was ended by force → what the audit record says of it."""

assert MAX_SHARE == 250  # noqa: S101 - as many locks as there are shares


class LockingFlow(FlowPort, Protocol):
    """Interface of a flow that has sessions."""

    is_leaving: bool
    """Its member's process is ending."""
    is_closed: bool
    credit: FlowCredit
    """Of all its sessions."""

    @property
    def partitions(self) -> Collection[object]:
        """Its sessions."""


class SessionSharesPort(Protocol):
    """Interface of the sessions of a partition, for one of them."""

    def share_lost(
        self, share: "SessionShare", flow: FlowPort, cause: Cause, unsent: Ranges
    ) -> None:
        """Note that a flow has lost a session."""

    def share_changed(self, share: "SessionShare") -> None:
        """Look whether others may go on, or the lock may end, after what a flow has said."""

    def has_more(self, session: str) -> bool:
        """Whether a session has open messages, or may have unread ones since it has left."""


@dataclass(eq=False, slots=True)
class SessionShare(ConsumedPartition):
    """One session of a partition that a flow has: its book is that of the lock.

    What concerns the partition as a whole, as its record and its gate, is with `root`.
    """

    shared_flag: ClassVar[str] = SESSIONS
    whole: ConsumedPartition = field(kw_only=True)
    shares_of: SessionSharesPort = field(kw_only=True)
    number: int = field(kw_only=True)
    """Of the share in the book."""
    lock_of: SessionLock = field(kw_only=True)
    is_closing: bool = False
    """The client is done with it: the lock ends once nothing is in flight."""
    to_tell: list[Answer] = field(default_factory=list)
    """To be called once the lock has ended."""

    @property
    def root(self) -> ConsumedPartition:
        """The partition of which this is a share."""
        return self.whole

    @property
    def own_book(self) -> SessionShareBook:
        """The book of the lock."""
        assert isinstance(self.book, SessionShareBook)  # noqa: S101 - from the constructor on
        return self.book

    @property
    def is_open(self) -> bool:
        """Whether messages may be sent to the flow."""
        return (
            self.flow is not None
            and not self.is_withheld
            and not self.is_closing
            and self.whole.may_send
        )

    def has_more(self) -> bool:
        """Whether its session has open messages, or may have unread ones since it has left."""
        return self.shares_of.has_more(self.lock_of.session)

    def is_its_turn(self) -> bool:
        """Return whether it may be sent something: the other sessions of its flow have room left.

        Else it looks again when the client has room again, or has done with something.
        """
        return self._room > 0

    def most_at_once(self, room: int, batch: int) -> int:
        """Return how many messages of a batch its flow may be sent at once."""
        del batch
        return min(room, self._room)

    @property
    def _room(self) -> int:
        flow = cast(LockingFlow | None, self.flow)
        if flow is None:
            return 0
        return flow.credit.left_for_one(self.book.in_flight, len(flow.partitions))

    def has_changed(self) -> None:
        """Have those look again that may send something after what its flow has said."""
        if self.flow is not None:
            self.flow.notice(self)
        self.shares_of.share_changed(self)

    def make_letters(self) -> bool:
        """Have what is due of quarantined keys moved; return whether nothing may be sent now."""
        self.whole.make_letters()
        return not self.is_open

    def unbind(self, cause: Cause) -> None:
        """Take the session from its flow; what is in flight goes out again, for `cause`."""
        flow, self.flow = self.flow, None
        if flow is None:
            return
        self.whole.to_hurry.set()
        if (audit_writer := self.audit_writer) is not None:
            audit_writer.note(
                share_step("unbind", flow, self, cause, SESSIONS, target=self.lock_of.session)
            )
        unsent = flow.unsent(self.partition)
        flow.detach(self, cause)
        if self.book.in_flight:
            self.whole.counts += 1
        self.shares_of.share_lost(self, flow, cause, unsent)


def note_lock(share: SessionShare, flow: FlowPort) -> None:
    """Have it recorded that a flow has a session from now on."""
    if (audit_writer := share.audit_writer) is not None:
        lock, step = share.lock_of, partial(share_step, "lock", flow, share, Cause.NONE, SESSIONS)
        audit_writer.note(step(target=lock.session, number=lock.number))


def note_unlock(whole: ConsumedPartition, lock: SessionLock, cause: Cause, now: float) -> None:
    """Have it recorded that a lock has ended: for a cause, or because its time was over."""
    is_over = cause is Cause.FORCED_COMMIT and lock.until <= now
    if (audit_writer := whole.audit_writer) is not None:
        audit_writer.note(
            encode_record(
                "unlock",
                group=whole.group,
                member=lock.member,
                incarnation=lock.incarnation,
                number=lock.number,
                target=lock.session,
                cause="expired" if is_over else _REASONS.get(cause, ""),
                flags=SESSIONS,
            )
        )


def give_back(share: SessionShare, flow: FlowPort, begun: Iterable[Range]) -> None:
    """Take back, without a count, all that a client has of a session but `begun`."""
    back = share.own_book.not_begun(begun)
    if (audit_writer := share.audit_writer) is not None:
        for part in back:
            audit_writer.note(record_of("release", share, flow, part))
    flow.end_in_flight(share.own_book.returned(back, 0))


Announce = Callable[[SessionShare], None]
"""Tells a client that it has a session; its messages follow."""


def lost(share: SessionShare) -> SessionLostError:
    """Return the error of a session that a flow has no more."""
    return SessionLostError(
        f"session {excerpt(share.lock_of.session)} of {share.group}: its lock has ended; stop "
        "working on its messages, they are redelivered"
    )


def ended(group: str, session: str, number: int) -> SessionLostError:
    """Return the error of a lock that is over."""
    return SessionLostError(
        f"session {excerpt(session)} of {group}: lock {number} has ended; stop working on its "
        "messages, and accept it again without a lock"
    )


def locked(group: str, session: str, lock: SessionLock | None) -> SessionLockedError:
    """Return the error of a session that another one has."""
    holder = f"member {excerpt(lock.member)} has" if lock is not None else "another call gets"
    return SessionLockedError(
        f"session {excerpt(session)} of {group}: {holder} its lock; wait until that ends, or "
        "accept another session",
        retry_after_s=1.0,
    )


def sessions_of(whole: ConsumedPartition, entry: Entry) -> list[str]:
    """Return the session of each message of a batch: its key, or itself alone."""
    found = keys_of(entry.data)
    keys = [None] * entry.count if found is None else found
    return [
        keyless(whole.partition, entry.first + at) if key is None else key
        for at, key in enumerate(keys)
    ]
