"""What the other keys lose while some keys fail again and again, in a group of order Key."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from partq.client.consume.deliveries import Delivery
from partq.client.consumer import Consumer
from partq.client.producer import Producer
from partq.embedded.runtime import EmbeddedRuntime, RunningQueue
from partq.lab.bench.workload import BLOCK_MESSAGES, MIN_VALUE_BYTES, OrderCheck, Workload
from partq.resources import group_document, queue_document, resources_of
from partq.wire.batch import Message

QUEUE: Final = "bench"
GROUP: Final = "readers"
MAX_SPAN: Final = 100_000
"""Of the group: a key that fails holds the cursor, and a phase fits above it."""
LEASE_TTL_S: Final = 20.0
"""Of the broker: a busy machine holds it up, and a lease that is over is not measured here."""
PHASE_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLoad:
    """What is consumed in each phase, and what of it fails."""

    partitions: int
    keys: int
    poison_keys: int
    """How many keys fail until the others are done."""
    delay_ms: int
    """How long a message that has failed waits."""
    messages: int
    concurrency: int
    """Calls at once."""
    credit: int
    """Messages that the consumer holds ready: a redelivered one is behind them."""
    rounds: int


@dataclass(slots=True)
class RetryRates:
    """What the phases came to. Rates are messages per second of the keys that never fail."""

    calm: list[float] = field(default_factory=list)
    poison: list[float] = field(default_factory=list)
    """Of the same rounds, one after the other."""
    nacks: int = 0
    lost: int = 0
    out_of_order: int = 0

    @property
    def ratios(self) -> list[float]:
        """Of each round, the rate while keys fail over the calm one."""
        return [
            round(poison / calm, 3) for calm, poison in zip(self.calm, self.poison, strict=True)
        ]

    @property
    def ratio(self) -> float | None:
        """Their median; None: no round has ended."""
        return median(self.ratios) if self.calm else None

    @property
    def is_good(self) -> bool:
        """Whether every message was processed, in the order of its key."""
        return not self.lost and not self.out_of_order


class _RetryPhase:
    """One consumer that processes what is stored, until everything is done."""

    def __init__(
        self, queue: RunningQueue, load: RetryLoad, check: OrderCheck, poison: frozenset[str]
    ) -> None:
        self._queue = queue
        self._load = load
        self._check = check
        """Of all phases."""
        self._poison = poison
        self.nacks = 0

    async def run(self, keys: list[str], watched: frozenset[str]) -> tuple[float, int]:
        """Return the rate of the keys that are not watched, and how many messages are missing.

        `keys`: of the messages that are stored.
        """
        left = len(keys)
        others = others_left = sum(key not in watched for key in keys)
        began = ended = 0.0

        async def handle(delivery: Delivery) -> None:
            nonlocal began, ended, left, others_left
            began = began or time.perf_counter()
            if delivery.key in self._poison and others_left:
                self.nacks += 1
                await consumer.nack(delivery, delay_s=self._load.delay_ms / 1000)
                return
            before = self._check.seen.messages
            self._check.check([Message(delivery.key, delivery.raw_value)])
            await consumer.ack(delivery)
            if self._check.seen.messages == before:
                return  # a duplicate
            left -= 1
            others_left -= delivery.key not in watched
            if not others_left and not ended:
                await consumer.flush()
                ended = ended or time.perf_counter()
            if not left:
                consumer.leave()

        async with Consumer(
            self._queue.url,
            queue=self._queue.name,
            group=GROUP,
            token=self._queue.tokens.consume,
            credit=self._load.credit,
        ) as consumer:
            try:
                async with asyncio.timeout(PHASE_TIMEOUT_S):
                    await consumer.run(handle, concurrency=self._load.concurrency)
            except TimeoutError:
                ended = ended or time.perf_counter()
        return (others - others_left) / max(ended - began, 1e-9), left


async def measure_retries(
    load: RetryLoad, directory: Path, say: Callable[[str], None]
) -> RetryRates:
    """Consume calm and poisoned phases in turn, on a separate queue; the first round only warms up.

    It ends early when messages are missing: the next phase would get them.
    """
    found, check = RetryRates(), OrderCheck()
    workload = Workload(load.keys, MIN_VALUE_BYTES)
    watched = frozenset(workload.keys[: load.poison_keys])
    resources = resources_of(
        queue_document(QUEUE, partitions=load.partitions),
        group_document(GROUP, QUEUE, nack={"order": "Key"}, ack={"maxSpan": MAX_SPAN}),
    )
    async with EmbeddedRuntime(
        resources, directory, broker_count=1, log_level="warning", lease_ttl_s=LEASE_TTL_S
    ) as runtime:
        queue = runtime.queue(QUEUE)
        for number in range(load.rounds + 1):
            rates: dict[bool, float] = {}
            for is_poisoned in (False, True) if number % 2 else (True, False):
                keys = await _publish(queue, workload, load.messages)
                phase = _RetryPhase(queue, load, check, watched if is_poisoned else frozenset())
                rates[is_poisoned], lost = await phase.run(keys, watched)
                found.nacks += phase.nacks if number else 0
                found.lost += lost
                if lost:
                    return found
            say(f"round {number}: calm {rates[False]:,.0f}/s, poison {rates[True]:,.0f}/s")
            if number:
                found.calm.append(rates[False])
                found.poison.append(rates[True])
    found.out_of_order = check.seen.out_of_order
    return found


async def _publish(queue: RunningQueue, workload: Workload, count: int) -> list[str]:
    """Store messages; return the key of each."""
    keys: list[str] = []
    async with Producer(queue.url, queue=queue.name, token=queue.tokens.produce) as producer:
        while len(keys) < count:
            block = workload.block(min(BLOCK_MESSAGES, count - len(keys)))
            await producer.send_many(block)
            keys += [message.key or "" for message in block]
        await producer.flush()
    return keys


def report(load: RetryLoad, found: RetryRates) -> dict[str, object]:
    """Return all figures under stable names."""
    return {
        "others_msgs_per_s": {
            "calm": round(median(found.calm or [0])),
            "poison": round(median(found.poison or [0])),
        },
        "ratio": found.ratio,
        "ratios": found.ratios,
        "nacks": found.nacks,
        "lost": found.lost,
        "out_of_order": found.out_of_order,
        **asdict(load),
    }


def render(load: RetryLoad, found: RetryRates) -> str:
    """Return a page for people."""
    return (
        f"{load.poison_keys} of {load.keys:,} keys fail, each message again after "
        f"{load.delay_ms} ms; {found.nacks:,} nacks\n"
        f"the other keys: {median(found.calm or [0]):,.0f} messages/s while all succeed, "
        f"{median(found.poison or [0]):,.0f} while those fail\n"
        f"ratio, median of {len(found.ratios)} rounds: {found.ratio}\n"
        f"{found.lost} lost, {found.out_of_order} out of order"
    )
