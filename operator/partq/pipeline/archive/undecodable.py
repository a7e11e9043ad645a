"""Passes undecodable messages: their batches are kept beside the archive, their offsets noted.

An archive has a row for each message that can be decoded. A foreign producer can store a batch that
cannot: the engines refuse it, and no later run could pass it. Only then the log is read again here,
to find the offsets. A step takes rows up to the next such offset, or passes one range of them.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from partq.client.log_reader import LogReader
from partq.core.model import PartitionId
from partq.core.readers.partition_order import PartitionOrder
from partq.errors import RolledBackError, UndecodableError
from partq.excerpts import counted
from partq.pipeline.access import QueueAccess
from partq.pipeline.archive_log import STATE
from partq.pipeline.manifest import ArchivePosition
from partq.pipeline.planning import Span
from partq.pipeline.storage.files import Files
from partq.pipeline.watch import JobWatch
from partq.wire.batch import undecodable
from partq.wire.calls.entries import StoredBatch

UNDECODABLE = f"{STATE}/undecodable"
"""Where stored batches with undecodable messages are kept, below ROOT."""

MAX_NAMED = 10
"""How many ranges a refusal names."""


@dataclass(frozen=True, slots=True)
class UndecodableRange:
    """Undecodable messages of one stored batch: the offsets [first, stop)."""

    first: int
    stop: int
    append_broker_epoch: int
    """Under which the batch was stored."""
    path: str
    """Of the file with the batch, as it is stored."""


class UndecodableMessages:
    """The undecodable messages that a job has met.

    Args:
        access: to the queue.
        files: of the archive.
        watch: over the job.
        is_passed: keep their batches, and pass them; False: refuse them.
    """

    def __init__(
        self, access: QueueAccess, files: Files, watch: JobWatch, *, is_passed: bool
    ) -> None:
        self._access = access
        self._files = files
        self._watch = watch
        self._is_passed = is_passed
        self._known: dict[PartitionId, list[UndecodableRange]] = {}

    def around(
        self,
        spans: Mapping[PartitionId, Span],
        order: PartitionOrder = PartitionOrder(),  # noqa: B008  it cannot be changed
    ) -> tuple[dict[PartitionId, Span], dict[PartitionId, UndecodableRange]]:
        """Return what a step takes of spans: rows up to the next known range, or that range.

        The second value has the ranges that are passed. Their spans have no rows, and begin behind
        them. Nothing is taken of a partition that is to be read behind more of another one.
        """
        taken: dict[PartitionId, Span] = {}
        passed: dict[PartitionId, UndecodableRange] = {}
        cut: dict[PartitionId, int] = {}
        for partition, span in sorted(spans.items()):
            # Nothing is said of the others: these are read as far as the plan needs it.
            if not order.is_due(partition, cut):
                cut[partition] = span.start.offset
                continue
            ahead = self._ahead(partition, span)
            at = span.start.offset
            if ahead is None:
                taken[partition] = span
                continue
            if ahead.first > at or span.lost_from is not None:
                taken[partition] = Span(span.start, max(at, ahead.first), span.lost_from)
            else:
                start = ArchivePosition(ahead.stop, ahead.append_broker_epoch)
                taken[partition] = Span(start, ahead.stop, lost_from=at)
                passed[partition] = ahead
            cut[partition] = taken[partition].stop
        return taken, passed

    def find(self, spans: Mapping[PartitionId, Span], error: UndecodableError) -> None:
        """Find the undecodable messages of spans that an engine could not write.

        Raises:
            UndecodableError: they are not to be passed; or none was found, and it is `error`.
            DataLossError, RolledBackError, UnavailableError: as of `LogReader.entries`.
            StoppedError: the job is to end.
        """
        found = asyncio.run(self._find(spans))
        new = {each: ranges for each, ranges in found.items() if ranges != self._known.get(each)}
        if not new:
            raise error
        if not self._is_passed:
            raise self._refusal(found) from error
        self._known |= new

    def check(
        self,
        passed: Mapping[PartitionId, UndecodableRange],
        stops: Mapping[str, ArchivePosition],
    ) -> None:
        """Check that the log still has the batches of ranges, by the positions behind them.

        Raises:
            RolledBackError: the store has lost them.
        """
        for partition, each in passed.items():
            if stops[str(partition)].append_broker_epoch != each.append_broker_epoch:
                raise RolledBackError(
                    f"queue {self._access.queue!r}, partition {partition}: the messages "
                    f"{each.first} to {each.stop - 1} were stored after this step was planned: the "
                    "store was rolled back; start the job again"
                )

    def _ahead(self, partition: PartitionId, span: Span) -> UndecodableRange | None:
        at = span.start.offset
        return next(
            (
                each
                for each in self._known.get(partition, ())
                if each.stop > at and each.first < span.stop
            ),
            None,
        )

    def _refusal(self, found: Mapping[PartitionId, list[UndecodableRange]]) -> UndecodableError:
        ranges = [(partition, each) for partition in sorted(found) for each in found[partition]]
        count = sum(each.stop - each.first for _, each in ranges)
        named = ", ".join(
            f"{_offsets(each)} of partition {partition}" for partition, each in ranges[:MAX_NAMED]
        )
        amount = counted(count, "message is", "messages are")
        more = f" and {len(ranges) - MAX_NAMED} more ranges" if len(ranges) > MAX_NAMED else ""
        return UndecodableError(
            f"queue {self._access.queue!r}: {amount} undecodable, at offsets {named}"
            f"{more}; an archive has no rows of such messages: with --skip-undecodable it keeps "
            f"their stored batches in ROOT/{UNDECODABLE}, notes the offsets, and continues"
        )

    async def _find(
        self, spans: Mapping[PartitionId, Span]
    ) -> dict[PartitionId, list[UndecodableRange]]:
        found: dict[PartitionId, list[UndecodableRange]] = {}
        async with LogReader(**self._access.connection().arguments()) as reader:
            for partition, span in sorted(spans.items()):
                async for batch in reader.entries(partition, span.start.offset, span.stop):
                    self._watch.check()
                    places = [
                        (batch.first + low, batch.first + high)
                        for low, high in await asyncio.to_thread(undecodable, batch.data)
                    ]
                    wanted = [
                        (first, stop)
                        for first, stop in places
                        if first < span.stop and stop > span.start.offset
                    ]
                    if wanted:
                        path = self._keep(partition, batch)
                        found.setdefault(partition, []).extend(
                            UndecodableRange(first, stop, batch.append_broker_epoch, path)
                            for first, stop in wanted
                        )
        return found

    def _keep(self, partition: PartitionId, batch: StoredBatch) -> str:
        """Write a batch to a file whose name no other batch can have, and return its path."""
        stop = batch.first + batch.count
        name = f"{batch.first:015d}-{stop:015d}-{batch.append_broker_epoch}.batch"
        path = f"{UNDECODABLE}/queue_partition={partition}/{name}"
        if self._is_passed:
            self._files.create(path, batch.data)
        return path


def _offsets(found: UndecodableRange) -> str:
    last = found.stop - 1
    return f"{found.first}" if found.first == last else f"{found.first} to {last}"
