"""Runs of messages → batches of the size that brokers like."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from partq.client.produce.batching import ReadyBatch
from partq.core.model import PartitionId
from partq.core.numbering.scheduled_ids import at_time
from partq.spark.write.encoding import EncodedRun
from partq.wire.batch import Codec, assemble
from partq.wire.frame import SCHEDULED

MAX_BATCH_MESSAGES = 8192
MAX_BYTES = 512 * 1024
"""Of the messages of a batch before compression; a larger message travels alone."""
MAX_GATHERED_BYTES = 32 * 1024 * 1024
"""Over all partitions: with many of them batches become smaller, not the memory larger."""


class _Open:
    """What waits for its batch to be full."""

    def __init__(self) -> None:
        self.runs: list[EncodedRun] = []
        self.count = 0
        self.size_bytes = 0

    def fitting(self, run: EncodedRun) -> int:
        """Return how many messages of `run` still go into this batch; one at least if empty."""
        first = self.runs[0] if self.runs else run
        if (first.ttl_ms, first.due_ms) != (run.ttl_ms, run.due_ms):
            return 0
        room = MAX_BYTES - self.size_bytes
        count = int(np.searchsorted(np.cumsum(run.sizes), room, side="right"))
        return min(max(count, 0 if self.runs else 1), MAX_BATCH_MESSAGES - self.count, len(run))

    def add(self, run: EncodedRun) -> None:
        """Add messages."""
        self.runs.append(run)
        self.count += len(run)
        self.size_bytes += run.raw.nbytes


class Batcher:
    """Gathers the messages of each partition until they make a batch."""

    def __init__(self, codec: Codec | None) -> None:
        self._codec = codec
        self._open: dict[PartitionId, _Open] = {}
        self._size_bytes = 0

    def add(self, run: EncodedRun) -> Iterator[tuple[PartitionId, ReadyBatch]]:
        """Take messages; yield the batches that they fill."""
        partition = run.partition
        while len(run):
            batch = self._open.setdefault(partition, _Open())
            fitting = batch.fitting(run)
            head, run = run.part(0, fitting), run.part(fitting, len(run))
            if fitting:
                batch.add(head)
                self._size_bytes += head.raw.nbytes
            if len(run):
                yield partition, self._seal(partition)
        if self._size_bytes > MAX_GATHERED_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[PartitionId, ReadyBatch]]:
        """Yield what has been gathered."""
        for partition in tuple(self._open):
            yield partition, self._seal(partition)

    def _seal(self, partition: PartitionId) -> ReadyBatch:
        batch = self._open.pop(partition)
        self._size_bytes -= batch.size_bytes
        raw = b"".join(run.raw for run in batch.runs)
        slots = np.concatenate([run.slots for run in batch.runs]).astype("<u2").tobytes()
        sizes = np.concatenate([run.sizes for run in batch.runs])
        ends = np.cumsum(sizes).astype("<u4").tobytes()
        data = assemble(raw, slots, ends, self._codec)
        first = batch.runs[0]
        ready = ReadyBatch(data, batch.count, len(raw), first.ttl_ms)
        if not first.due_ms:
            return ready
        return replace(ready, due=at_time(first.due_ms), needs=frozenset((SCHEDULED,)))
