"""What `partq bench spark` measured, as figures and as a page."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Final

from partq.lab.bench.report import Report

SIDES: Final = {
    "spark_write": "Spark writes the queue",
    "spark_read": "Spark reads the queue",
    "parquet_read": "Spark reads Parquet",
    "client_read": "the client consumes",
    "archive": "archive to Parquet",
    "audit": "audit of the archive",
}
"""Each side, in the order of the page, and what people call it."""
WITHOUT_QUEUE: Final = ("parquet_read", "audit")
"""Sides that read files alone: what brokers and Redis do meanwhile is not counted."""
_OF_RECORDS: Final = ("archive", "audit")
"""Sides that take in the audit record as well."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One side, one time."""

    seconds: float
    cpu_s: Mapping[str, float]
    """Of Spark or the client (`client`); of the brokers and of Redis where they take part."""


@dataclass(slots=True)
class SparkMeasurements:
    """What was measured."""

    rows: int
    records: int = 0
    """Of the audit record that the rows left, as it was archived."""
    tasks: dict[str, int] = field(default_factory=dict)
    """In how many tasks Spark reads, by side."""
    turns: dict[str, list[Turn]] = field(default_factory=dict)

    def rates(self) -> dict[str, dict[str, object]]:
        """Return what each side did: medians over its turns."""
        return {name: self._rates_of(name, turns) for name, turns in self.turns.items()}

    def _rates_of(self, name: str, turns: list[Turn]) -> dict[str, object]:
        seconds = median(turn.seconds for turn in turns)
        cpu_s = median(max(0.01, sum(turn.cpu_s.values())) for turn in turns)
        records = {"records_per_s": round(self.records / seconds)} if name in _OF_RECORDS else {}
        return {
            "rows_per_s": round(self.rows / seconds),
            "rows_per_cpu_s": round(self.rows / cpu_s),
            **records,
            "cpu_s_per_million": {
                part: round(1e6 * median(turn.cpu_s[part] for turn in turns) / self.rows, 2)
                for part in turns[0].cpu_s
            },
            "turns": [asdict(turn) for turn in turns],
        }


def render(report: Report) -> str:
    """Return a page for people."""
    lines = [
        f"{report['rows']:,} rows, {report['records']:,} records of their audit, "
        f"{report['partitions']} partitions, {report['brokers']} brokers, "
        f"{report['cpu_count']} CPUs",
        "",
        f"{'':24}{'rows/s':>12}{'per core':>12}   CPU s per million rows",
    ]
    for name, title in SIDES.items():
        side = report[name]
        parts = "  ".join(
            f"{'Spark' if part == 'client' and name != 'client_read' else part} {spent:.2f}"
            for part, spent in side["cpu_s_per_million"].items()
        )
        lines.append(f"{title:24}{side['rows_per_s']:>12,}{side['rows_per_cpu_s']:>12,}   {parts}")
    read, tasks = report["spark_read"]["rows_per_s"], report["tasks"]
    lines += [
        "",
        f"Spark reads the queue in {tasks['spark_read']:,} tasks, and Parquet in "
        f"{tasks['parquet_read']:,}",
        f"Spark reads the queue at {read / report['parquet_read']['rows_per_s']:.2f} of Parquet's "
        f"rate, and {read / report['client_read']['rows_per_s']:.2f} of the consumer's",
        f"of the audit record {report['archive']['records_per_s']:,} records/s are archived, "
        f"{report['audit']['records_per_s']:,} audited; its verdict: {report['verdict']}",
    ]
    return "\n".join(lines)
