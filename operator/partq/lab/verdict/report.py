"""A verdict for people and for programs."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from partq.lab.verdict.judge import UNKNOWN_CAUSE, Verdict
from partq.lab.verdict.rescale_figures import ObservedRescale
from partq.lab.verdict.timeline import ObservedRebalance


def to_json(verdict: Verdict) -> dict[str, object]:
    """Return the counts of a verdict under stable names."""
    return {
        "published": verdict.published,
        "delivered": verdict.delivered,
        "lost": verdict.lost,
        "duplicates": verdict.duplicates,
        "out_of_order": verdict.out_of_order,
        "overlapping": verdict.overlapping,
    }


def rebalance_to_json(rebalance: ObservedRebalance) -> dict[str, object]:
    """Return what a change did under stable names."""
    return {
        "trigger": rebalance.trigger,
        "moved": rebalance.moved,
        "duration_ms": rebalance.duration_ms,
        "longest_pause_ms": rebalance.longest_pause_ms,
    }


def one_line(verdict: Verdict) -> str:
    """Return the counts as one line."""
    return (
        f"published {verdict.published:,}  delivered {verdict.delivered:,}  lost {verdict.lost:,}  "
        f"out_of_order {verdict.out_of_order:,}  overlapping {verdict.overlapping:,}  "
        f"duplicates {causes(verdict.duplicates)}"
    )


def print_verdict(console: Console, verdict: Verdict) -> None:
    """Print the counts and the first faults."""
    style = "bold green" if verdict.is_good else "bold red"
    for line in (one_line(verdict), *verdict.findings):
        console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


def print_rebalances(
    console: Console, rebalances: Sequence[ObservedRebalance], duplicates: Sequence[int]
) -> None:
    """Print what each change did; `duplicates`: how many came between it and the next one."""
    table = Table(box=None, pad_edge=False)
    table.add_column("change")
    for name in ("moved", "duration ms", "longest pause ms", "duplicates"):
        table.add_column(name, justify="right")
    for each, count in zip(rebalances, duplicates, strict=True):
        table.add_row(
            each.trigger,
            f"{each.moved:,}",
            f"{each.duration_ms:,}",
            f"{each.longest_pause_ms:,}",
            f"{count:,}",
        )
    console.print(table)


def print_rescales(console: Console, rescales: Sequence[ObservedRescale]) -> None:
    """Print what each change of the partition count did to the traffic."""
    table = Table(box=None, pad_edge=False)
    table.add_column("partitions")
    for name in ("slots moved", "least", "keys moved", "publish pause ms", "hold ms"):
        table.add_column(name, justify="right")
    for each in rescales:
        table.add_row(
            f"{each.from_count} -> {each.to_count}",
            f"{each.moved_slots:,}",
            f"{each.least_slots:,}",
            f"{each.moved_keys:,} of {each.key_count:,}",
            f"{each.publish_pause_ms:,}",
            f"{each.hold_ms:,}",
        )
    console.print(table)


def causes(duplicates: Mapping[str, int]) -> str:
    """Return counts by cause as text, those without a cause first."""
    if not duplicates:
        return "none"
    ordered = sorted(duplicates.items(), key=lambda item: (item[0] != UNKNOWN_CAUSE, item[0]))
    return ", ".join(f"{cause}: {count:,}" for cause, count in ordered)
