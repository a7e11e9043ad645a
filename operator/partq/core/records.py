"""What Redis holds of a queue beside its messages and groups: values that the store reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from partq.core.layout import Layout
from partq.core.model import BrokerId, PartitionId

RESCALE = "rescale"
"""Feature of a broker that can take part in a change of the partition count."""
LANES = "lanes"
"""Feature of a broker that knows groups of order Key."""

PARTS = "parts"
"""Feature of a broker that knows groups of type KeyShared."""
TURNS = "turns"
"""Feature of a broker that knows groups of type Shared."""
SESSIONS = "sessions"
"""Feature of a broker that knows groups of type Session."""
STATES = "states"
"""Feature of a broker that keeps states of keys, and carries them to the successors of a
partition."""


@dataclass(frozen=True, slots=True)
class LayoutRecord:
    """A queue's generations, and whether it is being deleted."""

    layout: Layout
    tombstone: bool


@dataclass(frozen=True, slots=True)
class LifeRecord:
    """Which resource has a queue's name in the store."""

    current: str | None
    """Its uid; None: the one that asks was deleted, and has given the name up."""
    key: str
    """Where that is stored: its field `current`."""


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """A config: an effective spec, and a generation that grows with each change."""

    resource_generation: int
    spec: dict[str, object]
    versions: Mapping[str, bytes] = field(default_factory=dict)
    """Of a queue: which config each of its groups has. Says whether it is another one than before;
    a group whose config an earlier version of partq wrote last may lack, or have an old one."""
    born: int = 0
    """When it was created, in µs of Redis's time: one that is erased and created again has another;
    0: an earlier version of partq created it."""

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the queue's groups: the field `groups` of a queue's spec."""
        names = self.spec.get("groups")
        return tuple(map(str, names)) if isinstance(names, list) else ()


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A broker's lease. It is over when `counter` stood still for 1.5 times `ttl_s`."""

    incarnation: str
    counter: int
    """Differs after every renewal; says nothing else."""
    ttl_s: float
    url: str
    features: frozenset[str] = frozenset()
    """What the broker can do beside what every version can, as in `RESCALE`."""


def lacking_lanes(leases: Mapping[BrokerId, LeaseRecord]) -> list[BrokerId]:
    """Return the brokers, by name, that do not know groups of order Key."""
    return sorted(broker for broker, lease in leases.items() if LANES not in lease.features)


def lacking_parts(leases: Mapping[BrokerId, LeaseRecord]) -> list[BrokerId]:
    """Return the brokers, by name, that do not know groups of type KeyShared."""
    return sorted(broker for broker, lease in leases.items() if PARTS not in lease.features)


def lacking_turns(leases: Mapping[BrokerId, LeaseRecord]) -> list[BrokerId]:
    """Return the brokers, by name, that do not know groups of type Shared."""
    return sorted(broker for broker, lease in leases.items() if TURNS not in lease.features)


def lacking_sessions(leases: Mapping[BrokerId, LeaseRecord]) -> list[BrokerId]:
    """Return the brokers, by name, that do not know groups of type Session."""
    return sorted(broker for broker, lease in leases.items() if SESSIONS not in lease.features)


def lacking_states(leases: Mapping[BrokerId, LeaseRecord]) -> list[BrokerId]:
    """Return the brokers, by name, that do not know states of keys."""
    return sorted(broker for broker, lease in leases.items() if STATES not in lease.features)


def lacking_rescale(leases: Mapping[BrokerId, LeaseRecord]) -> list[BrokerId]:
    """Return the brokers, by name, that cannot take part in a change of the partition count."""
    return sorted(broker for broker, lease in leases.items() if RESCALE not in lease.features)


class LeaseIndex(NamedTuple):
    """All leases, and the broker that claimed each partition last (the record decides)."""

    leases: dict[BrokerId, LeaseRecord]
    owners: dict[PartitionId, BrokerId]


@dataclass(frozen=True, slots=True)
class EventRecord:
    """Something happened; look again."""

    id: str
    kind: str
    fields: dict[str, str]
    """With the keys `namespace` and `queue`: the stream is shared by all queues of a prefix."""
