"""Make and update the records of a queue in Redis, for brokers that run as child processes.

On Kubernetes `kube/reconcile/queue_worker.py` does the same, by `coordinator/provision.py` as here.
"""

import logging

from partq.coordinator.provision import provision as make_records
from partq.coordinator.rules import (
    check_key_shared,
    check_partition_count,
    wanted_partition_count,
)
from partq.embedded.store_ports import queue_records
from partq.errors import SettingsError, UnknownQueueError
from partq.resources import PartitionedQueue, Resources, effective_group, effective_queue
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.layout.layouts import Layouts
from partq.store.records.lives import Lives

log = logging.getLogger("partq.embedded")


async def holds(store: Store, queue: PartitionedQueue, *, uid: str) -> bool:
    """Say whether the store has a queue's records, and they are of this life of its name."""
    keys = Keys(store.prefix, *queue.key, uid)
    if await Lives(store, keys).current_uid() != uid:
        return False
    try:
        await Layouts(store, keys).read()
    except UnknownQueueError:
        return False
    return True


async def provision(
    store: Store,
    queue: PartitionedQueue,
    resources: Resources,
    *,
    uid: str,
    keeps_partition_count: bool = False,
) -> tuple[str, ...]:
    """Make or update the records of a queue and its groups, and return the names of the groups.

    Another number of partitions than the stored one is a change, which the coordinator makes;
    with `keeps_partition_count` the stored one holds.

    May be repeated at any time. A stored group that is no longer in the file is kept: it
    may still hold messages that it has not read, and nobody has said to drop them. One whose
    removal was cut short goes.

    Raises:
        SettingsError: another queue has its name in the store, or a group refuses the spec or the
            partition count.
        StoreUnavailableError: half of it may be done; a repeat does the rest.
    """
    namespace, name = queue.key
    keys = Keys(store.prefix, namespace, name, uid)
    groups = resources.groups_of(queue)
    records, count = queue_records(store, keys), queue.spec.partitions
    stored = await records.configs.read_queue()
    wanted = wanted_partition_count(stored.spec) if stored is not None else None
    if keeps_partition_count:
        count = wanted or count
    specs = {group.metadata.name: effective_group(group, queue) for group in groups}
    for group, spec in specs.items():
        before = await records.configs.read_group(group)
        try:
            check_key_shared(
                effective_queue(queue, ()), spec, None if before is None else before.spec
            )
        except SettingsError as error:
            raise SettingsError(f"group {group} of {namespace}/{name}: {error}") from None
    if stored is not None and wanted not in (None, count):
        there = {
            group: found.spec
            for group in stored.groups
            if (found := await records.configs.read_group(group)) is not None
        }
        try:
            check_partition_count({"partitions": count}, there)
        except SettingsError as error:
            raise SettingsError(f"queue {namespace}/{name}: {error}") from None
        log.warning(
            "queue %s/%s has %s partitions and is to have %d: it is changed",
            namespace,
            name,
            wanted,
            count,
        )
    left_out = await make_records(
        records,
        name=f"{namespace}/{name}",
        uid=uid,
        partition_count=count,
        spec=effective_queue(queue, ()),
        groups=specs,
        keeps_others=True,
        repairs=False,
    )
    for group in left_out:
        log.warning(
            "group %s of %s/%s is not in the file: it is kept; `partq groups remove` removes it",
            group,
            namespace,
            name,
        )
    return tuple(sorted({*left_out, *(group.metadata.name for group in groups)}))
