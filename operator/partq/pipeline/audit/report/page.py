"""The report as one page of HTML: nothing is fetched, light and dark, readable without colours."""

from collections.abc import Iterable
from html import escape
from typing import Final

from partq.pipeline.audit.figures import MAX_HANDOFFS, Figures
from partq.pipeline.audit.judge.outcome import DeliveryStall
from partq.pipeline.audit.report import plots
from partq.pipeline.audit.report.findings import findings_section
from partq.pipeline.audit.report.markup import (
    PageClock,
    bullets,
    details,
    figure,
    length,
    number,
    section,
    table,
)
from partq.pipeline.audit.report.page_style import STYLE
from partq.pipeline.audit.schema import FAULT
from partq.pipeline.audit.verdict import CLEAN, EVENTS, INCOMPLETE, AuditVerdict

DUCKDB: Final = """duckdb -c "FROM 'findings/*.parquet' ORDER BY at_ms LIMIT 50\""""
SPARK: Final = 'spark.read.parquet("findings").orderBy("at_ms").show(50, truncate=False)'
"""How to look at a table of the report, in the folder of the page."""
_STALLS_SHOWN = 10

_PROVES = (
    "What the brokers delivered and accepted: each change was recorded in the same step as it was "
    "made, and no delivery left before its record.",
    "That the record was not edited afterwards, as far as it is archived: each group of records "
    "carries the hash of all before it.",
    "That each archived message is at its offset once, with the key, value, headers and event time "
    "that were stored, where the record has a checksum of its batch.",
    "That the archive's files are as they were put in place, and no partition of it is missing, "
    "where its entries have digests and say where partitions begin.",
)
_PROVES_NOT = (
    "In which order the threads of an application ran, or what it wrote to its database.",
    "That a process which had lost its partition did no more work; its acks did not count.",
    "What happened in ranges that are missing, before the record begins, or after it ends.",
    "That nothing was cut off at the end, unless the heads of an earlier verdict were given "
    "(--expect).",
    "Anything against a broker that was itself tampered with while it wrote the record.",
)
_LEAD = {
    CLEAN: "All records were judged. Nothing is lost, out of order, or without a cause.",
    INCOMPLETE: "Nothing wrong was seen, but parts of the record are missing and were not judged.",
}


def render(name: str, verdict: AuditVerdict, figures: Figures) -> str:
    """Return the page; `name` says what was audited."""
    totals = verdict.totals
    again = sum(each.messages for each in verdict.duplicates)
    passed = sum(each.count for each in verdict.handoffs if each.outcome == "commit")
    clock = PageClock(totals.from_ms, totals.until_ms)
    sections = [
        _header(name, verdict, clock),
        _tiles(
            [
                ("messages published", f"{totals.published:,}"),
                ("acknowledged", f"{totals.acknowledged:,}"),
                ("redelivered", f"{again:,}"),
                ("handoffs", f"{passed:,}"),
                (
                    "longest time without a delivery",
                    length(verdict.stalls[0].length_ms) if verdict.stalls else "none",
                ),
                ("faults", f"{verdict.count(FAULT):,}"),
            ]
        ),
        findings_section(verdict, figures, clock),
        section(
            "Owners over time",
            figure(
                plots.ownership(figures.spells, figures.claims, figures.marks),
                "A bar is a member that held the partition. It is solid up to the member's last "
                "sign of life (a bind, an ack, a drain), and hatched from there until the next "
                "member took the partition up. Dotted: a broker claimed a partition. Numbers: "
                "where the lines of findings begin. " + _left_out(figures),
                is_wide=True,
            )
            if figures.spells
            else "<p>Nobody held a partition.</p>",
        ),
        _stalls(verdict, clock),
        section(
            "Pace",
            figure(
                plots.pace(figures.pace),
                "Messages by Redis's time; lag is what was not done with.",
                is_wide=True,
            ),
        ),
        f'<div class="pair">{_duplicates(verdict)}{_handoffs(verdict, figures)}</div>',
        _slowest(figures, clock),
        _tables(),
        section(
            "What this proves, and what it cannot",
            f'<div class="pair"><div><h3>It proves</h3>{bullets(_PROVES)}</div>'
            f"<div><h3>It cannot prove</h3>{bullets(_PROVES_NOT)}</div></div>",
        ),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Audit of {escape(name)}: {verdict.text}</title>\n<style>{STYLE}</style>\n"
        f"</head>\n<body>\n<main>\n{''.join(sections)}</main>\n</body>\n</html>\n"
    )


def _header(name: str, verdict: AuditVerdict, clock: PageClock) -> str:
    totals = verdict.totals
    kind = {CLEAN: "clean", INCOMPLETE: "incomplete"}.get(verdict.text, "faulty")
    mark = {"clean": "✓", "incomplete": "?", "faulty": "✕"}[kind]
    lead = _LEAD.get(verdict.text, "The record shows what must not happen. The findings say where.")
    return (
        f'<header class="{kind}"><p class="over">Audit of {escape(name)}</p>'
        f'<h1><span aria-hidden="true">{mark}</span> {verdict.text.capitalize()}</h1>'
        f"<p>{lead}</p><p class='quiet'>{clock.full(totals.from_ms)} to "
        f"{clock.full(totals.until_ms)} UTC · {totals.records:,} records of "
        f"{totals.partitions:,} partitions</p></header>"
    )


