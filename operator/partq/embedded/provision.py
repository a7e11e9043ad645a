"""What the operator does for a queue on Kubernetes before its brokers run: its records in Redis."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from partq.errors import SettingsError
from partq.resources import PartitionedQueue, Resources, effective_group, effective_queue
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.layouts import Layouts, StoredConfig
from partq.store.partitions import Partitions

log = logging.getLogger("partq.embedded")


async def provision(
    store: Store, queue: PartitionedQueue, resources: Resources, *, uid: str
) -> tuple[str, ...]:
    """Make or update the records of a queue and its groups, and return the names of the groups.

    May be repeated at any time. A group that is on record but no longer in the file is kept: it
    may still hold messages that it has not read, and nobody has said to drop them.

    Raises:
        SettingsError: the queue is on record with another number of partitions.
        StoreUnavailableError: half of it may be done; a repeat does the rest.
    """
    namespace, name = queue.key
    keys = Keys(store.prefix, namespace, name, uid)
    layouts, partitions = Layouts(store, keys), Partitions(store, keys)
    current = await layouts.register(uid)
    if current != uid:
        raise SettingsError(
            f"queue {namespace}/{name}: the store holds its life {current}, the data directory "
            f"names {uid}; they do not belong together"
        )
    layout = (await layouts.create_queue({1: queue.spec.partitions})).layout
    if layout.partition_count != queue.spec.partitions:
        raise SettingsError(
            f"queue {namespace}/{name}: spec.partitions: got {queue.spec.partitions}, expected "
            f"{layout.partition_count}, which its data has; the number cannot be changed yet"
        )
    ids = layout.partitions()
    await asyncio.gather(*map(partitions.create, ids))

    known = await layouts.read_config()
    kept = set(known.spec["groups"]) if known else set()
    groups = {group.metadata.name: group for group in resources.groups_of(queue)}
    for left_out in sorted(kept - set(groups)):
        log.warning("group %s of %s/%s is not in the file: it is kept", left_out, namespace, name)
    for group_name, group in groups.items():
        start = group.spec.start
        await asyncio.gather(*(partitions.add_group(each, group_name, start=start) for each in ids))
        spec = effective_group(group, queue)
        stored = await layouts.read_group_config(group_name)
        generation = _generation(stored, spec)
        await layouts.write_group_config(group_name, spec, resource_generation=generation)
    # The groups become known last: brokers serve a group when all its cursors are there.
    names = tuple(sorted(kept | set(groups)))
    spec = effective_queue(queue, names)
    await layouts.write_config(spec, resource_generation=_generation(known, spec))
    return names


def _generation(stored: StoredConfig | None, spec: Mapping[str, Any]) -> int:
    """Return the resource generation of `spec`: as Kubernetes counts, one more for each change."""
    if stored is None:
        return 1
    return stored.resource_generation + (stored.spec != spec)
