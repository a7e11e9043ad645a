"""Simulated consumers that pull by plain HTTP, at every broker side by side."""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, cast

from partq.core.model import Cause, PartitionId
from partq.lab.simulate.machine.loop import SimLoop
from partq.lab.simulate.machine.network import Plain
from partq.lab.simulate.oracle.facts import GROUP
from partq.lab.simulate.oracle.oracle import Oracle

CALL_TIMEOUT_S: Final = 2.0
RETRY_S: Final = 0.2
WAIT_MS: Final = 500
MAX_MESSAGES: Final = 8
OPEN_CODES: Final = frozenset(
    {"store_unavailable", "outcome_unknown", "unavailable", "broker_closing", "internal"}
)


class PulledToken(NamedTuple):
    """The right to process a message."""

    broker_epoch: int
    epoch: int


class Pulled(NamedTuple):
    """A message of an answer."""

    partition: PartitionId
    token: PulledToken
    delivery: int
    offset: int
    value: str
    cause: Cause

    @classmethod
    def read(cls, message: Plain) -> "Pulled":
        """Read it as it came."""
        return cls(
            PartitionId.parse(message["partition"]),
            PulledToken(message["broker_epoch"], message["epoch"]),
            message["delivery"],
            message["offset"],
            message["value"],
            Cause[message["cause"].upper() or "NONE"],
        )


class PullingApplication:
    """What runs in a container: pulls, works, acknowledges; leaves when it holds nothing more."""

    def __init__(
        self,
        member: str,
        brokers: list[str],
        watcher: Oracle,
        rng: random.Random,
        on_exit: Callable[[], None],
        work_s: float,
        priority: int,
    ) -> None:
        self.work_s = work_s
        """How long it works on a message, at most."""
        self._priority = priority
        self._member = member
        self._brokers = brokers
        self._watcher = watcher
        self._rng = rng
        self._on_exit = on_exit
        self.incarnation = f"{rng.getrandbits(64):016x}"
        self._is_leaving = False
        self._tokens: dict[PartitionId, PulledToken] = {}
        """The highest seen of each partition: what is older is dropped."""

    async def run(self) -> None:
        """Consume until told to leave and relieved."""
        await asyncio.gather(*(self._pull_at(broker) for broker in self._brokers))
        self._on_exit()

    def leave(self) -> None:
        """Take SIGTERM."""
        self._is_leaving = True

    async def _pull_at(self, broker: str) -> None:
        last_answer: int | None = None
        left_flow: int | None = None
        while True:
            body = {
                "member": self._member,
                "incarnation": self.incarnation,
                "max_messages": MAX_MESSAGES,
                "wait_ms": WAIT_MS,
                "last_answer": last_answer,
                "priority": self._priority,
            }
            answer = await self._call(broker, "/pull", body)
            if answer is None or "error" in answer:
                await asyncio.sleep(RETRY_S)
                continue
            last_answer, flow = answer["answer"], answer["flow"]
            await self._work(broker, answer)
            if self._is_leaving and left_flow == flow and not answer["held"]:
                return
            if self._is_leaving and left_flow != flow:
                leave = {"member": self._member, "flow": flow}
                left = await self._call(broker, "/leave", leave)
                left_flow = flow if left is not None and "error" not in left else None

    async def _work(self, broker: str, answer: Plain) -> None:
        acks = []
        for message in map(Pulled.read, answer["messages"]):
            is_older = message.token < self._tokens.get(message.partition, message.token)
            if is_older or str(message.partition) not in answer["held"]:
                continue  # under a token that has ended
            self._tokens[message.partition] = message.token
            self._watcher.handed(GROUP, self._member, self, message, is_pulled=True)
            await asyncio.sleep(self._rng.uniform(0.0, self.work_s))
            self._watcher.finished(GROUP, message)
            acks.append(_ack_of(message))
            if self._rng.random() < 0.5:
                await self._ack(broker, answer["flow"], acks)
                acks = []
        if acks:
            await self._ack(broker, answer["flow"], acks)

    async def _ack(self, broker: str, flow: int, acks: list[dict[str, object]]) -> None:
        """Acknowledge until it is known what came of it: a flow that lives gets nothing again."""
        body = {"member": self._member, "flow": flow, "acks": acks}
        while True:
            answer = await self._call(broker, "/acks", body)
            if answer is not None and not _is_open(answer):
                return
            await asyncio.sleep(RETRY_S)

    async def _call(self, broker: str, path: str, body: dict[str, object]) -> Plain | None:
        """Return the answer; None: no answer came."""
        network = cast(SimLoop, asyncio.get_running_loop()).network
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(CALL_TIMEOUT_S):
                answer: Plain = await network.call(broker, path, body)
            return answer
        return None


def _is_open(answer: Plain) -> bool:
    """Say whether some ack of a call may have been stored, or may not."""
    outcomes = [answer, *answer.get("results", ())]
    return any(each["error"]["code"] in OPEN_CODES for each in outcomes if "error" in each)


def _ack_of(message: Pulled) -> dict[str, object]:
    return {
        "partition": str(message.partition),
        "broker_epoch": message.token.broker_epoch,
        "epoch": message.token.epoch,
        "delivery": message.delivery,
        "offsets": [message.offset],
    }
