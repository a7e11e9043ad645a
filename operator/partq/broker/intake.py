"""Takes batches of producers: what may be stored waits for the log of its partition."""

from collections.abc import Callable

from partq.broker.config import QueueConfig
from partq.broker.log.appender import Reply
from partq.broker.ownership.lease import LeaseKeeper
from partq.broker.partition.owned_partition import OwnedPartition
from partq.broker.rescale.slot_check import check_batch, unknown_partition
from partq.core.clocks.time_to_live import check_ttl_ms
from partq.core.model import BrokerId, PartitionId
from partq.core.numbering.message_ids import is_digest
from partq.core.numbering.scheduled_ids import check_after_ms, check_due_ms
from partq.core.producer_series import series_of_layout
from partq.errors import (
    BadRequestError,
    BatchTooLargeError,
    NotStoredError,
    UnknownPartitionError,
)
from partq.excerpts import excerpt
from partq.metrics import BrokerMetrics
from partq.store.records.log import AppendBatch, AppendKind
from partq.wire import batch


class BatchIntake:
    """Checks batches and queues them.

    Args:
        broker: whose it is.
        config: of its queue; raises as `Broker.config`.
        find: returns an owned partition; raises as `Broker.find`.
        lease: of the broker.
        metrics: of the broker.
        wall_clock: returns unix seconds, to find times that are too far ahead.
        judged_ms: returns the time of a partition's Redis; None: its clock is in doubt.
    """

    def __init__(
        self,
        broker: BrokerId,
        *,
        config: Callable[[], QueueConfig],
        find: Callable[[PartitionId], OwnedPartition],
        lease: LeaseKeeper,
        metrics: BrokerMetrics,
        wall_clock: Callable[[], float],
        judged_ms: Callable[[PartitionId], float | None],
    ) -> None:
        self._broker = broker
        self._config = config
        self._find = find
        self._lease = lease
        self._metrics = metrics
        self._wall_clock = wall_clock
        self._judged_ms = judged_ms

    def publish(
        self,
        partition: PartitionId,
        data: bytes,
        *,
        producer: str,
        first: int,
        reply: Reply,
        ttl_ms: int = 0,
        age_ms: int = 0,
        fixed_generation: int = 0,
        start: int = -1,
        message_id: str = "",
        due_ms: int = 0,
        after_ms: int = 0,
    ) -> None:
        """Check a batch and queue it for the log; `reply` follows, with its place or an error.

        `fixed_generation`: of fixed numbers the partition's layout that they were counted for.
        `start`: the due number of a producer that only a predecessor knows; -1: of any other.
        `message_id`: the digest of the id of its only message; empty: it has none.
        `due_ms`, or else `after_ms`: it waits beside the log until then, or for that many ms; 0:
        it does not.

        Raises:
            BadRequestError, BadBatchError, BatchTooLargeError, WrongPartitionError,
            MessageTooLargeError, NotOwnerError, NotStoredError, UnknownPartitionError,
            StaleGenerationError: not stored.
            UnknownProducerError: a repeat, for a partition that was removed.
        """
        check_ttl_ms(ttl_ms)
        if due_ms or after_ms:
            check_due_ms(due_ms, self._wall_clock() * 1000)
            check_after_ms(after_ms)
        config = self._config()
        try:
            owned = self._find(partition)
        except UnknownPartitionError:
            is_repeat = bool(producer) and age_ms > 0
            raise unknown_partition(config.layout, partition, is_repeat=is_repeat) from None
        if len(data) > batch.MAX_STORED_BYTES:
            raise BatchTooLargeError(
                f"batch: {len(data)} bytes; at most {batch.MAX_STORED_BYTES}: send smaller ones"
            )
        if message_id and not is_digest(message_id):
            raise BadRequestError(
                f"message id: got {excerpt(message_id)}, expected its digest, 32 hexadecimal digits"
            )
        if not self._lease.is_valid:
            raise NotStoredError(
                f"partition {partition}: the lease of {self._broker} is over, so Redis does not "
                "answer; publish again",
                retry_after_s=1.0,
            )
        header, appended = check_batch(
            owned,
            config.layout,
            data,
            is_numbered=bool(producer),
            fixed_generation=fixed_generation,
            max_message_bytes=config.max_message_bytes,
        )
        if message_id and header.count != 1:
            raise BadRequestError(
                f"message id: got one for {header.count} messages, expected a batch of one"
            )
        digest = batch.digest(data, header) if producer else ""
        owned.appender.submit(
            AppendBatch(
                series_of_layout(producer, fixed_generation),
                *(first, header.count, appended, ttl_ms, digest, age_ms, fixed_generation, start),
                message_id=message_id,
                kind=self._kind(partition, due_ms, after_ms),
                due_ms=due_ms,
                after_ms=after_ms,
            ),
            reply,
        )
        self._metrics.accepted(header.count, len(data))

    def _kind(self, partition: PartitionId, due_ms: int, after_ms: int) -> AppendKind:
        if not due_ms and not after_ms:
            return "append"
        # Redis may think that it is due, and may be wrong: it waits until the clock is trusted.
        is_early = due_ms > self._wall_clock() * 1000 and self._judged_ms(partition) is None
        return "park" if is_early else "schedule"
