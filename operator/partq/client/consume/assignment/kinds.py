"""What an assignment is, by the mode that the broker tells."""

from collections.abc import Mapping
from types import MappingProxyType

from partq.client.consume.assignment.assigned_partition import AssignedPartition
from partq.client.consume.assignment.keyed_partition import KeyedPartition
from partq.client.consume.assignment.sequential_partition import SequentialPartition
from partq.client.consume.assignment.turn_partition import TurnPartition
from partq.wire import frames

KINDS: Mapping[int, type[AssignedPartition]] = MappingProxyType(
    {
        frames.EXCLUSIVE: SequentialPartition,
        frames.SHARED: TurnPartition,
        frames.KEYED: KeyedPartition,
    }
)
