"""The bench of keys that fail: its figures of rates made up, and a tiny run."""

import json

from click.testing import CliRunner

from partq.cli.commands import cli
from partq.lab.bench.retry import RetryLoad, RetryRates, render, report

LOAD = RetryLoad(
    partitions=1,
    keys=100,
    poison_keys=2,
    delay_ms=50,
    messages=1000,
    concurrency=4,
    credit=100,
    rounds=3,
)


def test_the_ratio_is_the_median_of_the_rounds():
    """Not that of the medians: a round has both phases side by side."""
    found = RetryRates(calm=[100, 200, 400], poison=[100, 100, 360], nacks=7)
    told = report(LOAD, found)
    assert (told["ratio"], told["ratios"]) == (0.9, [1.0, 0.5, 0.9])
    assert told["others_msgs_per_s"] == {"calm": 200, "poison": 100}
    assert "2 of 100 keys fail" in render(LOAD, found)
    assert "200 messages/s while all succeed, 100 while those fail" in render(LOAD, found)


def test_a_run_that_has_lost_messages_has_a_report():
    found = RetryRates(lost=3)
    assert not found.is_good
    told = report(LOAD, found)
    assert (told["ratio"], told["lost"]) == (None, 3)
    assert "3 lost" in render(LOAD, found)


def test_some_keys_have_to_succeed():
    result = CliRunner().invoke(cli, ["bench", "retry", "--keys", "5", "--poison-keys", "5"])
    assert result.exit_code == 2
    assert "--poison-keys: got 5, expected fewer than --keys has, 5" in result.output


def test_a_tiny_run_loses_nothing_and_keeps_the_order(tmp_path):
    file = tmp_path / "retry.json"
    load = ["--messages", "1000", "--keys", "20", "--delay-ms", "0", "--rounds", "1", "--json"]
    result = CliRunner().invoke(cli, ["bench", "retry", *load, str(file)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    told = json.loads(file.read_text())
    assert (told["lost"], told["out_of_order"]) == (0, 0)
    assert told["nacks"] > 0
    assert told["ratio"] > 0
