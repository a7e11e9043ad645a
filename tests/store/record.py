"""What tests of the partition's record share."""

from itertools import count

GROUP = "workers"
NUMBERS = count()
"""Of the writes of books: each is later than all before."""
NOTHING = {"cursor": 0, "acked": [], "redeliveries": {}}


async def commit(partitions, partition, broker_epoch, **changes):
    arguments = {"source": None, "epoch": 0, "attempt": 1, "target": "m-0", "cause": 0, **NOTHING}
    return await partitions.commit(
        partition,
        GROUP,
        number=next(NUMBERS),
        broker_epoch=broker_epoch,
        **{**arguments, **changes},
    )
