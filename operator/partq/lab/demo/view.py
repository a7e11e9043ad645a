"""The demo's live view: a table on a terminal, lines anywhere else."""

import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from partq.core.model import PartitionId
from partq.core.rate import Rate
from partq.lab.verdict.progress import RunProgress, counts_by_member
from partq.wire.calls.status import StatusAnswer

LINE_EVERY_S: Final = 2.0
_STATE_STYLES: Final = {"Ready": "green", "Paused": "yellow", "Unbound": "red"}


class LiveView:
    """Shows a run's progress until it is left."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._rate = Rate()
        self._began = time.monotonic()
        self._line_due = self._began

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def note(self, text: str) -> None:
        """Write one line that stays: something was done or seen."""
        line = f"[{time.monotonic() - self._began:5.1f} s] {text}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def show(self, progress: RunProgress, status: StatusAnswer | None, group: str) -> None:
        """Show where the run stands; `status`: what a broker last said of the queue, if any did."""
        now = time.monotonic()
        seen = status.groups.get(group) if status is not None else None
        handoffs = seen.handoffs if seen is not None else []
        summary = _summary(progress, self._total, self._rate.add(now, progress.processed_count))
        summary += f", {len(handoffs)} under way"
        if self._live is not None:
            self._live.update(Group(_table(progress, status, group), Text(summary)), refresh=True)
        elif now >= self._line_due:
            self._line_due = now + LINE_EVERY_S
            members = counts_by_member(progress.owners)
            shares = " ".join(f"{member}:{members[member]}" for member in sorted(members))
            self.note(f"{summary} | {shares}")


def _summary(progress: RunProgress, total: int, rate: float) -> str:
    return (
        f"published {progress.published_count:,} of {total:,} | "
        f"delivered {progress.processed_count:,} | {rate:,.0f}/s | "
        f"lag {sum(progress.lag().values()):,} | handoffs {progress.handoff_count}"
    )


def _table(progress: RunProgress, status: StatusAnswer | None, group: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("partition", "broker", "consumer", "state"):
        table.add_column(name)
    table.add_column("delivered", justify="right")
    table.add_column("lag", justify="right")
    lag = progress.lag()
    records = status.partitions if status is not None else {}
    seen = status.groups.get(group) if status is not None else None
    rows = seen.partitions if seen is not None else {}
    for partition in sorted(progress.owners, key=PartitionId.parse):
        owner = progress.owners[partition]
        # A broker may not know yet what the consumer or its killer knows.
        row, record = rows.get(partition), records.get(partition)
        state = "Unbound" if not owner.is_ready else "Ready" if row is None else row.state
        table.add_row(
            partition,
            (record.broker if record is not None else "") or "none",
            owner.member,
            Text(state, style=_STATE_STYLES.get(state, "")),
            f"{progress.processed_by_partition[partition]:,}",
            f"{lag.get(partition, 0):,}",
        )
    return table
