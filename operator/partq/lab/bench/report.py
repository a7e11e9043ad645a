"""What was measured, as JSON and as text."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from partq.lab.bench.measure import BenchLoad, Latency, Measured, ThroughputRun

Report = dict[str, Any]


def report(
    load: BenchLoad, brokers: int, appendfsync: str, cpu_count: int, measured: Measured
) -> Report:
    """Return the report: medians of the runs, and the runs themselves."""
    runs, limit_runs, totals = measured.runs, measured.limit_runs, measured.totals
    end_to_end = _median(runs, lambda run: run.end_to_end_msgs_per_s)
    limit = _median(limit_runs, lambda run: run.end_to_end_msgs_per_s)
    return {
        "publish_msgs_per_s": round(_median(runs, lambda run: run.publish_msgs_per_s)),
        "end_to_end_msgs_per_s": round(end_to_end),
        "limit_msgs_per_s": round(limit),
        "ratio": round(end_to_end / limit, 3),
        "latency_ms": _latency(measured.latencies),
        "limit_latency_ms": _latency(measured.limit_latencies),
        "cpu_s_per_million": _cpu(runs),
        "limit_cpu_s_per_million": _cpu(limit_runs),
        "lost": totals.lost,
        "out_of_order": totals.out_of_order,
        "duplicates": totals.duplicates,
        "published": totals.published,
        "appendfsync": appendfsync,
        "batch_messages": round(_median(runs, lambda run: run.batch_messages)),
        "cpu_count": cpu_count,
        "brokers": brokers,
        **asdict(load),
        "runs": [asdict(run) for run in runs],
        "limit_runs": [asdict(run) for run in limit_runs],
        "latencies": [asdict(latency) for latency in measured.latencies],
        "limit_latencies": [asdict(latency) for latency in measured.limit_latencies],
    }


def render(report: Report) -> str:
    """Return a page for people."""
    latency, limit_latency = report["latency_ms"], report["limit_latency_ms"]
    return f"""
{report["messages"]:,} messages of {report["size"]} bytes{_of(report["input"])}, \
compression {report["compression"]}
{report["keys"]:,} keys, \
{report["partitions"]} partitions, {report["consumers"]} consumers, {report["brokers"]} brokers, \
{report["cpu_count"]} CPUs
appendfsync {report["appendfsync"]}; about {report["batch_messages"]:,} messages per batch

                          the queue    plain Redis streams
  publish           {report["publish_msgs_per_s"]:>11,} /s
  end to end        {report["end_to_end_msgs_per_s"]:>11,} /s  {report["limit_msgs_per_s"]:>11,} /s\
   ratio {report["ratio"]:.2f}
  latency p50       {latency["p50"]:>11.2f} ms  {limit_latency["p50"]:>11.2f} ms
  latency p99       {latency["p99"]:>11.2f} ms  {limit_latency["p99"]:>11.2f} ms

CPU seconds per million messages
  the queue             {_list(report["cpu_s_per_million"])}
  plain Redis streams   {_list(report["limit_cpu_s_per_million"])}

lost {report["lost"]}   out of order {report["out_of_order"]}   \
duplicates {report["duplicates"]}   of {report["published"]:,} published"""


def _of(file: str) -> str:
    return f" of {file}" if file else ""


def _median(runs: Iterable[ThroughputRun], figure: Callable[[ThroughputRun], float]) -> float:
    return median(map(figure, runs))


def _latency(latencies: Sequence[Latency]) -> dict[str, float]:
    return {
        "p50": round(median(latency.p50_ms for latency in latencies), 2),
        "p99": round(median(latency.p99_ms for latency in latencies), 2),
    }


def _cpu(runs: Sequence[ThroughputRun]) -> dict[str, float]:
    return {
        name: round(median(run.cpu_s_per_million[name] for run in runs), 2)
        for name in runs[0].cpu_s_per_million
    }


def _list(figures: dict[str, float]) -> str:
    return "  ".join(f"{name} {figure:.2f}" for name, figure in figures.items())