def _tiles(tiles: Iterable[tuple[str, str]]) -> str:
    items = "".join(f"<div><dd>{value}</dd><dt>{escape(name)}</dt></div>" for name, value in tiles)
    return f"<dl class='tiles'>{items}</dl>"


def _stalls(verdict: AuditVerdict, clock: PageClock) -> str:
    title = "Longest time without a delivery while there was lag"
    if not verdict.stalls:
        return section(title, "<p>No member held a partition with lag.</p>")
    rows = [
        [
            escape(each.partition),
            escape(each.group),
            f"<b>{length(each.length_ms)}</b>",
            clock.moment(each.from_ms),
            escape(each.member or "nobody"),
            _end_of(each),
            number(each.acknowledged),
        ]
        for each in verdict.stalls
    ]
    names = ("partition", "group", "longest", "from", "held by", "until", "acknowledged meanwhile")
    told = (
        "<p class='quiet'>Of each partition and group the longest one. Lag: messages that are "
        "published and that the group is not done with. Where nothing was acknowledged meanwhile, "
        "the partition stood still.</p>"
    )
    shown, rest = rows[:_STALLS_SHOWN], rows[_STALLS_SHOWN:]
    body = told + table(names, shown)
    if rest:
        body += details(table(names, rest), f"{len(rest):,} more")
    return section(title, body)


def _end_of(stall: DeliveryStall) -> str:
    if stall.is_open:
        return "the record ends"
    if not stall.successor:
        return "the lag was gone"
    whom = "the same member" if stall.successor == stall.member else stall.successor
    return f"a delivery to {escape(whom)}"


def _duplicates(verdict: AuditVerdict) -> str:
    by_cause = verdict.by_cause()
    if not by_cause:
        return section("Redelivered messages", "<p>Nothing was delivered to a group twice.</p>")
    rows = [
        [
            escape(each.group),
            _cause(each.cause),
            escape(EVENTS.get(each.event, each.event)),
            number(each.events),
            number(each.messages),
        ]
        for each in sorted(verdict.duplicates, key=lambda row: row.cause != "none")
    ]
    without = by_cause.get("none", 0)
    alarm = (
        f'<p class="alarm"><span aria-hidden="true">✕</span> {without:,} messages were '
        "redelivered without a cause. That must not happen.</p>"
        if without
        else ""
    )
    return section(
        "Redelivered messages",
        alarm
        + figure(plots.duplicates(by_cause), "Messages delivered again, by the recorded cause.")
        + details(
            table(("group", "cause", "what had happened", "events", "messages"), rows, text=2)
        ),
    )


def _cause(cause: str) -> str:
    if cause == "none":
        return '<span class="tag fault">no cause</span>'
    return escape(cause.replace("_", " "))


def _handoffs(verdict: AuditVerdict, figures: Figures) -> str:
    if not verdict.handoffs:
        return section("Handoffs", "<p>There were none.</p>")
    rows = [
        [
            escape(each.group),
            escape(each.text),
            number(each.count),
            number(each.paused),
            number(each.median_pause_ms),
            number(each.longest_pause_ms),
            number(each.messages_cut),
            number(each.keys_continued),
        ]
        for each in verdict.handoffs
    ]
    names = (
        *("group", "end", "count", "with a pause", "median ms", "longest ms", "cut"),
        "keys on both sides",
    )
    passed = [each for each in verdict.handoffs if each.outcome == "commit"]
    counts = {
        is_forced: sum(each.count for each in passed if each.is_forced is is_forced)
        for is_forced in (False, True)
    }
    paused = sum(each.paused for each in passed)
    without = sum(counts.values()) - paused
    told = "From the pause to the commit, of handoffs from one member to another."
    if without:
        told += f" {without:,} had no pause: their member was lost, or had no connection."
    shown = (
        figure(plots.pauses(figures.pauses, graceful=counts[False], forced=counts[True]), told)
        if figures.pauses
        else "<p>No partition was paused for a handoff that went through.</p>"
    )
    return section("Handoffs", shown + details(table(names, rows, text=1)))


def _slowest(figures: Figures, clock: PageClock) -> str:
    if not figures.slowest:
        return ""
    rows = [
        [
            escape(row.partition),
            escape(row.group),
            f"{escape(row.source or '')} → {escape(row.target or '')}",
            clock.moment(row.paused_ms or 0),
            number(row.pause_ms),
            escape((row.cause or "").replace("_", " ")),
            number(row.messages_cut),
            number(row.keys_continued),
        ]
        for row in figures.slowest
    ]
    names = (
        *("partition", "group", "from → to", "paused at", "ms", "forced by", "cut"),
        "keys on both sides",
    )
    body = table(names, rows)
    return section("The longest pauses", details(body, f"The first {min(len(rows), MAX_HANDOFFS)}"))


def _tables() -> str:
    """Say how to open the rest of the report."""
    lines = "\n".join((DUCKDB, SPARK))
    return section(
        "The rest of the report",
        "<p>Beside this page are <code>verdict.json</code>, and Parquet with every finding "
        "(<code>findings/</code>), what was redelivered (<code>duplicates/</code>) and every "
        "handoff (<code>handoffs/</code>). In their folder, with DuckDB in a shell or with "
        f'PySpark:</p><pre class="scroll" tabindex="0">{escape(lines)}</pre>',
    )


def _left_out(figures: Figures) -> str:
    shown = len({each.lane for each in figures.spells})
    if shown >= figures.lanes:
        return ""
    return f"Shown: {shown} of {figures.lanes:,}, those with faults among them."
