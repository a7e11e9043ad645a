"""Names of the Redis keys of one queue; the part in braces decides the cluster slot.

The uid (first 8 of the resource's) keeps stragglers of a deleted queue out of the next one of the
same name. All keys of one partition share a tag, and so do all keys of one group.
"""

from dataclasses import dataclass

from partq.core.model import PartitionId


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one life of a queue."""

    prefix: str
    namespace: str
    queue: str
    uid: str

    def lives(self) -> str:
        """Name the hash of the uids that have keys under this name of a queue."""
        return f"{self.prefix}:{{{self.namespace}/{self.queue}}}:lives"

    def ended_life(self, uid: str) -> str:
        """Name what says that a life of this name was given up."""
        return f"{self.prefix}:{{{self.namespace}/{self.queue}}}:ended:{uid}"

    def layout(self) -> str:
        """Name the hash of generations, partition counts and the tombstone."""
        return f"{self._queue_tag}:layout"

    def config(self) -> str:
        """Name the hash of the queue's config."""
        return f"{self._queue_tag}:config"

    def brokers(self) -> str:
        """Name the hash of the brokers' leases and of the index partition → broker."""
        return f"{self._queue_tag}:brokers"

    def marks(self) -> str:
        """Name the hash of the partitions and brokers that are marked not subscribable."""
        return f"{self._queue_tag}:marks"

    def group_config(self, group: str) -> str:
        """Name the hash of the group's config."""
        return f"{self._group_tag(group)}:config"

    def assignment(self, group: str) -> str:
        """Name the hash partition → member."""
        return f"{self._group_tag(group)}:assignment"

    def members(self, group: str) -> str:
        """Name the hash of the members that may bind."""
        return f"{self._group_tag(group)}:members"

    def handoffs(self, group: str) -> str:
        """Name the hash of the handoffs under way and the last attempt drawn."""
        return f"{self._group_tag(group)}:handoffs"

    def rebalances(self, group: str) -> str:
        """Name the hash of the group's last rebalances and of the moves of each partition."""
        return f"{self._group_tag(group)}:rebalances"

    def of_group(self, group: str) -> tuple[str, ...]:
        """Name all keys of a group that are not a partition's."""
        names = (self.group_config, self.assignment, self.members, self.handoffs, self.rebalances)
        return tuple(name(group) for name in names)

    def patterns(self) -> tuple[str, ...]:
        """Return what matches the keys of this life, and no other, in a SCAN.

        DNS labels and uids hold nothing that a pattern would take for more than itself.
        """
        life = self._queue_tag.removesuffix("}")
        return tuple(f"{life}{end}*" for end in ("}", "/", "#"))

    def log(self, partition: PartitionId) -> str:
        """Name the stream of the partition's batches."""
        return f"{self._partition_tag(partition)}:log"

    def meta(self, partition: PartitionId) -> str:
        """Name the hash of the partition's record."""
        return f"{self._partition_tag(partition)}:meta"

    def producers(self, partition: PartitionId) -> str:
        """Name the hash of the partition's numbered producers."""
        return f"{self._partition_tag(partition)}:producers"

    def series(self, partition: PartitionId) -> str:
        """Name the hash of the partition's series: producers by HTTP, each with one of its keys."""
        return f"{self._partition_tag(partition)}:series"

    def due(self, partition: PartitionId) -> str:
        """Name the sorted set of the partition's entries that wait, by when they are due."""
        return f"{self._partition_tag(partition)}:due"

    def scheduled(self, partition: PartitionId) -> str:
        """Name the hash of these entries: number to batch."""
        return f"{self._partition_tag(partition)}:scheduled"

    def leaving(self, partition: PartitionId) -> str:
        """Name the hash of entries on their way to partitions that have their slots now."""
        return f"{self._partition_tag(partition)}:leaving"

    def ids(self, partition: PartitionId) -> str:
        """Name the sorted set of the ids that the partition knows, by when they were known."""
        return f"{self._partition_tag(partition)}:ids"

    def id_entries(self, partition: PartitionId) -> str:
        """Name the hash of the ids of entries that wait: id to the number of the entry."""
        return f"{self._partition_tag(partition)}:id_entries"

    def removal(self, partition: PartitionId) -> str:
        """Name the hash of what is known of a partition that was removed, for a while."""
        return f"{self._partition_tag(partition)}:removal"

    def audit(self, partition: PartitionId) -> str:
        """Name the stream of the partition's audit record."""
        return f"{self._partition_tag(partition)}:audit"

    def replayed(self, partition: PartitionId) -> str:
        """Name the hash of dead letters that were sent back though earlier ones were not."""
        return f"{self._partition_tag(partition)}:replayed"

    def cursor(self, partition: PartitionId, group: str) -> str:
        """Name the hash of the partition's record for one group."""
        return f"{self._partition_tag(partition)}:cursor:{group}"

    def states(self, partition: PartitionId, group: str) -> str:
        """Name the hash of the states of keys that a group's members have left in a partition."""
        return f"{self._partition_tag(partition)}:states:{group}"

    def of_states(self, partition: PartitionId, group: str) -> list[str]:
        """Name what a script needs that changes a group's record and its states of keys."""
        return [*self.of_cursor(partition, group), self.states(partition, group)]

    def of_cursor(self, partition: PartitionId, group: str) -> list[str]:
        """Name what a script needs that changes a group's record in a partition."""
        return [self.meta(partition), self.cursor(partition, group), self.audit(partition)]

    def events(self) -> str:
        """Name the capped stream that wakes operators; one for all queues of the prefix."""
        return f"{self.prefix}:events"

    @property
    def _queue_tag(self) -> str:
        return f"{self.prefix}:{{{self.namespace}/{self.queue}@{self.uid}}}"

    def _group_tag(self, group: str) -> str:
        return f"{self.prefix}:{{{self.namespace}/{self.queue}@{self.uid}/{group}}}"

    def _partition_tag(self, partition: PartitionId) -> str:
        return f"{self.prefix}:{{{self.namespace}/{self.queue}@{self.uid}#{partition}}}"
