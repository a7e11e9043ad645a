"""The faults, and the load under which each strikes: a table."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from partq.core.group.planner import GroupType
from partq.settings import LEASE_TTL_S

BROKER_COUNT: Final = 2
LEASE_S: Final = LEASE_TTL_S
"""What the brokers of the runtime hold, in seconds."""
FREEZE_S: Final = 2 * LEASE_S
"""How long a process stays stopped: others may call the lease over after 1.5 times its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosGroup:
    """The group that consumes, and its queue."""

    group_type: str
    partitions: int
    members: int
    keys: int
    parts: int = 0
    """Of the type KeyShared: into how many each partition is cut."""
    lock_s: float = 0.0
    """Of the type Session: how long a lock lasts without a renewal."""
    load_share: float = 1.0
    """How much of the messages of a round is published: sessions cost several calls a message."""

    @property
    def fields(self) -> dict[str, object]:
        """What the spec of the group has beside the queue."""
        of_type: dict[str, object] = {"type": self.group_type}
        if self.parts:
            of_type["keyShared"] = {"parts": self.parts}
        if self.lock_s:
            of_type["session"] = {"lockSeconds": self.lock_s}
        return of_type

    @property
    def has_order(self) -> bool:
        """Whether the messages of a key have an order."""
        return self.group_type != GroupType.SHARED

    def load(self, fault: "Fault") -> "RoundLoad":
        """Return what a round of a fault publishes."""
        load = PLANS[fault].load
        return replace(load, messages=int(load.messages * self.load_share))


GROUPS: Final = {
    each.group_type: each
    for each in (
        ChaosGroup(group_type="Partitioned", partitions=8, members=3, keys=64),
        ChaosGroup(group_type="KeyShared", partitions=4, members=12, keys=256, parts=16),
        ChaosGroup(group_type="Shared", partitions=4, members=6, keys=64),
        # A lock outlasts the takeover of a killed broker, and a frozen consumer may lose it.
        ChaosGroup(
            group_type="Session", partitions=4, members=6, keys=64, lock_s=8.0, load_share=0.25
        ),
    )
}
"""By type."""


class Fault(StrEnum):
    """What is done to a process, or to several consumers."""

    REDIS_KILLED = "redis"
    BROKER_KILLED = "broker"
    CONSUMER_KILLED = "consumer"
    PRODUCER_KILLED = "producer"
    COORDINATOR_KILLED = "coordinator"
    CONSUMER_FROZEN = "consumer frozen"
    BROKER_FROZEN = "broker frozen"
    MEMBERS_CHANGED = "members"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLoad:
    """What one round publishes."""

    messages: int
    size_bytes: int
    per_s: int
    """Messages per second; 0: as fast as they go."""


# Redis has to be hit while it writes hard. Consumers and brokers have to be hit with thousands of
# messages on their way, so the producer is faster than the consumers. A producer has to be hit
# before it is done, and the coordinator while traffic continues.
_HEAVY: Final = RoundLoad(messages=3_000, size_bytes=20_000, per_s=0)
_BACKLOG: Final = RoundLoad(messages=9_000, size_bytes=500, per_s=0)
_STEADY: Final = RoundLoad(messages=4_000, size_bytes=500, per_s=800)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """How often a fault strikes unless told otherwise, and what runs meanwhile."""

    rounds: int
    load: RoundLoad


PLANS: Final = {
    Fault.REDIS_KILLED: FaultPlan(rounds=20, load=_HEAVY),
    Fault.BROKER_KILLED: FaultPlan(rounds=6, load=_BACKLOG),
    Fault.CONSUMER_KILLED: FaultPlan(rounds=6, load=_BACKLOG),
    Fault.PRODUCER_KILLED: FaultPlan(rounds=6, load=_STEADY),
    Fault.COORDINATOR_KILLED: FaultPlan(rounds=6, load=_STEADY),
    Fault.CONSUMER_FROZEN: FaultPlan(rounds=3, load=_BACKLOG),
    Fault.BROKER_FROZEN: FaultPlan(rounds=3, load=_BACKLOG),
    Fault.MEMBERS_CHANGED: FaultPlan(rounds=6, load=_STEADY),
}

CHOICES: Final = {
    "redis": (Fault.REDIS_KILLED,),
    "broker": (Fault.BROKER_KILLED,),
    "consumer": (Fault.CONSUMER_KILLED,),
    "producer": (Fault.PRODUCER_KILLED,),
    "coordinator": (Fault.COORDINATOR_KILLED,),
    "freeze": (Fault.CONSUMER_FROZEN, Fault.BROKER_FROZEN),
    "members": (Fault.MEMBERS_CHANGED,),
}
"""What `--only` takes."""


Strike = tuple[tuple[Fault, ...], int]
"""The faults of a round in the order in which they strike, and the round's number."""


def drawn(draw: random.Random, chosen: Sequence[Fault]) -> Iterator[Strike]:
    """Yield the faults of one round after the other without end, each with a separate number.

    In every second round, on average, a second fault strikes while the first is being got over.
    """
    number = 0
    while True:
        number += 1
        count = min(draw.randint(1, 2), len(chosen))
        yield tuple(draw.sample(chosen, count)), number
