"""Values as Redis holds them: ranges and counts of offsets, `3-7,9-12` and `5:1,9:2`, and groups.

A range is half open: `3-7` is 3, 4, 5 and 6. Both directions are bounded, so that neither a
mistake here nor a damaged record can make a value without end.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from partq.core.lanes.codec import BITS, decode_bits, end_of_bits
from partq.core.lanes.parked_lanes import ALL_LANES, BLOCKED_MS, QUARANTINED_MS
from partq.core.model import MemberId, PartitionId
from partq.core.parts.part_id import MAX_PARTS
from partq.core.parts.part_owners import NOBODY, PartOwners
from partq.core.producer_record import NumberedBatch, ProducerRecord
from partq.core.sessions.session_locks import StoredLock
from partq.errors import InternalError
from partq.excerpts import excerpt

Range = tuple[int, int]
"""Offsets from the first to the second, the second excluded."""

MAX_PAIRS = 100_000
"""The most ranges or counts in one value: a group's acknowledged span is at most as long."""
_HELD = {BLOCKED_MS: "block", QUARANTINED_MS: "quarantine"}
"""What is stored in the place of a time."""
_HELD_MS = {word.encode(): until for until, word in _HELD.items()}
_MARK = b"mark:"
"""The fields of a partition's hash `meta` that say how far back its groups hold the log."""


def encode_ranges(ranges: Sequence[Range]) -> str:
    """Return `3-7,9-12`; no range at all is empty text."""
    return _encode("-", ranges)


def decode_ranges(text: bytes) -> list[Range]:
    """Read what `encode_ranges` wrote.

    Raises:
        InternalError: it did not write that.
    """
    return _decode(b"-", text)


def encode_counts(counts: Mapping[int, int]) -> str:
    """Return `5:1,9:2`, by rising offset; no count at all is empty text."""
    return _encode(":", sorted(counts.items()))


def decode_counts(text: bytes) -> dict[int, int]:
    """Read what `encode_counts` wrote.

    Raises:
        InternalError: it did not write that.
    """
    return dict(_decode(b":", text))


def encode_acks(acked: Sequence[Range] | bytes, cursor: int) -> tuple[str | bytes, int]:
    """Return acks as they are stored, and the highest offset that they speak of, excluded.

    Ranges become text; bits stay as they are: see `core.lanes.codec`.
    """
    if isinstance(acked, bytes):
        return acked, end_of_bits(acked, cursor)
    return encode_ranges(acked), acked[-1][1] if acked else cursor


def decode_acks(field: bytes, cursor: int) -> list[Range]:
    """Return the ranges that `encode_acks` has encoded.

    Raises:
        InternalError: it did not encode that.
    """
    if not field.startswith(BITS):
        return decode_ranges(field)
    try:
        return decode_bits(field, cursor)
    except ValueError as error:
        raise InternalError(f"store: the stored acks of a group are damaged: {error}") from error


def encode_holder(member: MemberId, incarnation: str) -> str:
    """Return the holder of the lock of a session, as it is stored."""
    return json.dumps([member, incarnation])


def decode_lock(text: bytes) -> StoredLock:
    """Read the lock of a session: its number, until when it lasts, and its holder.

    Raises:
        InternalError: no broker has written that.
    """
    try:
        number, until_ms, holder = text.decode().split(" ", 2)
        member, incarnation = map(str, json.loads(holder))
        return StoredLock(MemberId(member), incarnation, int(number), int(until_ms))
    except ValueError as error:
        raise InternalError(f"store: a stored lock of a session is damaged: {error}") from error


def encode_parked(parked: Mapping[int, int] | None, at_ms: int = 0) -> str:
    """Return `1767225599000@513:1767225600000,...`: lanes and until when each waits.

    A lane that waits until it is released has `block` or `quarantine` in the place of the time.
    `at_ms`: the time of Redis as it is written; 0: unknown. None: they stay stored.
    """
    if parked is None:
        return "="
    if not parked:
        return ""
    pairs = encode_counts(parked)
    for until, word in _HELD.items():
        pairs = pairs.replace(f":{until}", f":{word}")
    return f"{at_ms}@{pairs}"


def decode_parked(text: bytes) -> tuple[dict[int, int], int]:
    """Read what `encode_parked` wrote: until when lanes wait, and when that was written.

    Raises:
        InternalError: it did not write that, or not a lane.
    """
    at_ms, _, pairs = text.rpartition(b"@")
    held, timed = dict[int, int](), list[bytes]()
    for pair in pairs.split(b",", MAX_PAIRS):
        lane, _, word = pair.partition(b":")
        until = _HELD_MS.get(word)
        if until is None or not lane.isdigit():
            timed.append(pair)
        else:
            held[int(lane)] = until
    parked = decode_counts(b",".join(timed)) | held
    if parked and max(parked) > ALL_LANES:
        raise InternalError(
            f"store: a stored value is damaged: slot {max(parked)} waits; expected at most "
            f"{ALL_LANES - 1}, or {ALL_LANES} for all"
        )
    return parked, int(at_ms) if at_ms.isdigit() else 0


