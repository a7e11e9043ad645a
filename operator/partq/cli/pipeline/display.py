"""Shows on standard error how far a job is: a live line on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

if TYPE_CHECKING:
    from partq.pipeline.watch import JobProgress

LINE_EVERY_S = 5.0
"""How often a plain line is written."""


class Display(Protocol):
    """Where a job's progress is shown."""

    def show(self, progress: "JobProgress") -> None:
        """Show how far it is."""

    def tell(self, text: str) -> None:
        """Write a sentence that stays."""


@contextmanager
def open_display(title: str, beginning: str = "") -> Iterator[Display]:
    """Open the display that fits standard error; `beginning` is shown before the first progress."""
    console = Console(stderr=True)
    if not console.is_terminal:
        plain = PlainLines(title)
        yield plain
        plain.close()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[count]}"),
        TextColumn("{task.fields[detail]}"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=console) as bar:
        yield LiveLine(title, bar, beginning)


class LiveLine:
    """One line that changes, on a terminal."""

    def __init__(self, title: str, bar: Bar, beginning: str) -> None:
        self._bar = bar
        self._task = bar.add_task(title, total=None, count="", detail=beginning)
        self._rate = ProgressRate()

    def show(self, progress: "JobProgress") -> None:
        """Change the line."""
        self._bar.update(
            self._task,
            completed=progress.done,
            total=progress.total,
            count=count_text(progress, self._rate.add(progress)),
            detail=progress.detail,
        )

    def tell(self, text: str) -> None:
        """Write a sentence above the line."""
        self._bar.console.print(text, markup=False)


class PlainLines:
    """Prints progress as occasional lines, for logs."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._rate = ProgressRate()
        self._last: JobProgress | None = None
        self._written_at = float("-inf")

    def show(self, progress: "JobProgress") -> None:
        """Write a line, if the last one is long ago."""
        self._last = progress
        now = time.monotonic()
        if now - self._written_at >= LINE_EVERY_S:
            self._written_at = now
            self._write(progress)

    def tell(self, text: str) -> None:
        """Write a sentence."""
        click.echo(f"partq: {text}", err=True)

    def close(self) -> None:
        """Write how it ended, if that was not written."""
        if self._last is not None:
            self._write(self._last)

    def _write(self, progress: "JobProgress") -> None:
        self._last = None
        text = count_text(progress, self._rate.add(progress))
        click.echo(f"{self._title}: {text}  {progress.detail}".rstrip(), err=True)


class ProgressRate:
    """How many per second since the first of their unit was shown."""

    def __init__(self) -> None:
        self._begun_at = 0.0
        self._first: JobProgress | None = None

    def add(self, progress: "JobProgress") -> float:
        """Return the rate up to now; 0 as long as nobody can tell."""
        now = time.monotonic()
        if self._first is None or self._first.unit != progress.unit:
            self._begun_at, self._first = now, progress
            return 0.0
        return (progress.done - self._first.done) / max(now - self._begun_at, 0.001)


def count_text(progress: "JobProgress", per_s: float) -> str:
    """Return `1,000 of 2,000 rows, 310 rows/s`."""
    of = "" if progress.total is None else f" of {progress.total:,}"
    rate = f", {per_s:,.0f} {progress.unit}/s" if per_s and progress.unit != "steps" else ""
    return f"{progress.done:,}{of} {progress.unit}{rate}"
