"""A query that is run piece by piece from one checkpoint."""

WAIT_S = 280


class CrashError(Exception):
    """The query ends in the middle of a micro-batch."""


class Run:
    """A query from a checkpoint on, and what its micro-batches held."""

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
            self.batches[number] = sorted(int(row.value) for row in frame.collect())
            if then is not None:
                then(number)
            if number == crash_in:
                raise CrashError

        writer = self._frame.select("value").writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", self._checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(WAIT_S)
        return self

    @property
    def values(self):
        return sorted(value for batch in self.batches.values() for value in batch)
