"""What the brokers' audit record says of a run, for comparison with the consumers' journals."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from partq.core.model import Cause
from partq.lab.verdict.journal_rows import DeliveredRow
from partq.lab.verdict.judge import MAX_FINDINGS

_CAUSES = {cause.name.lower(): int(cause) for cause in Cause} | {"": int(Cause.NONE)}

_Window = tuple[int, int, int]
"""First offset, the one behind the last, and the number of the cause."""


class DeliveryRecord:
    """The deliveries to one group, and how much was published, as far as the record was read."""

    def __init__(self, group: str) -> None:
        self.published = 0
        """Offsets that were given to messages."""
        self._group = group
        self._windows: dict[tuple[str, int, int], list[_Window]] = {}
        """By partition, broker epoch and epoch, in the order of their first offsets."""

    def add(self, columns: Mapping[str, Sequence[object]]) -> None:
        """Take up records, as `partq.wire.audit.decode_columns` returns them."""
        names = ("kind", "group", "partition", "broker_epoch", "epoch", "first", "stop", "cause")
        touched = set()
        for kind, group, partition, broker_epoch, epoch, first, stop, cause in zip(
            *(columns[name] for name in names), strict=True
        ):
            if kind == "publish":
                self.published += stop - first
            elif kind == "deliver" and group == self._group:
                token = (partition, broker_epoch, epoch)
                window = (first, stop, _CAUSES.get(cause, -1))
                self._windows.setdefault(token, []).append(window)
                touched.add(token)
        for token in touched:
            self._windows[token].sort()

    def has(self, row: DeliveredRow) -> bool:
        """Say whether a message was delivered under the token, and for the cause, it came with."""
        windows = self._windows.get((row.partition, row.broker_epoch, row.epoch), [])
        before = windows[: bisect_right(windows, row.offset, key=lambda window: window[0])]
        return any(row.offset < stop and cause == row.cause for _, stop, cause in reversed(before))


def unrecorded(deliveries: Iterable[DeliveredRow], record: DeliveryRecord) -> tuple[int, list[str]]:
    """Return how many processings the record knows no delivery for, and the first as sentences."""
    missing = [row for row in deliveries if not record.has(row)]
    return len(missing), [
        f"not in the brokers' record: partition {row.partition} offset {row.offset} for "
        f"{row.member}, token {row.broker_epoch}.{row.epoch}, cause {row.cause}"
        for row in missing[:MAX_FINDINGS]
    ]
