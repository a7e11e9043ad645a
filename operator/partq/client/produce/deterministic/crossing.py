"""How a producer whose numbers stand for the same messages gets over a change of the layout.

It sends nothing to the partitions that lose slots, until these have reached the new layout. What
they have stored does not change then, so it is known of each message that waits whether it is
stored. The rest is numbered by the new layout, as by a process that begins again behind the change.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from partq.client.produce.batching import BatchLimits, SealedBatch
from partq.client.produce.buffer_pool import BufferPool
from partq.client.produce.deterministic.ended_series import EndedSeries
from partq.client.produce.deterministic.ordered_cut import ordered_cut, split
from partq.client.produce.deterministic.stored_messages import StoredMessages
from partq.client.produce.partition_sender import PartitionSender
from partq.client.produce.results import UNKNOWN_OFFSET
from partq.client.producer_state import ProducerState, producer_state
from partq.client.producer_stats import ProducerTally
from partq.client.transport.liveness import Clock
from partq.client.transport.session import Session
from partq.core.model import PartitionId
from partq.core.slot_table import SlotRanges
from partq.errors import PartqError

STATE_TIMEOUT_S = 30.0
"""How long the brokers are asked before the log says that they have not reached the layout."""


class CrossedMessages(NamedTuple):
    """What goes on behind a change."""

    batches: Mapping[PartitionId, Sequence[SealedBatch]]
    """By the partition that takes them; without numbers."""
    broken: Mapping[PartitionId, PartqError]
    """Partitions with slots of one that takes no more messages: nor do they."""


class FixedCrossing:
    """Reads how far the producer is, and gives its messages to the partitions behind a change.

    Args:
        session: to the brokers.
        producer: its id.
        stored: which of its messages are stored.
        ended: what is stored in the series that changes have ended.
        buffer_pool: in which those that wait are counted.
        tally: counts what is found to be stored.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        session: Session,
        producer: str,
        stored: StoredMessages,
        ended: EndedSeries,
        *,
        buffer_pool: BufferPool,
        tally: ProducerTally,
        clock: Clock,
    ) -> None:
        self._session = session
        self._producer = producer
        self._stored = stored
        self._ended = ended
        self._buffer_pool = buffer_pool
        self._tally = tally
        self._clock = clock

    async def state(self) -> ProducerState:
        """Return how far the producer is, once a change has reached all owners.

        Raises: as `producer_state`.
        """
        return await producer_state(
            self._session, self._producer, timeout_s=STATE_TIMEOUT_S, clock=self._clock
        )

    async def check_ended(self, urls: Iterable[str]) -> None:
        """Ask whether what was stored before the last change still is; raises as `check` there."""
        await self._ended.check(urls)

    def over(
        self,
        state: ProducerState,
        senders: Iterable[PartitionSender],
        ended: Mapping[PartitionSender, SlotRanges],
        limits: BatchLimits,
    ) -> CrossedMessages:
        """Return what the senders that have `ended` leave; what is stored of it is answered.

        Args:
            state: after the change.
            senders: all of the producer.
            ended: those whose partitions have lost slots, with the slots that these had.
            limits: of new batches.

        Raises:
            ConflictError: messages that were stored are not known any more.
        """
        table = state.queue_layout.layout.table
        self._ended.note(state)
        self._stored.cross(
            state,
            {
                (each.partition, each.fixed_generation): (
                    each.position if each.broken is None else None
                )
                for each in senders
            },
        )
        windows = {each.partition: each.remove_window() for each in ended}
        found = ordered_cut(windows, limits, self._stored.find_stored, table.partition_of)
        batches = {}
        for partition, crossed in found.batches.items():
            stored, batches[partition] = split(crossed, found.stored_counts[partition])
            for batch in stored:
                self._buffer_pool.give_back(batch.count, batch.size_bytes)
                self._tally.stored(batch.count, None)
                batch.resolve_stored(partition, UNKNOWN_OFFSET)
        return CrossedMessages(
            batches,
            {
                partition: each.broken
                for each, had in ended.items()
                if each.broken is not None
                for partition, ranges in table.slots.items()
                if _overlap(had, ranges)
            },
        )


def _overlap(some: SlotRanges, others: SlotRanges) -> bool:
    return any(
        max(one.start, other.start) < min(one.stop, other.stop) for one in some for other in others
    )
