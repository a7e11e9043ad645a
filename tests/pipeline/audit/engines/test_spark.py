"""Where tasks cannot read the files of an archive, Spark reads them: the verdict is the same."""

import pytest
from pyarrow import parquet

from partq.pipeline.audit import job
from partq.pipeline.audit.engines import spark as spark_engine
from partq.pipeline.audit.engines.arrow import ArrowAuditEngine
from partq.pipeline.audit.engines.spark import SparkAuditEngine
from partq.pipeline.audit.job import DUPLICATES, FINDINGS, HANDOFFS, run_audit
from partq.pipeline.storage.local_files import LocalFiles
from partq.pipeline.watch import JobWatch
from tests.pipeline.audit.frames import write_archive
from tests.pipeline.audit.model import clean_run
from tests.pipeline.audit.plants import plant_all


class Elsewhere:
    """Files that are not on this machine, as far as the engine can tell."""

    def __init__(self, files):
        self._files = files

    def __getattr__(self, name):
        return getattr(self._files, name)


@pytest.fixture
def archive(tmp_path):
    planted = plant_all()
    runs = [(run, run.rows()) for run in clean_run(partitions=2)]
    root = write_archive(
        tmp_path / "archive",
        [*runs, *((each.partition, each.read()) for each in planted)],
        stops={each.partition.name: each.archived_to for each in planted if each.archived_to},
        gaps=[each.gap for each in planted if each.gap],
    )
    return LocalFiles(root)


def audited(engine, archive, where):
    report = run_audit(engine, archive, LocalFiles(str(where)), JobWatch())
    rows = {
        name: parquet.read_table(where / name).to_pylist()
        for name in (FINDINGS, DUPLICATES, HANDOFFS)
    }
    return report.verdict, rows


def test_rows_that_spark_reads_and_sorts_come_to_the_same(spark, archive, tmp_path, monkeypatch):
    # So a task has many partitions, as where there are thousands; one for each takes a minute.
    monkeypatch.setattr(spark_engine, "MAX_TASKS", 8)
    by_arrow = audited(ArrowAuditEngine(archive.root, JobWatch()), archive, tmp_path / "arrow")
    engine = SparkAuditEngine(spark, Elsewhere(archive), JobWatch())
    by_spark = audited(engine, archive, tmp_path / "spark")

    assert by_spark == by_arrow


class Counting(ArrowAuditEngine):
    """Counts how often it is asked for what findings lack: with Spark, each is a job."""

    looks = 0

    def keys(self, scope, places):
        self.looks += 1
        return super().keys(scope, places)

    def published_at(self, scope, places):
        self.looks += 1
        return super().published_at(scope, places)


@pytest.mark.parametrize(("name", "few"), [("MAX_TOGETHER", 1), ("MAX_ROWS_TOGETHER", 1)])
def test_what_findings_lack_is_looked_up_for_many_partitions_at_once(
    archive, tmp_path, monkeypatch, name, few
):
    engine = Counting(archive.root, JobWatch())
    report = audited(engine, archive, tmp_path / "together")
    assert 0 < engine.looks <= 6, "two portions of partitions, and what is between partitions"

    monkeypatch.setattr(job, name, few)
    alone = Counting(archive.root, JobWatch())
    assert audited(alone, archive, tmp_path / "alone") == report
    assert alone.looks > 60
