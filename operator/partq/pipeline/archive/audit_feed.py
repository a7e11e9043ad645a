"""What an archive takes in of the audit record, and how it has it trimmed."""

import asyncio
from collections.abc import Mapping

from partq.client.audit_reader import AuditExtent, AuditReader
from partq.core.model import PartitionId
from partq.errors import ForbiddenError
from partq.pipeline.access import QueueAccess
from partq.pipeline.manifest import ArchivePosition, Stream
from partq.pipeline.planning import LogExtent, Span


class AuditFeed:
    """The audit record, from what is stored on."""

    stream: Stream = "audit"

    def __init__(self, access: QueueAccess) -> None:
        self.access = access

    def beginnings(self) -> dict[str, ArchivePosition]:
        """Return the first sequences that are stored."""
        return {
            str(partition): ArchivePosition(each.first)
            for partition, each in self.extents().items()
        }

    def extents(self) -> dict[PartitionId, LogExtent]:
        """Return which sequences are stored."""
        return {each: LogExtent(found.first, found.next) for each, found in self._ask().items()}

    def stops(self, spans: Mapping[PartitionId, Span]) -> dict[PartitionId, ArchivePosition]:
        """Return the sequences behind the spans."""
        return {partition: ArchivePosition(span.stop) for partition, span in spans.items()}

    def acknowledge(self, positions: Mapping[str, ArchivePosition]) -> None:
        """Have what is below trimmed."""
        wanted = {PartitionId.parse(name): at.offset for name, at in positions.items()}

        async def trim() -> None:
            async with AuditReader(**self.access.connection().arguments()) as reader:
                await reader.trim(wanted)

        if wanted:
            asyncio.run(trim())

    def has_record(self) -> bool:
        """Return whether there is a record, or was one that is not archived yet.

        Raises:
            ForbiddenError: the token is not an administrator's.
        """
        try:
            found = self._ask().values()
        except ForbiddenError as error:
            raise ForbiddenError(
                f"{error.message}; give an administrator's token, or leave the audit record out "
                "with --no-audit"
            ) from error
        return any(each.is_on or each.first < each.next for each in found)

    def _ask(self) -> dict[PartitionId, AuditExtent]:
        async def ask() -> dict[PartitionId, AuditExtent]:
            async with AuditReader(**self.access.connection().arguments()) as reader:
                return await reader.bounds()

        return asyncio.run(ask())
