"""Has the partitions of a broker follow the queue's layout, as soon as it is known."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from partq.broker.ownership.owned_partitions import OwnedPartitions
from partq.broker.partition.owned_partition import OwnedPartition
from partq.broker.rescale.gatekeeper import Gatekeeper
from partq.broker.rescale.partition_opener import PartitionOpener
from partq.broker.rescale.slot_sealer import SlotSealer
from partq.broker.rescale.state_mover import StateMover
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale.gates import GroupProgress
from partq.store.key_states import KeyStates
from partq.store.records.layout.seals import Seals

OPENING_WAIT_S = 1.0
"""How long a call waits for a partition that takes no messages yet, in seconds."""


class LayoutFollower:
    """Seals and opens owned partitions, and forgets those that the layout has no more.

    Its gatekeeper opens them for groups. `layout`: as the broker has read it last; None: not yet.
    `on_pause`: hears for how many seconds publishes have waited for a partition that is opened.
    """

    def __init__(
        self,
        seals: Seals,
        key_states: KeyStates,
        ownership: OwnedPartitions,
        *,
        layout: Callable[[], Layout | None],
        clock: Callable[[], float],
        on_pause: Callable[[float], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
    ) -> None:
        self._seals = seals
        self._ownership = ownership
        self._layout = layout
        self._sealer = SlotSealer(seals, layout=layout, on_lost=ownership.lose)
        self.opener = PartitionOpener(
            seals,
            owned=ownership.owned,
            layout=layout,
            on_open=self._sealer.follow,
            on_lost=ownership.lose,
            on_pause=on_pause,
            clock=clock,
            spawn=spawn,
        )
        self.gatekeeper = Gatekeeper(
            seals,
            StateMover(key_states),
            owned=ownership.owned,
            layout=layout,
            clock=clock,
            on_lost=ownership.lose_group,
            spawn=spawn,
        )

    def follow(self) -> None:
        """Have all partitions follow the layout, which was just read."""
        for owned in list(self._ownership.owned.values()):
            self.follow_one(owned)

    def follow_one(self, owned: OwnedPartition) -> None:
        """Have a partition follow the layout."""
        layout = self._layout()
        if layout is None:
            return
        if owned.id not in layout and owned.id.generation <= layout.last_generation > 1:
            self._ownership.lose(owned, layout.unknown(owned.id))
            return
        self._sealer.follow(owned)
        self.opener.follow(owned)
        self.gatekeeper.notice()

    async def read_progress(self, partition: PartitionId, group: str) -> GroupProgress | None:
        """Return how far a group has come in any partition; None: it has no cursor there.

        Raises:
            StoreUnavailableError: no answer.
        """
        return (await self._seals.read_progress([(partition, group)])).get((partition, group))

    async def wait_until_open(self, partition: PartitionId) -> None:
        """Wait until a partition takes messages or is not owned here: `OPENING_WAIT_S` at most."""
        owned = self._ownership.owned
        loop = asyncio.get_running_loop()
        end = loop.time() + OPENING_WAIT_S
        while (found := owned.get(partition)) is not None and not found.layout.is_open:
            left_s = end - loop.time()
            if left_s <= 0 or not await self.opener.opened.wait_at_most(left_s):
                return
