"""The audit record as bytes: what scripts and brokers write, what archives read and recompute.

The record of a partition is a chain of groups, one for each script that had something to tell. A
group is a line `1 SEQUENCE AT_MS BROKER_EPOCH BROKER` and its records, one line each: the fields of
`FIELDS` with tabs between them, empty where a kind has no such thing. A field of
`LATER_FIELDS` stands at the end of the line only where it has a value. Behind the line of a publish
stand the slots of its messages, u16 each. In names, control characters and `%` are written `%XX`.
`chain` is the SHA-1 of the chain before it, as 40 hex digits, followed by the bytes of the group.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from partq.core.model import PartitionId
from partq.errors import UndecodableError
from partq.excerpts import excerpt

VERSION: Final = 1
GENESIS: Final = "0" * 40
"""The chain before a partition's first group."""
SHARED: Final = "shared"
"""Flag of binds and deliveries of a partition that several members have: a delivery is of the
messages that the mask in `target` names."""
TURNS: Final = "turns"
"""The same in a group of the type Shared, where any member gets any message."""
SESSIONS: Final = "sessions"
"""The same in a group of the type Session."""
OF_MANY: Final = (SHARED, TURNS, SESSIONS)
"""Flags of what several members have."""

KINDS: Final = {
    "begin": "the record begins, for the partition (stop: where its log ended) or for a group "
    "(everything in [first, stop) was done before)",
    "end": "the record of the partition ends, or the group was removed",
    "claim": "a broker became the owner; [first, stop) is what the log held",
    "yield": "the owner gave the partition up, for the broker `target` where it named one",
    "publish": "a batch was stored; flags `scheduled`: it had waited as the entry `number`",
    "schedule": "a batch waits as the entry `number`, until `target` in ms; [first, stop) are the "
    "producer's numbers of its messages, from 0 where they have none",
    "unschedule": "the entry `number` was cancelled, or dropped: it is never appended",
    "known_id": "a batch was not stored, as its id was known; [first, stop) are the producer's "
    "numbers of its messages",
    "bind": "a member's flow took the partition up, under a new epoch",
    "unbind": "a flow has the partition no more, which several members share, or a session",
    "lock": "a flow has the session `target` from now on, under the lock `number` and a new epoch",
    "unlock": "the lock `number` of the session `target` has ended",
    "register": "a member took the partition, which was at nobody, under a new epoch",
    "deliver": "a window was about to be sent",
    "ack": "the broker accepted an acknowledgement",
    "nack": "messages were taken back: cause `nack`, or `ack_timeout`",
    "release": "a member gave back what it had not begun, from `first` on",
    "dead_letter": "a message went to the outbox; flags `sent`: its target has stored it; "
    "`lost`: the log did not hold it any more",
    "expired": "messages outlived their time to live, and are done",
    "pause": "a handoff's attempt paused the deliveries",
    "drained": "nothing was in flight any more, or the time was up (cause `drain_timeout`)",
    "lapse": "nobody renewed the pause: the member continues",
    "cancel": "the attempt is over: the member continues",
    "commit": "the partition passed from `member` to `target`, under a new epoch",
    "commit_part": "the part `number` of the partition passed from `member` to `target`, under a "
    "new epoch",
    "reset": "the cursor was moved to `first`, from `number`, under a new epoch; by a claim, if "
    "the log did not hold it (cause `not_in_log`)",
    "seal": "the partition takes no more messages of some slots, by the change `number` of the "
    "layout; [stop, ...) has none of them, and `target` are the ranges that stay",
    "open": "the partition takes messages: its predecessors are sealed, as `target` says",
    "gate": "the group gets messages of the partition: it has done with those of all predecessors",
    "trim": "the log's messages [first, stop) were freed",
}
"""What a record can tell."""

_TEXT, _NUMBER = 0, 1
FIELDS: Final[tuple[tuple[str, int], ...]] = (
    ("kind", _TEXT),
    ("group", _TEXT),
    ("member", _TEXT),
    ("incarnation", _TEXT),
    ("flow", _NUMBER),
    ("epoch", _NUMBER),
    ("attempt", _NUMBER),
    ("first", _NUMBER),
    ("stop", _NUMBER),
    ("delivery", _NUMBER),
    ("cause", _TEXT),
    ("append_broker_epoch", _NUMBER),
    ("producer", _TEXT),
    ("number", _NUMBER),
    ("target", _TEXT),
    ("flags", _TEXT),
)
"""What stands in the line of a record, in this order, and whether it is a number."""

