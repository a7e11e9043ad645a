"""The flows of one consumer: one per broker, and they take turns."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from partq.aio import TaskSet
from partq.client.consume.assigned_partition import DeliveredWindow
from partq.client.consume.deliveries import Batch
from partq.client.consume.flow import ConsumerFlow
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

    def take(self, take: Callable[[DeliveredWindow], T]) -> T | None:
        """Return the next message or batch that may be handed out; None: nothing is ready.

        Raises what `check` raises after a batch that could not be read.
        """
        left = len(self._turns)
        while left:
            flow = self._turns[0]
            window = flow.next_window()
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
