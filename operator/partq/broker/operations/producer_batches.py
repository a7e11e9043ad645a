"""What is stored of a producer, for a producer that repeats itself."""

import asyncio
from collections.abc import Sequence

from partq.broker.broker import Broker
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.numbering.fixed_series import FixedSeries, earlier_series, series_of
from partq.core.producer_series import series_of_layout
from partq.errors import BadBatchError
from partq.wire.batch import read_outline
from partq.wire.calls.answers import ProducerOutline

MAX_READS = 4
"""Batches that are read at once: they may be large."""
MAX_LOOKUPS = 64
"""Numbers that are read at once."""


async def read_earlier(broker: Broker, layout: Layout, producer: str) -> dict[str, dict[int, int]]:
    """Return what a producer with fixed numbers has stored under earlier layouts of partitions."""
    gate = asyncio.Semaphore(MAX_LOOKUPS)

    async def read(series: FixedSeries) -> int | None:
        async with gate:
            name = series_of_layout(producer, series.generation)
            return await broker.log.producer_due(series.partition, name)

    # Of many changes it takes a while; deliveries and leases do not wait for it.
    asked = earlier_series(await asyncio.to_thread(series_of, layout))
    found: dict[str, dict[int, int]] = {}
    for series, due in zip(asked, await asyncio.gather(*map(read, asked)), strict=True):
        if due:
            found.setdefault(str(series.partition), {})[series.generation] = due
    return found


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
