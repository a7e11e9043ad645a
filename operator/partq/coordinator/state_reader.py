"""Reads the brokers' states side by side; one that is slow makes nobody wait for it."""

import asyncio
import logging
from collections.abc import Mapping

from partq.aio import cancel_and_wait
from partq.coordinator.ports import BrokerAdmin, BrokerReport
from partq.core.model import BrokerId
from partq.errors import PartqError

PATIENCE_S = 0.25
"""How long one look waits for the slowest broker."""

_log = logging.getLogger(__name__)


class StateReader:
    """Holds at most one call per broker; an answer that comes late serves the next look."""

    def __init__(self, brokers: BrokerAdmin) -> None:
        self._brokers = brokers
        self._calls: dict[tuple[BrokerId, str], asyncio.Task[BrokerReport]] = {}
        self._failing: set[BrokerId] = set()

    async def read(self, urls: Mapping[BrokerId, str]) -> dict[BrokerId, BrokerReport]:
        """Return the states of the brokers that have answered."""
        wanted = set(urls.items())
        for key, call in list(self._calls.items()):
            if key not in wanted:
                call.cancel()
                del self._calls[key]
        for key in sorted(wanted - self._calls.keys()):
            self._calls[key] = asyncio.create_task(self._brokers.state(key[1]), name=f"state {key}")
        if self._calls:
            await asyncio.wait(self._calls.values(), timeout=PATIENCE_S)
        states = {}
        for (broker, url), call in list(self._calls.items()):
            if not call.done():
                continue
            del self._calls[broker, url]
            state = self._result(broker, call)
            if state is not None:
                states[broker] = state
        return states

    async def close(self) -> None:
        """Give up the calls that are out."""
        calls = list(self._calls.values())
        self._calls.clear()
        await cancel_and_wait(*calls)

    def _result(self, broker: BrokerId, call: asyncio.Task[BrokerReport]) -> BrokerReport | None:
        try:
            state = call.result()
        except PartqError as error:
            if broker not in self._failing:
                _log.warning("the state of broker %s could not be read: %s", broker, error)
            self._failing.add(broker)
            return None
        self._failing.discard(broker)
        if state.broker != broker:
            _log.warning("broker %s answers under the address of %s", state.broker, broker)
            return None
        return state
