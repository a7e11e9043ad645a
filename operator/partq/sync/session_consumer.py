"""A consumer of sessions whose calls block, for threads and code that is not asynchronous."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from partq.client.consume.deliveries import UNCHANGED, Delivery, Unchanged
from partq.client.consumer_stats import ConsumerStats
from partq.client.sessions.locked_session import LockedSession
from partq.client.sessions.session_consumer import SessionConsumer
from partq.core.model import Cause, PartitionId
from partq.sync.client import SyncClient
from partq.sync.process_loop import LoopPortal


class SyncLockedSession:
    """A `partq.LockedSession` for code that is not asynchronous; any thread may call it."""

    def __init__(self, inner: LockedSession, portal: LoopPortal) -> None:
        self._inner = inner
        self._portal = portal

    @property
    def session_id(self) -> str:
        """The key of its messages; of a message without a key a name such as `@1.3:4711`."""
        return self._inner.session_id

    @property
    def partition(self) -> PartitionId:
        """The partition that its messages are stored in."""
        return self._inner.partition

    @property
    def lock(self) -> int:
        """The number of its lock: a later lock of the session has a higher one."""
        return self._inner.lock

    @property
    def locked_s(self) -> float:
        """How long the lock lasts from now on without another renewal, in seconds."""
        return self._inner.locked_s

    @property
    def is_lost(self) -> bool:
        """Whether the lock has ended before the session was closed."""
        return self._inner.is_lost

    @property
    def lost_cause(self) -> Cause | None:
        """Why the lock has ended before the session was closed; None: it has not."""
        return self._inner.lost_cause

    @property
    def is_closed(self) -> bool:
        """Whether the session was closed, or lost."""
        return self._inner.is_closed

    def __repr__(self) -> str:
        return repr(self._inner)

    def __enter__(self) -> Self:
        """Return the session, which is locked already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the session; raises as `close`, unless an exception leaves the block."""
        if not self._portal.is_forked:
            self._portal.run(lambda: self._inner.__aexit__(kind, error, traceback))

    def __iter__(self) -> Self:
        """Iterate over its messages until none comes for `idle_s`."""
        return self

    def __next__(self) -> Delivery:
        """Wait for the next message; raises as iterating over a `partq.LockedSession`."""
        message = self.receive()
        if message is None:
            raise StopIteration
        return message

    def receive(self, *, timeout_s: float | None = None) -> Delivery | None:
        """Return the next message, as `partq.LockedSession.receive`."""

        def unread(message: Delivery | None) -> None:
            if message is not None:
                self._inner.put_back(message)

        made = self._portal.handout(lambda: self._inner.receive(timeout_s=timeout_s), unread)
        try:
            return made.result()
        except BaseException:
            made.interrupt()
            raise

    def state(self, message: Delivery | None = None) -> bytes | None:
        """Return the state of the session, as `partq.LockedSession.state`."""
        return self._portal.run(lambda: self._inner.state(message))

    def ack(
        self,
        done: Delivery,
        *,
        confirmed: bool = False,
        state: bytes | Unchanged | None = UNCHANGED,
    ) -> None:
        """Acknowledge a message, as `partq.LockedSession.ack`."""
        self._portal.run(lambda: self._inner.ack(done, confirmed=confirmed, state=state))

    def nack(self, failed: Delivery, *, delay_s: float | None = None, reason: str = "") -> None:
        """Give a message back, as `partq.Consumer.nack`."""
        self._portal.run(lambda: self._inner.nack(failed, delay_s=delay_s, reason=reason))

    def dead_letter(self, failed: Delivery, *, reason: str = "", description: str = "") -> None:
        """Make a dead letter of a message, as `partq.Consumer.dead_letter`."""
        self._portal.run(
            lambda: self._inner.dead_letter(failed, reason=reason, description=description)
        )

    def in_progress(self, begun: Delivery) -> None:
        """Have the ack timeout of a message start again, as `partq.Consumer.in_progress`."""
        self._portal.run(lambda: self._inner.in_progress(begun))

    def flush(self) -> None:
        """Wait until every ack is stored; raises as `partq.Consumer.flush`."""
        self._portal.run(self._inner.flush)

    def renew(self) -> None:
        """Have the lock last as long as a new one; the library does so by itself."""
        self._portal.run(self._inner.renew)

    def close(self) -> None:
        """Unlock the session, as `partq.LockedSession.close`."""
        self._portal.run(self._inner.close)


class SyncSessionConsumer(SyncClient[SessionConsumer]):
    """A `partq.SessionConsumer` for code that is not asynchronous; any thread may call it.

    ```python
    from partq.sync import SessionConsumer

    with SessionConsumer("http://127.0.0.1:7411", queue="orders", group="clerks",
                         token=token) as clerks:
        for session in clerks:
            with session:
                for message in session:
                    handle(message.key, message.value)
                    session.ack(message)
    ```

    `on_lost` and `on_error` run in the thread of the event loop: they must not block.
    `handle_signals` has no effect: Ctrl-C raises KeyboardInterrupt out of the call that waits.

    Args:
        url: as of `partq.SessionConsumer`.
        options: the other arguments of `partq.SessionConsumer`, by the same names.

    Raises:
        SettingsError: an argument is of a wrong type or out of range; names it.
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(SessionConsumer(url, **options), "the consumer")

    @property
    def queue(self) -> str:
        """The queue that it consumes."""
        return self._inner.queue

    @property
    def group(self) -> str:
        """The consumer group that it is a member of."""
        return self._inner.group

    @property
    def member(self) -> str:
        """The name in the group."""
        return self._inner.member

    def leave(self) -> None:
        """Accept no further session; iterating ends. A signal handler may call it."""
        self._portal.call_soon(self._inner.leave)

    def accept(
        self, session: str | None = None, *, timeout_s: float = 60.0, idle_s: float | None = None
    ) -> SyncLockedSession:
        """Lock a session, and return it, as `partq.SessionConsumer.accept`."""

        async def accepted() -> list[LockedSession]:
            return [await self._inner.accept(session, timeout_s=timeout_s, idle_s=idle_s)]

        return self._accepted(accepted)[0]

    def __iter__(self) -> Self:
        """Iterate over sessions: accept one after another, until the consumer leaves."""
        return self

    def __next__(self) -> SyncLockedSession:
        """Wait for the next session; use it in `with`, which closes it."""

        async def accepted() -> list[LockedSession]:
            found = await anext(self._inner, None)
            return [] if found is None else [found]

        sessions = self._accepted(accepted)
        if not sessions:
            raise StopIteration
        return sessions[0]

    def _accepted(
        self, call: Callable[[], Awaitable[list[LockedSession]]]
    ) -> list[SyncLockedSession]:
        """Return what a call accepts; one that is interrupted gives it back."""

        def unread(sessions: list[LockedSession]) -> None:
            for session in sessions:
                self._inner.give_back(session)

        made = self._portal.handout(call, unread)
        try:
            return [SyncLockedSession(each, self._portal) for each in made.result()]
        except BaseException:
            made.interrupt()
            raise

    @property
    def sessions(self) -> list[SyncLockedSession]:
        """The sessions that it has now."""
        held = self._portal.make(lambda: self._inner.sessions)
        return [SyncLockedSession(each, self._portal) for each in held]

    def stats(self) -> ConsumerStats:
        """Return what `partq.SessionConsumer.stats` says."""
        return self._inner.stats()
