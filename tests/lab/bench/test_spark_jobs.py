"""What `partq bench spark` has Spark do: rows into a queue, and into an archive."""

import gzip

import pytest

from partq.errors import BadRequestError
from partq.lab.bench import spark_jobs
from partq.pipeline.access import QueueAccess
from partq.pipeline.archive_files import read_archive, read_audit
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
    assert spark_jobs.make_rows(spark, events, 220, 3, tmp_path / "rows") == 200
    with live_queue(partitions=3) as queue:
        spark_jobs.write_queue(spark, tmp_path / "rows", queue.options(queue.broker.tokens.produce))
        assert spark_jobs.count_queue(spark, queue.options()) == 200
        spark_jobs.read_queue(spark, queue.options())
        tasks = spark_jobs.count_tasks(spark, queue.options(), tmp_path / "rows")
        assert 1 <= tasks["spark_read"] <= 3
        assert tasks["parquet_read"] >= 1
    spark_jobs.read_parquet(spark, tmp_path / "rows")


def test_a_queue_is_archived_with_its_audit_record(spark, tmp_path):
    with live_queue(partitions=2, groups=["archive"], spec={"audit": True}) as queue:
        queue.publish(range(60))
        broker = queue.broker
        access = QueueAccess(broker.url, queue.name, "default", broker.tokens.admin)
        records = spark_jobs.archive_queue(
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
        spark_jobs.make_rows(spark, path, 10, 1, tmp_path / "rows")
