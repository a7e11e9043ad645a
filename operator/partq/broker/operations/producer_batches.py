"""Digests of a producer's last batches, for a producer that repeats itself."""

import asyncio
from collections.abc import Sequence

from partq.broker.broker import Broker
from partq.core.model import PartitionId
from partq.errors import BadBatchError
from partq.wire.batch import read_outline
from partq.wire.calls.answers import ProducerOutline

MAX_READS = 4
"""Batches that are read at once: they may be large."""


async def read_outlines(
    broker: Broker, partitions: Sequence[PartitionId], producer: str
) -> dict[str, ProducerOutline]:
    """Return the outline of a producer's last batch per partition, where that is still stored."""
    outlines: dict[str, ProducerOutline] = {}
    gate = asyncio.Semaphore(MAX_READS)

    async def read(partition: PartitionId) -> None:
        async with gate:
            found = await broker.log.last_batch(partition, producer)
        if found is None:
            return
        first, entry = found
        try:
            crc = read_outline(entry.data)
        except BadBatchError:
            return  # who reads it is told; here it is only not compared
        outlines[str(partition)] = ProducerOutline(first, entry.count, crc)

    await asyncio.gather(*map(read, partitions))
    return outlines
