"""The clocks of Redis by which messages age: one for each server, as its scripts stamp them."""

import logging
from collections.abc import Callable, Iterable

from partq.broker.partition.owned_partition import StoredLately
from partq.core.clocks.clock_watch import MAX_JUMP_S, SUSPENDED_S, ClockWatch
from partq.core.model import PartitionId
from partq.errors import StoreUnavailableError
from partq.metrics import BrokerMetrics
from partq.store.connection import Store
from partq.store.records.log import Log

MAX_TRIP_S = MAX_JUMP_S / 4
"""How old the time in an answer may be: two looks differ by no more than that, with no jump."""

SHARE = 100
"""Ages are looked at so many times within the time that messages live, or stay."""
LONGEST_GAP_S = 60.0

_log = logging.getLogger(__name__)


class StoreClocks:
    """State of the clock of each Redis server that holds keys.

    A partition is judged by the clock of its server, which has stamped its messages. When
    another server takes it over, a clock that differs counts as a jump; small differences add up.
    """

    def __init__(
        self,
        store: Store,
        log: Log,
        *,
        owned: Callable[[], Iterable[PartitionId]],
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        metrics: BrokerMetrics,
    ) -> None:
        self._store = store
        self._log = log
        self._owned = owned
        self._clock = clock
        self._wall_clock = wall_clock
        self._metrics = metrics
        self._watches: dict[str, ClockWatch] = {}
        """By server."""
        self._servers: dict[PartitionId, str] = {}
        """By whose clock each partition was judged last; at most all that the queue has."""

    @property
    def is_known(self) -> bool:
        """Whether anything was observed so far."""
        return bool(self._watches)

    @property
    def is_suspended(self) -> bool:
        """Whether nothing expires at one of the servers, at least."""
        now = self._clock()
        return any(watch.is_suspended(now) for watch in self._watches.values())

    def confirm(self) -> None:
        """Trust all clocks as they are, after a jump."""
        for watch in self._watches.values():
            watch.confirm()

    def find(self, partition: PartitionId) -> ClockWatch | None:
        """Return what is known of a partition's clock; None: nothing, observe it first."""
        server = self._log.server_of(partition)
        if server is None or self._servers.get(partition, server) != server:
            return None
        return self._watches.get(server)

    def estimate_ms(self, partition: PartitionId) -> float:
        """Return the time of a partition's clock, or that of this machine if nothing is known."""
        watch = self.find(partition)
        now_ms = watch.estimate_ms(self._clock()) if watch is not None else None
        return now_ms if now_ms is not None else self._wall_clock() * 1000

    async def read_ms(self, partition: PartitionId) -> float:
        """Return the time of a partition's clock; look at it first if nothing is known of it.

        Raises:
            StoreUnavailableError: no server answers.
        """
        if self.find(partition) is None:
            await self.observe()
        return self.estimate_ms(partition)

    def judged_ms(self, partition: PartitionId) -> float | None:
        """Return the time by which messages of a partition age; None: none, for now.

        Its clock is unknown, or it has jumped and was not confirmed.
        """
        now, watch = self._clock(), self.find(partition)
        return None if watch is None or watch.is_suspended(now) else watch.estimate_ms(now)

    async def find_stored(
        self, partition: PartitionId, within_s: float, looked_at: float
    ) -> StoredLately | None:
        """Return where the messages begin that were stored within a time.

        None: as `judged_ms`, or it is too early to look again. `looked_at`: when it was found last.

        Raises:
            StoreUnavailableError: no answer.
        """
        now, now_ms = self._clock(), self.judged_ms(partition)
        if now_ms is None or now < looked_at + min(within_s / SHARE, LONGEST_GAP_S):
            return None
        # The time was judged before: a jump from here on changes nothing.
        oldest_ms = max(0, int(now_ms - within_s * 1000))
        return StoredLately(await self._log.find_time(partition, oldest_ms + 1), within_s, now)

    async def observe(self) -> None:
        """Look at each clock once; of a cluster, a node that is silent is left out.

        Raises:
            StoreUnavailableError: no server answers, or so late that the time is too old; then
                nothing is noted.
        """
        began = self._clock()
        times = await self._store.read_clocks()
        now, wall_s = self._clock(), self._wall_clock()
        if now - began > MAX_TRIP_S:
            # This process stood still between the answer and its reading: that is not a jump.
            raise StoreUnavailableError(
                f"store: the time of Redis was {now - began:.0f} s on its way; at most "
                f"{MAX_TRIP_S:.0f} s count; it is asked for again",
                is_outcome_known=True,
            )
        for server, at_ms in times.items():
            # The time is the older one by the way of the answer: nothing expires too early for it.
            is_first = server not in self._watches
            watch = self._watches.setdefault(server, ClockWatch())
            if jump_s := watch.observe(at_ms, now, wall_s=wall_s):
                what = "differs from that of this machine by" if is_first else "has jumped by"
                _warn(server, what, jump_s)
        self._follow(now)
        living = {*times, *self._servers.values()}
        self._watches = {name: watch for name, watch in self._watches.items() if name in living}
        self._metrics.observe_expiry(is_suspended=self.is_suspended)

    def _follow(self, now: float) -> None:
        """Compare the clock of each partition that has another server with its last one."""
        jumps: dict[str, float] = {}
        for partition in self._owned():
            server = self._log.server_of(partition)
            if server is None or (watch := self._watches.get(server)) is None:
                continue
            before = self._servers.get(partition, server)
            self._servers[partition] = server
            if before != server and (jump_s := watch.follow(self._watches[before], now)):
                jumps[server] = jump_s
        for server, jump_s in jumps.items():
            _warn(server, "differs from the clock of the previous server by", jump_s)


def _warn(server: str, what: str, jump_s: float) -> None:
    _log.warning(
        "the clock of Redis at %s %s %.0f s: no message of its partitions expires for %.0f s, "
        "unless it is confirmed",
        *(server, what, jump_s, SUSPENDED_S),
    )
