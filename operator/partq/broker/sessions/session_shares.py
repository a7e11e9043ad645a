"""The sessions of one partition: their locks, what flows have of them, and what is read."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any, cast

from partq.broker.partition.consumed_partition import ConsumedPartition, FlowPort
from partq.broker.partition.outbox import Answer
from partq.broker.sessions.lock_writer import LockWriter, SessionPorts
from partq.broker.sessions.session_share import (
    Announce,
    LockingFlow,
    SessionShare,
    ended,
    give_back,
    lost,
    note_lock,
    note_unlock,
    sessions_of,
)
from partq.core.cursor.progress import Range
from partq.core.model import Cause, Epoch, PartitionId
from partq.core.ranges import Ranges
from partq.core.sessions.session_book import SessionBook
from partq.core.sessions.session_locks import MAX_LOCKS, SessionLock, SessionLocks
from partq.errors import (
    FencedError,
    OverloadedError,
    SessionLostError,
    UnavailableError,
)
from partq.excerpts import excerpt
from partq.store.records.log import Entry
from partq.store.session_locks import NEW_LOCK

_log = logging.getLogger(__name__)


class SessionShares:
    """The sessions of one partition that are locked, whether or not their members are connected."""

    def __init__(
        self,
        whole: ConsumedPartition,
        ports: SessionPorts,
        locks: SessionLocks,
        held_until: float,
    ) -> None:
        """Start with the locks of the record.

        Args:
            whole: the partition; its book is a `SessionBook`.
            ports: what it works with.
            locks: of the record, or as they were when the group had such a book before.
            held_until: nobody else gets a session before, as the record may lack locks.
        """
        self._whole = whole
        self._ports = ports
        self.locks = locks
        self._held_until = held_until
        self._writer = LockWriter(whole, ports, locks, lambda: ports.clock() >= self._held_until)
        self._beginning: set[str] = set()
        """Sessions whose locks are being written."""
        self._shares: dict[str, SessionShare] = {}
        """By session."""
        self.round = max(whole.epoch, whole.share_epochs.top)
        """The highest epoch of a share: each takes the next. The record does not know them; a
        broker that claims the partition has a higher broker epoch."""
        self._has_ttls = False
        """A batch with its own time to live was read."""
        self._is_reading = False
        self._has_news = False
        """More may have come since the batch before was read."""
        self.has_read = asyncio.Event()
        """Set while nothing more is to be read for now."""

    # ---- looking --------------------------------------------------------------------------------

    @property
    def book(self) -> SessionBook:
        """The book of the partition."""
        book = self._whole.book
        assert isinstance(book, SessionBook)  # noqa: S101 - else there are no such shares
        return book

    @property
    def partition(self) -> PartitionId:
        """The partition."""
        return self._whole.partition

    def holders(self) -> list[ConsumedPartition]:
        """Return the sessions that are bound to a flow."""
        return list(self._shares.values())

    def of_flow(self, flow: object, epoch: Epoch | None = None) -> SessionShare | None:
        """Return the session that a flow has under an epoch."""
        found = (each for each in self._shares.values() if each.flow is flow)
        return next((each for each in found if epoch in (None, each.epoch)), None)

    def of_session(self, session: str) -> SessionShare | None:
        """Return what a flow has of a session; None: no flow has it."""
        return self._shares.get(session)

    def wants(self, flow: FlowPort) -> bool:
        """Whether a flow is to get the partition as it binds: never, it asks for sessions."""
        del flow
        return False

    @property
    def is_full(self) -> bool:
        """Whether others wait for a place: flows get none, sessions do."""
        return False

    def bind(self, flow: FlowPort) -> None:
        """Give a flow nothing: it asks for sessions."""

    @property
    def locked(self) -> list[str]:
        """The sessions that have a lock, or get one."""
        return [*(lock.session for lock in self.locks), *self._beginning]

    def next_free(self, but: Iterable[str] = ()) -> str | None:
        """Return the session that the next accept gets; None: it may have no session.

        `but`: sessions that it may not have, as those that have a lock.
        """
        if len(self.locks) + len(self._beginning) >= MAX_LOCKS or not self._gives_out:
            return None
        return self.book.next_free([*self.locked, *but])

    async def next_in_time(self, but: Callable[[], Iterable[str]]) -> str | None:
        """Return the session that the next accept gets, the first message of which has time left.

        Messages whose own time to live is over end here, as they do before a delivery. None: there
        is no such session, or what is over becomes a dead letter first, or the time is not known.
        """
        while (session := self.next_free(but())) is not None and self._has_ttls:
            offset = self.book.first_open(session)
            entry = None if offset is None else await self._entry_at(offset)
            if not self._is_current():
                return None
            if session != self.next_free(but()) or offset != self.book.first_open(session):
                continue  # much may have been while it was read
            if entry is not None and entry.ttl_ms and self._ports.must_wait(self._whole, entry):
                return None
            if offset == self.book.first_open(session):
                break
        return session

    async def _entry_at(self, offset: int) -> Entry | None:
        for entry in await self._ports.read(self._whole, offset):
            if entry.first <= offset < entry.first + entry.count:
                return entry
        return None

    def awaits(self, session: str) -> str:
        """Return the older messages in other partitions that come before a session; empty: none do.

        One that has a lock goes on all the same.
        """
        return self._whole.gated_by if self.locks.find(session) is None else ""

    def may_await(self, places: Collection[PartitionId]) -> bool:
        """Whether the group may have to do with some of these first, as far as it is known."""
        holds = self._whole.holds
        return not holds or any(each.predecessor in places for each in holds)

    @property
    def _gives_out(self) -> bool:
        return (
            not self._whole.is_gated
            and not self._whole.is_dropped
            and not self._whole.is_resetting
            and self._ports.clock() >= self._held_until
        )

    def _is_current(self) -> bool:
        """Whether the partition is served here, and its sessions are these."""
        return not self._whole.is_dropped and self._whole.shares is self

    # ---- locks ----------------------------------------------------------------------------------

    def may_lock(self, session: str, flow: LockingFlow, number: int) -> bool:
        """Whether a flow may have a session now: nobody has it, or its process does.

        Raises:
            UnavailableError: it cannot be said, or given, for now.
            OverloadedError: too many sessions of the partition are locked.
        """
        if session in self._beginning:
            return False
        lock, share = self.locks.find(session), self._shares.get(session)
        if lock is not None:
            is_own = lock.is_of(flow.member, flow.incarnation)
            return is_own and number in (NEW_LOCK, lock.number) and share is None
        is_full = len(self.locks) + len(self._beginning) >= MAX_LOCKS
        if number and self._ports.clock() < self._held_until and not is_full:
            return True  # the store lost it with its last writes, and nobody else got it since
        if number:
            raise ended(self._whole.group, session, number)
        if not self._gives_out:
            raise UnavailableError(
                f"partition {self._whole.partition} of {self._whole.group}: {self._why_not()}",
                retry_after_s=1.0,
            )
        if is_full:
            raise OverloadedError(
                f"partition {self._whole.partition} of {self._whole.group}: {MAX_LOCKS} sessions "
                "are locked, as many as may be: close some, or have more partitions",
                retry_after_s=1.0,
            )
        return True

    def _why_not(self) -> str:
        if self._whole.is_gated:
            return f"no session is given out yet: it waits for {self._whole.gated_by}"
        left_s = self._held_until - self._ports.clock()
        if left_s > 0:
            return (
                f"no session is given out for {left_s:.0f} s, as the store was set back: locks may "
                "have been given of which it knows nothing any more; wait"
            )
        return "no session is given out for a moment; ask again"

    def lock(
        self, session: str, flow: LockingFlow, number: int, announce: Announce
    ) -> Coroutine[Any, Any, SessionShare]:
        """Give a session to a flow that may have it; return what the flow has then.

        From the call on, before it is awaited, nobody else may have it. Await it at once.

        Raises:
            PartqError: it got nothing.
        """
        self._beginning.add(session)
        return self._lock(session, flow, number, announce)

    async def _lock(
        self, session: str, flow: LockingFlow, number: int, announce: Announce
    ) -> SessionShare:
        known = self.locks.find(session)
        try:
            await self._whole.settle_audit()  # the end of the lock before is told first
            lock = await self._writer.write(session, flow, number, known)
            self._check_current()
            if self.locks.find(session) is not known:
                self.end(lock)  # its time was over, or it was released, while it was written
                raise ended(self._whole.group, session, number)
            self.locks.put(lock)
            # A reset, or a change of the order, that is under way has another book soon.
            async with self._whole.lock:
                self._check_current()
        finally:
            self._beginning.discard(session)
        if self.locks.find(session) is not lock:
            raise ended(self._whole.group, session, lock.number)
        if flow.is_closed:
            # Its client may know of a lock that it had before, and comes back.
            if known is None and not number:
                self.end(lock)
            raise SessionLostError(
                f"session {excerpt(session)}: its flow has ended; connect and accept it again"
            )
        return self._open(lock, flow, announce)

    def _check_current(self) -> None:
        if not self._is_current():
            raise FencedError(
                f"partition {self._whole.partition}: it went to another broker, or its group is "
                "another one, before the session was locked; accept it again"
            )

    async def renew(self, share: SessionShare) -> None:
        """Have the lock of a session last as long as a new one, from now on.

        Raises:
            SessionLostError: it has ended.
            PartqError: it could not be written, and lasts as long as before.
        """
        lock, flow = share.lock_of, share.flow
        if flow is None:
            raise lost(share)
        written = await self._writer.write(lock.session, flow, lock.number, lock)
        if self._shares.get(lock.session) is not share:
            raise lost(share)
        lock.until = max(lock.until, written.until)

    def _open(self, lock: SessionLock, flow: FlowPort, announce: Announce) -> SessionShare:
        whole, book = self._whole, self.book
        self.round = whole.share_epochs.top = Epoch(
            max(self.round, whole.epoch, whole.share_epochs.top) + 1
        )
        number, share_book = book.open_share()
        share = SessionShare(
            partition=whole.partition,
            broker_epoch=whole.broker_epoch,
            group=whole.group,
            member=flow.member,
            incarnation=flow.incarnation,
            epoch=self.round,
            closed_attempt=whole.closed_attempt,
            book=share_book,
            born=whole.born,
            writes=whole.writes,
            outbox=whole.outbox,
            states=whole.states,
            audit=whole.audit,
            flush_records=whole.flush_records,
            session=lock.session,
            whole=whole,
            shares_of=self,
            number=number,
            lock_of=lock,
            flow=flow,
        )
        self._shares[lock.session] = share
        book.claim(lock.session, number)
        note_lock(share, flow)
        announce(share)
        flow.attach(share)
        self._go_on()
        return share

    def close(self, share: SessionShare, begun: Iterable[Range], answer: Answer) -> None:
        """Take back what a client has not begun; unlock the session once nothing is in flight."""
        if share.flow is None:
            answer(lost(share))
            return
        share.is_closing = True
        share.to_tell.append(answer)
        self.book.unclaim(share.lock_of.session)
        give_back(share, share.flow, begun)
        self.share_changed(share)

    def release(self, session: str) -> bool:
        """Take a session from the member that has it, as an administrator asks; say if one had."""
        lock = self.locks.find(session)
        if lock is None:
            return False
        self.end_by_force(lock, Cause.FORCED_COMMIT)
        return True

    def end_by_force(self, lock: SessionLock, cause: Cause, *to_tell: Answer) -> None:
        """End a lock; what was sent under it is redelivered for `cause`, and may have begun."""
        share = self._shares.get(lock.session)
        if share is not None:
            to_tell, share.to_tell = (*share.to_tell, *to_tell), []
            share.unbind(cause)
        if self.locks.find(lock.session) is lock:
            self.end(lock, to_tell, cause)
        self._ports.store(self._whole)

    def share_lost(self, share: SessionShare, flow: FlowPort, cause: Cause, unsent: Ranges) -> None:
        """Note that a flow has lost a session; its lock lasts on, unless the flow said good-bye."""
        lock = share.lock_of
        # What it has begun before a close it may work on, as long as its lock lasts.
        is_done = share.is_closing and not share.book.in_flight
        self._shares.pop(lock.session, None)
        self.book.unclaim(lock.session)
        self.book.close_share(share.number, cause, unsent)
        if cast(LockingFlow, flow).is_leaving or is_done:
            self.end(lock, share.to_tell)
        else:
            for answer in share.to_tell:
                answer(lost(share))
        self._go_on()

    def share_changed(self, share: SessionShare) -> None:
        """Look whether others may go on, or the lock may end, after what a flow has said."""
        if share.is_closing and share.flow is not None and not share.book.in_flight:
            flow, share.flow = share.flow, None
            flow.detach(share, Cause.NONE)
            self._shares.pop(share.lock_of.session, None)
            self.book.close_share(share.number, Cause.NONE)
            self.end(share.lock_of, share.to_tell)
        if self.book.pop_news():
            self._go_on()

    def end(
        self, lock: SessionLock, to_tell: Iterable[Answer] = (), cause: Cause = Cause.NONE
    ) -> None:
        """End a lock at once, then in the record, and answer `to_tell` after that."""
        if self.locks.find(lock.session) is lock:
            self.locks.remove(lock.session)
        note_unlock(self._whole, lock, cause, self._ports.clock())
        self._ports.spawn(self._writer.end(lock, list(to_tell)), "end the lock of a session")
        self._go_on()

    def end_stored(self, locks: Iterable[SessionLock]) -> None:
        """End locks in the record whose time was over before this broker had the partition."""
        self._ports.spawn(self._writer.end_all(locks), "end stored locks of sessions")

    # ---- time and messages ----------------------------------------------------------------------

    def force_due(self, now: float) -> bool:
        """End the locks whose time is over; return whether counts have changed."""
        before, book = self._whole.counts, self.book
        for lock in self.locks.over(now):
            _log.info(
                "%s of %s: the lock of a session of %s is over, it was not renewed",
                *(self._whole.partition, self._whole.group, lock.member),
            )
            self.end_by_force(lock, Cause.FORCED_COMMIT)
        self._end_left()
        for share in [each for each in self._shares.values() if each.is_closing]:
            self.share_changed(share)  # what it had may have expired
        if book.next_due <= now and self._whole.may_end_waits:
            book.end_waits(now)
        if book.pop_news() or 0.0 < self._held_until <= now:
            self._held_until = 0.0 if self._held_until <= now else self._held_until
            self._go_on()
        return self._whole.counts > before

    def _end_left(self) -> None:
        """End the locks of sessions that are another partition's, once all of them here is stored.

        Their members hear first that what they have acknowledged is stored.
        """
        if self._whole.is_dirty or self._whole.is_flushing:
            return
        for lock in list(self.locks):
            has_left = self._ports.left_at(self._whole, lock.session) is not None
            if has_left and not self.has_more(lock.session):
                self.end_by_force(lock, Cause.BROKER_CHANGE)

    def has_more(self, session: str) -> bool:
        """Whether a session has open messages, or may have unread ones since it has left."""
        stop = self._ports.left_at(self._whole, session)
        return self.book.has_open(session) or (stop is not None and self.book.read_end < stop)

    def wake(self) -> None:
        """Look at the end of the log again: there may be more to read."""
        self._go_on()

    def _go_on(self) -> None:
        """Have flows and those that wait for a session look again, and read on."""
        for share in list(self._shares.values()):
            if share.flow is not None:
                share.flow.watch(share)
        self._has_news = True
        if not self._is_reading and not self._whole.is_dropped:
            self._is_reading = True
            self.has_read.clear()
            self._ports.spawn(self._read_on(), "read sessions")
        self._ports.on_free(self._whole.group)

    async def _read_on(self) -> None:
        """Read batches until the end of the log, or of what may be read."""
        whole = self._whole
        try:
            while self._is_current() and self.book.may_read:
                book, self._has_news = self.book, False
                entries = await self._ports.read(whole, book.read_end)
                if not self._is_current():
                    break
                if not entries and not self._has_news:
                    break
                for entry in entries:
                    if book is self.book and book.may_read:
                        self._has_ttls |= entry.ttl_ms > 0
                        book.read(entry, sessions_of(whole, entry))
                        self._announce_read()
                    await asyncio.sleep(0)
        finally:
            self._is_reading = False
            self.has_read.set()
            self._ports.on_free(whole.group)

    def _announce_read(self) -> None:
        if self.book.pop_news():
            for share in list(self._shares.values()):
                if share.flow is not None:
                    share.flow.notice(share)
            self._ports.on_free(self._whole.group)
