"""The locks of a partition's sessions in its record: they are written, renewed and ended there."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from partq.broker.partition.consumed_partition import ConsumedPartition, FlowPort
from partq.broker.partition.outbox import Answer
from partq.broker.sessions.session_share import ended
from partq.core.sessions.session_locks import SessionLock, SessionLocks
from partq.errors import (
    FencedError,
    PartqError,
    StoreUnavailableError,
    SupersededError,
    UnavailableError,
    UnknownGroupError,
)
from partq.excerpts import excerpt
from partq.store.records.log import Entry
from partq.store.session_locks import LockRecords

END_RETRY_S = 0.5
"""Between tries to have the end of a lock written."""


@dataclass(frozen=True, slots=True)
class SessionPorts:
    """What the sessions of every partition of a broker share."""

    records: LockRecords
    clock: Callable[[], float]
    lock_s: Callable[[str], float]
    """For how long a lock of a group lasts; 0: its members lock no sessions (any more)."""
    read: Callable[[ConsumedPartition, int], Awaitable[list[Entry]]]
    """Returns some batches from the one that holds an offset on; none: the end is reached."""
    must_wait: Callable[[ConsumedPartition, Entry], bool]
    """Ends what waits of a batch whose own time to live is over; returns whether nothing of it may
    be sent for now: its groups look again then."""
    spawn: Callable[[Coroutine[Any, Any, None], str], object]
    store: Callable[[ConsumedPartition], None]
    """Has the book stored soon."""
    left_at: Callable[[ConsumedPartition, str], int | None]
    """Returns where the log ended when a change of the partition count gave a session to another
    partition; None: none has."""
    on_free: Callable[[str], None]
    """Called with the group when a session may have become free."""
    on_lost: Callable[[ConsumedPartition, PartqError], None]


class LockWriter:
    """Writes the locks of one partition."""

    def __init__(
        self,
        whole: ConsumedPartition,
        ports: SessionPorts,
        locks: SessionLocks,
        is_complete: Callable[[], bool],
    ) -> None:
        """`is_complete`: whether `locks` lacks none that the store may have lost."""
        self._whole = whole
        self._ports = ports
        self._locks = locks
        self._is_complete = is_complete

    async def write(
        self, session: str, flow: FlowPort, number: int, known: SessionLock | None
    ) -> SessionLock:
        """Write the lock of a session for the process of a flow, from now on; return it.

        Args:
            session: its name.
            flow: of the member that has it then.
            number: of the lock that the process says it had; 0: none.
            known: the lock of the session, which is to last for longer; None: nobody has it.

        Raises:
            SessionLostError: `known` has ended meanwhile; nothing is written.
            PartqError: it is not written, or it is not known whether it is.
        """
        whole, ports = self._whole, self._ports
        lock_s = ports.lock_s(whole.group)

        async def write_once() -> int:
            # The end of a lock that was written faster stays: this one would stand above it.
            if known is not None and self._locks.find(session) is not known:
                raise ended(whole.group, session, known.number)
            try:
                return await ports.records.lock(
                    whole.partition,
                    whole.group,
                    write=whole.next_write(),
                    session=session,
                    member=flow.member,
                    incarnation=flow.incarnation,
                    lock_ms=round(lock_s * 1000),
                    number=known.number if known is not None else number,
                    is_complete=self._is_complete(),
                )
            except (FencedError, UnknownGroupError) as error:
                ports.on_lost(whole, error)
                raise

        drawn = await self._repeat_superseded(write_once)
        # Counted from the answer on: no shorter than what the client counts, and the record.
        until = ports.clock() + lock_s
        return SessionLock(session, flow.member, flow.incarnation, drawn, until)

    async def _repeat_superseded(self, write: Callable[[], Awaitable[int]]) -> int:
        while True:
            try:
                return await write()
            except SupersededError:
                continue  # another lock was written faster: nothing was written

    async def end_all(self, locks: Iterable[SessionLock]) -> None:
        """Remove locks from the record, one after another."""
        for lock in locks:
            await self.end(lock, [])

    async def end(self, lock: SessionLock, to_tell: list[Answer]) -> None:
        """Remove a lock from the record, and answer `to_tell` after that."""
        whole = self._whole
        error: PartqError | None = None
        await whole.settle_audit()  # what comes back after a crash finds no end that was not told
        while not whole.is_dropped:
            try:
                await self._ports.records.unlock(
                    whole.partition,
                    whole.group,
                    write=whole.next_write(),
                    session=lock.session,
                    number=lock.number,
                )
            except SupersededError:
                continue
            except StoreUnavailableError:
                # Left as it is, it would end by itself; but the client waits for the answer.
                await asyncio.sleep(END_RETRY_S)
                if self._locks.find(lock.session) is not None:
                    break  # locked again since: that write stands in the place of this one
                continue
            except PartqError as refusal:
                error = refusal
            break
        else:
            error = UnavailableError(
                f"partition {whole.partition}: it is not served here any more; the lock of session "
                f"{excerpt(lock.session)} lasts until its time is over, or accept it to go on"
            )
        for answer in to_tell:
            answer(error)
