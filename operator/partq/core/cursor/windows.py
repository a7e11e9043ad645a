"""What the book of a group gives out and takes back."""

from collections.abc import Collection
from dataclasses import dataclass, field

from partq.core.model import Cause


@dataclass(frozen=True, slots=True)
class Window:
    """Offsets `start` to `stop` (excluded) to send, without the acknowledged ones in `skip`."""

    start: int
    stop: int
    skip: list[tuple[int, int]]
    cause: Cause
    redeliveries: list[tuple[int, int]]
    messages: int
    """How many messages the window holds: what it costs in credit."""
    new_from: int = field(default=0, compare=False)
    """All below was sent before under the same token; `stop`, or more: all of the window."""
    is_in_turn: bool = field(default=True, compare=False)
    """Whether it begins at the book's position; else it was given back, and lies below."""
    mask: bytes | None = None
    """Which messages it holds: bit i of byte i // 8, the least significant first, is that of
    `start + i`. None: all of them but `skip`."""
    causes: bytes = b""
    """The cause of each message that it holds, a byte each; empty: `cause` is that of all."""


@dataclass(frozen=True, slots=True)
class TakenBack:
    """What a nack or an ack timeout came to."""

    counted: int
    """How many messages it counted against."""
    messages: int
    """How many messages are not in flight any more."""
    rewound_from: int | None
    """From where on everything is sent again; None: what is delivered stays so."""
    offsets: Collection[int] = field(default=(), compare=False)
    """Which messages it counted against."""
    begun_upto: int = field(default=0, compare=False)
    """Of what is sent again, all below may have begun: it has the same cause."""
    sent_upto: int = field(default=0, compare=False)
    """The end of what is sent again; nobody has begun it from `begun_upto` on."""
    asked: frozenset[int] = frozenset()
    """Lanes of which the member is to return what it has not begun."""
    notice: int = 0
    """The number of the notice that asks for them; 0: none is asked for."""
