"""What was measured of moves, as JSON and as text."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from partq.lab.bench.handoff.drive import HandoffLoad, Strike
from partq.lab.bench.handoff.figures import MARGIN_NS, flow, gaps, summary
from partq.lab.bench.report import Report
from partq.lab.verdict.journal_rows import DeliveredRow
from partq.lab.verdict.judge import Verdict
from partq.lab.verdict.report import one_line, to_json
from partq.lab.verdict.totals import together


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffMeasurements:
    """What the runs have left."""

    rows: Sequence[DeliveredRow]
    """What was processed while the consumers were scaled, in order."""
    changes: Sequence[tuple[int, int]]
    """When each change of scale began, and when the partitions were shared evenly."""
    scaled_ns: int
    """When the calm after the last change was over."""
    killed: Sequence[Strike]
    """With the rebalance delay."""
    killed_at_once: Sequence[Strike]
    """Without one, as all further ones."""
    killed_standby: Sequence[Strike]
    """With the rebalance delay, in a Failover group: the other member stands by."""
    consumers_frozen: Sequence[Strike]
    brokers_frozen: Sequence[Strike]
    verdicts: Sequence[Verdict]


def report(
    load: HandoffLoad, found: HandoffMeasurements, *, lease_s: float, delay_s: float
) -> Report:
    """Return all figures under stable names; lengths are in milliseconds."""
    graceful, moving, calm = [], [], []
    names = frozenset(row.partition for row in found.rows)
    ends_ns = [*(start_ns for start_ns, _ in found.changes[1:]), found.scaled_ns]
    for (start_ns, settled_ns), end_ns in zip(found.changes, ends_ns, strict=True):
        calm.append((settled_ns + MARGIN_NS, end_ns, names))
        moved = gaps(found.rows, start_ns, end_ns)
        graceful += moved
        if moved:
            first_ns = min(each.before_ns for each in moved) - MARGIN_NS
            last_ns = max(each.after_ns for each in moved) + MARGIN_NS
            still = names.difference(each.partition for each in moved)
            moving.append((first_ns, last_ns, still))
    flow_moving, flow_calm = flow(found.rows, moving), flow(found.rows, calm)
    verdict = together(found.verdicts)
    return {
        "graceful_gap_ms": summary([each.ms for each in graceful]),
        "others": {
            "rate_ratio": round(flow_moving.per_s / flow_calm.per_s, 3)
            if flow_calm.per_s
            else None,
            "per_s_in_moves": round(flow_moving.per_s, 1),
            "per_s_in_calm": round(flow_calm.per_s, 1),
            "silence_in_moves_ms": summary(flow_moving.silences_ms),
            "silence_in_calm_ms": summary(flow_calm.silences_ms),
        },
        "killed_over_delay_ms": _after(found.killed, delay_s),
        "killed_without_delay_ms": _after(found.killed_at_once),
        "killed_standby_ms": _after(found.killed_standby),
        "consumer_frozen_ms": _after(found.consumers_frozen),
        "broker_frozen_ms": _after(found.brokers_frozen),
        "lease_s": lease_s,
        "delay_s": delay_s,
        **asdict(load),
        **to_json(verdict),
        "is_good": verdict.is_good,
        "verdict": one_line(verdict),
    }


def render(report: Report) -> str:
    """Return a page for people."""
    console = Console(width=100, force_terminal=False)
    table = Table(box=None, pad_edge=False)
    table.add_column("milliseconds")
    for name in ("count", "p50", "p99", "max"):
        table.add_column(name, justify="right")
    lines = {
        "graceful move: no message of the partition": report["graceful_gap_ms"],
        "  meanwhile, partitions that stay: between messages": report["others"][
            "silence_in_moves_ms"
        ],
        "  in calm, all partitions: between messages": report["others"]["silence_in_calm_ms"],
        f"kill -9 of a consumer, beyond the delay of {report['delay_s']:g} s": report[
            "killed_over_delay_ms"
        ],
        "kill -9 of a consumer, delay 0": report["killed_without_delay_ms"],
        "kill -9 of a master, another member stands by": report["killed_standby_ms"],
        f"consumer frozen, delay 0, lease {report['lease_s']:g} s": report["consumer_frozen_ms"],
        f"broker frozen, lease {report['lease_s']:g} s": report["broker_frozen_ms"],
    }
    for name, figures in lines.items():
        table.add_row(name, *(f"{figures[key]:,}" for key in ("count", "p50", "p99", "max")))
    with console.capture() as capture:
        console.print(table)
    others = report["others"]
    return (
        f"{report['partitions']} partitions, {report['per_s']:,} messages/s\n\n{capture.get()}\n"
        f"partitions that stay: {others['per_s_in_moves']:g} messages/s each during moves, "
        f"{others['per_s_in_calm']:g} in calm, ratio {others['rate_ratio']}\n"
        f"{report['verdict']}"
    )


def _after(strikes: Sequence[Strike], delay_s: float = 0.0) -> dict[str, float | int]:
    """Return how long after a strike, less the delay, partitions came elsewhere."""
    return summary(
        [
            (elsewhere_ns - strike.at_ns) / 1e6 - delay_s * 1000
            for strike in strikes
            for elsewhere_ns in strike.elsewhere_ns
        ]
    )
