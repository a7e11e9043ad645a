"""What the record of one partition says of changes of the partition count."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from partq.core.model import SLOT_COUNT, PartitionId
from partq.errors import UndecodableError
from partq.excerpts import excerpt

SlotMask = npt.NDArray[np.bool_]
"""Whether a slot is meant, by slot."""


class RecordedSeal(NamedTuple):
    """The partition takes no more messages of some slots."""

    sequence: int
    at_ms: int
    stop: int
    """The end of its log."""
    slots: str
    """Those that stay, as the record has them."""


class OpenedFor(NamedTuple):
    """What an opening says of a predecessor."""

    stop: int
    """The end of its log at its seal."""
    slots: str
    """What came from it; empty: the broker's version did not say."""


class RecordedOpening(NamedTuple):
    """The partition takes messages from here on."""

    sequence: int
    at_ms: int
    first: int
    predecessors: Mapping[str, OpenedFor]


class PassedPredecessor(NamedTuple):
    """What the opening of a gate says of a predecessor."""

    stop: int
    """The end of its log at its seal; the group has done with everything below."""
    sequence: int
    """How far its record had come when that was seen: all groups below this one are part of it."""


class RecordedGate(NamedTuple):
    """A group gets messages of the partition from here on."""

    group: str
    sequence: int
    at_ms: int
    first: int
    predecessors: Mapping[str, PassedPredecessor]
    """Those that were not settled."""


class Passage(NamedTuple):
    """While the record was between two of its groups, a consumer group was past a seal."""

    begin: int
    """Sequence from which on it was."""
    end: int | None
    """Sequence of the reset that ended that; None: nothing did."""
    end_ms: int
    """Time of the reset; 0: there was no reset."""
    first: int
    stop: int
    """The offsets that it was done with last; empty: with all before the seal."""
    slot: int
    """Of the first of them; -1: there are no such offsets."""


class StoredFirst(NamedTuple):
    """The first batch of a partition."""

    sequence: int
    at_ms: int
    first: int
    stop: int
    slot: int


@dataclass(slots=True)
class RecordedChanges:
    """What the record of a partition says of changes of the partition count."""

    partition: str
    is_whole: bool = True
    """The record is there from the beginning of the partition, without a gap."""
    end: int = 0
    """Behind its last group."""
    end_ms: int = 0
    """Time of its last group."""
    seals: dict[int, RecordedSeal] = field(default_factory=dict)
    """By the generation of the change."""
    opening: RecordedOpening | None = None
    gates: list[RecordedGate] = field(default_factory=list)
    passages: dict[tuple[str, int], list[Passage]] = field(default_factory=dict)
    """Consumer group and generation of a seal → when it was past that."""
    groups: frozenset[str] = frozenset()
    """Consumer groups that were there in the end."""
    stored: StoredFirst | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no change of the partition count concerns the partition."""
        return self.opening is None and not self.seals and not self.gates


def mask_of(slots: str) -> SlotMask:
    """Return the slots that a record names as ranges, `0-2731,4096-8192`.

    Raises:
        UndecodableError: it does not.
    """
    mask = np.zeros(SLOT_COUNT, np.bool_)
    try:
        for each in filter(None, slots.split(",")):
            start, stop = map(int, each.split("-"))
            mask[start:stop] = True
    except ValueError as error:
        raise UndecodableError(
            f"audit: got the slots {excerpt(slots)!r}, expected ranges such as 0-2731"
        ) from error
    return mask


def openings_of(target: str) -> dict[str, OpenedFor]:
    """Read what an `open` says: `1.3:17:2731-4096;1.4:0:6827-8192`.

    Raises:
        UndecodableError: it is something else.
    """
    found = {}
    for name, stop, slots in _parts(target, ";", 3):
        mask_of(slots)
        found[name] = OpenedFor(_number(stop), slots)
    return found


def passed_of(target: str) -> dict[str, PassedPredecessor]:
    """Read what a `gate` says: `1.3:17:204,1.4:0:12`; raises as `openings_of`."""
    return {
        name: PassedPredecessor(_number(stop), _number(sequence))
        for name, stop, sequence in _parts(target, ",", 3)
    }


def _parts(target: str, joint: str, count: int) -> Iterator[list[str]]:
    for each in filter(None, target.split(joint)):
        parts = each.split(":")
        try:
            PartitionId.parse(parts[0])
        except ValueError as error:
            raise _unusable(each) from error
        if len(parts) != count:
            raise _unusable(each)
        yield parts


def _number(text: str) -> int:
    if not text.isdecimal():
        raise _unusable(text)
    return int(text)


def _unusable(text: str) -> UndecodableError:
    return UndecodableError(
        f"audit: got {excerpt(text)!r} of a predecessor, expected PARTITION:END:..., as "
        "docs/audit.md says"
    )
