"""Opens owned partitions that a change of the partition count has made, once they may be."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from partq.aio import Signal, UntilAnswered
from partq.broker.partition.owned_partition import OwnedPartition
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale.seals import seals_to_open
from partq.errors import ConflictError, PartqError, StoreUnavailableError
from partq.store.records.layout.seals import Seals
from partq.store.retries import WRITE_RETRY_S

POLL_S = 0.02
"""Between two reads of the seals that partitions wait for."""

_log = logging.getLogger(__name__)


class PartitionOpener:
    """Lets a partition take messages when its slots have left all of its predecessors.

    `on_open` is called with each partition that is open now, `on_pause` with the seconds for which
    publishes have waited for it here.
    """

    def __init__(
        self,
        seals: Seals,
        *,
        owned: Mapping[PartitionId, OwnedPartition],
        layout: Callable[[], Layout | None],
        on_open: Callable[[OwnedPartition], None],
        on_lost: Callable[[OwnedPartition, PartqError], None],
        on_pause: Callable[[float], None],
        clock: Callable[[], float],
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
    ) -> None:
        self._seals = seals
        self._owned = owned
        self._layout = layout
        self._on_open = on_open
        self._on_lost = on_lost
        self._on_pause = on_pause
        self._clock = clock
        self._since: dict[OwnedPartition, float] = {}
        """When it was seen that a partition is to be opened."""
        self._spawn = spawn
        self._wake = asyncio.Event()
        self._opening: set[OwnedPartition] = set()
        """Whose record is being written."""
        self.opened = Signal()
        """Wakes those that wait until a partition is open."""

    def follow(self, owned: OwnedPartition) -> None:
        """Open a partition as soon as it may be, if it is not."""
        if self._is_waiting(owned):
            self._since.setdefault(owned, self._clock())
            self._wake.set()

    async def run(self) -> None:
        """Read the seals that are missing until cancelled; nothing while no partition waits."""
        until_answered = UntilAnswered(_log, POLL_S)
        while True:
            await self._wake.wait()
            waiting = [each for each in self._owned.values() if self._is_waiting(each)]
            if not waiting:
                self._wake.clear()
                owned = self._owned
                self._since = {p: at for p, at in self._since.items() if owned.get(p.id) is p}
                continue
            try:
                await self._look(waiting)
                until_answered.answered()
            except StoreUnavailableError as error:
                await until_answered.failed("seals of predecessors could not be read: %s", error)
                continue
            await asyncio.sleep(POLL_S)

    def _is_waiting(self, owned: OwnedPartition) -> bool:
        layout = self._layout()
        return (
            layout is not None
            and not owned.layout.is_open
            and owned not in self._opening
            and owned.id in layout
            and not layout.is_prepared(owned.id)
        )

    async def _look(self, waiting: list[OwnedPartition]) -> None:
        """Open what may be opened.

        Raises:
            StoreUnavailableError: no answer; nothing was opened.
        """
        layout = self._layout()
        if layout is None:
            return
        wanted = {each: layout.predecessors(each.id) for each in waiting}
        found = await self._seals.read_seals(
            (giver, each.id.generation) for each, givers in wanted.items() for giver in givers
        )
        for owned, givers in wanted.items():
            generation = owned.id.generation
            names = {giver: (giver, generation) for giver in givers}
            sealed_at = {
                giver: found[name].sealed_at for giver, name in names.items() if name in found
            }
            seals = seals_to_open(givers, sealed_at)
            if seals is not None:
                self._opening.add(owned)
                self._spawn(self._open(owned, seals), f"open {owned.id}")

    async def _open(self, owned: OwnedPartition, seals: Mapping[PartitionId, int]) -> None:
        until_answered = UntilAnswered(_log, WRITE_RETRY_S)
        try:
            while self._owned.get(owned.id) is owned and not owned.layout.is_open:
                try:
                    await self._seals.open_partition(
                        owned.id, broker_epoch=owned.broker_epoch, seals=seals
                    )
                except StoreUnavailableError as error:
                    await until_answered.failed("opening of %s: %s; again", owned.id, error)
                except ConflictError as error:
                    self._on_lost(owned, error)
                else:
                    owned.layout = replace(owned.layout, is_open=True)
        finally:
            self._opening.discard(owned)
            since = self._since.pop(owned, None)
            self.opened.pulse()
        if self._owned.get(owned.id) is owned:
            _log.info("partition %s takes messages: its predecessors are sealed", owned.id)
            if since is not None:
                owned.opened_after_s = self._clock() - since
                self._on_pause(owned.opened_after_s)
            owned.due_news.set()
            self._on_open(owned)
