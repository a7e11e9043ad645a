"""The interface of a book: how far one group has come in one partition.

A group has one book per partition, with the broker that owns it. `GroupCursor` is the book of a
group whose nacked messages hold up their partition or nothing, `LaneBook` that of a group whose
nacked messages hold up their key.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from partq.core.cursor.progress import Range
from partq.core.cursor.windows import TakenBack, Window
from partq.core.model import Cause
from partq.core.ranges import Ranges


class SlottedBatch(Protocol):
    """A batch of the log, as far as a book looks at it."""

    @property
    def first(self) -> int:
        """Offset of its first message."""

    @property
    def count(self) -> int:
        """How many messages it has."""

    @property
    def slots(self) -> Sequence[int]:
        """The slot of each message. A book asks once for each batch that it takes from."""


class Book(Protocol):
    """What a broker asks and tells a book. No I/O and no clock: instants are arguments, in s."""

    # ---- how far the group has come -------------------------------------------------------------

    @property
    def cursor(self) -> int:
        """Everything below is acknowledged."""

    @property
    def position(self) -> int:
        """The next offset to look at in turn; all below it was looked at under this token."""

    @property
    def in_flight(self) -> int:
        """Messages that are delivered and neither acknowledged nor given back."""

    @property
    def number(self) -> int:
        """Delivery number of the current token: it grows with each step back."""

    @property
    def redeliveries(self) -> dict[int, int]:
        """How often an offset was sent again for a cause that counts, where not 0."""

    @property
    def is_scattered(self) -> bool:
        """Whether nothing new is sent before some of what lies between the acks is done."""

    @property
    def stands_still(self) -> str:
        """Why nothing new is sent, for people; empty: the book does not say so."""

    @property
    def reach(self) -> int:
        """What lies from here on cannot be discarded while something below is not done."""

    def is_done(self, offset: int) -> bool:
        """Whether the group has done with an offset."""

    def undone(self, start: int, stop: int) -> list[Range]:
        """Return the parts of [start, stop) that the group has not done with."""

    def unsent(self, start: int, stop: int) -> list[Range]:
        """Return the parts of [start, stop) that are still to be sent, now or once they may be."""

    def delivered(self, start: int, stop: int) -> list[Range]:
        """Return the parts of [start, stop) that were sent under this token and are not done."""

    def newly_acked(self, upto: int, ranges: Iterable[Range]) -> list[Range]:
        """Return what an ack adds to what the group has done with."""

    @property
    def sent_end(self) -> int:
        """What may have been processed before lies below."""

    def exceeding(self, limit: int) -> list[int]:
        """Return the offsets that were sent again more than `limit` times by their own fault."""

    # ---- as it is stored ------------------------------------------------------------------------

    def acked_pairs(self) -> list[Range]:
        """Return the acknowledged ranges above the cursor, rising."""

    def stored_acks(self) -> Sequence[Range] | bytes:
        """Return the acks above the cursor as the record holds them: ranges, or encoded bits."""

    @property
    def parked(self) -> Mapping[int, float]:
        """Lanes that wait → until when, on the caller's clock."""

    @property
    def stored_size_bytes(self) -> int:
        """About how many bytes the book has as it is stored."""

    # ---- what is sent ---------------------------------------------------------------------------

    def take(self, batch: SlottedBatch, stop: int, credit: int) -> Window | None:
        """Take the next window of a stored batch, below `stop`, which lies in it or is its end.

        `position` must lie in the batch. At most `credit` messages. None when nothing of the
        batch is left to send, or nothing may be sent now; `position` tells which.
        """

    @property
    def next_again(self) -> int | None:
        """The lowest offset below `position` that is to be sent again now."""

    def take_again(self, stop: int, credit: int) -> Window | None:
        """Take what is to be sent out of turn from `next_again` on, below `stop`.

        `stop` is the end of the stored batch that holds that offset. At most `credit` messages.
        """

    @property
    def next_due(self) -> float:
        """When the next delay is over; infinity: nothing waits for its time."""

    @property
    def delayed(self) -> int:
        """How many offsets, or lanes, wait for their time."""

    def end_waits(self, now: float) -> None:
        """Let what has waited long enough be sent; its counts are stored."""

    def mark(self, stop: int, cause: Cause, *, start: int = 0) -> None:
        """Note that all below `stop`, from `start` on, may have been processed before."""

    # ---- what comes back ------------------------------------------------------------------------

    def ack(self, upto: int, ranges: Iterable[Range], number: int) -> int:
        """Acknowledge all below `upto` (-1: none) and `ranges`; return how many were in flight.

        Raises:
            NotDeliveredError: an offset was not delivered under the current token.
            RewoundError: `upto` reaches what was given back since the delivery number it names.
        """

    def discard(self, ranges: Iterable[Range]) -> int:
        """Have done with `ranges`, for whatever reason; return how many were in flight."""

    def pass_over(self, start: int, stop: int) -> list[Range]:
        """Send nothing of [start, stop), and let nothing wait for it, until it is discarded.

        None of it is in flight. Returns the parts that the group had not done with.
        """

    def release(self, start: int, number: int) -> int:
        """Take back all from `start` on, none of which was begun; return how many messages.

        Raises:
            NotDeliveredError: `start` lies beyond what was delivered.
            RewoundError: the delivery number is not the current one.
        """

    def nack(
        self,
        ranges: Iterable[Range],
        number: int,
        *,
        now: float,
        delay_s: Callable[[int], float],
        is_free: bool,
        begun: int | None = None,
        counts: bool = True,
    ) -> TakenBack:
        """Take back `ranges`, whose messages could not be processed.

        Each counts, unless not `counts`, and waits as long as `delay_s` says of its count.

        Raises:
            NotDeliveredError: an offset was not delivered under the current token.
            RewoundError: the delivery number does not belong to the token.
        """

    def not_done(self, ranges: Iterable[Range], number: int, *, most: int) -> list[int]:
        """Return the offsets of `ranges` that the group has not done with, at most `most`.

        Raises:
            NotDeliveredError: an offset was not delivered under the current token.
            RewoundError: the delivery number does not belong to the token.
        """

    def begin(self, ranges: Iterable[Range], number: int, now: float) -> None:
        """Note that the application has begun `ranges`; what was not delivered is left out."""

    def extend(self, ranges: Iterable[Range], number: int, now: float) -> None:
        """Let the time for the acks of `ranges` start again, from `now` on.

        Raises:
            NotDeliveredError: an offset was not delivered under the current token.
            RewoundError: one was taken back, and is redelivered; or the delivery number does not
                belong to the token.
            ConflictError: one was begun too long ago to be extended again.
        """

    def time_out(
        self, since: float, *, now: float, delay_s: Callable[[int], float], is_free: bool
    ) -> TakenBack:
        """Take back, as `nack`, what the application began at `since` or before."""

    def was_rewound(self, stop: int, number: int) -> bool:
        """Whether messages of a window that ends at `stop` are redelivered under a later number.

        `number`: the delivery number of the window, under the current token.
        """

    # ---- changes of the token -------------------------------------------------------------------

    def redeliveries_after_rewind(self, unsent: Ranges | None = None) -> dict[int, int]:
        """Return the counts that a rewind leaves; they are stored before anything goes out again.

        `unsent`: what was taken, and no client has.
        """

    def rewind(self, cause: Cause, unsent: Ranges | None = None) -> None:
        """Start a new token: what is in flight goes out again, what waits waits on."""

    def moved_to(self, cursor: int) -> "Book":
        """Return the book of a group that begins again at `cursor`, back or forward."""
