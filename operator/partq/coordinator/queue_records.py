"""Interfaces to the records of a queue that are made before its brokers serve it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from partq.coordinator.ports import PartitionStore, SealStore
from partq.core.records import ConfigRecord, LayoutRecord, LifeRecord
from partq.wire.effective_specs import EffectiveSpec


class LifeRegistry(Protocol):
    """The lives of the queue's name."""

    async def register(self, uid: str) -> LifeRecord:
        """Register a life of the queue's name, and return the current one."""


class LayoutMaker(Protocol):
    """The layout of the queue, with the operation that makes it."""

    async def create_queue(self, generations: Mapping[int, int]) -> LayoutRecord:
        """Make the layout, and return the stored one."""

    async def read(self) -> LayoutRecord:
        """Return the layout."""


class ConfigWriter(Protocol):
    """The configs of the queue and its groups, with the operations that write them."""

    async def read_queue(self) -> ConfigRecord | None:
        """Return the queue's config."""

    async def write_queue(self, spec: EffectiveSpec, *, resource_generation: int) -> bool:
        """Write the queue's config; False: somebody else has written it meanwhile."""

    async def read_group(self, group: str) -> ConfigRecord | None:
        """Return a group's config."""

    async def begin_group(self, group: str) -> int:
        """Say when a group begins that has no config, for its first one."""

    async def write_group(
        self, group: str, spec: EffectiveSpec, *, resource_generation: int, born: int
    ) -> bool:
        """Write a group's config; False: somebody else has written it meanwhile."""

    async def erase_group(self, group: str, *, born: int) -> None:
        """Take a group off the record, unless it was created again meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRecords:
    """The records of one queue that are made before its brokers serve it."""

    lives: LifeRegistry
    layouts: LayoutMaker
    seals: SealStore
    configs: ConfigWriter
    partitions: PartitionStore
