"""The journals' verdict beside that of the brokers' own record: where they differ.

The two know nothing of each other. The journals say what was processed, the record what was
delivered: a message that a consumer was killed with in its hands is repeated in the record alone.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from partq.lab.verdict.judge import Verdict

JobReport = Mapping[str, Any]
"""What `partq pipeline` printed with `--json`; docs/cli.md has its fields."""
CLEAN: Final = "clean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What the jobs, and the brokers' record itself, say of a run."""

    archive: JobReport
    """What `partq pipeline archive --json` printed."""
    audit: JobReport
    """What `partq pipeline audit --json` printed."""
    unrecorded: int
    """Messages that a consumer has processed, and whose delivery is not in the record."""
    findings: tuple[str, ...]
    """The first of them, as sentences."""
    took_s: float

    @property
    def published(self) -> int:
        """Messages that the record has as published."""
        return int(self.audit["totals"]["published"])

    @property
    def archived(self) -> int:
        """Messages that the archive has."""
        return int(self.archive["rows"].get("messages", 0))

    @property
    def lost(self) -> int:
        """Ranges of messages that the audit found lost."""
        return self._found("loss")

    @property
    def out_of_order(self) -> int:
        """Ranges of messages that the audit found out of their order."""
        return self._found("order")

    @property
    def report(self) -> str:
        """The audit's page."""
        return str(self.audit["report"])

    def duplicates(self, group: str) -> dict[str, int]:
        """Return how many messages were delivered to a group again, by cause."""
        counts: Counter[str] = Counter()
        for each in self.audit["duplicates"]:
            if each["group"] == group:
                counts[each["cause"]] += each["messages"]
        return dict(sorted(counts.items()))

    def _found(self, check: str) -> int:
        return sum(each["count"] for each in self.audit["findings"] if each["check"] == check)


def compare(verdict: Verdict, inspection: Inspection, group: str) -> list[str]:
    """Return where the record does not bear out what the journals say: a sentence each.

    `group`: of the consumers that wrote the journals.
    """
    differences = [
        f"{what}: {count:,} messages, the journals have {verdict.published:,}"
        for what, count in (
            ("published by the brokers' record", inspection.published),
            ("archived", inspection.archived),
        )
        if count != verdict.published
    ]
    recorded = inspection.duplicates(group)
    differences += [
        f"the brokers' record has {recorded.get(cause, 0):,} repeats by {cause}, the journals "
        f"have {count:,}"
        for cause, count in verdict.duplicates.items()
        if count > recorded.get(cause, 0)
    ]
    if inspection.unrecorded:
        differences += [
            f"{inspection.unrecorded:,} processings are not in the brokers' record",
            *inspection.findings,
        ]
    if inspection.audit["verdict"] != CLEAN:
        differences.append(
            f"the audit of the brokers' record: {inspection.audit['verdict']}; "
            f"see {inspection.report}"
        )
    return differences


def to_json(inspection: Inspection) -> dict[str, object]:
    """Return what the demo's `--json` has of it."""
    return {
        "archive": inspection.archive,
        "audit": inspection.audit,
        "unrecorded": inspection.unrecorded,
        "took_s": round(inspection.took_s, 1),
    }


def print_inspection(
    console: Console, verdict: Verdict, inspection: Inspection, group: str
) -> None:
    """Print both verdicts side by side, and where the page is."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("journals", justify="right")
    table.add_column("brokers' record", justify="right")
    recorded = inspection.duplicates(group)
    rows = [
        ("published", verdict.published, inspection.published),
        ("lost", verdict.lost, inspection.lost),
        ("out of order", verdict.out_of_order, inspection.out_of_order),
        *(
            (f"again: {cause}", verdict.duplicates.get(cause, 0), recorded.get(cause, 0))
            for cause in sorted({*verdict.duplicates, *recorded})
        ),
    ]
    for name, journals, record in rows:
        table.add_row(name, f"{journals:,}", f"{record:,}")
    console.print(table)
    for line in (
        f"archived {inspection.archived:,} messages; audit: {inspection.audit['verdict']}; "
        f"{inspection.took_s:.0f} s in all",
        f"report: {inspection.report}",
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
