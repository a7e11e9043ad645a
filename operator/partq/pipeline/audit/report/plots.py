"""Draws the figures as SVG that takes its colours from the page, light or dark."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from io import StringIO
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from partq.pipeline.audit.figures import FindingMark, HandoffPause, PaceSeries, Spell

# Colours that stand for the page's: the page replaces each by a variable of its style sheet.
INK, FAINT, PAPER, BAD, WARN = "#00a001", "#00a002", "#00a003", "#00a004", "#00a005"
SERIES: Final = tuple(f"#00a1{number:02x}" for number in range(8))
VARIABLES: Final[Mapping[str, str]] = {
    INK: "--ink",
    FAINT: "--line",
    PAPER: "--paper",
    BAD: "--bad",
    WARN: "--warn",
    **{colour: f"--c{number}" for number, colour in enumerate(SERIES)},
}
_OTHERS = 7
"""The last colour of the series is for all that have no separate one."""
_STYLE: Final[dict[str, Any]] = {
    "svg.fonttype": "none",
    "font.size": 10.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "grid.color": FAINT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


def _svg(
    name: str, title: str, height: float, draw: Callable[[Figure], None], width: float = 9.6
) -> str:
    """Return a figure as inline SVG; `title` says in words what it shows."""
    style: Any = {**_STYLE, "svg.hashsalt": name}
    with rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        text = StringIO()
        FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Several figures share one page: each has separate ids.
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    svg = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', "", svg, count=1)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)


def ownership(
    spells: Sequence[Spell], claims: Sequence[tuple[int, str]], marks: Sequence[FindingMark] = ()
) -> str:
    """Draw who held which partition when, and where findings begin."""
    lanes = list(dict.fromkeys(each.lane for each in sorted(spells, key=_lane)))
    places = {lane: place for place, lane in enumerate(lanes)}
    colours = _colours([each.member for each in spells])
    width_ms = max(each.until_ms for each in spells) - min(each.from_ms for each in spells)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for each in spells:
            start, seen, end = map(_day, (each.from_ms, each.seen_ms, each.until_ms))
            place, colour = places[each.lane], colours[each.member]
            if end > seen:
                axes.barh(
                    place,
                    end - seen,
                    left=seen,
                    height=0.72,
                    facecolor="none",
                    edgecolor=colour,
                    hatch="////",
                    linewidth=0,
                )
            axes.barh(
                place,
                seen - start,
                left=start,
                height=0.72,
                color=colour,
                edgecolor=PAPER,
                linewidth=0.6,
            )
        for at_ms, _ in claims:
            axes.axvline(_day(at_ms), color=INK, linewidth=0.8, linestyle=(0, (1, 3)))
        for lane, place in places.items():
            for together in _joined([each for each in marks if each.lane == lane], width_ms / 50):
                _mark(axes, together, place)
        axes.set_yticks(range(len(lanes)), lanes)
        axes.set_ylim(len(lanes) - 0.4, -0.6)
        axes.margins(x=0.005)
        axes.grid(visible=False, axis="y")
        _times(axes)
        shown = {
            (member if colour != SERIES[_OTHERS] else "others"): colour
            for member, colour in colours.items()
        }
        figure.legend(
            handles=[Patch(color=colour, label=member) for member, colour in shown.items()],
            loc="outside upper left",
            ncols=min(8, len(shown) or 1),
            handlelength=1,
            handleheight=1,
        )

    title = f"Owner of each of {len(lanes)} partitions over time, {len(colours)} members"
    if marks:
        title += f", {len(marks)} findings marked"
    return _svg("owners", title, 1.1 + 0.27 * max(2, len(lanes)), draw)


def pace(figures: PaceSeries) -> str:
    """Draw rates above, and below them what was still open."""
    length = len(figures.published)
    times = [_day(figures.from_ms + (at + 0.5) * figures.bucket_ms) for at in range(length)]
    per_s = 1000 / figures.bucket_ms

    def draw(figure: Figure) -> None:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        for place, (name, series, dashes) in enumerate(
            (
                ("published", figures.published, "solid"),
                ("delivered", figures.delivered, (0, (4, 2))),
                ("done with", figures.done, (0, (1, 1.5))),
            )
        ):
            above.plot(
                times,
                [each * per_s for each in series],
                color=SERIES[place],
                linestyle=dashes,
                label=name,
            )
        for place, (group, series) in enumerate(list(figures.lag.items())[:4]):
            colour = SERIES[3 + place]
            below.fill_between(times, series, color=colour, alpha=0.25, linewidth=0)
            below.plot(times, series, color=colour, label=f"lag of {group}")
        for axes, what in ((above, "messages/s"), (below, "messages")):
            axes.set_ylim(bottom=0)
            axes.set_ylabel(what)
            axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
            axes.yaxis.set_major_formatter(FuncFormatter(_short))
            axes.grid(visible=False, axis="x")
            axes.margins(x=0.005)
            if axes.lines:  # a queue without a group has no lag
                axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, borderaxespad=0.2)
        _times(below)

    most = max((max(series, default=0) for series in figures.lag.values()), default=0)
    return _svg(
        "pace", f"Rates and lag over time; the lag was at most {most:,} messages", 4.2, draw
    )


def duplicates(by_cause: Mapping[str, int]) -> str:
    """Draw how many messages were redelivered, by cause."""
    causes = list(by_cause)[:8]

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        bars = axes.barh(
            ["no cause" if each == "none" else each.replace("_", " ") for each in causes],
            [by_cause[each] for each in causes],
            height=0.6,
            color=[BAD if each == "none" else SERIES[0] for each in causes],
        )
        axes.bar_label(bars, fmt="{:,.0f}", padding=4)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.xaxis.set_major_formatter(FuncFormatter(_short))
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("messages")

    told = ", ".join(f"{each} {by_cause[each]:,}" for each in causes)
    return _svg("duplicates", f"Messages by cause: {told}", 0.9 + 0.38 * len(causes), draw, 4.7)


def pauses(lengths: Sequence[HandoffPause], *, graceful: int, forced: int) -> str:
    """Draw how long handoffs paused their partitions.

    Args:
        lengths: of those that had a pause.
        graceful: how many went through, with and without a pause.
        forced: likewise, of those that were forced.
    """
    kept = [max(1, each.length_ms) for each in lengths if not each.is_forced]
    cut = [max(1, each.length_ms) for each in lengths if each.is_forced]
    top = max([*kept, *cut, 10])
    edges = [1.0]
    while edges[-1] < top:
        edges.append(edges[-1] * 10**0.25)
    edges.append(edges[-1] * 10**0.25)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.hist(
            [kept, cut],
            bins=edges,
            stacked=True,
            color=[SERIES[2], SERIES[1]],
            label=[f"graceful: {graceful:,}", f"forced: {forced:,}"],
            rwidth=0.92,
        )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(_length))
        axes.minorticks_off()
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.set_ylabel("handoffs")
        axes.set_xlabel("pause of the partition")
        axes.grid(visible=False, axis="x")
        figure.legend(loc="outside upper left", ncols=2, handlelength=1, handleheight=1)

    title = f"Pauses of {graceful:,} graceful and {forced:,} forced handoffs"
    return _svg("pauses", title, 2.8, draw, 4.7)


def _joined(marks: Sequence[FindingMark], room_ms: float) -> list[list[FindingMark]]:
    """Return marks of a lane, those together that would lie across each other."""
    joined: list[list[FindingMark]] = []
    for each in sorted(marks, key=lambda mark: (mark.at_ms, mark.number)):
        if joined and each.at_ms - joined[-1][0].at_ms < room_ms:
            joined[-1].append(each)
        else:
            joined.append([each])
    return joined


def _mark(axes: Axes, marks: Sequence[FindingMark], place: int) -> None:
    numbers = sorted(each.number for each in marks)
    first, last = numbers[0], numbers[-1]
    text = str(first)
    if len(numbers) > 1:
        text += f"-{last}" if last - first == len(numbers) - 1 else f" +{len(numbers) - 1}"
    colour = BAD if any(each.is_fault for each in marks) else WARN
    axes.annotate(
        text,
        (_day(marks[0].at_ms), place),
        ha="center",
        va="center",
        fontsize=9,
        fontweight="bold",
        color=colour,
        zorder=9,
        bbox={
            "boxstyle": "round,pad=0.25,rounding_size=0.6",
            "facecolor": PAPER,
            "edgecolor": colour,
        },
    )


def _colours(members: Sequence[str]) -> dict[str, str]:
    names = sorted(set(members))
    return {name: SERIES[min(place, _OTHERS)] for place, name in enumerate(names)}


def _lane(spell: Spell) -> tuple[str, list[int]]:
    partition, _, group = spell.lane.partition(" ")
    return group, [int(each) for each in partition.split(".")]


def _day(at_ms: float) -> float:
    return float(date2num(datetime.fromtimestamp(at_ms / 1000, UTC)))


def _times(axes: Axes) -> None:
    locator = AutoDateLocator(tz=UTC, minticks=3, maxticks=8)
    axes.xaxis.set_major_locator(locator)
    formats = ["%Y", "%Y-%m", "%m-%d", "%H:%M", "%H:%M", "%H:%M:%S"]
    axes.xaxis.set_major_formatter(
        ConciseDateFormatter(locator, tz=UTC, formats=formats, zero_formats=formats)
    )


def _short(value: float, _: object) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _length(value: float, _: object) -> str:
    return f"{value / 1000:g} s" if value >= 1000 else f"{value:g} ms"
