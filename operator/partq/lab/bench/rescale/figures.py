"""How long publishes take in changes of the partition count and between them, as JSON and text."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from partq.core.hashing import slot_of
from partq.lab.bench.handoff.figures import summary
from partq.lab.bench.rescale.drive import CountChange, RescaleLoad
from partq.lab.verdict.journal_rows import PublishedRow
from partq.lab.verdict.judge import Verdict
from partq.lab.verdict.report import one_line, to_json
from partq.lab.verdict.rescale_figures import publish_pauses_ms
from partq.lab.verdict.timeline import RunChange

Summary = Mapping[str, float]
"""Count, p50, p99 and max."""


class SendTimes(NamedTuple):
    """How long publishes took, in milliseconds, from `send` to the confirmation."""

    calm: list[float]
    """Sent when no change was under way."""
    changing: list[float]
    """Sent between the request for a change and its end, of all keys."""
    staying: list[float]
    """Sent between the request for a change and its opening, with keys that keep their partition.
    """
    moving: list[float]
    """Sent in the same time, with keys that get a new one."""


def send_times(rows: Iterable[PublishedRow], changes: Sequence[CountChange]) -> SendTimes:
    """Return the times of publishes by what was going on when they were sent."""
    found = SendTimes([], [], [], [])
    is_moving = [_moving(change) for change in changes]
    for row in rows:
        sent_ns, took_ms = row.at_ns - row.took_us * 1000, row.took_us / 1000
        for change, moves in zip(changes, is_moving, strict=True):
            if change.at_ns <= sent_ns < change.settled_ns:
                found.changing.append(took_ms)
                if sent_ns < change.opened_ns:
                    (found.moving if moves(row.key) else found.staying).append(took_ms)
                break
        else:
            found.calm.append(took_ms)
    return found


def pauses_ms(rows: Sequence[PublishedRow], changes: Sequence[CountChange]) -> list[float]:
    """Return how long each key that published in a change waited for its new partition."""
    found: list[float] = []
    for change in changes:
        whole = RunChange(trigger="", at_ns=change.at_ns, until_ns=change.settled_ns)
        found += publish_pauses_ms(whole, change.new, rows).values()
    return found


def _moving(change: CountChange) -> Callable[[str], bool]:
    new = change.new
    return cache(lambda key: str(change.after.partition_of(slot_of(key))) in new)


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleFigures:
    """What was measured; lengths are in milliseconds."""

    load: RescaleLoad
    pauses: Summary
    """Of keys that moved."""
    calm: Summary
    changing: Summary
    staying: Summary
    moving: Summary
    openings: Summary
    """From the request for a change to its opening."""
    verdict: Verdict

    def p99_ratio(self, found: Summary) -> float | None:
        """Return the p99 of some publishes over that of those between changes; None: no figure."""
        if not self.calm["p99"] or not found["count"]:
            return None
        return round(found["p99"] / self.calm["p99"], 2)

    def to_json(self) -> dict[str, object]:
        """Return all figures under stable names."""
        return {
            "pause_of_moving_keys_ms": self.pauses,
            "publish_ms": {
                "calm": self.calm,
                "changing": self.changing,
                "staying_keys": self.staying,
                "moving_keys": self.moving,
            },
            "p99_ratio": self.p99_ratio(self.changing),
            "p99_ratio_of_staying_keys": self.p99_ratio(self.staying),
            "opening_ms": self.openings,
            **asdict(self.load),
            **to_json(self.verdict),
            "is_good": self.verdict.is_good,
            "verdict": one_line(self.verdict),
        }


def figures_of(
    load: RescaleLoad,
    changes: Sequence[CountChange],
    rows: Sequence[PublishedRow],
    verdict: Verdict,
) -> RescaleFigures:
    """Return what the journal of a run says."""
    times = send_times(rows, changes)
    return RescaleFigures(
        load=load,
        pauses=summary(pauses_ms(rows, changes)),
        calm=summary(times.calm),
        changing=summary(times.changing),
        staying=summary(times.staying),
        moving=summary(times.moving),
        openings=summary([(each.opened_ns - each.at_ns) / 1e6 for each in changes]),
        verdict=verdict,
    )


def render(figures: RescaleFigures) -> str:
    """Return a page for people."""
    console = Console(width=100, force_terminal=False)
    table = Table(box=None, pad_edge=False)
    table.add_column("milliseconds")
    for name in ("count", "p50", "p99", "max"):
        table.add_column(name, justify="right")
    lines = {
        "pause of a key that moves": figures.pauses,
        "publish, between changes": figures.calm,
        "publish, in changes": figures.changing,
        "publish before the opening, of keys that stay": figures.staying,
        "publish before the opening, of keys that move": figures.moving,
        "from the request to the opening": figures.openings,
    }
    for name, found in lines.items():
        table.add_row(name, *(f"{found[key]:,}" for key in ("count", "p50", "p99", "max")))
    with console.capture() as capture:
        console.print(table)
    load = figures.load
    return (
        f"{load.partitions} -> {load.other} partitions and back, {load.per_s:,} messages/s\n\n"
        f"{capture.get()}\n"
        "p99 of publishes, in changes over between them: "
        f"{figures.p99_ratio(figures.changing)}; of keys that stay, before the opening: "
        f"{figures.p99_ratio(figures.staying)}\n{one_line(figures.verdict)}"
    )
