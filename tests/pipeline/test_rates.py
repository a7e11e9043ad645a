"""What `partq bench spark` measures: what it has Spark do, its page, and how it judges."""

import gzip

import pytest

from partq.cli.lab.bench_spark import require_clean
from partq.errors import BadRequestError, InternalError
from partq.lab.bench.spark_figures import SIDES, WITHOUT_QUEUE, SparkMeasurements, Turn, render
from partq.pipeline import rates
from partq.pipeline.access import QueueAccess
from partq.pipeline.archive_files import read_archive, read_audit
from partq.pipeline.audit.verdict import AuditTotals, AuditVerdict
from partq.pipeline.audit.verdict import FindingCount as Finding
from partq.pipeline.job import Job
from partq.pipeline.watch import JobWatch
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
        tasks = rates.count_tasks(spark, queue.options(), tmp_path / "rows")
        assert 1 <= tasks["spark_read"] <= 3
        assert tasks["parquet_read"] >= 1
    rates.read_parquet(spark, tmp_path / "rows")


def test_a_queue_is_archived_with_its_audit_record(spark, tmp_path):
    with live_queue(partitions=2, groups=["archive"], spec={"audit": True}) as queue:
        queue.publish(range(60))
        broker = queue.broker
        access = QueueAccess(broker.url, queue.name, "default", broker.tokens.admin)
        records = rates.archive_queue(
            Job(spark, JobWatch()), access, "archive", tmp_path / "archive", now_ms=lambda: 0
        )

    root = str(tmp_path / "archive")
    published = read_audit(spark, root).where("kind = 'publish'").collect()
    assert sum(row.stop - row.first for row in published) == 60
    assert read_archive(spark, root).count() == 60
    assert records == read_audit(spark, root).count()


def test_input_without_keys_is_refused(spark, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("no event\n", encoding="utf-8")
    with pytest.raises(BadRequestError, match="lines of JSON with a field key, got none"):
        rates.make_rows(spark, path, 10, 1, tmp_path / "rows")


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


def verdict(*found, **changed):
    counts = {"published": 9, "delivered": 9, "acknowledged": 9, "archived": 9, **changed}
    totals = AuditTotals(
        partitions=1, records=1, dead_lettered=0, expired=0, from_ms=0, until_ms=1, **counts
    )
    return AuditVerdict(totals=totals, found=found)


def test_a_clean_audit_of_every_row_passes():
    require_clean(verdict(Finding("log", "archive_behind", "warning", 1)), 9)


@pytest.mark.parametrize(
    ("judged", "message"),
    [
        (verdict(Finding("loss", "lost", "fault", 2)), "verdict is faults found: lost 2"),
        (verdict(Finding("chain", "missing_range", "fault", 1)), "incomplete: missing_range 1"),
        (verdict(acknowledged=8), "'acknowledged': 8.*expected 9 of each"),
        (verdict(archived=None), "'archived': None.*expected 9 of each"),
    ],
)
def test_a_bench_whose_audit_is_not_clean_fails(judged, message):
    with pytest.raises(InternalError, match=message):
        require_clean(judged, 9)
