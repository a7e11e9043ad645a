"""What a broker knows of its queue: layout, limits, groups; read again each second."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from partq.core.layout import Layout
from partq.errors import UnknownQueueError
from partq.store.layouts import Layouts


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """The effective settings of the queue, as the operator wrote them."""

    layout: Layout
    groups: frozenset[str]
    keyless_policy: str
    max_message_bytes: int
    max_spool_bytes: int | None
    max_unacked_per_flow: int
    is_deleted: bool
    """The queue is being deleted: nothing of it is served any more."""

    @property
    def max_partition_bytes(self) -> int | None:
        """Each partition's share of the quota, in bytes; None: no quota."""
        if self.max_spool_bytes is None:
            return None
        return max(1, self.max_spool_bytes // self.layout.partition_count)


async def read_config(layouts: Layouts) -> QueueConfig:
    """Read layout and settings.

    Raises:
        UnknownQueueError: the queue is not there.
    """
    stored = await layouts.read()
    config = await layouts.read_config()
    if config is None:
        raise UnknownQueueError("the queue has no settings in the store: nobody has created it yet")
    spec: Mapping[str, Any] = config.spec
    limits: Mapping[str, Any] = spec["limits"]
    return QueueConfig(
        layout=stored.layout,
        groups=frozenset(spec["groups"]),
        keyless_policy=str(spec["keylessPolicy"]),
        max_message_bytes=int(limits["maxMessageBytes"]),
        max_spool_bytes=limits.get("maxSpoolBytes"),
        max_unacked_per_flow=int(limits["maxUnackedPerFlow"]),
        is_deleted=stored.tombstone,
    )
