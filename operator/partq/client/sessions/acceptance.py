"""One call for a session, at every broker at once: the first that gives one is taken."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from partq.aio import Pulse
from partq.client.sessions.session_assignment import SessionAssignment
from partq.client.sessions.session_flow import SessionFlow
from partq.client.transport.retries import retry_backoff
from partq.core.key_states import check_key
from partq.errors import (
    FencedError,
    NoSessionError,
    PartqError,
    SessionLockedError,
    SessionLostError,
    UnavailableError,
)
from partq.excerpts import excerpt
from partq.wire.sessions.session_calls import MAX_ACCEPT_WAIT_MS

ANSWER_S = 10.0
"""How long the brokers' answers may take, beside the time to wait for a session."""


class Acceptance:
    """Asks all brokers for a session until one has one, or the time is over.

    A broker that does not have the partition, or cannot answer now, is asked again: also when the
    time to wait for a session is over, for `ANSWER_S` at most, until it has answered once.

    Args:
        flows: returns the flows of the moment.
        session: None: the next one that nobody has.
        timeout_s: how long to wait for one.
        lock: of the session that the member had and continues.
        is_held: says whether the consumer itself has the named session: nobody is asked then.
        may_take: says whether a session that was given is of use; else it is given back.
        check: raises what has stopped the consumer.
    """

    def __init__(
        self,
        flows: Callable[[], Iterable[SessionFlow]],
        changes: Pulse,
        *,
        session: str | None,
        timeout_s: float,
        lock: int = 0,
        is_held: Callable[[], bool] = lambda: False,
        may_take: Callable[[SessionAssignment], bool] = lambda _: True,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        if session is not None:
            check_key("accept", session)
        self._flows = flows
        self._changes = changes
        self._session = session
        self._lock = lock
        self._is_held = is_held
        self._may_take = may_take
        self._check = check
        self._time = asyncio.get_running_loop().time
        self._deadline = self._time() + timeout_s
        self._timeout_s = timeout_s
        self._asked: dict[asyncio.Future[SessionAssignment], SessionFlow] = {}
        self._answers: dict[str, PartqError] = {}
        """The last answer of each broker that judged the call: no session, or locked."""
        self._failures: dict[str, PartqError] = {}
        """The same of those that could not judge it."""
        self._due: dict[str, float] = {}
        """When a broker is asked again."""
        self._backoff = retry_backoff(0.25)

    async def run(self) -> SessionAssignment:
        """Return the session.

        Raises:
            NoSessionError, SessionLockedError, SessionLostError: so say the brokers.
            UnavailableError: no broker could judge the call.
            PartqError: a broker refuses it for good.
        """
        try:
            while True:
                self._check()
                changed = self._changes.next()
                self._ask()
                if not self._may_come() or self._time() >= self._deadline + ANSWER_S:
                    raise self._outcome()
                await self._wait(changed)
                if (found := self._pick()) is not None:
                    return found
        finally:
            self._withdraw()

    def _ask(self) -> None:
        """Ask each broker that is connected and due."""
        if self._is_held():
            return  # a broker takes who has the lock already for one that has missed its answer
        now = self._time()
        asked = {flow.url for flow in self._asked.values()}
        wait_ms = min(MAX_ACCEPT_WAIT_MS, max(0, round((self._deadline - now) * 1000)))
        for flow in self._flows():
            if flow.url in asked or not flow.connection.is_up or not self._is_due(flow, now):
                continue
            self._asked[flow.accept(self._session, wait_ms, self._lock)] = flow

    def _is_due(self, flow: SessionFlow, now: float) -> bool:
        if now >= self._deadline and self._is_judged(flow):
            return False
        return self._due.get(flow.url, 0.0) <= now

    def _is_judged(self, flow: SessionFlow) -> bool:
        """Whether a broker need not be asked again; of a named session, whether any broker."""
        return flow.url in self._answers or (self._session is not None and bool(self._answers))

    def _may_come(self) -> bool:
        """Whether an answer is still to come, or the time to wait is not over."""
        if self._asked or self._time() < self._deadline:
            return True
        if self._is_held():
            return False
        flows = list(self._flows())
        # One that has just failed is not waited for: another broker gets its partitions.
        return any(
            not self._is_judged(flow)
            and (not flow.connection.is_failing or (not self._answers and len(flows) == 1))
            for flow in flows
        )

    async def _wait(self, changed: asyncio.Future[None]) -> None:
        """Wait for an answer or a change, or until a broker may be asked again."""
        now = self._time()
        ends = [self._deadline if now < self._deadline else self._deadline + ANSWER_S]
        waiting = {flow.url for flow in self._flows()} - {f.url for f in self._asked.values()}
        ends += [due for url, due in self._due.items() if url in waiting and due > now]
        futures: list[asyncio.Future[Any]] = [changed, *self._asked]
        await asyncio.wait(
            futures,
            timeout=max(0.0, min(ends) - now),
            return_when=asyncio.FIRST_COMPLETED,
        )

    def _pick(self) -> SessionAssignment | None:
        """Take what has been answered; return the first session, and give others back.

        Raises:
            PartqError: a broker refuses the call for good, and no other one gave a session.
        """
        found: SessionAssignment | None = None
        refusal: BaseException | None = None
        for future in [each for each in self._asked if each.done()]:
            flow = self._asked.pop(future)
            error = future.exception()
            if error is None:
                if found is None and self._may_take(future.result()):
                    found = future.result()
                else:
                    flow.close_session(future.result())
            elif not isinstance(error, PartqError) or isinstance(error, SessionLostError):
                refusal = error
            elif isinstance(error, NoSessionError | SessionLockedError):
                self._answers[flow.url] = error
                self._failures.pop(flow.url, None)
                self._due[flow.url] = self._time() + 0.05
            elif error.is_retryable or isinstance(error, FencedError):
                # A broker that is fenced lost the partition before it could lock the session.
                self._failures[flow.url] = error
                wait_s = self._backoff.next_s(error.retry_after_s)
                self._due[flow.url] = self._time() + min(wait_s, 1.0)
            else:
                refusal = error
        if found is None and refusal is not None:
            raise refusal
        return found

    def _withdraw(self) -> None:
        """Cancel what was asked and is not needed; a session that has come is given back."""
        for future, flow in self._asked.items():
            if future.done():
                if not future.cancelled() and future.exception() is None:
                    flow.close_session(future.result())
            else:
                future.cancel()
        self._asked.clear()

    def _outcome(self) -> PartqError:
        what = "session" if self._session is None else f"session {excerpt(self._session)!r}"
        within = f"within {self._timeout_s:g} s"
        if self._is_held():
            return SessionLockedError(
                f"accept: got no {what} {within}: this consumer has it already; close it first, or "
                "share the one that it has"
            )
        for kind in (SessionLockedError, NoSessionError):
            for error in self._answers.values():
                if isinstance(error, kind):
                    hint = "; that is no failure: wait longer, or accept again"
                    if kind is SessionLockedError:  # the broker says what to do
                        hint = ""
                    return kind(f"accept: got no {what} {within}: {error.message}{hint}")
        failures = "; ".join(f"{url}: {error.message}" for url, error in self._failures.items())
        return UnavailableError(
            f"accept: got no {what} {within}: {failures or 'no broker is connected'}; accept again"
        )
