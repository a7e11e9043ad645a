"""Archives without Spark: this process fetches, decodes and writes, on local paths."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from partq.aio import cancel_and_wait
from partq.core.model import PartitionId
from partq.pipeline.archive.feeds import Feed
from partq.pipeline.archive.span_files import SpanFiles
from partq.pipeline.archive.span_readers import Decode, SpanReader, open_spans
from partq.pipeline.manifest import ArchivePosition, DataFile
from partq.pipeline.staging import Staging
from partq.pipeline.storage.local_files import LocalFiles, unusable_root
from partq.pipeline.watch import JobWatch

PARTITIONS_AT_ONCE = 4
"""How many partitions are read and written at the same time. Each keeps up to about 64 MiB: what
is fetched, what is decoded of it, and the row group that is next to be written."""

T = TypeVar("T")

_Ends = tuple[ArchivePosition, ArchivePosition]


class ArrowEngine:
    """Reads several partitions at once, and writes each by itself; an `ArchiveEngine`.

    Args:
        watch: over the job; when it is to end, fetching ends at once.
        files: of the archive.
        partitions_at_once: how many are read and written at the same time.
    """

    def __init__(
        self,
        watch: JobWatch,
        files: LocalFiles,
        *,
        partitions_at_once: int = PARTITIONS_AT_ONCE,
    ) -> None:
        self._watch = watch
        self._partitions_at_once = partitions_at_once
        self._files = files

    def write(
        self,
        staging: Staging,
        feed: Feed,
        starts: Mapping[str, ArchivePosition],
        stops: Mapping[str, ArchivePosition],
    ) -> list[DataFile]:
        """Write the rows, one file per partition and day."""
        spans = {
            PartitionId.parse(name): (starts[name], stop)
            for name, stop in stops.items()
            if stop.offset > starts[name].offset
        }
        try:
            return asyncio.run(self._until_stopped(staging, feed, spans))
        except OSError as error:
            root = self._files.root
            raise unusable_root(root, error, error.filename or root) from error

    async def _until_stopped(
        self, staging: Staging, feed: Feed, spans: Mapping[PartitionId, _Ends]
    ) -> list[DataFile]:
        writing = asyncio.create_task(self._write(staging, feed, spans))
        loop = asyncio.get_running_loop()
        with self._watch.on_stop(lambda: loop.call_soon_threadsafe(writing.cancel)):
            try:
                return await writing
            except asyncio.CancelledError:
                self._watch.check()
                raise

    async def _write(
        self, staging: Staging, feed: Feed, spans: Mapping[PartitionId, _Ends]
    ) -> list[DataFile]:
        """Write all spans; the first failure ends the others."""
        limit = asyncio.Semaphore(self._partitions_at_once)
        folder = f"{staging.folder}/{feed.stream}"
        async with open_spans(feed) as reader:

            async def write(partition: PartitionId) -> list[DataFile]:
                async with limit:
                    files = SpanFiles(self._files, folder, feed.stream, str(partition))
                    return await _write_span(reader, partition, spans[partition], files)

            tasks = [asyncio.create_task(write(each)) for each in sorted(spans)]
            try:
                written = await asyncio.gather(*tasks)
            finally:
                await cancel_and_wait(*tasks)
        return [each for files in written for each in files]


async def _write_span(
    reader: SpanReader, partition: PartitionId, ends: _Ends, files: SpanFiles
) -> list[DataFile]:
    """Decode and write in a thread, while what follows is fetched."""
    try:
        async for decode in reader.fetch(partition, *ends):
            await _in_thread(partial(_add, files, decode))
        await _in_thread(files.close)
        return await _in_thread(files.measure)
    finally:
        files.abandon()


def _add(files: SpanFiles, decode: Decode) -> None:
    files.add(decode())


async def _in_thread(call: Callable[[], T]) -> T:
    """Make a call in a thread, and wait for its end also when cancelled: a thread cannot be."""
    calling = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        return await asyncio.shield(calling)
    finally:
        await asyncio.wait([calling])
        if not calling.cancelled():
            calling.exception()  # of a cancelled call nobody asks for it, and asyncio logs that
