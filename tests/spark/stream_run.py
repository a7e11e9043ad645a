"""Queries that run to their end, and one that is run piece by piece from one checkpoint."""

from pyspark.errors import StreamingQueryException

WAIT_S = 280
STARTS = 20
"""Each that fails takes ten seconds: less than a test may take."""
NOT_STARTED = "Python worker failed to connect back"
"""What Spark says when the process of a stream's reader was not there within 10 s; nothing sets it.

It waits for that process before all else: the query has read nothing, its checkpoint is as it was.
"""


def run_to_end(start):
    """Start a query and wait for its end; start it again where its process came too late."""
    for left in reversed(range(STARTS)):
        query = start()
        try:
            assert query.awaitTermination(WAIT_S), f"it still runs: {query.status}"
        except StreamingQueryException as error:
            if NOT_STARTED not in str(error) or not left:
                raise
        else:
            return


class CrashError(Exception):
    """The query ends in the middle of a micro-batch."""


class Run:
    """A query from a checkpoint on, and what its micro-batches held."""

    COLUMNS: tuple[str, ...] = ("value",)
    """Those that it reads."""

    def __init__(self, spark, queue, checkpoint, **options):
        self._frame = spark.readStream.format("partq").options(**(queue.options() | options)).load()
        self._checkpoint = str(checkpoint)
        self.batches = {}

    def __call__(self, *, crash_in=None, then=None):
        """Run until everything is read that is there now.

        `crash_in`: the micro-batch that is read and not finished; `then`: called with its number
        after each that is read.
        """

        def take(frame, number):
            self.take(frame, number)
            if then is not None:
                then(number)
            if number == crash_in:
                raise CrashError

        writer = self._frame.select(*self.COLUMNS).writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", self._checkpoint)
        run_to_end(writer.trigger(availableNow=True).start)
        return self

    def take(self, frame, number):
        """Keep what a micro-batch holds."""
        self.batches[number] = sorted(int(row.value) for row in frame.collect())

    @property
    def values(self):
        return sorted(value for batch in self.batches.values() for value in batch)
