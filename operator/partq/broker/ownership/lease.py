"""This broker's lease: proof that it lives, and its own limit for delivering."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from partq.aio import Signal
from partq.core.model import BrokerId
from partq.errors import FencedError, StoreUnavailableError
from partq.store.records.leases import Leases

MIN_RENEWAL_GAP_S = 0.02
"""Pings start renewals; this bounds how many."""
STUCK_LENGTHS = 3
"""A lease that was not renewed for this many of its lengths: whatever it is, no connection to Redis
is trusted any more."""
HELPLESS_LENGTHS = 10
"""After so many a process cannot help itself, where Redis answers others."""

_log = logging.getLogger(__name__)


class LeaseKeeper:
    """Renew the lease every third of its length, and whenever somebody waits for a renewal.

    The lease counts from before its renewal was sent. A broker whose lease is over delivers
    nothing: somebody else may own its partitions. `on_lapsed` is awaited before it counts again,
    `on_valid` called as soon as it does. `on_stuck` is called whenever it was not renewed for three
    more of its lengths.
    """

    def __init__(
        self,
        leases: Leases,
        *,
        broker: BrokerId,
        incarnation: str,
        ttl_s: float,
        url: str,
        clock: Callable[[], float],
        on_lapsed: Callable[[], Awaitable[None]],
        on_valid: Callable[[], None],
        on_stuck: Callable[[], None],
    ) -> None:
        self._leases = leases
        self._broker = broker
        self._incarnation = incarnation
        self._ttl_s = ttl_s
        self._url = url
        self._clock = clock
        self._on_lapsed = on_lapsed
        self._on_valid = on_valid
        self._on_stuck = on_stuck
        self._turned_at = self._tried_since = self._renewed_at = clock()
        self._is_forbidden = False
        self._valid_until = float("-inf")
        self._wanted = Signal()
        self._waiting: list[Callable[[], None]] = []
        self._under_way: list[Callable[[], None]] = []
        """Callbacks of the renewal under way."""

    @property
    def is_valid(self) -> bool:
        """Whether this broker may deliver at this moment."""
        return self._clock() < self._valid_until

    @property
    def trouble(self) -> str:
        """What only another process can end; empty: nothing is wrong, or a restart is no help.

        A Redis that is away, or refuses every process, is no such trouble.
        """
        too_long_ago = self._clock() - HELPLESS_LENGTHS * self._ttl_s
        if self._turned_at < too_long_ago:
            return "the renewal of the lease stands still"
        if self._is_forbidden and self._renewed_at < too_long_ago:
            return "Redis refuses the user or the password that this process was started with"
        return ""

    def after_renewal(self, callback: Callable[[], None]) -> None:
        """Call `callback` once a renewal that begins after this call has succeeded."""
        self._waiting.append(callback)
        self._wanted.set()

    def forget(self, callback: Callable[[], None]) -> None:
        """Call `callback` no more, however often it waits for a renewal."""
        for waiting in (self._waiting, self._under_way):
            waiting[:] = [each for each in waiting if each != callback]

    async def renewed(self, within_s: float) -> None:
        """Wait for a renewal that begins after this call.

        Raises:
            StoreUnavailableError: it was not renewed within this many seconds.
        """
        done = Signal()
        self.after_renewal(done.set)
        try:
            if await done.wait_at_most(within_s):
                return
        finally:
            if not done.is_set():
                self.forget(done.set)
        raise StoreUnavailableError(
            f"the lease of {self._broker} was not renewed within {within_s:g} s, so Redis does not "
            "answer; repeat the call",
            retry_after_s=1.0,
        )

    async def run(self) -> None:
        """Renew until cancelled.

        Raises:
            FencedError: another process runs under this broker's name; this one must end.
        """
        is_failing = False
        while True:
            began = self._turned_at = self._clock()
            self._wanted.clear()
            self._under_way, self._waiting = self._waiting, []
            try:
                async with asyncio.timeout(self._ttl_s):
                    await self._leases.renew(
                        self._broker, self._incarnation, self._ttl_s, self._url
                    )
                    if not self.is_valid:
                        # Looked at now, not as the renewal was sent: it may have arrived so late
                        # that others have thought the lease over meanwhile.
                        await self._on_lapsed()
            except FencedError:
                raise
            except (StoreUnavailableError, TimeoutError) as error:
                self._waiting = self._under_way + self._waiting
                self._under_way = []
                if not is_failing:
                    _log.warning(
                        "lease of %s is not renewed: %s", self._broker, str(error) or "time-out"
                    )
                is_failing = True
                self._is_forbidden = getattr(error, "is_forbidden", False)
                self._give_up_connections()
            else:
                if is_failing:
                    _log.info("lease of %s is renewed again", self._broker)
                is_failing = self._is_forbidden = False
                self._renewed_at = self._tried_since = self._clock()
                was_over = not self.is_valid
                self._valid_until = began + self._ttl_s
                waiting, self._under_way = self._under_way, []
                for callback in waiting:
                    callback()
                if was_over:
                    self._on_valid()
            await self._rest(began, is_failing=is_failing)

    def _give_up_connections(self) -> None:
        """Have connections opened again that were of no use for too long."""
        now = self._clock()
        if now - self._tried_since < STUCK_LENGTHS * self._ttl_s:
            return
        self._tried_since = now
        _log.warning(
            "lease of %s was not renewed for %.0f s: all connections to Redis are opened again",
            *(self._broker, now - self._renewed_at),
        )
        self._on_stuck()

    async def _rest(self, began: float, *, is_failing: bool) -> None:
        left = began + self._ttl_s / 3 - self._clock()
        if left > 0 and not is_failing:
            await self._wanted.wait_at_most(left)
        gap = MIN_RENEWAL_GAP_S if not is_failing else min(0.2, self._ttl_s / 10)
        if (too_early := began + gap - self._clock()) > 0:
            await asyncio.sleep(too_early)
