"""What the benches share: their options, and how a report is written, shown and judged."""

import json
from collections.abc import Callable
from pathlib import Path

import click

from partq.cli.lab.termination import ends_in_order

Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def count_option(
    name: str, default: int, *, within: tuple[int, int], about: str | None = None
) -> Decorator:
    """Return an option that is a whole number, both ends of `within` included."""
    return click.option(
        name, type=click.IntRange(*within), default=default, show_default=True, help=about
    )


input_option = click.option(
    "--input",
    "input_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="NDJSON file, gzipped or not. Default: the demo's events.",
)


def reports(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--json`, a file for what `show_report` shows; SIGTERM ends the bench in order."""
    return click.option(
        "--json",
        "json_file",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        help="Write the report to this file, too.",
    )(ends_in_order(command))


def show_report(
    figures: object, page: str, json_file: Path | None, *, is_good: bool = True
) -> None:
    """Write the figures to the file of `--json`, and show the page; exit status 1 unless good."""
    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    click.echo(page)
    if not is_good:
        raise click.exceptions.Exit(1)
