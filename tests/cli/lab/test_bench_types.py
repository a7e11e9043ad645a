"""The bench of group types: its figures of runs made up, and a tiny run."""

import json

from click.testing import CliRunner

from partq.cli.commands import cli
from partq.lab.bench.group_types import BASELINE, TypeFigures, TypesLoad, render, report
from partq.lab.bench.measure import ReaderTotals, ThroughputRun

LOAD = TypesLoad(
    types=("KeyShared",),
    partitions=16,
    keys=100,
    size=100,
    messages=1000,
    consumers=8,
    rounds=3,
)


def figures(rates, received_bytes, **odd):
    totals = {"published": 100, "lost": 0, "duplicates": 0, "out_of_order": 0, **odd}
    return TypeFigures(
        [ThroughputRun(rate, rate, {"brokers": 1.0}, 10) for rate in rates],
        ReaderTotals(**totals, received_bytes=received_bytes),
    )


def test_the_ratio_is_the_median_of_the_rounds():
    """Not that of the medians: the runs of a round are side by side."""
    found = {
        BASELINE: figures([100, 200, 400], 10_000),
        "KeyShared": figures([90, 100, 360], 15_000),
    }
    told = report(LOAD, found)
    shared = told["types"]["KeyShared"]
    assert (shared["ratio"], shared["ratios"]) == (0.9, [0.9, 0.5, 0.9])
    assert (shared["egress_bytes_per_message"], shared["egress_ratio"]) == (150.0, 1.5)
    assert told["types"][BASELINE]["ratio"] == 1
    assert told["sparse_acks"] == 100_000


def test_what_is_lost_is_told_and_bad():
    found = {BASELINE: figures([100], 1), "KeyShared": figures([90], 1, lost=3)}
    assert [each.is_good for each in found.values()] == [True, False]
    assert "3 lost" in render(LOAD, found)


def test_a_tiny_run_loses_nothing_and_keeps_the_order(tmp_path):
    """With more members than partitions: several members get parts of the same batches."""
    file = tmp_path / "types.json"
    load = ["--messages", "1000", "--keys", "50", "--partitions", "2", "--consumers", "3"]
    arguments = ["bench", "types", *load, "--rounds", "1", "--json", str(file)]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    told = json.loads(file.read_text())["types"]
    assert told.keys() == {BASELINE, "KeyShared", "Shared"}
    for each in told.values():
        assert (each["lost"], each["out_of_order"], each["duplicates"]) == (0, 0, 0)
        assert each["published"] == 1200, "with the round that warms up"
    assert told["KeyShared"]["egress_ratio"] > 1
    assert 0 < told["KeyShared"]["record_bytes"] <= 4096, "each second of 16,000 is acknowledged"
