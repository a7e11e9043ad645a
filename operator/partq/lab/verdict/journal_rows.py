"""What processes write down while they work: the rows of the journals, and their lines.

A row is one JSON array; its first element names the kind. All instants are `time.monotonic_ns()`,
which Linux counts alike for every process of one machine, so rows of different journals can be
put in order.
"""

import json
from typing import Final, NamedTuple

MESSAGE_NUMBER_HEADER: Final = "number"
"""The message header that carries a message's number among those of its key."""

ASSIGNED: Final = "assigned"
REVOKED: Final = "revoked"
LANES: Final = "lanes"
JOINED: Final = "joined"

LOCKED: Final = "locked"
UNLOCKED: Final = "unlocked"


class PublishedRow(NamedTuple):
    """The producer knows that a message is stored."""

    at_ns: int
    partition: str
    offset: int
    """-1: stored for certain, the place unknown (learned from the broker after a restart)."""
    key: str
    number: int
    """Counts the messages of a key; the next one is one higher."""
    took_us: int = 0
    """From the call of `send` to the confirmation, in microseconds; 0: not known."""


class DeliveredRow(NamedTuple):
    """A consumer has processed a message; written before it is acknowledged."""

    at_ns: int
    member: str
    partition: str
    offset: int
    broker_epoch: int
    epoch: int
    cause: int
    """Why this is not the first delivery, as in `Cause`; 0: it is."""
    key: str
    number: int
    begun_ns: int = 0
    """When the consumer got it to work on; 0: not known."""


class HeldRow(NamedTuple):
    """A consumer was given a partition, or slots of it, or has lost it; or it asks for sessions."""

    at_ns: int
    member: str
    partition: str
    """Empty with `JOINED`."""
    change: str
    """`ASSIGNED`, `LANES`, `REVOKED` or `JOINED`."""
    slots: int = 0
    """With `LANES`: how many slots of the partition it has now."""


class LockRow(NamedTuple):
    """A consumer has locked a session, or is about to unlock it."""

    at_ns: int
    member: str
    session: str
    lock: int
    """The number of the lock: a later lock of the session has a higher one."""
    change: str
    """`LOCKED` or `UNLOCKED`."""


class StateRow(NamedTuple):
    """A consumer has read the state of a session before it works on a message of it."""

    at_ns: int
    member: str
    session: str
    number: int
    """Of the message."""
    state: int
    """The number that the state is; 0: there was none."""


Row = PublishedRow | DeliveredRow | HeldRow | LockRow | StateRow

_KINDS: Final[dict[str, type[Row]]] = {
    "p": PublishedRow,
    "d": DeliveredRow,
    "h": HeldRow,
    "s": LockRow,
    "t": StateRow,
}
_LETTERS = {kind: letter for letter, kind in _KINDS.items()}


def line_of(row: Row) -> bytes:
    """Return the journal line of a row, with its newline."""
    cells = [_LETTERS[type(row)], *row]
    return json.dumps(cells, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def parse_lines(data: bytes) -> tuple[list[Row], int]:
    """Return the rows of all complete lines, and how many bytes those are.

    What follows the last newline was cut off by the death of its writer, or is still being
    written: it is not counted.

    Raises:
        ValueError: a complete line is not a row.
    """
    end = data.rfind(b"\n") + 1
    return [_parse(cells) for cells in _arrays(data[:end])], end


def _arrays(data: bytes) -> list[object]:
    # One document is decoded several times faster than its lines one by one.
    try:
        arrays: list[object] = json.loads(b"[" + data.rstrip(b"\n").replace(b"\n", b",") + b"]")
    except ValueError as error:
        raise ValueError(f"journal: a line is not JSON: {error}") from error
    return arrays


def _parse(cells: object) -> Row:
    if isinstance(cells, list) and cells:
        kind = _KINDS.get(str(cells[0]))
        most = 0 if kind is None else len(kind._fields)
        # Rows of an earlier version lack the last cells, which have defaults.
        if kind is not None and most - len(kind._field_defaults) <= len(cells) - 1 <= most:
            return kind(*cells[1:])
    raise ValueError(f"journal: {cells!r:.200} is not a row of one of the kinds {sorted(_KINDS)}")