def decode_parts(text: bytes) -> PartOwners:
    """Read what `commit_parts.lua` wrote: which member has which part.

    Raises:
        InternalError: it did not write that.
    """
    try:
        fields = json.loads(text)
        parts = PartOwners(
            tuple(MemberId(str(member)) for member in fields["members"]),
            tuple(map(int, fields["of"])),
            tuple(map(int, fields["attempts"])),
        )
    except (ValueError, KeyError, TypeError):
        parts = PartOwners.none(0)
    places = range(NOBODY, len(parts.members))
    is_whole = 0 < parts.count == len(parts.attempts) <= MAX_PARTS
    if not is_whole or any(at not in places for at in parts.of):
        raise InternalError(
            f"store: a stored value is damaged at {excerpt(text)!r}; expected the members of 1 to "
            f"{MAX_PARTS} parts"
        )
    return parts


NO_STATES: Mapping[str, bytes | None] = MappingProxyType({})


def encode_states(states: Mapping[str, bytes | None]) -> list[str | bytes]:
    """Return keys with their states, each behind its key, as scripts take them.

    `=` and the state; empty: the key is to have none.
    """
    return [
        part
        for key, state in states.items()
        for part in (key, b"" if state is None else b"=" + state)
    ]


def encode_predecessors(predecessors: Mapping[PartitionId, Sequence[range]]) -> str:
    """Return `1.0:2731-4096;1.1:6827-8192`: partitions, each with ranges of slots."""
    return ";".join(
        f"{partition}:{encode_slots(ranges)}" for partition, ranges in sorted(predecessors.items())
    )


def decode_predecessors(text: bytes) -> dict[PartitionId, tuple[range, ...]]:
    """Read what `encode_predecessors` wrote.

    Raises:
        InternalError: it did not write that.
    """
    found: dict[PartitionId, tuple[range, ...]] = {}
    for part in text.split(b";", MAX_PAIRS) if text else ():
        name, _, ranges = part.partition(b":")
        try:
            partition = PartitionId.parse(name.decode("ascii"))
        except ValueError as error:
            raise InternalError(
                f"store: a stored value is damaged at {excerpt(part)!r}; expected PARTITION:RANGES"
            ) from error
        found[partition] = decode_slots(ranges)
    return found


def encode_slots(ranges: Sequence[range]) -> str:
    """Return `0-2731,4096-8192`; no slot at all is empty text."""
    return encode_ranges([(each.start, each.stop) for each in ranges])


def decode_slots(text: bytes) -> tuple[range, ...]:
    """Read what `encode_slots` wrote.

    Raises:
        InternalError: it did not write that.
    """
    return tuple(range(start, stop) for start, stop in decode_ranges(text))


def _encode(joint: str, pairs: Sequence[Range]) -> str:
    if len(pairs) > MAX_PAIRS:
        raise InternalError(f"store: got {len(pairs)} ranges or counts, at most {MAX_PAIRS} fit")
    return ",".join([f"{left}{joint}{right}" for left, right in pairs])


def _decode(joint: bytes, text: bytes) -> list[Range]:
    if not text:
        return []
    pairs = []
    for pair in text.split(b",", MAX_PAIRS - 1):
        left, found, right = pair.partition(joint)
        if not (found and left.isdigit() and right.isdigit()):
            raise InternalError(
                f"store: a stored value is damaged at {excerpt(pair)!r}; "
                f"expected NUMBER{joint.decode()}NUMBER"
            )
        pairs.append((int(left), int(right)))
    return pairs


def groups_of(fields: Iterable[bytes]) -> frozenset[str]:
    """Return the groups of a partition, by the names of the fields of its hash `meta`."""
    return frozenset(each.removeprefix(_MARK).decode() for each in fields if each.startswith(_MARK))


def decode_producer(text: bytes) -> ProducerRecord:
    """Read what `append_batches.lua` knows of a producer."""
    due, _, *words = text.decode().split()
    batches = []
    digest = ""
    for word in words:
        if word.startswith("#"):
            digest = word[1:]
            continue
        if word.startswith("@"):
            *numbers, digest = word[1:].split(":")
            first, count, entry = map(int, numbers)
            batches.append(NumberedBatch(first, count, -1, digest, entry))
            digest = ""
            continue
        first, count, offset = map(int, word.split(":"))
        batches.append(NumberedBatch(first, count, offset, digest))
        digest = ""
    return ProducerRecord(int(due), tuple(batches))
