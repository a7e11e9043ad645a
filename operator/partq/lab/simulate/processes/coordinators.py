"""A simulated coordinator process: the real coordinator, its broker calls, what it sees of pods."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar, cast

from partq.coordinator.broker_api import HttpBrokerAdmin
from partq.coordinator.coordinator import Coordinator
from partq.coordinator.ports import BindRefusal
from partq.coordinator.rescale.rescaler import RescaleTimes
from partq.core.group.observation import MemberFact
from partq.core.group.planner import Planner
from partq.core.model import MemberId
from partq.embedded.store_ports import store_ports
from partq.errors import UnavailableError, from_code
from partq.lab.simulate.machine.loop import PROCESS, Process, SimLoop
from partq.lab.simulate.machine.stored import SimStore
from partq.lab.simulate.processes.brokers import LETTER_QUEUE, LETTER_UID, QUEUE, UID
from partq.store.keys import Keys
from partq.wire.calls import body_codec
from partq.wire.calls.replies import convert

Heard = Callable[[Process, str], None]
"""Told which coordinator has got the state of which broker."""

KEYS: Final = Keys("partq", "default", QUEUE, UID)
LETTER_KEYS: Final = Keys("partq", "default", LETTER_QUEUE, LETTER_UID)


RESCALE_TIMES: Final = RescaleTimes(retire_after_s=2.0, settle_gap_s=0.2)
"""Shorter than in production: a history is over in seconds."""

T = TypeVar("T")


class SimBrokerAdmin(HttpBrokerAdmin):
    """The real calls and answers, carried by the simulated network."""

    def __init__(self, heard: Heard) -> None:
        super().__init__(cast(Any, None), queue=QUEUE, token="")
        self._heard = heard

    async def _call(
        self, method: str, url: str, path: str, body: object, timeout_s: float, kind: type[T]
    ) -> T:
        network = cast(SimLoop, asyncio.get_running_loop()).network
        data = None if body is None else body_codec.encode(body)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await network.call(url.removeprefix("http://"), path, data)
        except (TimeoutError, OSError) as error:
            raise UnavailableError(f"broker {url}{path}: {error!r}") from error
        if "error" in answer:
            raise from_code(answer["error"]["code"], answer["error"]["message"])
        if path == "/state":
            self._heard(PROCESS.get(), answer["broker"])
        return convert(answer, kind)


class ObservedPods:
    """What the coordinator has heard of the pods: behind what is, as every watch is."""

    def __init__(self, *, is_aware: bool) -> None:
        self.known: dict[MemberId, MemberFact] = {}
        self._is_aware = is_aware

    def facts(
        self, group: str, members: Collection[MemberId], leaving: Collection[MemberId]
    ) -> Mapping[MemberId, MemberFact]:
        """Return what is known; by the policy `Timer` that is nothing."""
        if not self._is_aware:
            return {}
        return {member: self.known[member] for member in members if member in self.known}

    def priorities(self, group: str, members: Collection[MemberId]) -> Mapping[str, int]:
        """Return nothing: the members' words count."""
        return {}

    def time_left_ms(self, group: str, member: MemberId) -> None:
        """Return nothing: every pod lives until it has handed over, or is killed at once."""

    def refusal(self, group: str, member: MemberId, address: str) -> BindRefusal | None:
        """Refuse pods that do not call from where they are."""
        return None if address == member else BindRefusal(f"{member} does not live at {address}")


class CoordinatorProcess:
    """One life of a coordinator."""

    def __init__(
        self, pods: ObservedPods, clock: Callable[[], float], heard: Heard, planner: Planner
    ) -> None:
        self._pods = pods
        self._heard = heard
        self._clock = clock
        self._planner = planner
        self.coordinator: Coordinator | None = None

    async def run(self) -> None:
        """Coordinate until killed."""
        store = await SimStore.wait_for()
        self.coordinator = Coordinator(
            namespace=KEYS.namespace,
            queue=KEYS.queue,
            store=store_ports(store, KEYS),
            brokers=SimBrokerAdmin(self._heard),
            member_processes=self._pods,
            planner=self._planner,
            clock=self._clock,
            rescale_times=RESCALE_TIMES,
        )
        await self.coordinator.run()
