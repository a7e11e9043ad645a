"""What tests share that make a queue's records in a real Redis."""

from partq.core.layout import Layout

LAYOUT = Layout.first(4)
PARTITIONS = LAYOUT.partitions()


class CutShortError(Exception):
    """The process dies."""


async def births_of(partitions, group):
    return await partitions.births((partition, group) for partition in PARTITIONS)
