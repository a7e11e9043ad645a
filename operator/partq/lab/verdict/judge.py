"""The verdict: what was lost, out of order or repeated, and whether every repeat has a cause.

All of it is a function of journal rows. It trusts no broker: the consumers' own records say what
they processed and when, and the only thing believed of a delivery is the cause it carried.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from partq.core.model import Cause
from partq.lab.verdict.journal_rows import DeliveredRow, PublishedRow

UNKNOWN_CAUSE: Final = "unknown"
"""A duplicate for which no cause is recorded. It fails a run."""

MAX_FINDINGS: Final = 20
"""Faults that a verdict spells out; the others are only counted."""

# `RELEASED` is missing: a message is given back before the application has begun it.
_GOOD_CAUSES: Final = {
    Cause.FLOW_LOST,
    Cause.FORCED_COMMIT,
    Cause.BROKER_CHANGE,
    Cause.STORE_ROLLED_BACK,
    Cause.NACK,
    Cause.ACK_TIMEOUT,
}
_CAUSE_NAMES: Final = {int(cause): cause.name.lower() for cause in _GOOD_CAUSES}

_Message = tuple[str, int]
"""Key and number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the journals say about one run; counts are of messages."""

    published: int
    """Different messages known to be stored."""
    delivered: int
    """Different messages that a consumer has processed."""
    lost: int
    """Published and never processed."""
    foreign: int
    """Processed and never published."""
    out_of_order: int
    """First processings that did not follow their key's predecessor."""
    duplicates: dict[str, int]
    """Processings beyond a message's first delivery, by cause."""
    overlapping: int = 0
    """Processings that a member began while another member still worked on a message of the key.
    Those that were superseded by a later delivery of their message do not count."""
    session_faults: int = 0
    """Of a group of type Session: work on a session of another member, locks and states."""
    findings: tuple[str, ...] = field(default=())
    """The first faults, as sentences."""

    @property
    def unknown(self) -> int:
        """Duplicates without a recorded cause."""
        return self.duplicates.get(UNKNOWN_CAUSE, 0)

    @property
    def is_good(self) -> bool:
        """Nothing lost or invented, keys in order and at one member, every duplicate explained."""
        faults = (self.lost, self.foreign, self.out_of_order, self.overlapping, self.unknown)
        return not (any(faults) or self.session_faults)


def judge(
    published: Iterable[PublishedRow],
    deliveries: Collection[DeliveredRow],
    *,
    has_order: bool = True,
) -> Verdict:
    """Compare what was published with what was processed.

    `deliveries` must be in the order of their instants (`journal.in_order`). The first number of
    a key is the lowest one that was published or processed; from there every first processing must
    be one higher than the highest so far. A message published twice (a producer that asks after a
    restart) counts once. `has_order`: False for a group of the type Shared, in which keys have
    neither an order nor one member at a time.
    """
    stored = {(row.key, row.number) for row in published}
    processed: set[_Message] = set()
    highest = _numbers_before_first(stored, deliveries)
    out_of_order: list[str] = []
    for row in deliveries:
        message = (row.key, row.number)
        if message in processed:
            continue
        processed.add(message)
        if has_order and row.number != highest[row.key] + 1:
            out_of_order.append(_out_of_order(row, highest[row.key]))
        highest[row.key] = max(highest[row.key], row.number)

    lost = sorted(stored.difference(processed))
    foreign = sorted(processed.difference(stored))
    repeats = find_duplicates(deliveries, has_order=has_order)
    overlapping = find_overlaps(deliveries) if has_order else []
    faults = [
        *(f"lost: {_name(message)} was published and never processed" for message in lost),
        *(f"foreign: {_name(message)} was processed and never published" for message in foreign),
        *out_of_order,
        *(_overlap(before, row) for before, row in overlapping),
        *(unexplained(row) for cause, row in repeats if cause == UNKNOWN_CAUSE),
    ]
    return Verdict(
        published=len(stored),
        delivered=len(processed),
        lost=len(lost),
        foreign=len(foreign),
        out_of_order=len(out_of_order),
        duplicates=dict(sorted(Counter(cause for cause, _ in repeats).items())),
        overlapping=len(overlapping),
        findings=tuple(faults[:MAX_FINDINGS]),
    )


