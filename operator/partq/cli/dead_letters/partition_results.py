"""What became of each partition when dead letters were replayed or dropped."""

from collections.abc import Mapping, Sequence

from partq.cli.queues.broker_session import unfinished
from partq.wire.calls.answers import UNSET, ErrorDetail
from partq.wire.calls.dead_letters import DropResult, ReplayResult

AT_ONCE = 8
"""How many partitions are dropped, or replayed in part, side by side, each by a separate call."""


def errors_of(
    row: ReplayResult | DropResult, kinds: Sequence[str] = ("error", "stopped")
) -> list[ErrorDetail]:
    """Return what is wrong with a partition, of the kinds that are asked for."""
    found = (getattr(row, kind) for kind in kinds)
    return [error for error in found if error is not UNSET]


def check(rows: Mapping[str, ReplayResult] | Mapping[str, DropResult], *kinds: str) -> None:
    """Fail if a partition did.

    Raises:
        PartqError: names one that failed, and how many did.
    """
    failed = [(name, errors[0]) for name, row in rows.items() if (errors := errors_of(row, kinds))]
    if failed:
        raise unfinished(failed, len(rows))
