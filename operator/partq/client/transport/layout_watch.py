"""Keeping the layout fresh: every five seconds, and sooner when something has moved."""

import asyncio
import logging
from collections.abc import Callable

from partq.aio import Signal, cancel_and_wait
from partq.client.transport import tasks
from partq.client.transport.layout import QueueLayout
from partq.client.transport.session import Session
from partq.errors import PartqError, UnavailableError

log = logging.getLogger("partq.client")

REFRESH_S = 5.0
HURRY_S = 0.1
"""The least time after a refresh that was asked for, however many ask again."""
OLDER_S = 10.0
"""How long brokers may be behind a change. If they say an older layout for longer than that, the
store has forgotten the change, and the older one is followed."""


class LayoutWatch:
    """Fetches the layout from any broker and hands each new one to its owner."""

    def __init__(
        self,
        session: Session,
        queue_layout: QueueLayout,
        on_layout: Callable[[QueueLayout], None],
        on_error: Callable[[PartqError], None],
    ) -> None:
        self.queue_layout = queue_layout
        self._session = session
        self._on_layout = on_layout
        self._on_error = on_error
        self._hurry = Signal()
        self._first: tuple[str, ...] = ()
        self._older_since: float | None = None
        """Since when all answers are of an older layout than the one that is known."""
        self._task = tasks.start(self._run(), "refreshing the layout", on_error)

    def hurry(self, url: str | None = None) -> None:
        """Ask for a refresh soon; repeats are joined. `url`: of a broker that knows more."""
        if url is not None:
            self._first = (url,)
        self._hurry.set()

    async def close(self) -> None:
        """Stop fetching."""
        await cancel_and_wait(self._task)

    async def _run(self) -> None:
        is_asked = False
        while True:
            if is_asked:
                await asyncio.sleep(HURRY_S)
            # Nobody waits after a refresh that came by itself: the next change may be now.
            is_asked = await self._hurry.wait_at_most(REFRESH_S)
            self._hurry.clear()
            # The brokers of the last layout first: a seed may be gone for good.
            known = self.queue_layout.urls.values()
            urls = tuple(dict.fromkeys((*self._first, *known, *self._session.seeds)))
            self._first = ()
            try:
                found = await self._session.layout(urls)
            except UnavailableError as error:
                log.info("the layout could not be read: %s", error)  # the connections warn
            except PartqError as error:
                self._on_error(error)
                return
            else:
                if self._is_older(found):
                    self._first = urls[1:]  # another broker may be further
                    self._hurry.set()
                    continue
                self.queue_layout = found
                self._on_layout(found)

    def _is_older(self, found: QueueLayout) -> bool:
        """Whether a layout is of a broker that has not read the last change yet."""
        known = self.queue_layout
        if found.uid != known.uid or found.layout.generation >= known.layout.generation:
            self._older_since = None
            return False
        now = asyncio.get_running_loop().time()
        if self._older_since is None:
            self._older_since = now
        if now - self._older_since < OLDER_S:
            return True
        log.warning(
            "the store has forgotten change %d of the partition count: the layout of change %d is "
            "followed, as all brokers have said it for %g s",
            *(known.layout.generation, found.layout.generation, OLDER_S),
        )
        self._older_since = None
        return False
