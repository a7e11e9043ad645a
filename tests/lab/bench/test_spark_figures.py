"""What `partq bench spark` makes of its measurements: rates, and its page."""

from partq.lab.bench.spark_figures import SIDES, WITHOUT_QUEUE, SparkMeasurements, Turn, render


def test_rates_are_medians_and_count_all_cpu_time():
    parts = {"client": 3.0, "brokers": 1.0, "redis": 1.0}
    found = SparkMeasurements(1000, records=50)
    for name in SIDES:
        spent = {"client": 3.0} if name in WITHOUT_QUEUE else parts
        found.turns[name] = [Turn(seconds, spent) for seconds in (1.0, 2.0, 50.0)]
    found.turns["parquet_read"] = [Turn(1.0, {"client": 3.0})]
    report = {
        "rows": 1000, "records": 50, "partitions": 3, "brokers": 1, "cpu_count": 2,
        "verdict": "clean",
        "tasks": {"spark_read": 2, "parquet_read": 3}, **found.rates(),
    }  # fmt: skip

    assert report["spark_read"]["rows_per_s"] == 500
    assert report["spark_read"]["rows_per_cpu_s"] == 200
    assert report["spark_read"]["cpu_s_per_million"]["client"] == 3000.0
    assert report["audit"]["rows_per_cpu_s"] == 333
    assert report["audit"]["records_per_s"] == 25
    assert "records_per_s" not in report["client_read"]
    page = render(report)
    assert "at 0.50 of Parquet's rate, and 1.00 of the consumer's" in page
    assert "reads the queue in 2 tasks, and Parquet in 3" in page
    assert "25 records/s are archived, 25 audited; its verdict: clean" in page
    assert all(title in page for title in SIDES.values())
