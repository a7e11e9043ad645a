"""Where Spark finds the data source `partq` by its name, without `spark.dataSource.register`.

Spark looks through the modules whose names begin with `pyspark_` for a `DefaultSource`.
"""

from partq.spark.source import PartqDataSource as DefaultSource

__all__ = ["DefaultSource"]
