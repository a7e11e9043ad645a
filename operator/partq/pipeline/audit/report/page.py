"""The report as one page of HTML: nothing is fetched, light and dark, readable without colours."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape

from partq.pipeline.audit.figures import MAX_FINDINGS, Figures
from partq.pipeline.audit.report import plots
from partq.pipeline.audit.report.page_style import STYLE
from partq.pipeline.audit.schema import FAULT
from partq.pipeline.audit.verdict import CLEAN, INCOMPLETE, AuditVerdict

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
    sections = [
        _header(name, verdict),
        _tiles(
            [
                ("messages published", f"{totals.published:,}"),
                ("acknowledged", f"{totals.acknowledged:,}"),
                ("redelivered", f"{again:,}"),
                ("handoffs", f"{sum(each.count for each in verdict.handoffs):,}"),
                ("faults", f"{verdict.count(FAULT):,}"),
                ("records", f"{totals.records:,}"),
            ]
        ),
        _findings(verdict, figures),
        _section(
            "Owners over time",
            _figure(
                plots.ownership(figures.spells, figures.claims),
                "Each bar is a member that held the partition. Dotted: a broker claimed one. "
                + _left_out(figures),
            )
            if figures.spells
            else "<p>Nobody held a partition.</p>",
        ),
        _section(
            "Pace",
            _figure(
                plots.pace(figures.pace), "Messages by Redis's time; lag is what was not done with."
            ),
        ),
        f'<div class="pair">{_duplicates(verdict)}{_handoffs(verdict, figures)}</div>',
        _slowest(figures),
        _section(
            "What this proves, and what it cannot",
            f'<div class="pair"><div><h3>It proves</h3>{_list(_PROVES)}</div>'
            f"<div><h3>It cannot prove</h3>{_list(_PROVES_NOT)}</div></div>",
        ),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Audit of {escape(name)}: {verdict.text}</title>\n<style>{STYLE}</style>\n"
        f"</head>\n<body>\n<main>\n{''.join(sections)}</main>\n</body>\n</html>\n"
    )


def _header(name: str, verdict: AuditVerdict) -> str:
    totals = verdict.totals
    kind = {CLEAN: "clean", INCOMPLETE: "incomplete"}.get(verdict.text, "faulty")
    mark = {"clean": "✓", "incomplete": "?", "faulty": "✕"}[kind]
    lead = _LEAD.get(verdict.text, "The record shows what must not happen. The findings say where.")
    return (
        f'<header class="{kind}"><p class="over">Audit of {escape(name)}</p>'
        f'<h1><span aria-hidden="true">{mark}</span> {verdict.text.capitalize()}</h1>'
        f"<p>{lead}</p><p class='quiet'>{_time(totals.from_ms)} to {_time(totals.until_ms)} UTC · "
        f"{totals.partitions:,} partitions</p></header>"
    )


def _tiles(tiles: Iterable[tuple[str, str]]) -> str:
    items = "".join(f"<div><dd>{value}</dd><dt>{escape(name)}</dt></div>" for name, value in tiles)
    return f"<dl class='tiles'>{items}</dl>"


def _findings(verdict: AuditVerdict, figures: Figures) -> str:
    if not figures.findings:
        return _section("Findings", "<p>None.</p>")
    total = sum(each.count for each in verdict.found)
    rows = [
        [
            f'<span class="tag {row.severity}">{escape(row.severity)}</span>',
            f"<b>{escape(row.what.replace('_', ' '))}</b><br>{escape(row.detail)}",
            escape(row.partition or ""),
            _range(row.first, row.stop),
            escape(row.group or ""),
            escape(_cut(row.key)),
            "" if row.sequence is None else f"{row.sequence:,}",
        ]
        for row in figures.findings
    ]
    names = ("severity", "what", "partition", "offsets", "group", "key", "record")
    note = f"<p class='quiet'>The first {MAX_FINDINGS} of {total:,}.</p>"
    return _section("Findings", _table(names, rows) + (note if total > MAX_FINDINGS else ""))


def _duplicates(verdict: AuditVerdict) -> str:
    by_cause = verdict.by_cause()
    if not by_cause:
        return _section("Redelivered messages", "<p>Nothing was delivered to a group twice.</p>")
    rows = [
        [escape(each.group), escape(each.cause), escape(each.event), f"{each.events:,}",
         f"{each.messages:,}"]
        for each in verdict.duplicates
    ]  # fmt: skip
    return _section(
        "Redelivered messages",
        _figure(plots.duplicates(by_cause), "Messages delivered again, by the recorded cause.")
        + _details(_table(("group", "cause", "goes back to", "events", "messages"), rows, 2)),
    )


def _handoffs(verdict: AuditVerdict, figures: Figures) -> str:
    if not verdict.handoffs:
        return _section("Handoffs", "<p>There were none.</p>")
    rows = [
        [
            escape(each.group),
            escape(each.outcome.replace("_", " ")) + (", forced" if each.is_forced else ""),
            f"{each.count:,}",
            _number(each.median_pause_ms),
            _number(each.longest_pause_ms),
            _number(each.messages_cut),
            _number(each.keys_continued),
        ]
        for each in verdict.handoffs
    ]
    names = ("group", "end", "count", "median ms", "longest ms", "cut", "keys on both sides")
    shown = (
        _figure(plots.pauses(figures.pauses), "From the pause to the commit.")
        if figures.pauses
        else "<p>No partition was paused.</p>"
    )
    return _section("Handoffs", shown + _details(_table(names, rows, 2)))


def _slowest(figures: Figures) -> str:
    if not figures.slowest:
        return ""
    rows = [
        [
            escape(row.partition),
            escape(row.group),
            f"{escape(row.source or '')} → {escape(row.target or '')}",
            _time(row.paused_ms or 0),
            _number(row.pause_ms),
            escape((row.cause or "").replace("_", " ")),
            f"{row.messages_cut:,}",
            _number(row.keys_continued),
        ]
        for row in figures.slowest
    ]
    names = (
        *("partition", "group", "from → to", "paused at", "ms", "forced by", "cut"),
        "keys on both sides",
    )
    return _section("The longest pauses", _table(names, rows, 4))


def _left_out(figures: Figures) -> str:
    shown = len({each.lane for each in figures.spells})
    return "" if shown >= figures.lanes else f"Shown: {shown} of {figures.lanes:,}."


def _section(title: str, body: str) -> str:
    return f"<section><h2>{title}</h2>{body}</section>"


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _details(body: str) -> str:
    return f"<details><summary>In numbers</summary>{body}</details>"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], numbers_from: int = 99) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    body = "".join(
        "<tr>"
        + "".join(
            f"<td class='n'>{cell}</td>" if at >= numbers_from else f"<td>{cell}</td>"
            for at, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _list(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(each)}</li>" for each in items) + "</ul>"


def _time(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _range(first: int | None, stop: int | None) -> str:
    if first is None or stop is None:
        return ""
    return f"{first:,}" if stop == first + 1 else f"{first:,} to {stop - 1:,}"


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _cut(key: str | None, length: int = 40) -> str:
    return "" if key is None else key if len(key) <= length else f"{key[:length]}…"
