"""What a run of chaos found, for people and for programs."""

from collections import defaultdict
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from partq.lab.chaos.faults import Fault
from partq.lab.chaos.rounds import Round
from partq.lab.verdict.judge import Verdict
from partq.lab.verdict.report import causes, one_line, print_verdict, to_json
from partq.lab.verdict.totals import together


def print_round(console: Console, each: Round) -> None:
    """Print a round as one line, and its first faults if it has any."""
    title = f"{each.title} {each.number} ({each.struck}), {each.duration_s:.1f} s: "
    if each.verdict.is_good:
        console.print(title + one_line(each.verdict), markup=False, soft_wrap=True)
    else:
        console.print(title, style="red", markup=False)
        print_verdict(console, each.verdict)


def print_rounds(console: Console, rounds: Sequence[Round]) -> None:
    """Print how each fault went, over all rounds in which it struck."""
    by_fault: defaultdict[Fault, list[Round]] = defaultdict(list)
    for each in rounds:
        for fault in each.faults:
            by_fault[fault].append(each)
    table = Table(box=None, pad_edge=False)
    table.add_column("fault")
    for name in ("rounds", "bad", "longest s", "messages"):
        table.add_column(name, justify="right")
    table.add_column("duplicates")
    for fault, struck in sorted(by_fault.items()):
        verdict = together(each.verdict for each in struck)
        table.add_row(
            fault,
            f"{len(struck):,}",
            f"{sum(not each.verdict.is_good for each in struck):,}",
            f"{max(each.duration_s for each in struck):.1f}",
            f"{verdict.published:,}",
            causes(verdict.duplicates),
        )
    console.print(table)


def report(
    seed: int, rounds: Sequence[Round], total: Verdict, error: str | None
) -> dict[str, object]:
    """Return the run under stable names; `error`: why it ended early, if it did."""
    return {
        "seed": seed,
        "error": error,
        "is_good": error is None and total.is_good,
        **to_json(total),
        "session_faults": total.session_faults,
        "rounds": [
            {
                "fault": each.title,
                "round": each.number,
                "struck": each.struck,
                "duration_ms": int(each.duration_s * 1000),
                **to_json(each.verdict),
            }
            for each in rounds
        ],
    }
