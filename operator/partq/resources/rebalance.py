"""The section `rebalance` of queues and groups: when and how partitions move."""

from typing import Annotated, Literal

from pydantic import Field

from partq.resources.base import Model

RebalancePolicy = Literal["KubernetesAware", "Timer"]
StandbyTakeover = Literal["AtOnce", "AfterDelay"]

BALANCE_FIELDS = ("standby", "maxPausedPartitions", "maxMovesPerMinute", "minMoveIntervalSeconds")
"""What has no effect where members choose their partitions."""

_MaxPaused = Annotated[int, Field(ge=0, le=4096)]
_MaxMoves = Annotated[int, Field(ge=0, le=100_000)]
_MoveInterval = Annotated[float, Field(ge=0, le=86_400)]


class RebalanceSpec(Model):
    """When and how partitions move between the members of a group."""

    delay_seconds: Annotated[float, Field(ge=0, le=3600)] = 5
    """How long the partitions of a lost member wait for it before others get them."""
    max_handoff_seconds: Annotated[float, Field(ge=0, le=3600)] = 3
    """How long a member may finish what it is processing when a partition leaves it; 0: not at
    all."""
    policy: RebalancePolicy = "KubernetesAware"
    """KubernetesAware: a pod that ends hands over at once, and the group does not wait for a pod
    that is gone for good. Timer: every loss waits `delaySeconds`, unless one stands by."""
    standby: StandbyTakeover = "AtOnce"
    """AtOnce: when all brokers have lost a member, one that holds nothing takes over all of its
    partitions without the delay; in the types Failover and Exclusive any other member does.
    AfterDelay: they wait `delaySeconds` for the lost member all the same."""
    max_paused_partitions: _MaxPaused = 0
    """How many partitions may be handed over at once while more of them move for balance. The
    partitions of a member that leaves or is lost move at once, and count. 0: no limit."""
    max_moves_per_minute: _MaxMoves = 0
    """How many partitions may leave a member within 60 seconds while more of them move for balance.
    The partitions of a member that leaves or is lost move at once, and count. 0: no limit."""
    min_move_interval_seconds: _MoveInterval = 0
    """How long a partition stays where it is, after it has left a member, before it moves again
    for balance. 0: no limit."""


class RebalanceOverrides(Model):
    """What a group does otherwise than its queue says."""

    delay_seconds: Annotated[float, Field(ge=0, le=3600)] | None = None
    """As in the queue; left out: the queue's."""
    max_handoff_seconds: Annotated[float, Field(ge=0, le=3600)] | None = None
    """As in the queue; left out: the queue's."""
    policy: RebalancePolicy | None = None
    """As in the queue; left out: the queue's."""
    standby: StandbyTakeover | None = None
    """As in the queue; left out: the queue's."""
    max_paused_partitions: _MaxPaused | None = None
    """As in the queue, counted for this group alone; left out: the queue's."""
    max_moves_per_minute: _MaxMoves | None = None
    """As in the queue, counted for this group alone; left out: the queue's."""
    min_move_interval_seconds: _MoveInterval | None = None
    """As in the queue; left out: the queue's."""

    @property
    def balance_fields(self) -> list[str]:
        """Those of `BALANCE_FIELDS` that are given."""
        given = self.model_dump(by_alias=True, exclude_none=True)
        return [name for name in BALANCE_FIELDS if name in given]
