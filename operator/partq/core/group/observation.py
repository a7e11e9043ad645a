"""What is known of one group at one time: flows, losses, owners, facts about members.

Everything is derived from what the brokers, the store and the members' pods say now; ages are
lengths in milliseconds, measured by the observer. So a coordinator that has just started judges
like the one before it, and no clock is compared with another.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from partq.core.layout import Succession
from partq.core.model import BrokerEpoch, BrokerId, Epoch, MemberId, PartitionId
from partq.core.parts.hash_ranges import DeclaredRanges

NO_EPOCH: Final = Epoch(0)
NO_BROKER_EPOCH: Final = BrokerEpoch(0)
NO_SUCCESSION: Final = Succession()


class MemberFact(Enum):
    """What is known of a member's process beside its flows; on Kubernetes, from its pod."""

    UNKNOWN = auto()
    EXISTS = auto()
    IS_TERMINATING = auto()
    """It is shutting down and will not come back under this id."""
    IS_GONE_FOR_GOOD = auto()
    IS_REPLACEMENT = auto()
    """It is there to take over from one that will leave; until then it stands by."""
    IS_BEING_REPLACED = auto()
    """It is shutting down, can go on for a while, and another comes to take over from it."""
    IS_AVOIDED = auto()
    """It works, and gets nothing more while others can: it is about to go, or not well."""
    IS_HELD_BACK = auto()
    """Its process ends again and again, and the next one is not started within the delay."""


LEAVING_FACTS: Final = frozenset(
    {MemberFact.IS_TERMINATING, MemberFact.IS_GONE_FOR_GOOD, MemberFact.IS_BEING_REPLACED}
)
"""What is known of those that will not come back under their id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSeen:
    """A member's flow at one broker."""

    member: MemberId
    broker: BrokerId
    incarnation: str
    age_ms: int
    is_leaving: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSeen:
    """A flow that a broker has lost while it owned the partitions."""

    member: MemberId
    broker: BrokerId
    age_ms: int
    is_leaving: bool = False
    """The member had said that it leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOwnership:
    """One partition of the group, as the broker that owns it reports it."""

    partition: PartitionId
    broker: BrokerId | None = None
    """None: no living broker has reported it; `member` is then the last one known."""
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
    held_ms: int = 0
    """How long the broker has owned the partition."""
    member: MemberId | None = None
    epoch: Epoch = NO_EPOCH
    is_bound: bool = False
    closed_attempt: int = 0
    """Attempts up to this one are over."""
    pause_attempt: int | None = None
    """The attempt whose pause is in force."""
    registered_ms: int | None = None
    """How long ago the member registered the partition; None: it got it otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupObservation:
    """All that is known of one group at one time."""

    partitions: Mapping[PartitionId, PartitionOwnership]
    flows: Collection[FlowSeen] = ()
    losses: Collection[LossSeen] = ()
    listed: Collection[MemberId] = ()
    """Members that may bind."""
    lost_ms: Mapping[MemberId, int] = field(default_factory=dict)
    """How long ago the store was told that a member is lost."""
    facts: Mapping[MemberId, MemberFact] = field(default_factory=dict)
    replacements: Mapping[MemberId, MemberId] = field(default_factory=dict)
    """The replacement that takes over the whole set of a member that leaves, as recorded."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """In groups of the types Failover and Exclusive: 0 is the highest, and of those not named."""
    is_complete: bool = True
    """Every living broker has answered: a member that is not here has no flow."""
    succession: Succession = NO_SUCCESSION
    """Which partitions follow which, by changes of the partition count."""
    ring: Mapping[PartitionId, int] = field(default_factory=dict)
    """In groups of the type KeyShared, whose `partitions` are parts: where each of them begins."""
    ranges: Mapping[str, DeclaredRanges] = field(default_factory=dict)
    """In groups with `hashRange: Sticky`: the slots that each member has declared."""
