"""Where tasks cannot read the files of an archive, Spark reads them: the verdict is the same."""

import pytest
from pyarrow import parquet

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


def test_rows_that_spark_reads_and_sorts_come_to_the_same(spark, archive, tmp_path):
    by_arrow = audited(ArrowAuditEngine(archive.root, JobWatch()), archive, tmp_path / "arrow")
    engine = SparkAuditEngine(spark, Elsewhere(archive), JobWatch())
    by_spark = audited(engine, archive, tmp_path / "spark")

    assert by_spark == by_arrow
