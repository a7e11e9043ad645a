"""Reading the audit record of a queue, and telling its brokers what an archive has of it."""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass

from partq.client.arguments import MAX_INTEGER, check_by_partition, check_texts, whole
from partq.client.transport.answers import unusable
from partq.client.transport.reader import QueueReader
from partq.core.model import PartitionId
from partq.errors import RolledBackError
from partq.wire.audit import AuditGroup, split_answer
from partq.wire.calls.answers import UNSET
from partq.wire.calls.audit_calls import AuditBounds, AuditCursors, AuditStates

__all__ = ["AuditExtent", "AuditGroup", "AuditReader"]


@dataclass(frozen=True, slots=True)
class AuditExtent:
    """How far the audit record of a partition has come: its groups [first, next) are stored."""

    is_on: bool
    """Whether what happens is written down now."""
    first: int
    next: int
    chain: str
    """The chain after the last group."""
    stored_bytes: int


class AuditReader(QueueReader):
    """Reads audit records, for archives and those who look into an incident. Use in `async with`.

    Arguments as of `QueueReader`; the token is an administrator's.
    """

    _rights_path = "/partitions/0.0/audit?from=0"

    async def bounds(
        self, partitions: Iterable[PartitionId] | None = None
    ) -> dict[PartitionId, AuditExtent]:
        """Return how far the records have come; None: of all partitions.

        Raises:
            UnknownPartitionError: the queue does not have one of them.
            UnavailableError: no broker answers in time.
        """
        wanted = await self._router.checked(partitions)
        found: dict[PartitionId, AuditExtent] = {}
        for partition in wanted[:1]:
            answer = await self._router.at_owner(partition, self._ask)
            names = answer.partitions
            found = {each: _extent(each, names.get(str(each))) for each in wanted}
        return found

    async def groups(
        self,
        partition: PartitionId,
        start: int,
        stop: int | None = None,
        *,
        previous: str | None = None,
    ) -> AsyncIterator[AuditGroup]:
        """Yield groups from the sequence `start` on, up to `stop`; None: what there is as of now.

        They follow each other by sequence and chain. Whether each chain is that of its bytes
        (`AuditGroup.is_whole`) is left to the caller.

        Args:
            partition: of which.
            start: sequence of the first group.
            stop: behind the last one.
            previous: the chain before `start`, as an archive knows it; None: any.

        Raises:
            DataLossError: groups from `start` on were trimmed.
            RolledBackError: the store has lost groups: the record ends below `start` or `stop`, or
                continues from another chain than `previous`, or than that of the group before.
            UnknownPartitionError, UnavailableError: as `bounds`.
        """
        start = whole("start", start, 0, MAX_INTEGER)
        stop = whole("stop", stop, 0, MAX_INTEGER) if stop is not None else None
        check_texts({"previous": previous})
        extent = (await self.bounds([partition]))[partition]
        end = extent.next if stop is None else stop
        if end > extent.next or start > extent.next:
            raise RolledBackError(
                f"partition {partition}: the audit record ends at {extent.next}, below "
                f"{max(start, end)}: the store has lost groups; archive it to a separate place"
            )
        at, chain = start, previous
        while at < end:
            found = await self._fetch(partition, at)
            if not found:
                raise RolledBackError(
                    f"partition {partition}: the audit record ends at {at}, below {end}: the "
                    "store has lost groups; archive it to a separate place"
                )
            for group in found[: end - at]:
                if group.sequence != at or chain not in (None, group.previous):
                    raise RolledBackError(
                        f"partition {partition}: group {at} of the audit record follows another "
                        f"chain ({group.previous}) than the one before has ({chain}): the store "
                        "has lost groups, and has written others; archive it to a separate place"
                    )
                at, chain = at + 1, group.chain
                yield group

    async def trim(self, cursors: Mapping[PartitionId, int]) -> dict[PartitionId, AuditExtent]:
        """Have all groups below the sequences freed; return what is stored after that.

        What is freed is gone: give sequences of groups that an archive has synced.

        Raises:
            UnknownPartitionError: the queue does not have one of them.
            UnavailableError: a partition had no broker in time; a repeat is harmless.
        """
        check_by_partition("cursors", cursors)
        places = {each: whole("cursors", at, 0, MAX_INTEGER) for each, at in cursors.items()}
        wanted = await self._router.checked(places)

        def body(partitions: list[PartitionId]) -> AuditCursors:
            return AuditCursors({str(partition): places[partition] for partition in partitions})

        found = await self._router.ask_each("POST", "/audit/cursor", wanted, body, AuditBounds)
        return {partition: _extent(partition, found[partition]) for partition in wanted}

    async def _ask(self, url: str) -> AuditStates:
        return await self._router.session.get(url, "/audit", AuditStates)

    async def _fetch(self, partition: PartitionId, at: int) -> list[AuditGroup]:
        query = {"from": at, "max_bytes": self._fetch_bytes}
        path = f"/partitions/{partition}/audit"

        async def fetch(url: str) -> bytes:
            return await self._router.session.fetch(url, path, query)

        return split_answer(await self._router.at_owner(partition, fetch))


def _extent(partition: PartitionId, answer: AuditBounds | None) -> AuditExtent:
    if answer is None:
        raise unusable("audit", f"it lacks partition {partition}")
    values = (answer.is_on, answer.first, answer.next, answer.chain, answer.bytes)
    is_on, first, following, chain, stored_bytes = values
    if (
        is_on is UNSET
        or first is UNSET
        or following is UNSET
        or chain is UNSET
        or stored_bytes is UNSET
    ):
        raise unusable("audit", f"partition {partition} has neither an extent nor an error")
    return AuditExtent(is_on, first, following, chain, stored_bytes)
