"""Why a batch found no room: in the queue's quota, in Redis, or among the ids that are known."""

from partq.broker.broker import Broker
from partq.core.model import PartitionId
from partq.errors import QuotaExceededError
from partq.store.records.log import AppendResult


def quota_refusal(
    broker: Broker, partition: PartitionId, result: AppendResult
) -> QuotaExceededError:
    """Return the error of a batch that was refused as `quota_exceeded`."""
    if result.retry_after_ms >= 0:
        return broker.known_ids.refusal(partition, result.retry_after_ms)
    return broker.quota.refusal(partition)