def find_duplicates(
    deliveries: Iterable[DeliveredRow], *, has_order: bool = True
) -> list[tuple[str, DeliveredRow]]:
    """Return the processings beyond each message's first delivery, each with its cause.

    They are judged in the order of their tokens, not of their instants: a member that was frozen
    may write down its first delivery after another has processed the second, and it is the second
    that names the cause. What is processed twice under one token, or lies at two places of the
    log, has no cause that would excuse it.

    Without `has_order`, the tokens of members say nothing of which of them had a message first:
    there the delivery without a cause is the first one.
    """
    first: dict[_Message, DeliveredRow] = {}
    repeated: defaultdict[_Message, list[DeliveredRow]] = defaultdict(list)
    for row in deliveries:
        message = (row.key, row.number)
        if first.setdefault(message, row) is not row:
            repeated[message].append(row)
    return [
        found
        for message, again in repeated.items()
        for found in _explain(
            sorted([first[message], *again], key=token_of if has_order else _has_cause)
        )
    ]


def find_overlaps(deliveries: Iterable[DeliveredRow]) -> list[tuple[DeliveredRow, DeliveredRow]]:
    """Return the processings that began before another member was done with the same key.

    Each comes behind the one that was not done. Of several processings of one message only that
    under the last token counts: a member that is cut off may still be at work on what it had.
    """
    latest: dict[str, DeliveredRow] = {}
    """Of each key the one that was at work for longest."""
    found = []
    for row in sorted(last_processings(deliveries), key=lambda row: row.begun_ns):
        before = latest.setdefault(row.key, row)
        if row.begun_ns < before.at_ns and row.member != before.member:
            found.append((before, row))
        if row.at_ns > before.at_ns:
            latest[row.key] = row
    return found


def last_processings(deliveries: Iterable[DeliveredRow]) -> Collection[DeliveredRow]:
    """Return of each message the processing under its last token, if it says when it was begun."""
    last: dict[_Message, DeliveredRow] = {}
    for row in deliveries:
        if row.begun_ns:
            before = last.setdefault((row.key, row.number), row)
            if token_of(before) < token_of(row):
                last[row.key, row.number] = row
    return last.values()


def _numbers_before_first(
    stored: Collection[_Message], deliveries: Iterable[DeliveredRow]
) -> dict[str, int]:
    """Return for each key the number before its lowest one."""
    before: dict[str, int] = {}
    for key, number in stored:
        before[key] = min(before.get(key, number), number - 1)
    for row in deliveries:
        before[row.key] = min(before.get(row.key, row.number), row.number - 1)
    return before


def _explain(rows: Sequence[DeliveredRow]) -> list[tuple[str, DeliveredRow]]:
    """Return the duplicates among the processings of one message in order, with their causes."""
    found: list[tuple[str, DeliveredRow]] = []
    for before, row in pairwise(rows):
        is_same_place = (row.partition, row.offset) == (before.partition, before.offset)
        is_explained = is_same_place and token_of(row) != token_of(before)
        cause = cause_of(row) if is_explained else UNKNOWN_CAUSE
        found.append((cause, row))
    return found


def token_of(row: DeliveredRow) -> tuple[int, int]:
    """Return the part of a delivery's token that grows with every owner of its partition."""
    return row.broker_epoch, row.epoch


def _has_cause(row: DeliveredRow) -> bool:
    return row.cause != Cause.NONE


def cause_of(row: DeliveredRow) -> str:
    """Return the cause that a repeat carries, `UNKNOWN_CAUSE` when it excuses nothing."""
    return _CAUSE_NAMES.get(row.cause, UNKNOWN_CAUSE)


def _name(message: _Message) -> str:
    key, number = message
    return f"key {key!r} number {number}"


def _place(row: DeliveredRow) -> str:
    return f"at {row.member}, partition {row.partition} offset {row.offset}"


def _out_of_order(row: DeliveredRow, highest: int) -> str:
    name = _name((row.key, row.number))
    return f"out of order: {name} {_place(row)} came first when {highest + 1} was due"


def _overlap(before: DeliveredRow, row: DeliveredRow) -> str:
    late_ms = (before.at_ns - row.begun_ns) / 1e6
    name = _name((row.key, row.number))
    return (
        f"overlapping: {name} {_place(row)} was begun {late_ms:.1f} ms before {before.member} was "
        f"done with number {before.number}"
    )


def unexplained(row: DeliveredRow) -> str:
    """Return a repeat without a cause as a sentence."""
    cause = Cause(row.cause).name if row.cause in set(Cause) else str(row.cause)
    name = _name((row.key, row.number))
    token = f"token {row.broker_epoch}.{row.epoch}"
    return f"duplicate without a cause: {name} {_place(row)}, {token}, cause {cause}"
