"""What an archive takes in of the audit record, and how it has it trimmed."""

import asyncio
from collections.abc import Mapping

from partq.client.audit_reader import AuditExtent, AuditReader
from partq.core.model import PartitionId
from partq.errors import ForbiddenError, RolledBackError
from partq.pipeline.access import QueueAccess
from partq.pipeline.manifest import ArchivePosition, Stream
from partq.pipeline.planning import LogExtent, Span


class AuditFeed:
    """The audit record, from what is stored on."""

    stream: Stream = "audit"

    def __init__(self, access: QueueAccess) -> None:
        self.access = access
        self._chains: dict[tuple[PartitionId, int], str] = {}
        """Partition and sequence → the chain before it, where the records ended last."""

    def beginnings(self) -> dict[str, ArchivePosition]:
        """Return the first sequences that are stored."""
        return {
            str(partition): ArchivePosition(each.first)
            for partition, each in self.extents().items()
        }

    def extents(self) -> dict[PartitionId, LogExtent]:
        """Return which sequences are stored."""
        found = self._ask()
        self._chains = {(each, at.next): at.chain for each, at in found.items()}
        return {each: LogExtent(at.first, at.next) for each, at in found.items()}

    def stops(self, spans: Mapping[PartitionId, Span]) -> dict[PartitionId, ArchivePosition]:
        """Return the sequences behind the spans, with the chain there, which tells a rollback."""
        places = {partition: span.stop for partition, span in spans.items()}
        known = {
            each: self._chains[each, at]
            for each, at in places.items()
            if (each, at) in self._chains
        }

        async def ask() -> dict[PartitionId, str]:
            async with AuditReader(**self.access.connection().arguments()) as reader:
                return await _chains_at(
                    reader, {each: at for each, at in places.items() if each not in known}
                )

        if len(known) < len(places):
            known |= asyncio.run(ask())
        return {each: ArchivePosition(at, chain=known[each]) for each, at in places.items()}

    def acknowledge(self, positions: Mapping[str, ArchivePosition]) -> None:
        """Have what is below trimmed, if it is what the archive has.

        A partition that was removed has no record any more. After a rollback of the store other
        groups have the same sequences, and no archive has them.

        Raises:
            RolledBackError: it is not; nothing is trimmed.
        """
        wanted = {PartitionId.parse(name): at for name, at in positions.items()}

        async def trim() -> None:
            async with AuditReader(**self.access.connection().arguments()) as reader:
                layout = await reader.layout()
                living = {each: at for each, at in wanted.items() if not layout.is_past(each)}
                found = await _chains_at(reader, {each: at.offset for each, at in living.items()})
                for partition, at in living.items():
                    _check_chain(partition, at, found[partition])
                await reader.trim({each: at.offset for each, at in living.items()})

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


async def _chains_at(
    reader: AuditReader, places: Mapping[PartitionId, int]
) -> dict[PartitionId, str]:
    """Return the chain before each sequence; empty: nothing below it is stored any more.

    Raises:
        RolledBackError: a record ends below its sequence.
    """
    extents = await reader.bounds()
    chains = {}
    for partition, at in places.items():
        extent = extents[partition]
        if at == extent.next:
            chains[partition] = extent.chain
        elif at <= extent.first:
            chains[partition] = ""
        else:
            async for group in reader.groups(partition, at, at + 1):
                chains[partition] = group.previous
    return chains


def _check_chain(partition: PartitionId, at: ArchivePosition, found: str) -> None:
    """See that the groups below a position are those that the archive has.

    Raises:
        RolledBackError: they are others.
    """
    if at.chain and found and at.chain != found:
        raise RolledBackError(
            f"partition {partition}: the chain of the audit record before group {at.offset} is "
            f"{found}, and in the archive it is {at.chain}: the store has lost groups that the "
            "archive holds, and has written others; give what follows a separate ROOT"
        )
