"""A job: the Spark session that it runs in, and the watch that is kept over it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pyspark.sql import SparkSession

from partq.pipeline.watch import JobWatch
from partq.spark.session import open_session
from partq.spark.source import register


@dataclass(frozen=True, slots=True)
class Job:
    """What a job of the pipeline is given."""

    spark: SparkSession
    watch: JobWatch

    @classmethod
    def open(
        cls, title: str, watch: JobWatch, *, master: str | None, settings: Mapping[str, str]
    ) -> Self:
        """Open the session, quiet but for errors; arguments and errors as `open_session`."""
        spark = open_session(title, master=master, settings=settings)
        spark.sparkContext.setLogLevel("ERROR")
        register(spark)
        return cls(spark, watch)

    def enter_thread(self) -> None:
        """Make the session that of this thread; without one Spark knows no data source to write to.

        It is the thread's in the JVM that counts, and only that of the main thread has one.
        """
        jvm = self.spark._jvm
        assert jvm is not None  # noqa: S101  a session that is not connected has none
        jvm.SparkSession.setActiveSession(self.spark._jsparkSession)

    def stop(self) -> None:
        """Have the job end, and Spark's part of it at once; from any thread."""
        self.watch.stop()
        self.spark.sparkContext.cancelAllJobs()
