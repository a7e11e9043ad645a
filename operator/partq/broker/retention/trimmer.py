"""Trims the logs whose groups have moved on."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from partq.broker.ownership.server_looks import ServerLooks, Spawn
from partq.broker.partition.owned_partition import OwnedPartition
from partq.core.model import PartitionId
from partq.errors import ConflictError, PartqError
from partq.store.records.log import Log


class Trimmed(NamedTuple):
    """Result of the last trim of a log."""

    broker_epoch: int
    """Under which it was done: a store that has forgotten it is claimed again."""
    marks: tuple[int, ...]
    first: int
    is_done: bool


class Trimmer:
    """Frees what every group has done with."""

    def __init__(
        self,
        owned: Mapping[PartitionId, OwnedPartition],
        log: Log,
        *,
        groups: Callable[[], frozenset[str]],
        on_lost: Callable[[OwnedPartition, PartqError], None],
        spawn: Spawn,
    ) -> None:
        self._looks = ServerLooks("trimming", owned, log, spawn)
        self._log = log
        self._groups = groups
        """Those that the queue names."""
        self._on_lost = on_lost
        self._trimmed: dict[PartitionId, Trimmed] = {}

    async def trim(self) -> None:
        """Trim each log once, if there may be something to free.

        The store knows a mark only after its flush, and frees so much in one call: a log is left
        alone when nothing has moved since a call that freed nothing.

        Raises:
            StoreUnavailableError: no answer, or of a Redis Cluster a node is silent, and its logs
                are trimmed another time.
        """
        await self._looks.look(self._trim)

    async def _trim(self, partitions: Sequence[OwnedPartition]) -> None:
        wanted = self._groups()
        for owned in partitions:
            if not wanted <= owned.groups.keys():
                continue  # one has no cursor here yet, and is to have what is stored
            # Without a group only the time to live frees anything.
            marks = tuple(each.mark for each in owned.groups.values()) or (owned.expired,)
            last = self._trimmed.get(owned.id)
            if last is not None and last.broker_epoch != owned.broker_epoch:
                last = None
            if not (owned.groups or owned.expired) or (
                last is not None and last.marks == marks and last.is_done
            ):
                continue
            try:
                found = await self._log.trim(
                    owned.id, broker_epoch=owned.broker_epoch, expired=owned.expired
                )
            except ConflictError as error:
                self._on_lost(owned, error)
            else:
                # What holds more than these groups goes without a word: pins, a removed group.
                is_done = (
                    last is not None
                    and (last.first, last.marks) == (found.first, marks)
                    and found.held >= min(marks)
                )
                self._trimmed[owned.id] = Trimmed(owned.broker_epoch, marks, found.first, is_done)
