"""What both sides of the bench do for each message: make it, and check its key's order."""

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Final, Protocol

from partq.core.model import PartitionId
from partq.wire.batch import Message

_STAMP = struct.Struct("<QQ")
MIN_VALUE_BYTES = _STAMP.size
"""A value holds at least its number within its key and the time it was due."""

BLOCK_MESSAGES = 1000
"""How many messages a writer makes at a time."""

_DRAWS_PER_KEY = 8
_SEED = 20


class Keyed(Protocol):
    """A consumed message, whichever side it comes from."""

    key: str | None
    value: bytes


class Workload:
    """An endless, repeatable sequence of messages over `key_count` keys.

    Keys come in a random order that repeats after some eight messages per key. A value has
    `value_bytes` bytes, of which the first 16 are the message's number within its key, from 0,
    and the instant it was due, in nanoseconds of the system's monotonic clock (0: none).
    The rest is zeros, or one piece of `text` after the other.
    """

    def __init__(self, key_count: int, value_bytes: int, text: bytes = b"") -> None:
        self.keys = [f"key-{index:06d}" for index in range(key_count)]
        self._numbers = [0] * key_count
        self._rests = cycle(_pieces(text, value_bytes - MIN_VALUE_BYTES))
        draw = random.Random(_SEED)  # noqa: S311  # repeatable, not secret
        self._draws = cycle(draw.choices(range(key_count), k=_DRAWS_PER_KEY * key_count))

    def block(self, count: int, due_ns: int = 0) -> list[Message]:
        """Return the next `count` messages."""
        keys, numbers, pack = self.keys, self._numbers, _STAMP.pack
        messages = []
        for index, rest in zip(islice(self._draws, count), self._rests, strict=False):
            number = numbers[index]
            numbers[index] = number + 1
            messages.append(Message(keys[index], pack(number, due_ns) + rest))
        return messages


def _pieces(text: bytes, size: int) -> list[bytes]:
    """Cut a text into pieces of `size` bytes; the last one is filled with zeros."""
    if not size:
        return [b""]
    return [text[at : at + size].ljust(size, b"\0") for at in range(0, len(text) or 1, size)]


def due_ns_of(value: bytes) -> int:
    """Return the instant at which the message was due, 0 when it carries none."""
    due_ns: int = _STAMP.unpack_from(value)[1]
    return due_ns


@dataclass(slots=True)
class ReaderTally:
    """What one reader got."""

    messages: int = 0
    """Distinct ones: a repeat does not count."""
    duplicates: int = 0
    out_of_order: int = 0
    """First deliveries that were not their key's next message."""


@dataclass(slots=True)
class OrderCheck:
    """Checks that each key's messages come one after another, without a gap."""

    seen: ReaderTally = field(default_factory=ReaderTally)
    _due: dict[str | None, int] = field(default_factory=dict)
    _skipped: set[tuple[str | None, int]] = field(default_factory=set)

    def check(self, messages: Sequence[Keyed]) -> None:
        """Check messages in the order in which they came."""
        due, unpack = self._due, _STAMP.unpack_from
        for message in messages:
            key = message.key
            number = unpack(message.value)[0]
            if number == due.get(key, 0):
                due[key] = number + 1
            else:
                self._check_odd(key, number)
        self.seen.messages += len(messages)

    def _check_odd(self, key: str | None, number: int) -> None:
        due = self._due.get(key, 0)
        if number > due:
            self.seen.out_of_order += 1
            self._skipped.update((key, skipped) for skipped in range(due, number))
            self._due[key] = number + 1
        elif (key, number) in self._skipped:
            self._skipped.remove((key, number))
            self.seen.out_of_order += 1
        else:
            self.seen.duplicates += 1
            self.seen.messages -= 1


_ROOM: Final = bytes(4096)
"""By so many messages the memory of an `ArrivalCheck` grows at least."""


@dataclass(slots=True)
class ArrivalCheck:
    """Counts each message once, in whichever order they come."""

    seen: ReaderTally = field(default_factory=ReaderTally)
    _arrived: dict[PartitionId, bytearray] = field(default_factory=dict)

    def check(self, partition: PartitionId, offsets: Sequence[int]) -> None:
        """Count messages of a partition."""
        arrived = self._arrived.setdefault(partition, bytearray())
        for offset in offsets:
            if offset >= len(arrived):
                arrived.extend(bytes(offset - len(arrived)) + _ROOM)
            if arrived[offset]:
                self.seen.duplicates += 1
            else:
                arrived[offset] = 1
                self.seen.messages += 1
