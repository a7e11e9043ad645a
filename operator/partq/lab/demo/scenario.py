"""What the demo does to its processes, and when: a table."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

PARTITION_COUNT: Final = 16
BROKER_COUNT: Final = 2
FIRST_MEMBERS: Final = 2


@dataclass(frozen=True, slots=True)
class Scale:
    """Bring the consumers to this number: new ones join, or the last ones leave by SIGTERM."""

    members: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Kill a consumer with -9 and start it again, under its name, within the rebalance delay."""


@dataclass(frozen=True, slots=True)
class KillMember:
    """Kill a consumer with -9 for good: its partitions wait for it, then are forced away."""


@dataclass(frozen=True, slots=True)
class KillBroker:
    """Kill a broker with -9; the other one takes over until the runtime has started it again."""


class Victim(StrEnum):
    """What is killed with -9 while the partition count changes."""

    NOTHING = ""
    BROKER = "broker"
    CONSUMER = "consumer"
    COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True)
class Rescale:
    """Change the partition count, and kill a process at that moment; it is started again."""

    partitions: int
    victim: Victim = Victim.NOTHING


Action = Scale | Restart | KillMember | KillBroker | Rescale


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One change, due when a share of the events is published."""

    at: float
    trigger: str
    action: Action


STEPS: Final = (
    Step(at=0.08, trigger="2 -> 4 consumers", action=Scale(4)),
    Step(at=0.20, trigger="4 -> 6 consumers", action=Scale(6)),
    Step(at=0.26, trigger="16 -> 24 partitions", action=Rescale(24)),
    Step(at=0.34, trigger="consumer restarted in time", action=Restart()),
    Step(at=0.46, trigger="broker killed with -9", action=KillBroker()),
    Step(at=0.66, trigger="consumer killed with -9", action=KillMember()),
    Step(at=0.86, trigger="5 -> 3 consumers", action=Scale(3)),
)
"""The longest times are left behind the steps that have to wait for a lease or a delay."""

RESCALE_STEPS: Final = (
    Step(at=0.08, trigger="2 -> 4 consumers", action=Scale(4)),
    Step(
        at=0.20,
        trigger="16 -> 24 partitions, coordinator killed with -9",
        action=Rescale(24, Victim.COORDINATOR),
    ),
    Step(
        at=0.42,
        trigger="24 -> 10 partitions, broker killed with -9",
        action=Rescale(10, Victim.BROKER),
    ),
    Step(
        at=0.66,
        trigger="10 -> 16 partitions, consumer killed with -9",
        action=Rescale(16, Victim.CONSUMER),
    ),
    Step(at=0.88, trigger="4 -> 3 consumers", action=Scale(3)),
)
"""What `partq demo --rescale` does."""
