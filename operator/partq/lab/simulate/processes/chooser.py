"""What a simulated pod does in a client-assigned group: looks, registers, unregisters."""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypedDict, cast

from partq.core.model import MemberId, PartitionId
from partq.lab.simulate.machine.loop import SimLoop
from partq.lab.simulate.oracle.facts import GROUP
from partq.path_names import quoted

LOOK_S: Final = 0.3
"""Between two looks, at most. Pods look at about the same time, so that they race."""
CALL_TIMEOUT_S: Final = 4.0
WAIT_MS: Final = 300
TAKE_SHARE: Final = 0.7
"""Of the free partitions, those that a look registers."""
LEAVE_SHARE: Final = 0.03
"""Of the partitions that it holds, those that a look unregisters."""
FORCE_SHARE: Final = 0.2
REPEAT_SHARE: Final = 0.3
"""Of the calls, those that are made twice, side by side."""


class _ListedPartition(TypedDict):
    """A partition in the answer to a look."""

    member: str
    epoch: int
    broker: str


class _Outcome(TypedDict, total=False):
    """What a broker has answered, whatever was asked."""

    error: object
    epoch: int
    partitions: dict[str, _ListedPartition]


class Chooser:
    """Takes free partitions and gives some back; on its way out it gives all back."""

    def __init__(
        self,
        member: MemberId,
        brokers: list[str],
        rng: random.Random,
        *,
        incarnation: Callable[[], str | None],
        may_unregister: Callable[[], bool],
    ) -> None:
        self._member = member
        self._brokers = brokers
        self._rng = rng
        self._incarnation = incarnation
        self._may_unregister = may_unregister
        self._epochs: dict[str, int] = {}
        """Under which epoch it has registered what."""
        self.is_leaving = False

    async def run(self) -> None:
        """Choose until cancelled."""
        while True:
            await asyncio.sleep(self._rng.uniform(0.02, LOOK_S))
            incarnation = self._incarnation()
            broker = self._rng.choice(self._brokers)
            seen = await self._call(broker, "/partitions", None)
            if incarnation is None or seen is None or "error" in seen:
                continue
            await asyncio.gather(
                *(self._decide(name, row, incarnation) for name, row in seen["partitions"].items())
            )

    async def _decide(self, name: str, row: _ListedPartition, incarnation: str) -> None:
        chance = self._rng.random()
        if row["member"] == self._member:
            if self.is_leaving or (self._may_unregister() and chance < LEAVE_SHARE):
                told: dict[str, object] = {
                    "epoch": self._epochs.get(name, row["epoch"]),
                    "wait_ms": WAIT_MS,
                }
                told |= {
                    "incarnation": incarnation,
                    "is_forced": chance < FORCE_SHARE * LEAVE_SHARE,
                }
                await self._ask(name, row["broker"], "/unregister", told)
        elif not row["member"] and not self.is_leaving and chance < TAKE_SHARE:
            told = {"epoch": row["epoch"], "incarnation": incarnation}
            answer = await self._ask(name, row["broker"], "/register", told)
            if answer is not None and "error" not in answer:
                self._epochs[name] = answer["epoch"]

    async def _ask(
        self, name: str, broker: str, path: str, told: dict[str, object]
    ) -> _Outcome | None:
        body = (self._member, PartitionId.parse(name), told)
        count = 2 if self._rng.random() < REPEAT_SHARE else 1
        answers = await asyncio.gather(*(self._call(broker, path, body) for _ in range(count)))
        return answers[0]

    async def _call(self, broker: str, path: str, body: object) -> _Outcome | None:
        """Return the answer; None: no answer came."""
        network = cast(SimLoop, asyncio.get_running_loop()).network
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(CALL_TIMEOUT_S):
                answer: _Outcome = await network.call(
                    broker, f"/groups/{quoted(GROUP, 'group')}{path}", body
                )
            return answer
        return None
