"""Pieces of HTML that the sections of the page share."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape

_DAY_MS = 86_400_000


def section(title: str, body: str) -> str:
    """Return a section with a heading."""
    return f"<section><h2>{title}</h2>{body}</section>"


def figure(svg: str, caption: str, *, is_wide: bool = False) -> str:
    """Return a drawing with what it shows; a wide one can be scrolled where there is no room."""
    shown = f'<div class="scroll wide" tabindex="0">{svg}</div>' if is_wide else svg
    return f"<figure>{shown}<figcaption>{escape(caption)}</figcaption></figure>"


def details(body: str, summary: str = "In numbers") -> str:
    """Return what is folded until somebody asks for it."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def table(names: Sequence[str], rows: Sequence[Sequence[str]], *, text: int = -1) -> str:
    """Return a table; `text`: which column has sentences, so that it may wrap. Cells are HTML."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    body = "".join(
        "<tr>"
        + "".join(
            f"<td class='text'>{cell}</td>" if at == text else f"<td>{cell}</td>"
            for at, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def bullets(items: Iterable[str]) -> str:
    """Return a list of sentences."""
    return "<ul>" + "".join(f"<li>{escape(each)}</li>" for each in items) + "</ul>"


def span(first: int | None, stop: int | None) -> str:
    """Return offsets from `first` to before `stop`."""
    if first is None or stop is None:
        return ""
    return f"{first:,}" if stop == first + 1 else f"{first:,} to {stop - 1:,}"


def number(value: int | None) -> str:
    """Return a number as one reads it."""
    return "" if value is None else f"{value:,}"


def length(value_ms: int) -> str:
    """Return how long something was."""
    if value_ms < 1000:
        return f"{value_ms} ms"
    if value_ms < 60_000:
        return f"{value_ms / 1000:.1f} s"
    minutes, seconds = divmod(round(value_ms / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def cut(text: str | None, most: int = 40) -> str:
    """Return a text of a bounded length."""
    return "" if text is None else text if len(text) <= most else f"{text[:most]}…"


class PageClock:
    """Writes times: with the date where the record is of several days."""

    def __init__(self, from_ms: int, until_ms: int) -> None:
        self._has_date = from_ms // _DAY_MS != until_ms // _DAY_MS

    def full(self, at_ms: int) -> str:
        """Return date and time, to the second."""
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"

    def moment(self, at_ms: int) -> str:
        """Return a time to the millisecond."""
        whole = datetime.fromtimestamp(at_ms // 1000, UTC)
        day = f"{whole:%Y-%m-%d} " if self._has_date else ""
        return f"{day}{whole:%H:%M:%S}.{at_ms % 1000:03d}"
