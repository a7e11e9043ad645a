"""Audit records that a broker writes itself: encoded, and buffered until the next flush."""

from collections.abc import Iterable
from itertools import chain, groupby, starmap
from operator import itemgetter
from typing import Any, NamedTuple

from partq.broker.partition.consumer_ref import ConsumerRef, GroupRef
from partq.core.cursor.windows import Window
from partq.core.lanes.codec import BITS, decode_bits, pack
from partq.core.model import Cause
from partq.core.ranges import Ranges
from partq.store.records.audit import Numbered
from partq.wire.audit import encode_record

Range = tuple[int, int]

KEYED = "keyed"
"""Flag of deliveries and releases of a group of order Key: none speaks of offsets between them."""


def delivered(
    group: str,
    flow: ConsumerRef,
    epoch: int,
    window: Window,
    *,
    delivery: int,
    append_broker_epoch: int,
    is_keyed: bool = False,
    shared_flag: str = "",
) -> bytes:
    """Encode the records of a window: one for each range of offsets with the same cause.

    `shared_flag`: one of `OF_MANY` where several members have the partition. Then a record has a
    mask in the place of holes.
    """
    flags = shared_flag or (KEYED if is_keyed else "")
    parts = _masked_parts(window) if shared_flag else _parts_by_cause(window)
    return b"".join(
        encode_record(
            "deliver",
            group=group,
            member=flow.member,
            incarnation=flow.incarnation,
            flow=flow.number,
            epoch=epoch,
            first=first,
            stop=stop,
            delivery=delivery,
            cause="" if cause is Cause.NONE else cause.name.lower(),
            append_broker_epoch=append_broker_epoch,
            target=mask,
            flags=flags,
        )
        for (first, stop), cause, mask in parts
    )


def parts_of(window: Window) -> Iterable[Range]:
    """Return the ranges of the offsets that a window holds, rising."""
    if window.mask is not None:
        yield from decode_bits(BITS + window.mask, window.start)
        return
    at = window.start
    for start, stop in window.skip:
        if at < start:
            yield at, start
        at = stop
    if at < window.stop:
        yield at, window.stop


_Part = tuple[Range, Cause, str]
"""From where to where, why again, and which of that: the mask, as the frame has it, in hex."""


def _parts_by_cause(window: Window) -> Iterable[_Part]:
    if not window.causes:
        return ((part, window.cause, "") for part in parts_of(window))
    offsets = chain.from_iterable(starmap(range, parts_of(window)))
    by_cause: list[_Part] = []
    for offset, number in zip(offsets, window.causes, strict=True):
        cause = Cause(number)
        if by_cause and by_cause[-1][0][1] == offset and by_cause[-1][1] is cause:
            by_cause[-1] = (by_cause[-1][0][0], offset + 1), cause, ""
        else:
            by_cause.append(((offset, offset + 1), cause, ""))
    return by_cause


def _masked_parts(window: Window) -> Iterable[_Part]:
    if not window.causes:
        mask = "" if window.mask is None else window.mask.hex()
        yield (window.start, window.stop), window.cause, mask
        return
    offsets = chain.from_iterable(starmap(range, parts_of(window)))
    told = zip(offsets, window.causes, strict=True)
    for number, run in groupby(told, itemgetter(1)):
        found = {offset for offset, _ in run}
        first, stop = min(found), max(found) + 1
        is_whole = len(found) == stop - first
        flags = bytes(b"01"[offset in found] for offset in range(first, stop))
        yield (first, stop), Cause(number), "" if is_whole else pack(flags).hex()


def share_step(
    kind: str,
    flow: ConsumerRef,
    held: GroupRef,
    cause: Cause,
    shared_flag: str,
    *,
    target: str = "",
    number: int = -1,
) -> bytes:
    """Encode the record of the begin or the end of what a flow has of a shared partition."""
    return encode_record(
        kind,
        group=held.group,
        member=flow.member,
        incarnation=flow.incarnation,
        flow=flow.number,
        epoch=held.epoch,
        cause="" if cause is Cause.NONE else cause.name.lower(),
        number=number,
        target=target,
        flags=shared_flag,
    )


def handoff_step(kind: str, held: GroupRef, attempt: int, **fields: Any) -> bytes:
    """Encode the record of a pause, or of how it ended."""
    return encode_record(
        kind,
        group=held.group,
        member=held.member or "",
        epoch=held.epoch,
        attempt=attempt,
        **fields,
    )


class _AckToken(NamedTuple):
    group: str
    member: str
    incarnation: str
    flow: int
    epoch: int


class AuditBuffer:
    """Audit records of the next flush of a group's book: acks, joined to ranges, and others.

    Numbered under one broker epoch. What a flush has taken is kept until the store has it.
    """

    def __init__(self) -> None:
        self._first = 0
        self._records: list[bytes] = []
        self._token: _AckToken | None = None
        self._flags = ""
        self._acked = Ranges()

    def acked(
        self, held: GroupRef, flow: ConsumerRef | None, ranges: Iterable[Range], flags: str = ""
    ) -> None:
        """Note what the broker has just accepted, by this flow; None: by no member."""
        token = _token(held, flow)
        if token != self._token or flags != self._flags:
            self._seal()
            self._token, self._flags = token, flags
        for start, stop in ranges:
            self._acked.add(start, stop)

    def note(
        self,
        kind: str,
        held: GroupRef,
        flow: ConsumerRef | None,
        ranges: Iterable[Range],
        **fields: Any,
    ) -> None:
        """Note what became of ranges otherwise."""
        self._seal()
        token = _token(held, flow)
        self._records += [
            encode_record(kind, **token._asdict(), first=start, stop=stop, **fields)
            for start, stop in ranges
        ]

    def take(self) -> Numbered:
        """Return all that the store may not have yet."""
        self._seal()
        return Numbered(self._first, tuple(self._records))

    def stored(self, taken: Numbered) -> None:
        """Forget what the store has."""
        del self._records[: len(taken.records)]
        self._first += len(taken.records)

    def _seal(self) -> None:
        """Make records of the acks so far: what comes is recorded after them."""
        if self._acked and self._token is not None:
            token = self._token._asdict()
            self._records += [
                encode_record("ack", **token, flags=self._flags, first=start, stop=stop)
                for start, stop in self._acked.pairs()
            ]
            self._acked = Ranges()


def _token(held: GroupRef, flow: ConsumerRef | None) -> _AckToken:
    if flow is None:
        return _AckToken(held.group, "", "", -1, held.epoch)
    return _AckToken(held.group, flow.member, flow.incarnation, flow.number, held.epoch)
