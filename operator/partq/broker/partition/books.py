"""Which book a group has in a partition: one that fits the order of its redeliveries."""

from collections.abc import Callable, Sequence

from partq.core.cursor.book import Book
from partq.core.cursor.cursor import GroupCursor
from partq.core.cursor.progress import Range
from partq.core.cursor.redelivery_rules import MAX_NACK_DELAY_MS, NackOrder, RedeliveryRules
from partq.core.lanes.codec import MAX_BITS
from partq.core.lanes.lane_book import LaneBook
from partq.core.lanes.parked_lanes import quarantined_of, restored
from partq.core.lanes.shared_book import SharedBook
from partq.core.model import Cause, PartitionId
from partq.core.sessions.session_book import SessionBook
from partq.core.turns.turn_book import TurnBook
from partq.store.records.stored_partition import CursorRecord

BookMaker = Callable[[PartitionId, str, CursorRecord], Book]
"""Makes the book of a group in a partition from its record."""


class Books:
    """Makes the books of groups.

    Args:
        rules: of a group by its name; None: they are not known yet.
        store_ms: the time of Redis in ms, as it has stored a partition.
        clock: of the broker, in seconds.
    """

    def __init__(
        self,
        rules: Callable[[str], RedeliveryRules | None],
        store_ms: Callable[[PartitionId], float],
        clock: Callable[[], float],
    ) -> None:
        self._rules = rules
        self._store_ms = store_ms
        self._clock = clock

    def make(self, partition: PartitionId, group: str, record: CursorRecord) -> Book:
        """Return the book of a group as its record says it.

        While the group's rules are not known, keys that are parked wait on.
        """
        rules = self._rules(group)
        order = rules.order if rules is not None else NackOrder.ORDERED
        is_shared = rules.parts > 0 if rules is not None else record.parts is not None
        is_near = are_in_reach(record.cursor, record.acked)
        if rules is not None and rules.takes_turns and is_near:
            return TurnBook(
                record.cursor, record.acked, record.redeliveries, max_span=rules.max_span
            )
        has_sessions = rules is not None and rules.lock_s > 0
        is_key = order is NackOrder.KEY and is_near
        if (
            not is_shared
            and not has_sessions
            and not is_key
            and (rules is not None or not record.parked)
        ):
            return GroupCursor(record.cursor, record.acked, record.redeliveries)
        limits = rules or RedeliveryRules()
        kind = SessionBook if has_sessions else SharedBook if is_shared else LaneBook
        return kind(
            record.cursor,
            record.acked,
            record.redeliveries,
            parked=restored(
                record.parked,
                written_ms=record.parked_at_ms,
                store_ms=round(self._store_ms(partition)),
                now=self._clock(),
                longest_s=MAX_NACK_DELAY_MS / 1000,  # a nack may name its own delay
            ),
            quarantined=quarantined_of(record.parked),
            max_span=limits.max_span,
            max_parked=limits.max_parked_keys,
        )


def are_in_reach(cursor: int, acked: Sequence[Range]) -> bool:
    """Say whether a book of order Key can hold acks above a cursor, which are rising."""
    return not acked or acked[-1][1] <= cursor + MAX_BITS


def fits(book: Book, rules: RedeliveryRules) -> bool:
    """Say whether a book is one of the order that a group has."""
    if rules.takes_turns or isinstance(book, TurnBook):
        return rules.takes_turns and isinstance(book, TurnBook)
    if rules.lock_s or isinstance(book, SessionBook):
        return rules.lock_s > 0 and isinstance(book, SessionBook)
    if rules.parts:
        return isinstance(book, SharedBook)
    is_key = isinstance(book, LaneBook) and not isinstance(book, SharedBook)
    return is_key == (rules.order is NackOrder.KEY)


def bound(book: Book, rules: RedeliveryRules) -> bool:
    """Give a book the bounds of its group; return whether they are other ones than before."""
    bounds = (rules.max_span, rules.max_span if rules.takes_turns else rules.max_parked_keys)
    if not isinstance(book, LaneBook) or (book.max_span, book.max_parked) == bounds:
        return False
    book.max_span, book.max_parked = bounds
    return True


def remade(book: Book, rules: RedeliveryRules) -> Book:
    """Return a book of the order that a group has now, as far as another one has come.

    Nothing of it is in flight. Keys that are parked wait on, if the order is still Key; what may
    have been processed before goes out for the cause `FLOW_LOST`.
    """
    made: Book
    if rules.takes_turns:
        made = TurnBook(book.cursor, book.acked_pairs(), book.redeliveries, max_span=rules.max_span)
    elif rules.parts or rules.order is NackOrder.KEY:
        kind = SessionBook if rules.lock_s else SharedBook if rules.parts else LaneBook
        made = kind(
            book.cursor,
            book.acked_pairs(),
            book.redeliveries,
            parked=book.parked,
            max_span=rules.max_span,
            max_parked=rules.max_parked_keys,
        )
    else:
        made = GroupCursor(book.cursor, book.acked_pairs(), book.redeliveries)
    made.mark(book.sent_end, Cause.FLOW_LOST)
    return made
