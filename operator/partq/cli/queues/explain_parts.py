"""What `partq explain` says about a partition that is cut into parts, and about one part."""

from collections.abc import Iterator

from partq.cli.queues.broker_session import parse_partition
from partq.coordinator.group_snapshot import GroupSnapshot
from partq.core.model import PartitionId
from partq.core.parts.part_id import PartId, number_ranges
from partq.core.parts.part_slots import part_table
from partq.errors import SettingsError, UnknownPartitionError
from partq.excerpts import counted, excerpt
from partq.wire.calls.answers import UNSET
from partq.wire.calls.state import Picture
from partq.wire.layout_record import ranges_of


def parse_place(text: str) -> tuple[PartitionId | int, int | None]:
    """Return the partition of a name such as `1.3` or `1.3/5`, and the number of the part.

    Raises:
        SettingsError: it is neither.
    """
    partition, slash, part = text.partition("/")
    if not slash:
        return parse_partition(partition), None
    if not (part.isascii() and part.isdigit() and len(part) <= 2):
        raise SettingsError(
            f"partition {excerpt(text)!r}: expected a part of a partition such as 3/5, or 1.3/5"
        )
    return parse_partition(partition), int(part)


def place_of(
    partition: PartitionId, part: int | None, slot: int | None, snapshot: GroupSnapshot, of: Picture
) -> PartitionId:
    """Return the part that is meant by its number, or by a slot; else the partition.

    `of`: what the snapshot was read from.

    Raises:
        UnknownPartitionError: the partition has no such part.
    """
    parts = snapshot.rules.parts
    if part is not None and part >= parts:
        expected = f"a part from 0 to {parts - 1}" if parts else "no part: members have partitions"
        raise UnknownPartitionError(f"partition {partition}: got part {part}, expected {expected}")
    if slot is not None and parts and of.slots is not UNSET:
        part = part_table(ranges_of(of.slots)[partition], parts)[slot]
    return partition if part is None else PartId.of(partition, part)


def holders(partition: PartitionId, snapshot: GroupSnapshot) -> dict[str, list[int]]:
    """Return the members of a partition, each with its parts; an empty name: nobody."""
    found: dict[str, list[int]] = {}
    for part in range(snapshot.rules.parts):
        owner = snapshot.observation.partitions[PartId.of(partition, part)].member
        found.setdefault(owner or "", []).append(part)
    return found


def part_lines(partition: PartitionId, snapshot: GroupSnapshot) -> Iterator[str]:
    """Yield the members of a partition with their parts, a line each."""
    parts = snapshot.rules.parts
    yield f"cut into {counted(parts, 'part')}, of which members have:"
    for member, numbers in holders(partition, snapshot).items():
        seats = [PartId.of(partition, part) for part in numbers]
        is_bound = all(snapshot.observation.partitions[seat].is_bound for seat in seats)
        state = "" if is_bound or not member else " (not connected)"
        yield f"  {member or 'nobody'}{state}: {number_ranges(numbers)}"
    for seat, target in sorted(snapshot.under_way.items()):
        if isinstance(seat, PartId) and seat.partition == partition:
            yield f"  {seat} is on its way to {target or 'nobody'}"
    yield f"`partq explain {partition}/0` tells why a part moved, and what it waits for"


def to_json(partition: PartitionId, snapshot: GroupSnapshot) -> list[dict[str, object]]:
    """Return the parts of a partition as `--json` prints them."""
    found: list[dict[str, object]] = []
    for part in range(snapshot.rules.parts):
        ownership = snapshot.observation.partitions[PartId.of(partition, part)]
        found.append(
            {
                "part": part,
                "member": ownership.member,
                "is_bound": ownership.is_bound,
                "attempt": ownership.closed_attempt,
            }
        )
    return found
