"""The section of the findings: a line for each cause, and what it stands for folded."""

from html import escape

from partq.pipeline.audit.figures import Figures
from partq.pipeline.audit.grouping import FindingGroup
from partq.pipeline.audit.judge.finding import AuditFinding
from partq.pipeline.audit.report.markup import PageClock, cut, number, section, span, table
from partq.pipeline.audit.verdict import AuditVerdict

_COLUMNS = (
    *("severity", "mark", "what", "partition", "group", "owner", "count", "first seen", "record"),
    *("offsets", "key"),
)


def findings_section(verdict: AuditVerdict, figures: Figures, clock: PageClock) -> str:
    """Return the section."""
    if not figures.findings:
        return section("Findings", "<p>None.</p>")
    marked = {each.number for each in figures.marks}
    rows = [
        _row(place, each, clock, is_marked=place in marked)
        for place, each in enumerate(figures.findings, 1)
    ]
    total = sum(each.count for each in verdict.found)
    left_out = figures.finding_lines - len(rows)
    told = (
        f"{total:,} findings, by kind, partition, group and owner. The gravest come first, and "
        "those of one partition in the order of its record: the first one has often caused the "
        "others. Numbers are those of the marks below."
    )
    if left_out > 0:
        told += f" {left_out:,} more lines are not shown."
    return section("Findings", f"<p class='quiet'>{told}</p>{table(_COLUMNS, rows, text=2)}")


def _row(place: int, each: FindingGroup, clock: PageClock, *, is_marked: bool) -> list[str]:
    first = each.examples[0]
    what = f"<b>{escape(each.what.replace('_', ' '))}</b><br>{escape(first.detail)}"
    if each.count > 1:
        what += _folded(each, clock)
    records = number(each.sequence)
    if each.last_sequence != each.sequence:
        records += f" to {number(each.last_sequence)}"
    return [
        f'<span class="tag {each.severity}">{escape(each.severity)}</span>',
        f'<span class="mark {each.severity}">{place}</span>' if is_marked else "",
        what,
        escape(each.partition),
        escape(each.group),
        escape(cut(each.member)),
        number(each.count),
        "" if each.at_ms is None else clock.moment(each.at_ms),
        records,
        span(each.first, each.stop),
        escape(cut(first.key)),
    ]


def _folded(each: FindingGroup, clock: PageClock) -> str:
    items = "".join(f"<li>{_sentence(one, clock)}</li>" for one in each.examples)
    left_out = each.count - len(each.examples)
    rest = f"<p>{left_out:,} more are in <code>findings/</code>.</p>" if left_out else ""
    return f"<details><summary>{each.count:,} findings</summary><ol>{items}</ol>{rest}</details>"


def _sentence(one: AuditFinding, clock: PageClock) -> str:
    at = "" if one.at_ms is None else f"{clock.moment(one.at_ms)}, "
    record = "" if one.sequence is None else f"record {one.sequence:,}: "
    return f"{at}{record}{escape(one.detail)}"
