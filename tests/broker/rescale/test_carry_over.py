"""What a new partition learns of a producer that only its predecessors know."""

from types import SimpleNamespace

import pytest

from partq.broker.rescale.carry_over import CarryOver
from partq.core.model import PartitionId
from partq.core.producer_record import ProducerRecord

NEW = PartitionId(2, 0)
GIVERS = {PartitionId(1, 0): (range(9),), PartitionId(1, 1): (range(9, 20),)}
NAME = "dlq:0f3a9c1e#1.0/workers"


class Log:
    """What partitions know of the producer."""

    def __init__(self, dues):
        self.dues = dues

    async def producer_record(self, partition, name):
        due = self.dues.get(partition)
        return None if due is None else ProducerRecord(due, ())


@pytest.mark.parametrize("dues", [(3, 8), (8, 3)])
async def test_an_outbox_goes_on_behind_the_highest_number_of_all_predecessors(dues):
    """A lower one would have the letters between stored twice."""
    layout = SimpleNamespace(is_open=True, predecessors=GIVERS)
    owned = {NEW: SimpleNamespace(layout=layout, known_producers=set())}
    log = Log(dict(zip(GIVERS, dues, strict=True)))
    found = await CarryOver(owned, log, seals=None).find(NEW, NAME, slot=1)
    assert found.due == 8
