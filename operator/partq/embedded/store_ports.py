"""The store as the coordinator needs it, wherever one is hosted: neither knows the other."""

from partq.coordinator.ports import StorePorts
from partq.coordinator.queue_records import QueueRecords
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.assignments import Assignments
from partq.store.records.configs import Configs
from partq.store.records.events import Events
from partq.store.records.groups import Terms
from partq.store.records.handoffs import Handoffs
from partq.store.records.layout.layouts import Layouts
from partq.store.records.layout.seals import Seals
from partq.store.records.leases import Leases
from partq.store.records.lives import Lives
from partq.store.records.members import Members
from partq.store.records.partitions import Partitions
from partq.store.records.rebalances import Rebalances


def store_ports(store: Store, keys: Keys) -> StorePorts:
    """Return what the coordinator needs of the store, for one queue."""
    terms = Terms(store, keys)
    return StorePorts(
        layouts=Layouts(store, keys),
        seals=Seals(store, keys),
        configs=Configs(store, keys),
        partitions=Partitions(store, keys),
        leases=Leases(store, keys),
        members=Members(store, keys, terms),
        assignments=Assignments(store, keys, terms),
        handoffs=Handoffs(store, keys, terms),
        rebalances=Rebalances(store, keys, terms),
        terms=terms,
        events=Events(store, keys),
    )


def queue_records(store: Store, keys: Keys) -> QueueRecords:
    """Return the records that a process makes of a queue before its brokers serve it."""
    return QueueRecords(
        lives=Lives(store, keys),
        layouts=Layouts(store, keys),
        seals=Seals(store, keys),
        configs=Configs(store, keys),
        partitions=Partitions(store, keys),
    )
