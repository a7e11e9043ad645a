"""What tests of the partition's record share."""

from itertools import count

GROUP = "workers"
NUMBERS = count()
"""Of the writes of books: each is later than all before."""
BORN = 1
"""When the group of these tests began, as its cursor says."""
NOTHING = {"cursor": 0, "acked": [], "redeliveries": {}}


def write(born=BORN):
    """Return what every write of a book names: its number, later than all before, and its group."""
    return {"number": next(NUMBERS), "born": born}


async def born(partitions, partition, group):
    """Return when a group began, as its cursor says."""
    return (await partitions.read_cursor(partition, group)).born


async def commit(partitions, partition, broker_epoch, **changes):
    arguments = {"source": None, "epoch": 0, "attempt": 1, "target": "m-0", "cause": 0, **NOTHING}
    return await partitions.commit(
        partition,
        GROUP,
        broker_epoch=broker_epoch,
        **{**write(), **arguments, **changes},
    )


async def flush(partitions, partition, broker_epoch, group, cursor, **more):
    """Move a group's cursor: what is below it is acknowledged."""
    await partitions.flush(
        partition,
        group,
        **write(await born(partitions, partition, group)),
        broker_epoch=broker_epoch,
        cursor=cursor,
        acked=[],
        redeliveries={},
        **more,
    )
