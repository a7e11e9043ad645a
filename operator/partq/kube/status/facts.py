"""What a worker knows of its queue and of each group: what conditions and status are made of."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from partq.coordinator.view import GroupView, QueueView, SessionTotals
from partq.core.model import PartitionId
from partq.core.views.partition_advice import PartitionAdvice
from partq.core.views.rescale_status import RescaleStatus
from partq.kube.names import ConditionType, QueueKey
from partq.kube.status.conditions import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Durability:
    """How the queue's Redis keeps what it has confirmed."""

    is_appending: bool
    """It writes an append-only file."""
    sync: str
    """`always`, `everysec`, `no`; empty: it does not say."""
    is_nearly_full: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """What a worker knows of its queue."""

    key: QueueKey
    generation: int
    troubles: Mapping[ConditionType, Finding] = field(default_factory=dict)
    """The last error of each part of the work that has not succeeded since."""
    is_applied: bool = False
    """Its objects were applied, if not for the latest spec."""
    is_provisioned: bool = False
    """The queue's records are in the store."""
    partition_count: int | None = None
    """How many partitions take messages."""
    rescale: RescaleStatus | None = None
    """The latest change of their number."""
    advice: PartitionAdvice | None = None
    """The number of partitions that is advised; None: not known yet."""
    advised_since: datetime | None = None
    desired_brokers: int = 0
    ready_pods: int = 0
    is_starting: bool = False
    """It has never been served, and its brokers have not had the time to start."""
    is_short: bool = True
    """Brokers that are missing have been so for longer than one takes to start."""
    is_store_ephemeral: bool = False
    """Redis lives as long as its pod, as the chart says."""
    durability: Durability | None = None
    view: QueueView | None = None
    group_count: int = 0
    scheme: str = "http"
    """How the brokers of the spec are called."""
    is_paused: bool = False
    is_rebalance_paused: bool = False
    tokens_secret: str | None = None
    store_uid: str | None = None
    store: str | None = None
    """Where its records are."""

    @property
    def expected(self) -> Collection[PartitionId]:
        """The partitions that brokers have to serve."""
        if self.view is None:
            return ()
        layout = self.view.layout
        return self.view.partitions if layout is None else layout.partitions()

    @property
    def ready_count(self) -> int:
        """How many of the partitions that take messages a broker owns."""
        if self.view is None:
            return 0
        layout = self.view.layout
        current = self.view.partitions if layout is None else layout.current_partitions
        return sum(partition in self.view.owners for partition in current)

    @property
    def ready_brokers(self) -> int:
        """How many brokers hold a lease, answer, and have a pod that is Ready."""
        answering = sum(self.view.brokers.values()) if self.view else 0
        return min(answering, self.ready_pods)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """What a worker knows of one group."""

    generation: int
    queue: str
    """Name of its queue."""
    problem: Finding | None = None
    """What is wrong with its spec."""
    queue_ready: Finding | None = None
    """Ready of its queue; None: there is no such queue."""
    view: GroupView | None = None
    unselected: Sequence[str] = ()
    """Which connected pods the selector does not match any more, in words."""
    circle: Sequence[str] = ()
    """The queues that its dead letters pass on their way back to its queue; empty: they do not."""
    lag: int | None = None
    sessions: SessionTotals | None = None
    """None: its type is not Session, or they were not looked at yet."""
    is_paused: bool = False
    is_rebalance_paused: bool = False
    rebalance_now: str | None = None
