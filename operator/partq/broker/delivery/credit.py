"""How much may be sent to a flow: its client's credit, and the limit of unacknowledged messages."""

from collections.abc import Callable, Collection

from partq.broker.partition.consumed_partition import ConsumedPartition

MAX_ADDED_CREDIT = 10_000_000
"""The most messages that a client may add at once, and have room for in all."""
PARTIAL_WINDOW_WAIT_S = 0.02
"""How long a small rest of credit waits to become more before a batch is cut for it."""


class FlowCredit:
    """The credit of one flow, in messages and in bytes, and what it has not acknowledged."""

    __slots__ = ("_limit_bytes", "_max_unacked", "_partial_at", "_shared", "_short", "_small",
                 "messages", "out_bytes", "unacked")  # fmt: skip

    def __init__(
        self,
        messages: int,
        limit_bytes: int,
        *,
        max_unacked: Callable[[], int],
        cuts_batches: bool,
    ) -> None:
        """Begin with what the client has room for.

        Args:
            messages: that it takes.
            limit_bytes: of the batches that it has at a time; 0: any number.
            max_unacked: how many messages may be unacknowledged.
            cuts_batches: whether a part of a batch costs the bytes of all of it.
        """
        self.messages = messages
        self.out_bytes = 0
        """Of the batches that were sent and that the client has not handed out or dropped."""
        self.unacked = 0
        """Messages that were sent and not acknowledged, over all partitions of the flow."""
        self._limit_bytes = limit_bytes
        self._max_unacked = max_unacked
        # A batch is sent again for each part of it, so a flow waits for credit worth a part.
        self._small = min(messages, max_unacked()) // 4 if cuts_batches else 0
        self._shared = messages if cuts_batches else 0
        self._short: dict[ConsumedPartition, None] = {}
        self._partial_at = 0.0

    @property
    def left(self) -> int:
        """How many messages may be sent now."""
        return min(self.messages, self._max_unacked() - self.unacked)

    @property
    def is_at_limit(self) -> bool:
        """Whether the client has room, and the limit of unacknowledged messages leaves none."""
        return self.messages > 0 and self.unacked >= self._max_unacked()

    def left_for_one(self, in_flight: int, count: int) -> int:
        """Return how many messages may be sent now of one of `count` that have the room together.

        Half of the room has an equal part for each of them, which no other one takes.
        """
        left, half = self.left, min(self._shared, self._max_unacked()) // 2
        own = max(1, half // max(1, count)) - in_flight
        is_small = 2 * self.out_bytes <= self._limit_bytes or not self._limit_bytes
        more = left - half if is_small else 0
        return min(left, max(own, more))

    def note_short(self, consumed: ConsumedPartition) -> None:
        """Keep in mind what is not sent now, if the limit of unacknowledged messages is why."""
        if self.is_at_limit:
            self._short[consumed] = None

    def forget(self, consumed: ConsumedPartition) -> None:
        """Forget what the flow has no more."""
        self._short.pop(consumed, None)

    def end_unacked(self, messages: int) -> Collection[ConsumedPartition]:
        """Count messages that are no longer unacknowledged; return what is to be looked at again.

        That is all that `note_short` has kept in mind, once the limit leaves room.
        """
        self.unacked -= messages
        if not self._short or self.is_at_limit:
            return ()
        short, self._short = self._short, {}
        return short

    def fits(self, size_bytes: int) -> bool:
        """Whether the client has room for a batch; if it has none yet, the batch always fits."""
        if not self._limit_bytes or not self.out_bytes:
            return True
        return self.out_bytes + size_bytes <= self._limit_bytes

    def wait_for_more(self, left: int, wanted: int, now: float) -> float | None:
        """Return until when a rest of credit waits to become more; None: it is worth a window."""
        if left < min(wanted, self._small) and self.unacked and now < self._partial_at:
            return self._partial_at
        return None

    def spend(self, messages: int, size_bytes: int, now: float) -> None:
        """Count a window that is sent."""
        self._partial_at = now + PARTIAL_WINDOW_WAIT_S
        self.messages -= messages
        self.unacked += messages
        self.out_bytes += size_bytes

    def add(self, messages: int, size_bytes: int) -> None:
        """Take room that the client has again."""
        self.messages = min(self.messages + messages, MAX_ADDED_CREDIT)
        self.out_bytes = max(0, self.out_bytes - size_bytes)

    def give_back(self, messages: int, size_bytes: int) -> None:
        """Undo what was spent for windows that the client never hears of."""
        self.messages += messages
        self.out_bytes -= size_bytes
