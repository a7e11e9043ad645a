"""Ids and value objects that every part of partq shares."""

import re
from enum import IntEnum
from typing import NamedTuple, NewType, Self

MemberId = NewType("MemberId", str)
"""A consumer in a group: on Kubernetes pod uid and container name."""
BrokerId = NewType("BrokerId", str)
Epoch = NewType("Epoch", int)
"""Per partition and group: grows with every bind and every change of member."""
BrokerEpoch = NewType("BrokerEpoch", int)
"""Per partition: grows with every broker that claims it."""
Offset = NewType("Offset", int)

SLOT_COUNT = 65_536

_SHOWN_CHARS = 40
"""How much of a name that is no partition's is shown in the error."""
_NUMBER = "(0|[1-9][0-9]{0,8})"
_PARTITION = re.compile(rf"{_NUMBER}\.{_NUMBER}")


class PartitionId(NamedTuple):
    """One ordered log of a queue: generation of the layout (from 1) and index (from 0)."""

    generation: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here

    def __str__(self) -> str:
        return f"{self.generation}.{self.index}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `1.3`, as `str` writes it: names are also keys, so a partition has only one.

        Raises:
            ValueError: not two numbers of at most nine ASCII digits, without leading zeros or
                signs, joined by a dot.
        """
        found = _PARTITION.fullmatch(text)
        if found is None:
            got = text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."
            raise ValueError(f"partition {got!r}: expected GENERATION.INDEX, such as 1.3")
        return cls(int(found[1]), int(found[2]))


class Token(NamedTuple):
    """The right to process one delivery; tokens of a key never go down."""

    generation: int
    broker_epoch: BrokerEpoch
    epoch: Epoch
    offset: Offset


class Cause(IntEnum):
    """Why a message is delivered again."""

    NONE = 0
    FLOW_LOST = 1
    FORCED_COMMIT = 2
    BROKER_CHANGE = 3
    STORE_ROLLED_BACK = 4
    RELEASED = 5
    """Given back before the application began it; never seen by the application twice."""
    NACK = 6
    ACK_TIMEOUT = 7
    RESET = 8
    """The group's cursor was moved back by an administrator."""

    def __str__(self) -> str:
        return self.name.lower()

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)
