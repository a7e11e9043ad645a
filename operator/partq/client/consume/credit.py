"""Credit: what a consumer has room for at a broker, and when it gives room back."""

from dataclasses import dataclass, replace
from typing import Self

from partq.client.arguments import whole
from partq.wire import frames
from partq.wire.batch import MAX_STORED_BYTES

CREDIT_BYTES = 32 * 1024 * 1024
"""What a consumer has room for if it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerCredit:
    """What a consumer has room for at each broker."""

    message_count: int
    batch_bytes: int
    """Of batches as they are stored."""

    def at_most(self, message_count: int) -> Self:
        """Return this credit with no more messages than that."""
        return replace(self, message_count=min(self.message_count, message_count))


class CreditBook:
    """The room at one connection: what deliveries hold of it, and what was not given back yet."""

    def __init__(self, credit: ConsumerCredit) -> None:
        self._credit = credit
        self._share_count = max(1, credit.message_count // 4)
        """Messages of room that are given back at once."""
        self._room = self._room_bytes = 0
        """Messages and bytes that were not given back yet."""
        self.held_bytes = 0
        """Of the deliveries that have messages left to take."""

    def reset(self) -> None:
        """Begin with a new connection, to which the whole credit is given."""
        self._room = self._room_bytes = self.held_bytes = 0

    def hold(self, size_bytes: int) -> None:
        """Count a delivery that came."""
        self.held_bytes += size_bytes

    def free(self, messages: int, size_bytes: int, *, counts_bytes: bool) -> frames.Credit | None:
        """Count room that is free again; return the frame that gives it back, if it is time.

        A quarter of the credit is given back at once.

        Args:
            messages: how many were taken.
            size_bytes: of deliveries that have nothing left to take.
            counts_bytes: whether the broker counts bytes.
        """
        self._room += messages
        self.held_bytes -= size_bytes
        self._room_bytes += size_bytes
        if self._room < self._share_count and not (
            size_bytes and counts_bytes and self._must_give_bytes()
        ):
            return None
        given = frames.Credit(self._room, self._room_bytes)
        self._room = self._room_bytes = 0
        return given

    def _must_give_bytes(self) -> bool:
        if self._room_bytes * 4 >= self._credit.batch_bytes:
            return True
        # What is larger than the rest of the credit comes only to a client that holds nothing.
        is_short = self._credit.batch_bytes - self._room_bytes < MAX_STORED_BYTES
        return is_short and not self.held_bytes


def checked_credit(credit: int, credit_bytes: int) -> ConsumerCredit:
    """Return, as whole numbers, what a consumer says that it has room for.

    Raises:
        SettingsError: one of them is no whole number, or out of range.
    """
    return ConsumerCredit(
        message_count=whole("credit", credit, 1, frames.MAX_CREDIT),
        batch_bytes=whole("credit_bytes", credit_bytes, 1, frames.MAX_CREDIT_BYTES),
    )
