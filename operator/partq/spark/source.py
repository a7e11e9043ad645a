"""The data source that Spark knows as `partq`."""

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from partq.errors import BadRequestError, PartqError
from partq.spark.connectivity import at_first, find_brokers
from partq.spark.errors import short_errors
from partq.spark.read.batch_reader import BatchReader
from partq.spark.read.key_state_reader import (
    COLUMNS,
    KeyStateReader,
    check_state_schema,
    state_options,
)
from partq.spark.read.log_thread import LogThread
from partq.spark.read.options import ReadOptions, read_options, wants_states
from partq.spark.read.read_planner import ReadPlanner
from partq.spark.read.schema import check_schema, source_schema
from partq.spark.read.stream_reader import FixedSignature, RefusedReader, StreamReader


class PartqDataSource(DataSource):
    """`spark.read.format("partq")`, `spark.readStream.format("partq")`, and both for writing."""

    cores: int | None = None
    """How many tasks Spark runs at once; None: not known, as nothing tells a data source."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "partq"

    def schema(self) -> StructType:
        """Return the columns that there are, once the brokers know the queue."""
        with short_errors():
            if wants_states(self.options):
                state_options(self.options)
                return COLUMNS
            options = read_options(self.options, is_stream=None)
            find_brokers(options.connection)
            with LogThread(at_first(options.connection)) as log:
                plan = ReadPlanner(log, options)
                plan.check()
                plan.check_ends()
            return source_schema(with_headers=options.with_headers, names=options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a batch."""
        with short_errors():
            if wants_states(self.options):
                check_state_schema(schema)
                return KeyStateReader(state_options(self.options), schema)
            check_schema(schema)
            options = read_options(self.options, is_stream=False, cores=self.cores)
            return BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return what reads a stream."""
        try:
            if wants_states(self.options):
                raise BadRequestError(
                    "option states: a stream reads messages; read states with spark.read"
                )
            check_schema(schema)
            options = read_options(self.options, is_stream=True, cores=self.cores)
            reader = open_stream_reader(options, schema)
            reader.stop_on_signals()
            return reader
        except PartqError as error:
            return RefusedReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what writes a batch."""
        # Spark starts a process for each step of a query: readers do not pay for importing pandas.
        from partq.spark.write.sink import batch_writer

        with short_errors():
            return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return what writes the micro-batches of a stream."""
        from partq.spark.write.sink import stream_writer  # as `writer`

        with short_errors():
            return stream_writer(self.options, schema, overwrite=overwrite)


def open_stream_reader(options: ReadOptions, schema: StructType) -> StreamReader:
    """Return a reader with the methods that this version of Spark calls."""
    try:
        import pyspark.sql.streaming.datasource  # noqa: F401
    except ImportError:
        return FixedSignature(options, schema)
    from partq.spark.read.admitting_reader import AdmittingReader

    return AdmittingReader(options, schema)


def register(spark: SparkSession) -> None:
    """Have a session know the data source from now on, and the data source Spark's cores.

    Spark also finds it by its name, but gives up for good when that takes above 10 s, and does not
    tell it how many cores there are. A repeat takes notice of cores that were added or removed.
    """
    try:
        spark.dataSource.register(_on_cores(spark))
    except AnalysisException as error:
        # Spark 4.0 looks for it by its name first, and then has it.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def _on_cores(spark: SparkSession) -> type[PartqDataSource]:
    """Return the data source with what its processes cannot find out."""
    # A session of Spark Connect has no context.
    context = getattr(spark, "sparkContext", None)

    class KnownCores(PartqDataSource):
        cores = None if context is None else context.defaultParallelism

    return KnownCores
