"""The ids of messages that partitions know, so that a repeat is not stored."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from partq.core.model import BrokerEpoch, PartitionId
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.refusals import FENCED, fenced
from partq.store.server import Channel

MAX_FORGOTTEN = 1000
"""How many ids one call forgets."""


class Forgotten(NamedTuple):
    """What a partition knows after a call that has forgotten some."""

    known_count: int
    is_done: bool
    """Whether none is left that is older than it has to be."""


class IdRecords:
    """Reads, adopts and forgets ids of one queue's partitions; appends enter them.

    An id is its digest, as `id_digest` returns it.
    """

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def forget(
        self, partition: PartitionId, *, broker_epoch: BrokerEpoch, window_ms: int
    ) -> Forgotten:
        """Forget ids that are known for `window_ms`, the oldest first; 0: all.

        Raises:
            FencedError: another broker has claimed the partition; nothing is forgotten.
            StoreUnavailableError: no answer; a repeat does the rest.
        """
        answer = await self._store.run(
            "forget_ids",
            [self._keys.meta(partition), self._keys.ids(partition)],
            [broker_epoch, window_ms, MAX_FORGOTTEN],
            channel=Channel.BULK,
        )
        if answer == FENCED:
            raise fenced(partition, broker_epoch)
        return Forgotten(int(answer[0]), answer[1] == 0)

    async def find(self, wanted: Mapping[str, Collection[PartitionId]]) -> dict[str, int]:
        """Return since when ids are known, in ms by Redis's clock; the others are left out.

        `wanted`: the partitions that may know each id; the latest of them counts.

        Raises:
            StoreUnavailableError: one of them does not answer.
        """
        pairs = [(each, partition) for each, found in wanted.items() for partition in found]
        scores = await self._store.read_each(
            ("ZSCORE", self._keys.ids(partition), bytes.fromhex(each)) for each, partition in pairs
        )
        known: dict[str, int] = {}
        for (each, _), score in zip(pairs, scores, strict=True):
            if score is not None:
                known[each] = max(int(score), known.get(each, 0))
        return known

    async def adopt(
        self, partition: PartitionId, ids: Mapping[str, int], *, broker_epoch: BrokerEpoch
    ) -> None:
        """Know ids that predecessors know, since when they do; a repeat changes nothing.

        Raises:
            FencedError: another broker has claimed the partition; nothing is written.
            StoreUnavailableError: no answer; they may be written, or will be.
        """
        args: list[str | bytes | int] = [broker_epoch]
        for each, at_ms in ids.items():
            args += (bytes.fromhex(each), at_ms)
        answer = await self._store.run(
            "adopt_ids",
            [self._keys.meta(partition), self._keys.ids(partition)],
            args,
            channel=Channel.APPEND,
            needs_replica=True,
        )
        if answer == FENCED:
            raise fenced(partition, broker_epoch)
