"""The store of one queue in memory, as far as the operator itself calls it."""

from types import SimpleNamespace

from partq.core.layout import Layout
from partq.core.records import LeaseIndex, LifeRecord
from partq.errors import UnknownQueueError
from partq.kube.status.facts import Durability


class FakeStore:
    """What is on record for a queue; it outlives the operator that opened it."""

    def __init__(self, partition_count=None):
        self.layout = Layout.first(partition_count) if partition_count else None
        self.current_uid = None
        self.config = None
        self.groups = {}
        self.writes = []
        """What was called that changes something."""
        self.records = SimpleNamespace(
            lives=self, layouts=self, seals=self, configs=self, partitions=self
        )
        self.ports = SimpleNamespace(
            layouts=self, partitions=self, seals=self, leases=SimpleNamespace(read=self.read_leases)
        )
        self.partitions = self
        self.progress = {}
        """Records of partitions that a change is about."""
        self.gates = {}
        """How far groups have come there."""
        self.leases = {}
        self.lag_of = {}
        """Group → partition → how many messages it has not acknowledged."""

    async def register(self, uid):
        self.writes.append("register")
        self.current_uid = self.current_uid or uid
        return LifeRecord(self.current_uid, "partq:{ns/q}:lives")

    async def create_queue(self, generations):
        self.writes.append("create_queue")
        self.layout = self.layout or Layout.first(generations[1])
        return await self.read()

    async def read(self):
        if self.layout is None:
            raise UnknownQueueError("the store has no layout of it")
        return SimpleNamespace(layout=self.layout, tombstone=False)

    async def read_queue(self):
        return self.config

    async def write_queue(self, spec, *, resource_generation):
        self.writes.append("write_queue")
        self.config = _config(spec, resource_generation)
        return True

    async def read_group(self, group):
        return self.groups.get(group)

    async def begin_group(self, group):
        return 1

    async def write_group(self, group, spec, *, resource_generation, born):
        self.groups[group] = _config(spec, resource_generation)
        return True

    async def erase_group(self, group, *, born):
        self.groups.pop(group, None)

    async def create(self, partition):
        self.writes.append("create")

    async def fence_groups(self, partition):
        self.writes.append("fence_groups")

    async def add_group(self, partition, group, *, start, fence):
        self.writes.append("add_group")

    async def births(self, wanted):
        return dict.fromkeys(wanted, 0)

    async def read_many(self, partitions, *, only_reachable=False):
        empty = SimpleNamespace(groups=frozenset(), groups_fence=0)
        if only_reachable:
            return {each: self.progress[each] for each in partitions if each in self.progress}
        return dict.fromkeys(partitions, empty)

    async def read_progress(self, wanted):
        return {place: self.gates[place] for place in wanted if place in self.gates}

    async def read_leases(self):
        return LeaseIndex(self.leases, {})

    async def durability(self):
        return Durability(is_appending=True, sync="always", is_nearly_full=False)

    async def lags(self, group, partitions):
        return self.lag_of.get(group, {})

    async def close(self):
        pass


def _config(spec, generation):
    groups = tuple(spec.get("groups", ()))
    return SimpleNamespace(spec=spec, resource_generation=generation, groups=groups, born=1)
