"""Tells of records that spoke of messages which the log does not hold."""

import logging

from partq.broker.partition.owned_partition import OwnedPartition
from partq.excerpts import counted
from partq.metrics import BrokerMetrics
from partq.store.records.stored_partition import Mended

_log = logging.getLogger(__name__)


def tell(owned: OwnedPartition, metrics: BrokerMetrics) -> None:
    """Log and count what the claim of a partition has mended in the records of its groups."""
    for each in owned.mended:
        _log.error("partition %s, group %s: %s", owned.id, each.group, _sentence(each))
        metrics.skipped(each.group, max(0, each.cursor - each.before) + len(each.letters))


def describe(owned: OwnedPartition, group: str) -> str:
    """Return what the claim of a partition has mended in the record of a group; empty: nothing."""
    return next((_sentence(each) for each in owned.mended if each.group == group), "")


def _sentence(mended: Mended) -> str:
    parts = []
    if mended.cursor != mended.before:
        parts.append(f"its cursor was moved from {mended.before} to {mended.cursor}")
    if mended.letters:
        parts.append(
            counted(len(mended.letters), "dead letter is dropped", "dead letters are dropped")
        )
    changes = ", ".join(parts) or "acknowledgements or redelivery counts of them are dropped"
    return f"its record spoke of messages that the log does not hold; {changes}"
