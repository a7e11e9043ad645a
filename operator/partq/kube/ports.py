"""What the operator needs of a queue's store; `cli/hosting/queue_store.py` brings the real one."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from partq.coordinator.ports import StorePorts
from partq.coordinator.queue_records import QueueRecords
from partq.coordinator.reports.rescale_progress import ProgressStore
from partq.core.model import PartitionId
from partq.kube.names import QueueKey
from partq.kube.status.facts import Durability


class QueueStore(Protocol):
    """One life of a queue in its Redis. Every call raises StoreUnavailableError without answer."""

    @property
    def ports(self) -> StorePorts:
        """What the coordinator needs."""

    @property
    def records(self) -> QueueRecords:
        """The records that are made before brokers serve the queue."""

    @property
    def partitions(self) -> ProgressStore:
        """Its partitions, to see how far a change of their number has come."""

    async def durability(self) -> Durability:
        """Return how Redis keeps what it confirms."""

    async def lags(
        self, group: str, partitions: Sequence[PartitionId]
    ) -> Mapping[PartitionId, int]:
        """Return how many messages a group has not acknowledged yet, where it has a cursor."""

    async def bury(self) -> None:
        """Mark the queue as being deleted: brokers refuse it within a second."""

    async def erase(self) -> int:
        """Remove the queue's keys, and return how many there were."""

    async def release(self, *, keeps_data: bool) -> None:
        """Give up the queue's name, for the next resource of this name."""

    async def close(self) -> None:
        """Close the connections."""


OpenStore = Callable[[str, QueueKey, str], Awaitable[QueueStore]]
"""Opens the store at a URL, for a queue and its uid.

Raises StoreUnavailableError without an answer, and SettingsError when the server is not one that
can be trusted with messages.
"""
