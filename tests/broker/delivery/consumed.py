"""A partition as one group consumes it, without a broker around it."""

from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.core.model import BrokerEpoch, Epoch, MemberId, PartitionId


def consumed(index, book):
    return ConsumedPartition(
        partition=PartitionId(1, index),
        broker_epoch=BrokerEpoch(1),
        group="workers",
        member=MemberId("m"),
        incarnation="i",
        epoch=Epoch(1),
        closed_attempt=0,
        book=book,
    )