LATER_FIELDS: Final[tuple[tuple[str, int], ...]] = (("content_crc", _NUMBER),)
"""What a line ends with where there is a value. Lines without one have the bytes that they had
before there was such a field, so the chains of older records stay as they are."""

_ALL_FIELDS: Final = FIELDS + LATER_FIELDS
LINE_FIELDS: Final = tuple(name for name, _ in _ALL_FIELDS)
"""All fields that a line may have, in their order."""
TEXT_FIELDS: Final = frozenset(name for name, kind in _ALL_FIELDS if kind == _TEXT)
"""Those of them that are names; the others are numbers."""
_NO_LATER: Final = b"\t" * len(LATER_FIELDS)
_NAME_AT: Final = {name: at for at, name in enumerate(LINE_FIELDS)}
_FIRST_AT, _STOP_AT = _NAME_AT["first"], _NAME_AT["stop"]
_PUBLISH: Final = b"publish\t"
_SPECIAL: Final = {code: f"%{code:02X}" for code in (*range(32), ord("%"), 127)}

_HEAD: Final = struct.Struct("<20s20sI")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One record as readers see it; "" and -1 where its kind has no such thing."""

    partition: str
    sequence: int
    """Of its group: consecutive in a partition, from 0."""
    place: int
    """Inside the group, from 0."""
    previous: str
    chain: str
    at_ms: int
    """Redis's time, in ms."""
    kind: str
    broker: str
    broker_epoch: int
    group: str = ""
    member: str = ""
    incarnation: str = ""
    flow: int = -1
    epoch: int = -1
    attempt: int = -1
    first: int = -1
    stop: int = -1
    """The record speaks of the offsets [first, stop)."""
    delivery: int = -1
    cause: str = ""
    append_broker_epoch: int = -1
    producer: str = ""
    number: int = -1
    target: str = ""
    slots: bytes = b""
    """Of a publish: u16, little-endian, for each offset of [first, stop)."""
    flags: str = ""
    content_crc: int = -1
    """Of a publish: the CRC-32C of the batch's body as it was before it was compressed; -1: the
    broker could not expand the body, or is of a version that did not record it."""


COLUMNS: Final = tuple(AuditRecord.__slots__)
"""The columns of `decode_columns`: the fields of `AuditRecord`."""


class AuditGroup(NamedTuple):
    """One group as it is stored."""

    previous: str
    chain: str
    data: bytes

    @property
    def sequence(self) -> int:
        """Its place in the partition's record."""
        return _read_head(self.data)[0].sequence

    @property
    def is_whole(self) -> bool:
        """Whether `chain` is that of its bytes, after `previous`."""
        return chain_of(self.previous, self.data) == self.chain


def chain_of(previous: str, data: bytes) -> str:
    """Return the chain after a group of these bytes."""
    return sha1(previous.encode() + data, usedforsecurity=False).hexdigest()


def encode_record(kind: str, *, slots: bytes = b"", **fields: str | int) -> bytes:
    """Return the bytes of a record.

    `fields` are named as in `FIELDS` and `LATER_FIELDS`, and -1 stands for none.
    """
    line: list[str | int] = [""] * len(LINE_FIELDS)
    line[0] = kind
    for name, value in fields.items():
        line[_NAME_AT[name]] = value
    return encode_fields(line, slots)


def encode_fields(values: Iterable[str | int], slots: bytes = b"") -> bytes:
    """Return the bytes of a record whose fields stand in order, the later ones behind."""
    # -1 is read back as what an empty field is, so it has to be written as one.
    line = [
        _escaped(value) if isinstance(value, str) else "" if value == -1 else str(int(value))
        for value in values
    ]
    while len(line) > len(FIELDS) and not line[-1]:
        line.pop()
    return "\t".join(line).encode() + b"\n" + slots


def encode_head(sequence: int, at_ms: int, broker_epoch: int, broker: str) -> bytes:
    """Return the line that a group begins with."""
    return f"{VERSION} {sequence} {at_ms} {broker_epoch} {_escaped(broker)}\n".encode()


def encode_answer(groups: Sequence[AuditGroup]) -> bytes:
    """Return groups as a broker answers them."""
    parts: list[bytes] = []
    for group in groups:
        previous, chain = bytes.fromhex(group.previous), bytes.fromhex(group.chain)
        parts += (_HEAD.pack(previous, chain, len(group.data)), group.data)
    return b"".join(parts)


