"""A real Spark in this process, made once for all tests that a worker runs.

It is a plugin of `tests/conftest.py`: two folders use the one session.
"""

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
NO_CODEGEN = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Compiling a plan takes longer than running it on a few hundred rows. Drivers that tests start as
programs compile theirs, but for those that are killed soon after their start."""
SETTINGS = {
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    # Small jobs, each run once: what a better compiler would gain costs more than it brings.
    JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    **NO_CODEGEN,
    "spark.sql.streaming.numRecentProgressUpdates": "20",
}


@pytest.fixture(scope="session")
def spark_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have Spark's processes in Python import what is installed, whose bytecode is there.

    Spark names them its ZIP of the same modules first, and of a ZIP each process compiles all that
    it imports: four times the work, which on a busy machine takes longer than Spark waits.
    """
    script = tmp_path_factory.mktemp("bin") / "python"
    script.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", os.environ.get("PYSPARK_PYTHON", str(script)))
        yield


@pytest.fixture(scope="session")
def spark(spark_python: None) -> Iterator["SparkSession"]:
    """A session that nobody may stop; tables and queries are the test's to clear away."""
    from partq.spark.session import open_session

    # Two cores; a task is tried four times, as on a cluster: local mode alone never repeats one.
    session = open_session("tests", master="local[2, 4]", settings=SETTINGS)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
