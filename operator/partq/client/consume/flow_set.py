"""The flows of one consumer: one per broker, and they take turns."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

from partq.aio import TaskSet
from partq.client.consume.assignment.assigned_partition import AssignedPartition
from partq.client.consume.assignment.delivered_window import DeliveredWindow
from partq.client.consume.deliveries import Batch
from partq.client.consume.flow import ConsumerFlow
from partq.client.transport.positions import SeekPlace
from partq.core.model import PartitionId
from partq.errors import UndecodableError

T = TypeVar("T")


class FlowSet:
    """Keeps a flow open to each broker of the layout."""

    def __init__(self, open_flow: Callable[[str], ConsumerFlow], check: Callable[[], None]) -> None:
        self._open_flow = open_flow
        self._check = check
        self._flows: dict[str, ConsumerFlow] = {}
        self._turns: deque[ConsumerFlow] = deque()
        self._closing = TaskSet()

    def __iter__(self) -> Iterator[ConsumerFlow]:
        return iter(list(self._flows.values()))

    def follow(self, urls: Collection[str]) -> None:
        """Open flows to new brokers; forget brokers that are gone."""
        for url in sorted(set(urls) - set(self._flows)):
            flow = self._flows[url] = self._open_flow(url)
            self._turns.append(flow)
        for url in sorted(set(self._flows) - set(urls)):
            if not self._flows[url].connection.is_up:  # while it answers, it may know better
                flow = self._flows.pop(url)
                self._turns.remove(flow)
                self._closing.start(flow.connection.close())

    def take(
        self, take: Callable[[DeliveredWindow], T], partition: PartitionId | None = None
    ) -> T | None:
        """Return the next message or batch that may be handed out; None: nothing is ready.

        `partition`: of this one; None: of any. Raises what `check` raises after a batch that could
        not be read.
        """
        left = len(self._turns)
        while left:
            flow = self._turns[0]
            window = flow.next_window() if partition is None else flow.next_window_of(partition)
            if window is None:
                self._turns.rotate(-1)
                left -= 1
                continue
            try:
                taken = take(window)
            except UndecodableError as error:
                flow.reject(window, error)
                self._check()
                left = len(self._turns)
                continue
            flow.taken(len(taken) if isinstance(taken, Batch) else 1, window.freed_bytes())
            if window.is_done:
                self._turns.rotate(-1)  # the brokers take turns
            return taken
        return None

    def seek(
        self, places: Mapping[AssignedPartition, SeekPlace]
    ) -> dict[PartitionId, asyncio.Future[int]]:
        """Have cursors moved, all at once; the futures say where they are, or why they are not.

        Raises:
            UnavailableError: a broker does not know seeks; nothing was moved.
        """
        for assigned in places:
            assigned.holder.check_seeks()
        return {
            assigned.partition: assigned.holder.seek(assigned, place)
            for assigned, place in places.items()
        }

    async def give_back(self, timeout_s: float, *, must: bool) -> None:
        """Let each flow give back what has begun; wait until that is written, as a time allows.

        `must`: all of them end, also those where nothing has begun.
        """
        flows = list(self._flows.values())
        for flow in flows:
            flow.give_back(must=must)
        await asyncio.gather(*(flow.connection.hung_up(timeout_s) for flow in flows))

    async def close(self) -> None:
        """Close every flow."""
        closing = [flow.connection.close() for flow in self._flows.values()]
        await asyncio.gather(*closing, *self._closing)
