"""How long a partition is left alone after attempts that failed: longer each time."""

from typing import NamedTuple

from partq.core.model import PartitionId

FIRST_BACKOFF_S = 0.1
"""After the first attempt that failed; doubled by each further one."""
MAX_BACKOFF_S = 5.0


class _RetryWait(NamedTuple):
    length_s: float
    until: float


class Backoffs:
    """The partitions of one group whose last attempt failed; instants on the caller's clock."""

    def __init__(self) -> None:
        self._pauses: dict[PartitionId, _RetryWait] = {}

    def may_try(self, partition: PartitionId, now: float) -> bool:
        """Whether a partition may be tried (again)."""
        pause = self._pauses.get(partition)
        return pause is None or now >= pause.until

    def failed(self, partition: PartitionId, now: float) -> None:
        """Note that an attempt failed."""
        last = self._pauses.get(partition)
        length_s = FIRST_BACKOFF_S if last is None else min(2 * last.length_s, MAX_BACKOFF_S)
        self._pauses[partition] = _RetryWait(length_s, now + length_s)

    def succeeded(self, partition: PartitionId) -> None:
        """Forget what failed before."""
        self._pauses.pop(partition, None)