def split_answer(answer: bytes) -> list[AuditGroup]:
    """Return the groups of an answer; they are not opened.

    Raises:
        UndecodableError: it is cut off.
    """
    groups = []
    at = 0
    while at < len(answer):
        if at + _HEAD.size > len(answer):
            raise UndecodableError(f"audit: {len(answer) - at} bytes left, no head of a group")
        previous, chain, size = _HEAD.unpack_from(answer, at)
        at += _HEAD.size
        if at + size > len(answer):
            raise UndecodableError(f"audit: a group of {size} bytes, {len(answer) - at} are there")
        groups.append(AuditGroup(previous.hex(), chain.hex(), answer[at : at + size]))
        at += size
    return groups


def decode_columns(
    partition: PartitionId | str, groups: Sequence[AuditGroup]
) -> dict[str, list[Any]]:
    """Return the records of groups as columns of equal length, by the names of `COLUMNS`.

    Nothing is verified but the form: `AuditGroup.is_whole` judges the chain.

    Raises:
        UndecodableError: the bytes are no groups.
    """
    found = split_records(partition, groups)
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for group, (head, count) in zip(groups, found.groups, strict=True):
        columns["sequence"] += [head.sequence] * count
        columns["place"] += range(count)
        columns["previous"] += [group.previous] * count
        columns["chain"] += [group.chain] * count
        columns["at_ms"] += [head.at_ms] * count
        columns["broker_epoch"] += [head.broker_epoch] * count
        columns["broker"] += [head.broker] * count
    columns["partition"] = [str(partition)] * len(found.lines)
    columns["slots"] = found.slots
    try:
        lines = [line.decode().split("\t") for line in found.lines]
        for name, texts in zip(LINE_FIELDS, zip(*lines, strict=True), strict=bool(lines)):
            columns[name] = list(map(name_of if name in TEXT_FIELDS else _number, texts))
    except ValueError as error:
        raise UndecodableError(f"audit of {partition}: a record is broken: {error}") from error
    return columns


class GroupHead(NamedTuple):
    """What all records of a group share."""

    sequence: int
    at_ms: int
    broker_epoch: int
    broker: str


@dataclass(slots=True)
class SplitRecords:
    """Groups that are split into the lines of their records, none of them read."""

    groups: list[tuple[GroupHead, int]]
    """Of each group its head and how many records it has."""
    lines: list[bytes]
    """Of each record the values of `LINE_FIELDS`, with tabs between them."""
    slots: list[bytes]


def split_records(partition: PartitionId | str, groups: Sequence[AuditGroup]) -> SplitRecords:
    """Return the lines of all records; raises as `decode_columns`."""
    found = SplitRecords([], [], [])
    for group in groups:
        before = len(found.lines)
        try:
            head, at = _read_head(group.data)
            _read_lines(group.data, at, found.lines, found.slots)
        except (ValueError, IndexError) as error:
            raise UndecodableError(f"audit of {partition}: a group is broken: {error}") from error
        found.groups.append((head, len(found.lines) - before))
    return found


def _read_head(data: bytes) -> tuple[GroupHead, int]:
    """Return the head of a group, and where the records begin.

    Raises:
        UndecodableError: not of this version.
        ValueError: broken.
    """
    end = data.index(b"\n")
    version, sequence, at_ms, epoch, broker = data[:end].decode().split(" ", 4)
    if version != str(VERSION):
        raise UndecodableError(
            f"audit: a group of version {excerpt(version)}, expected {VERSION}: a newer partq "
            "wrote it"
        )
    return GroupHead(int(sequence), int(at_ms), int(epoch), name_of(broker)), end + 1


def _read_lines(data: bytes, at: int, lines: list[bytes], slots: list[bytes]) -> None:
    while at < len(data):
        end = data.index(b"\n", at)
        line = data[at:end]
        count = line.count(b"\t") + 1
        if count == len(FIELDS):
            line += _NO_LATER
        elif count != len(LINE_FIELDS):
            raise ValueError(f"{count} fields, expected {len(FIELDS)} or {len(LINE_FIELDS)}")
        at = end + 1
        if line.startswith(_PUBLISH):
            values = line.split(b"\t", _STOP_AT + 1)
            first, stop = int(values[_FIRST_AT]), int(values[_STOP_AT])
            size = 2 * (stop - first)
            if size < 0 or at + size > len(data):
                raise ValueError(f"the slots of {first} to {stop} are cut off")
            slots.append(data[at : at + size])
            at += size
        else:
            slots.append(b"")
        lines.append(line)


def _escaped(text: str) -> str:
    return text if text.isprintable() and "%" not in text else text.translate(_SPECIAL)


def name_of(text: str) -> str:
    """Return a name as it was before control characters and `%` were written `%XX`."""
    return unquote(text) if "%" in text else text


def _number(text: str) -> int:
    return int(text) if text else -1
