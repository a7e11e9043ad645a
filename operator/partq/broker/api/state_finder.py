"""Reads the state of a key or of a session, wherever a change of the partition count has it."""

from collections.abc import Sequence

from partq.broker.broker import Broker
from partq.core.model import PartitionId


async def find_state(
    broker: Broker, history: Sequence[PartitionId], group: str, key: str
) -> bytes | None:
    """Return the state of a key or of a session; None: it has none.

    `history`: the partitions that it came through, oldest first. The last one is owned here. Until
    the group has the messages of a partition, the state is in one before it.
    """
    *before, at = history
    consumed, states = broker.find(at).find(group), broker.ack_handler.states
    if not consumed.is_gated:
        return await states.find(consumed, key)
    for at in reversed(before):
        found = await broker.layout_follower.read_progress(at, group)
        if found is None or found.is_gate_open:
            break
    return await states.store.read(at, group, key)
