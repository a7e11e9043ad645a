"""What a replay consists of, from its first start on: which messages, and in which steps."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from partq.core.model import PartitionId
from partq.core.readers.partition_order import PartitionOrder
from partq.errors import InternalError
from partq.pipeline.manifest import ArchivedLineage, ArchivePosition
from partq.pipeline.planning import LogExtent, Span, plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFilter:
    """Which messages of an archive are sent; None: all."""

    from_ms: int | None = None
    """Those that were stored then or later, in unix ms."""
    until_ms: int | None = None
    partitions: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """What a replay consists of, from its first start on."""

    source: str
    """The queue that was archived, with its uid."""
    target: str
    wanted: ReplayFilter
    extents: Mapping[str, tuple[int, int]]
    """The offsets [first, stop) of each partition, as of the first start."""
    step_rows: int
    awaited: Mapping[str, Mapping[str, int]]
    """Partition → those of which messages are sent before, each with the offset behind these."""

    def to_json(self) -> bytes:
        """Return it as it is stored."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, name: str, data: bytes) -> Self:
        """Read what `to_json` made.

        Raises:
            InternalError: it is something else.
        """
        try:
            body = json.loads(data)
            wanted: dict[str, Any] = {
                key: tuple(each) if isinstance(each, list) else each
                for key, each in body["wanted"].items()
            }
            extents = {
                str(each): (int(first), int(stop))
                for each, (first, stop) in body["extents"].items()
            }
            awaited = body.get("awaited")
            return cls(
                source=str(body["source"]),
                target=str(body["target"]),
                wanted=ReplayFilter(**wanted),
                extents=extents,
                step_rows=int(body["step_rows"]),
                # Of an earlier version, which knew no changes of the partition count.
                awaited=find_awaited({}, extents) if awaited is None else awaited,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InternalError(f"{name}: got no {error!r}; expected a replay's plan") from error

    def steps(self) -> Iterator[dict[PartitionId, Span]]:
        """Yield the parts of each step, in order."""
        extents = {
            PartitionId.parse(each): LogExtent(first, stop)
            for each, (first, stop) in self.extents.items()
        }
        order = PartitionOrder(
            {
                PartitionId.parse(name): {
                    PartitionId.parse(each): stop for each, stop in before.items()
                }
                for name, before in self.awaited.items()
            }
        )
        positions = {each: ArchivePosition(first) for each, (first, _) in self.extents.items()}
        while spans := plan(
            positions,
            extents,
            most=self.step_rows,
            skips_lost=False,
            order=order,
            keeps_apart=True,
        ):
            positions |= {str(each): ArchivePosition(span.stop) for each, span in spans.items()}
            yield spans


def find_awaited(
    lineage: ArchivedLineage, extents: Mapping[str, tuple[int, int]]
) -> dict[str, dict[str, int]]:
    """Return behind which messages of others those of a partition are sent.

    Where an archive does not know the predecessors of a partition, all of older generations may be
    some: a change of the partition count moves keys to partitions of newer generations alone.
    """

    def before(name: str) -> dict[str, int]:
        known = lineage.get(name)
        if known is None:
            generation = PartitionId.parse(name).generation
            return {
                each: stop
                for each, (_, stop) in extents.items()
                if PartitionId.parse(each).generation < generation
            }
        found: dict[str, int] = {}
        for each, told in known.items():
            if each in extents:
                stop = extents[each][1]
                found[each] = stop if told.sealed_at is None else min(stop, told.sealed_at)
            else:  # nothing of it is sent, but its own predecessors may have messages
                found |= before(each)
        return found

    awaited = {name: before(name) for name in extents}
    return {name: found for name, found in awaited.items() if found}
