"""Calls of one flow about its sessions, over its WebSocket."""

import asyncio
from collections.abc import Callable

from partq.aio import TaskSet
from partq.broker.delivery.flow import Flow
from partq.broker.sessions.session_acceptor import SessionAcceptor
from partq.broker.sessions.session_share import SessionShare
from partq.core.model import PartitionId
from partq.errors import BadRequestError, NoSessionError, PartqError
from partq.wire import frames

MAX_BEGUN_RANGES = 10_000
"""The most ranges that a close names."""

_Asked = frames.AcceptSession | frames.RenewSession | frames.CloseSession


class SessionCalls:
    """Accepts, renewals and closes that a flow has asked for and that have no answer."""

    def __init__(
        self, acceptor: SessionAcceptor, flow: Flow, on_answered: Callable[[], None]
    ) -> None:
        self._acceptor = acceptor
        self._flow = flow
        self._on_answered = on_answered
        self._tasks = TaskSet()
        self._accepts: dict[int, asyncio.Task[None]] = {}
        self._begun: set[int] = set()
        """Those of which a lock is being written, which nobody may cancel any more."""
        self.open_count = 0
        """Calls without an answer."""

    def handle(
        self,
        frame: frames.AcceptSession
        | frames.RenewSession
        | frames.CloseSession
        | frames.CancelAccept,
    ) -> None:
        """Begin what a frame asks for; the answer follows.

        Raises:
            BadRequestError: no client may ask for that.
        """
        match frame:
            case frames.AcceptSession(request):
                if request in self._accepts:
                    raise BadRequestError(
                        f"accept: request {request} has no answer yet; use another"
                    )
                self.open_count += 1
                accept = asyncio.ensure_future(self._accept(frame))
                self._accepts[request] = accept
                accept.add_done_callback(lambda done: self._accept_ended(frame, done))
            case frames.CancelAccept(request):
                if request in self._accepts and request not in self._begun:
                    self._accepts[request].cancel()
            case frames.RenewSession():
                self.open_count += 1
                self._tasks.start(self._renew(frame))
            case frames.CloseSession():
                self.open_count += 1
                self._close(frame)

    async def _accept(self, frame: frames.AcceptSession) -> None:
        time = asyncio.get_running_loop().time
        asked_at = begun_at = time()

        def begin() -> None:
            nonlocal begun_at
            begun_at = time()
            self._begun.add(frame.request)

        def announce(share: SessionShare) -> None:
            # Clients count from when they have asked, and that may have waited for long.
            waited_ms = int((begun_at - asked_at) * 1000)
            self._flow.send(
                frames.SessionAccepted(
                    frame.request,
                    share.lock_of.session,
                    share.lock_of.number,
                    *share.partition,
                    share.broker_epoch,
                    share.epoch,
                    self._acceptor.locked_ms(share.group) + waited_ms,
                )
            )

        try:
            await self._acceptor.accept(
                self._flow,
                frame.session,
                wait_s=frame.wait_ms / 1000,
                number=frame.lock,
                announce=announce,
                on_begin=begin,
            )
        except PartqError as error:
            self._refuse(frame, error)

    def _accept_ended(self, frame: frames.AcceptSession, accept: asyncio.Task[None]) -> None:
        # Also one that was cancelled before its first step.
        if accept.cancelled():
            self._refuse(
                frame, NoSessionError("accept: it was cancelled; nothing was locked by it")
            )
        self._accepts.pop(frame.request, None)
        self._begun.discard(frame.request)
        self._answered()

    async def _renew(self, frame: frames.RenewSession) -> None:
        try:
            locked_ms = await self._acceptor.renew(self._share_of(frame))
        except PartqError as error:
            self._refuse(frame, error)
        else:
            self._flow.send(frames.SessionRenewed(frame.request, locked_ms))
        finally:
            self._answered()

    def _close(self, frame: frames.CloseSession) -> None:
        def answer(error: PartqError | None) -> None:
            if error is None:
                self._flow.send(frames.SessionClosed(frame.request))
            else:
                self._refuse(frame, error)
            self._answered()

        try:
            if len(frame.begun) > MAX_BEGUN_RANGES:
                raise BadRequestError(
                    f"close: got {len(frame.begun)} ranges, expected at most {MAX_BEGUN_RANGES}"
                )
            share = self._share_of(frame)
        except PartqError as error:
            answer(error)
        else:
            self._acceptor.close(share, frame.begun, answer)

    def _share_of(self, frame: frames.RenewSession | frames.CloseSession) -> SessionShare:
        return self._acceptor.share_of(
            self._flow,
            PartitionId(frame.generation, frame.partition),
            frame.broker_epoch,
            frame.epoch,
        )

    def _refuse(self, frame: _Asked, error: PartqError) -> None:
        retry_after_ms = int((error.retry_after_s or 0) * 1000)
        self._flow.send(
            frames.SessionRefused(frame.request, error.code, error.message, retry_after_ms)
        )

    def _answered(self) -> None:
        self.open_count -= 1
        self._on_answered()

    async def end(self) -> None:
        """Ask for nothing more: the flow has ended. A lock that is being written ends by itself."""
        for request, accept in list(self._accepts.items()):
            if request not in self._begun:
                accept.cancel()
        await self._tasks.close()
