"""Tells of records that spoke of messages which the log does not hold."""

import logging

from partq.broker.partition import OwnedPartition
from partq.metrics import BrokerMetrics

_log = logging.getLogger(__name__)


def tell(owned: OwnedPartition, metrics: BrokerMetrics) -> None:
    """Log and count what the claim of a partition has mended in the records of its groups."""
    for each in owned.mended:
        _log.error(
            "partition %s, group %s: its record spoke of messages that the log does not hold; "
            "its cursor was moved from %d to %d, and %d dead letters are dropped",
            *(owned.id, each.group, each.before, each.cursor, len(each.letters)),
        )
        metrics.skipped(each.group, max(0, each.cursor - each.before) + len(each.letters))
