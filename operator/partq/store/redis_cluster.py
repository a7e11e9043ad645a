"""Which node of a Redis Cluster serves which slot, asked again whenever there is doubt."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from partq.aio import cancel_and_wait
from partq.errors import PartqError, StoreUnavailableError
from partq.store.cluster_slots import SLOT_COUNT, ClusterView, Owners, merge
from partq.store.pipelined_connection import not_sent
from partq.store.server import Channel, StoreServer

LOOK_TIMEOUT_S = 1.0
"""How long, in seconds, a look waits for further nodes; for the first one as long as any call."""
LOOK_GAP_S = 0.1

_log = logging.getLogger(__name__)


class ClusterMap:
    """Which node serves a slot. Slots that move to another node are reported before it is asked.

    Another node may have less than the one before: after a failover what had not reached the
    replica is gone. So a process that remembers anything of such a slot has to begin again.
    """

    def __init__(
        self,
        seeds: Iterable[str],
        *,
        make_node: Callable[[str], StoreServer],
        by_name: bool,
        timeout_s: float,
        on_moved: Callable[[Callable[[int], bool]], None],
    ) -> None:
        self._seeds = tuple(seeds)
        self._make_node = make_node
        self._by_name = by_name
        self._timeout_s = timeout_s
        self._on_moved = on_moved
        self._nodes: dict[str, StoreServer] = {}
        self._owners: Owners = [None] * SLOT_COUNT
        self._refused: set[int] = set()
        """Slots that a node has said to be another's since the last look."""
        self._left: list[StoreServer] = []
        """Nodes that serve nothing any more, and are still open."""
        self._lock = asyncio.Lock()
        self._refreshing: asyncio.Task[None] | None = None
        self._is_closed = False

    async def close(self) -> None:
        """Close the connections to all nodes."""
        self._is_closed = True
        await cancel_and_wait(self._refreshing)
        for node in (*self._nodes.values(), *self._left):
            await node.close()

    @property
    def nodes(self) -> list[StoreServer]:
        """The nodes that serve slots."""
        return list(self._nodes.values())

    def node(self, slot: int) -> StoreServer:
        """Return the node that serves a slot.

        Raises:
            StoreUnavailableError: no node serves the slot; nothing was sent.
        """
        address = self._owners[slot]
        if address is None:
            self._refresh_later()
            raise not_sent(f"no node of the Redis Cluster serves slot {slot}")
        return self._nodes[address]

    def serves(self, node: StoreServer) -> Callable[[int], bool]:
        """Return the test whether a slot is served by `node`."""
        slots = frozenset(slot for slot in range(SLOT_COUNT) if self._owners[slot] == node.name)
        return slots.__contains__

    def doubt(self, node: StoreServer, slot: int | None) -> None:
        """Look soon who serves what. `slot`: it is not `node`'s, as it says itself."""
        if slot is not None and self._owners[slot] == node.name:
            self._refused.add(slot)
        self._refresh_later()

    async def refresh(self) -> None:
        """Look now, and wait for what comes of it.

        Raises:
            StoreUnavailableError: no node answers; everything stays as it was.
        """
        async with self._lock:
            self._adopt(await self._ask())
            while self._left:
                await self._left[-1].close()
                self._left.pop()

    def _refresh_later(self) -> None:
        if self._refreshing is None and not self._is_closed:
            self._refreshing = asyncio.create_task(self._refresh_soon(), name="check the cluster")

    async def _refresh_soon(self) -> None:
        try:
            # A refused caller tries again at once, and the nodes need a moment to agree.
            await asyncio.sleep(LOOK_GAP_S)
            with suppress(StoreUnavailableError):  # the next refusal comes here again
                await self.refresh()
        finally:
            self._refreshing = None

    async def _ask(self) -> Owners:
        """Ask every node who serves what; the seeds, when no node answers."""
        views, reasons = await self._views(self.nodes)
        if not views:
            seeds = [self._make_node(address) for address in self._seeds]
            try:
                views, reasons = await self._views(seeds)
            finally:
                for seed in seeds:
                    await seed.close()
        if not views:
            why = "; ".join(sorted(set(reasons)))
            raise not_sent(f"no node of the Redis Cluster says who serves what: {why}")
        return merge(views, by_name=self._by_name)

    async def _views(self, nodes: list[StoreServer]) -> tuple[list[ClusterView], list[str]]:
        """Return what nodes say, and why others say nothing."""
        if not nodes:
            return [], []
        asks = [asyncio.create_task(self._view(node)) for node in nodes]
        found: list[ClusterView | str] = []
        try:
            done, waiting = await asyncio.wait(asks, timeout=LOOK_TIMEOUT_S)
            found += [ask.result() for ask in done]
            while waiting and not any(isinstance(each, ClusterView) for each in found):
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                found += [ask.result() for ask in done]
        finally:
            await cancel_and_wait(*asks)
        views = [each for each in found if isinstance(each, ClusterView)]
        return views, [each for each in found if isinstance(each, str)]

    async def _view(self, node: StoreServer) -> ClusterView | str:
        try:
            async with asyncio.timeout(self._timeout_s):
                text = await node.read(["CLUSTER", "NODES"], Channel.CONTROL)
        except PartqError as error:
            return error.message
        except TimeoutError:
            return f"{node.name} does not answer within {self._timeout_s:g} s"
        return ClusterView(text.decode(), node.name.rpartition(":")[0])

    def _adopt(self, owners: Owners) -> None:
        """Go by a new map from now on."""
        addresses = {address for address in owners if address is not None}
        before, refused = self._owners, self._refused
        if owners == before and not refused:
            return
        moved = frozenset(
            slot
            for slot, address in enumerate(before)
            if address is not None and (slot in refused or address != owners[slot])
        )
        self._owners, self._refused = owners, set()
        self._left += [self._nodes.pop(address) for address in self._nodes.keys() - addresses]
        for address in addresses - self._nodes.keys():
            self._nodes[address] = self._make_node(address)
        if moved:
            _log.warning(
                "Redis Cluster: %d slots have another node; masters: %s",
                len(moved),
                ", ".join(sorted(addresses)),
            )
            self._on_moved(moved.__contains__)
