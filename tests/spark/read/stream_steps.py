"""A stream's reader, called as Spark calls it, without Spark: what a query does step by step."""

import json
from contextlib import contextmanager

from pyspark.sql.types import LongType, StructField, StructType

from partq.spark.read.options import read_options
from partq.spark.source import open_stream_reader

SCHEMA = StructType([StructField("offset", LongType())])


class StreamSteps:
    """One process of a query; `start` is what its checkpoint says."""

    def __init__(self, options):
        self.reader = open_stream_reader(read_options(options, is_stream=True), SCHEMA)

    def begin(self):
        """Return where the query begins, which has no checkpoint."""
        return kept(self.reader.initialOffset())

    def end(self, start):
        """Return where the next micro-batch ends."""
        try:
            return kept(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))
        except AttributeError:  # before Spark 4.2
            return kept(self.reader.latestOffset())

    def read(self, start, end):
        """Return how many messages a micro-batch has."""
        tasks = self.reader.partitions(start, end)
        return sum(each.size for task in tasks for each in task.ranges)


@contextmanager
def stream_steps(options):
    """Run a process of a query, which stops in order."""
    steps = StreamSteps(options)
    try:
        yield steps
    finally:
        steps.reader.stop()


def kept(offsets):
    """Return offsets as they come back from a checkpoint."""
    return json.loads(json.dumps(offsets))
