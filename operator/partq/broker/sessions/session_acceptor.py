"""Calls that ask for sessions: which one each of them gets, and which of them wait."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from partq.aio import Signal
from partq.broker.delivery.cursor_writer import CursorWriter
from partq.broker.delivery.flow import Flow
from partq.broker.delivery.log_fetcher import LogFetcher
from partq.broker.ownership.claims import Claims
from partq.broker.ownership.owned_partitions import OwnedPartitions
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.broker.partition.outbox import Answer
from partq.broker.partition.owned_partition import OwnedPartition
from partq.broker.retention.expiry import Expiry
from partq.broker.sessions.lock_writer import SessionPorts
from partq.broker.sessions.session_places import SessionPlaces
from partq.broker.sessions.session_share import (
    Announce,
    SessionShare,
    locked,
    lost,
    note_unlock,
)
from partq.broker.sessions.session_shares import SessionShares
from partq.core.cursor.progress import Range
from partq.core.cursor.redelivery_rules import RedeliveryRules
from partq.core.layout import Layout
from partq.core.model import BrokerEpoch, Cause, Epoch, PartitionId
from partq.core.sessions.session_book import SessionBook
from partq.core.sessions.session_locks import (
    MAX_LOCK_S,
    SessionLock,
    SessionLocks,
    restored_locks,
)
from partq.errors import (
    BadRequestError,
    ConflictError,
    FencedError,
    NoSessionError,
    NotOwnerError,
    OverloadedError,
    SessionLostError,
    UnavailableError,
)
from partq.excerpts import excerpt
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.session_locks import LockRecords

MAX_WAIT_S: Final = 60.0
"""The longest that an accept waits; a longer wait is several calls."""
MAX_WAITING: Final = 10_000
"""Accepts that may wait at a broker."""
MAX_WAITING_OF_FLOW: Final = 64
"""Accepts that may wait of one flow."""
MAX_LOCK_NUMBER: Final = 2**52
"""Numbers are drawn below, as the time in ms; Redis counts on from one exactly."""
READ_WAIT_S: Final = 2.0
"""How long an accept waits at least for messages to be read that are there."""
_LOOK_S: Final = 0.5


class BrokerParts(Protocol):
    """What of a broker those calls need."""

    owned: dict[PartitionId, OwnedPartition]
    clock: Callable[[], float]
    store: Store
    keys: Keys
    ownership: OwnedPartitions
    claims: Claims
    log_fetcher: LogFetcher
    cursor_writer: CursorWriter
    expiry: Expiry


class SessionAcceptor:
    """Gives sessions to those who ask for them, in the order of asking."""

    def __init__(
        self,
        broker: BrokerParts,
        layout: Callable[[], Layout | None],
        rules: Callable[[str], RedeliveryRules],
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
    ) -> None:
        self._owned: Mapping[PartitionId, OwnedPartition] = broker.owned
        self._broker = broker
        self._records = LockRecords(broker.store, broker.keys)
        self.places = SessionPlaces(broker.owned, layout, self.shares_of)
        self._ports = SessionPorts(
            records=self._records,
            clock=broker.clock,
            lock_s=lambda group: rules(group).lock_s,
            read=broker.log_fetcher.read_on,
            must_wait=broker.expiry.must_wait,
            spawn=spawn,
            store=broker.cursor_writer.notice,
            left_at=self.places.left_at,
            on_free=self._freed,
            on_lost=broker.ownership.lose_group,
        )
        self._turns: dict[str, asyncio.Lock] = {}
        """By group: held by the accept that comes next."""
        self._free: dict[str, Signal] = {}
        """By group: a session may be free."""
        self._waiting: Counter[str] = Counter()
        """By group."""
        self._of_flows: Counter[Flow] = Counter()
        self._chosen: Counter[str] = Counter()
        """By group: sessions that were chosen in turn; each partition is the first in its turn."""

    # ---- looking --------------------------------------------------------------------------------

    def waiting(self, group: str) -> int:
        """Return how many accepts wait for a session of a group."""
        return self._waiting[group]

    def shares_of(self, consumed: ConsumedPartition) -> SessionShares | None:
        """Return the sessions of a partition; None: its group has none there, for now."""
        if consumed.is_dropped or not isinstance(consumed.book, SessionBook):
            return None
        shares = consumed.shares
        if not isinstance(shares, SessionShares):
            shares = consumed.shares = self._make(consumed)
            shares.wake()
        return shares

    def _make(self, consumed: ConsumedPartition) -> SessionShares:
        owned = self._owned[consumed.partition]
        stored, run = owned.locks.get(consumed.group, ({}, ""))
        locks, over = owned.kept_locks.get(consumed.group), list[SessionLock]()
        if locks is None:
            now, clocks = self._ports.clock(), self._broker.expiry.clocks
            watch = clocks.find(consumed.partition)
            # This machine's own clock says nothing of when they end: it may be wrong.
            store_ms = watch.estimate_ms(now) if watch is not None else None
            locks = SessionLocks(restored_locks(stored, store_ms=store_ms, now=now))
            owned.kept_locks[consumed.group] = locks
            for session, lock in stored.items():
                if locks.find(session) is None:
                    over.append(SessionLock(session, *lock[:3], now))
                    note_unlock(consumed, over[-1], Cause.FORCED_COMMIT, now)
        # Of the locks that a run of Redis has lost with its end, the record says nothing.
        was_set_back = bool(run) and run != self._records.run_of(consumed.partition)
        held_until = owned.claimed_at + MAX_LOCK_S if was_set_back else 0.0
        if was_set_back and (lock_s := self._ports.lock_s(consumed.group)):
            held_until = owned.claimed_at + lock_s
        shares = SessionShares(consumed, self._ports, locks, held_until)
        # Set back, their members may have them again under the same numbers.
        if over and not was_set_back:
            shares.end_stored(over)
        return shares

    def share_of(
        self, flow: Flow, partition: PartitionId, broker_epoch: int, epoch: int
    ) -> SessionShare:
        """Return the session that a token of a flow names.

        Raises:
            SessionLostError: the flow has none under it.
        """
        owned = self._owned.get(partition)
        consumed = owned.groups.get(flow.group) if owned is not None else None
        if consumed is not None and consumed.broker_epoch == BrokerEpoch(broker_epoch):
            shares = self.shares_of(consumed)
            share = shares.of_flow(flow, Epoch(epoch)) if shares is not None else None
            if share is not None:
                return share
        raise SessionLostError(
            f"partition {partition} of {flow.group}: the lock under the token ({broker_epoch}, "
            f"{epoch}) has ended; stop working on the messages of its session"
        )

    # ---- accept ---------------------------------------------------------------------------------

    async def accept(
        self,
        flow: Flow,
        session: str | None,
        *,
        wait_s: float,
        number: int,
        announce: Announce,
        on_begin: Callable[[], None] = lambda: None,
    ) -> SessionShare:
        """Lock a session for a flow: that one, or the next one that is free; wait until there is.

        Args:
            flow: of the member that is to have it.
            session: None: the one whose lowest open message is the oldest.
            wait_s: how long to wait, at most a minute.
            number: of the lock that the member had and continues; 0: it had none.
            announce: called with what the flow has, before messages of it are sent.
            on_begin: called when a lock begins to be written: then nobody may cancel the call.

        Raises:
            NoSessionError: none was free, or this one waits for older messages of other partitions.
            SessionLockedError: another member has this one.
            SessionLostError: the lock that is to be continued has ended.
            PartqError: it got none for another reason.
        """
        if not 0 <= wait_s <= MAX_WAIT_S:
            raise BadRequestError(
                f"accept: got a wait of {wait_s:g} s, expected 0 to {MAX_WAIT_S:g}: ask again then"
            )
        if not 0 <= number <= MAX_LOCK_NUMBER:
            raise BadRequestError(
                f"accept: got lock {number}, expected 0, or the number of a lock that was accepted"
            )
        if number and session is None:
            raise BadRequestError(
                f"accept: got lock {number} and no session, expected the session of the lock"
            )
        if self._waiting.total() >= MAX_WAITING or self._of_flows[flow] >= MAX_WAITING_OF_FLOW:
            raise OverloadedError(
                f"accept: {self._of_flows[flow]} accepts of this flow and {self._waiting.total()} "
                f"of this broker wait; at most {MAX_WAITING_OF_FLOW} and {MAX_WAITING} may: ask "
                "again later",
                retry_after_s=1.0,
            )
        self._waiting[flow.group] += 1
        self._of_flows[flow] += 1
        deadline = self._ports.clock() + wait_s
        try:
            if session is not None:
                return await self._accept_one(flow, session, number, deadline, announce, on_begin)
            return await self._accept_next(flow, deadline, announce, on_begin)
        finally:
            self._waiting[flow.group] -= 1
            self._of_flows[flow] -= 1
            if not self._of_flows[flow]:
                del self._of_flows[flow]

    async def _accept_one(
        self,
        flow: Flow,
        session: str,
        number: int,
        deadline: float,
        announce: Announce,
        on_begin: Callable[[], None],
    ) -> SessionShare:
        group, clock = flow.group, self._ports.clock
        read_until = clock() + READ_WAIT_S
        while True:
            if clock() < read_until and self.places.may_come(group, session, number):
                await self._wait(group, read_until)
                continue
            shares = self._shares_for(group, self.places.here(group, session, number))
            awaits = shares.awaits(session)
            if number and awaits and shares.may_await(self.places.all_of(session)):
                raise UnavailableError(
                    f"session {excerpt(session)}: whether lock {number} lasts is not known here, "
                    f"as the partition waits for {awaits}; ask the other brokers, or again",
                    retry_after_s=0.5,
                )
            if (number or not awaits) and shares.may_lock(session, flow, number):
                on_begin()
                return await shares.lock(session, flow, number, announce)
            if clock() >= deadline or flow.is_closed:
                if awaits:
                    raise _gated(group, session, awaits)
                raise locked(group, session, shares.locks.find(session))
            await self._wait(group, deadline)

    def _shares_for(self, group: str, partition: PartitionId) -> SessionShares:
        owned = self._owned.get(partition)
        if owned is None:
            owner = self._broker.claims.owner_url(partition)
            at = f"broker {owner[0]} at {owner[1]} has it" if owner else "no broker has it for now"
            raise NotOwnerError(f"partition {partition}: not at this broker, {at}; ask there")
        consumed = owned.find(group)
        shares = self.shares_of(consumed)
        if shares is None:
            if self._ports.lock_s(group):
                raise UnavailableError(
                    f"partition {partition} of {group}: not ready for sessions yet; ask again",
                    retry_after_s=0.5,
                )
            raise ConflictError(
                f"group {group}: got an accept of a session, expected it in a group of the type "
                "Session, which all brokers know: bind to it as a Consumer does, or look at "
                "`partq status`"
            )
        return shares

    async def _accept_next(
        self,
        flow: Flow,
        deadline: float,
        announce: Announce,
        on_begin: Callable[[], None],
    ) -> SessionShare:
        group, clock = flow.group, self._ports.clock
        turn = self._turns.setdefault(group, asyncio.Lock())
        read_until = clock() + READ_WAIT_S
        try:
            async with asyncio.timeout(max(deadline, read_until) - clock()):
                await turn.acquire()
        except TimeoutError:
            raise _none(group) from None
        try:
            chosen = await self._choose(flow, deadline, read_until)
            if chosen is None:
                raise _none(group)
            shares, session = chosen
            on_begin()
            locking = shares.lock(session, flow, 0, announce)
        finally:
            turn.release()
        return await locking

    async def _choose(
        self, flow: Flow, deadline: float, read_until: float
    ) -> tuple[SessionShares, str] | None:
        """Return a session that is free, as soon as there is one; None: none was."""
        group, clock = flow.group, self._ports.clock
        while not flow.is_closed:
            all_shares = self._all_shares(group)
            turn = self._chosen[group] % len(all_shares) if all_shares else 0
            for shares in (*all_shares[turn:], *all_shares[:turn]):
                but = partial(_locked_before, shares, all_shares)
                try:
                    async with asyncio.timeout(max(deadline, read_until) - clock()):
                        session = await shares.next_in_time(but)
                except TimeoutError:
                    return None
                if session is not None and shares.may_lock(session, flow, 0):
                    self._chosen[group] += 1
                    return shares, session
            is_read = all(shares.has_read.is_set() for shares in all_shares)
            until = deadline if is_read else max(deadline, read_until)
            if clock() >= until:
                break
            await self._wait(group, until)
        return None

    def _all_shares(self, group: str) -> list[SessionShares]:
        found = []
        for owned in list(self._owned.values()):
            consumed = owned.groups.get(group)
            if consumed is None:
                continue
            shares = self.shares_of(consumed)
            if shares is not None:
                found.append(shares)
        if not found and self._owned:
            for partition in list(self._owned)[:1]:
                self._shares_for(group, partition)  # says why it has no sessions
        return found

    async def _wait(self, group: str, until: float) -> None:
        left_s = until - self._ports.clock()
        signal = self._free.setdefault(group, Signal())
        await signal.wait_at_most(min(_LOOK_S, max(0.0, left_s)))

    def _freed(self, group: str) -> None:
        signal = self._free.get(group)
        if signal is not None:
            signal.pulse()

    # ---- what becomes of it ---------------------------------------------------------------------

    async def renew(self, share: SessionShare) -> int:
        """Have a lock last as long as a new one; return for how many ms.

        Raises:
            SessionLostError: it has ended.
            PartqError: it could not be written, and lasts as long as before.
        """
        shares = self.shares_of(share.root)
        if shares is None or share.flow is None or share.is_closing:
            raise lost(share)
        await shares.renew(share)
        return self.locked_ms(share.group)

    def close(self, share: SessionShare, begun: list[Range] | None, answer: Answer) -> None:
        """Give a session back; `answer` is called once its lock has ended, or with the error.

        `begun`: None: it is not known, as the client has lost its connection; all counts as begun.
        """
        shares = self.shares_of(share.root)
        if shares is None:
            answer(FencedError(f"partition {share.partition}: it moved; accept the session again"))
        elif begun is None:
            shares.end_by_force(share.lock_of, Cause.FLOW_LOST, answer)
        else:
            shares.close(share, begun, answer)

    def locked_ms(self, group: str) -> int:
        """Return for how long a lock of a group lasts without a renewal."""
        return round(self._ports.lock_s(group) * 1000)


def _locked_before(shares: SessionShares, all_shares: Iterable[SessionShares]) -> list[str]:
    """Return the sessions with locks in earlier partitions, which a change may have moved to it.

    Such a lock may last for a moment after all before it is done.
    """
    generation = shares.partition.generation
    earlier = (each for each in all_shares if each.partition.generation < generation)
    return [session for each in earlier for session in each.locked]


def _none(group: str) -> NoSessionError:
    return NoSessionError(
        f"group {group}: no session has messages and no lock, at this broker; ask again later"
    )


def _gated(group: str, session: str, awaits: str) -> NoSessionError:
    return NoSessionError(
        f"session {excerpt(session)} of {group}: it goes on in another partition, where nothing is "
        f"given out before the group has done with {awaits}; ask again later"
    )
