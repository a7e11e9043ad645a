"""What `partq bench spark` measures: the rows it makes, and the page that it prints."""

import gzip

import pytest

from partq.cli.bench.spark_rates import Found, Turn, render
from partq.errors import BadRequestError
from partq.spark import rates
from tests.spark.live_queue import live_queue


@pytest.fixture
def events(tmp_path):
    path = tmp_path / "events.ndjson.gz"
    lines = [f'{{"key": "k{number % 7}", "seq": {number}}}\n' for number in range(50)]
    path.write_bytes(gzip.compress("".join([*lines, "no event\n"]).encode()))
    return path


def test_rows_are_events_repeated_and_reach_the_queue(spark, events, tmp_path):
    assert rates.make_rows(spark, events, 220, 3, tmp_path / "rows") == 200
    with live_queue(partitions=3) as queue:
        rates.write_queue(spark, tmp_path / "rows", queue.options(queue.broker.tokens.produce))
        assert rates.count_queue(spark, queue.options()) == 200
        rates.read_queue(spark, queue.options())
    rates.read_parquet(spark, tmp_path / "rows")


def test_input_without_keys_is_refused(spark, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("no event\n", encoding="utf-8")
    with pytest.raises(BadRequestError, match="lines of JSON with a field key, got none"):
        rates.make_rows(spark, path, 10, 1, tmp_path / "rows")


def test_rates_are_medians_and_count_all_cpu_time():
    parts = {"client": 3.0, "brokers": 1.0, "redis": 1.0}
    found = Found(1000)
    for name in ("spark_write", "spark_read", "parquet_read", "client_read"):
        found.turns[name] = [Turn(seconds, parts) for seconds in (1.0, 2.0, 50.0)]
    found.turns["parquet_read"] = [Turn(1.0, parts)]
    report = {"rows": 1000, "partitions": 3, "brokers": 1, "cpu_count": 2, **found.rates()}

    assert report["spark_read"]["rows_per_s"] == 500
    assert report["spark_read"]["rows_per_cpu_s"] == 200
    assert report["spark_read"]["cpu_s_per_million"]["client"] == 3000.0
    assert "at 0.50 of Parquet's rate, and 1.00 of the consumer's" in render(report)
