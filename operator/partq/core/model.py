"""Ids and value objects that every part of partq shares."""

import re
from enum import IntEnum
from typing import Literal, NamedTuple, NewType, Self

from partq.excerpts import excerpt

MemberId = NewType("MemberId", str)
"""A consumer in a group: on Kubernetes pod uid and container name."""
BrokerId = NewType("BrokerId", str)
Epoch = NewType("Epoch", int)
"""Per partition and group: grows with every bind and every change of member."""
BrokerEpoch = NewType("BrokerEpoch", int)
"""Per partition: grows with every broker that claims it."""
Offset = NewType("Offset", int)
MAX_PRIORITY = 9
"""Of a member; 0 is the highest."""
Start = Literal["Earliest", "Latest"] | int
"""Where a new group begins: the oldest message stored, what is published from then on, or the first
message that was stored at a time or later, in unix milliseconds of Redis's clock."""

DNS_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
"""A name of a namespace, queue, group or broker. Kubernetes narrows some of them further."""
MAX_QUEUE_NAME_CHARS = 45
"""Of a queue's name: its brokers are named after it, with a suffix."""
NAME_RULE = "a DNS label: 1 to 63 of a-z, 0-9 and '-', not '-' at either end"
SLOT_COUNT = 65_536
_NUMBER = "(0|[1-9][0-9]{0,8})"
_PARTITION = re.compile(rf"{_NUMBER}\.{_NUMBER}")


class PartitionId(NamedTuple):
    """One ordered log of a queue; written `1.3`: generation 1, index 3."""

    generation: int
    """Generation of the layout, from 1."""
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    """Number of the partition in its generation, from 0."""

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
            raise ValueError(f"partition {excerpt(text)!r}: expected GENERATION.INDEX, such as 1.3")
        return cls(int(found[1]), int(found[2]))


class Token(NamedTuple):
    """The right to process one delivery. Tokens compare as tuples; those of a key never go down."""

    generation: int
    """Generation of the partition, from 1."""
    broker_epoch: BrokerEpoch
    """Grows with every broker that claims the partition."""
    epoch: Epoch
    """Grows with every bind and every change of the partition's member."""
    offset: Offset
    """Offset of the message, from 0."""


class Cause(IntEnum):
    """Why a message is delivered again; `str` writes the name in small letters."""

    NONE = 0
    """A first delivery."""
    FLOW_LOST = 1
    """The connection of the member that had it was lost."""
    FORCED_COMMIT = 2
    """The member that had it was connected, and did not finish within the handoff's time."""
    BROKER_CHANGE = 3
    """Another broker has claimed the partition; the message may have been delivered before."""
    STORE_ROLLED_BACK = 4
    """Redis has lost an acknowledgement that it had confirmed."""
    RELEASED = 5
    """Reserved: no broker sends it. What is given back before it has begun is delivered with the
    cause that it had."""
    NACK = 6
    """The application gave it back, or could not decode it."""
    ACK_TIMEOUT = 7
    """The application did not acknowledge it within the group's `ack.timeoutSeconds`."""
    RESET = 8
    """The group's cursor was moved back, by an administrator or a seek of the member."""

    def __str__(self) -> str:
        return self.name.lower()

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)
