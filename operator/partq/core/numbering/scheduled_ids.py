"""Names of scheduled messages, and the times at which they may be due."""

import re
from typing import NamedTuple

from partq.core.model import PartitionId
from partq.errors import BadRequestError
from partq.excerpts import excerpt

NUMBER_DIGITS = 16
MAX_AHEAD_DAYS = 400
MAX_AHEAD_MS = MAX_AHEAD_DAYS * 86_400_000
"""How far ahead a message may be scheduled."""
MAX_DUE_MS = 2**53
"""Above every time, and within what every language's JSON can hold."""

_NUMBER = re.compile(r"[0-9]{16}")


class ScheduledId(NamedTuple):
    """The name of a scheduled message, written `1.3/0001795324574173`."""

    partition: PartitionId
    number: int

    def __str__(self) -> str:
        return f"{self.partition}/{number_text(self.number)}"

    @classmethod
    def parse(cls, text: str) -> "ScheduledId":
        """Read what `str` writes.

        Raises:
            BadRequestError: it is something else.
        """
        name, slash, number = text.partition("/")
        try:
            if slash and _NUMBER.fullmatch(number):
                return cls(PartitionId.parse(name), int(number))
        except ValueError:
            pass
        raise BadRequestError(
            f"scheduled message {excerpt(text)!r}: expected its id, such as 1.3/0001795324574173, "
            "as the answer to its publish has it"
        )


def number_text(number: int) -> str:
    """Return the number of an entry as it is stored and shown: sorted as texts, they rise."""
    return f"{number:0{NUMBER_DIGITS}d}"


class DueTime(NamedTuple):
    """When messages are to be stored in a log."""

    due_ms: int = 0
    """In ms since 1970, by Redis's clock; 0: `after_ms` says it."""
    after_ms: int = 0
    """How many ms after they are accepted; 0, as `due_ms`: at once."""


AT_ONCE = DueTime()


def at_time(at_ms: int) -> DueTime:
    """Return the due time of messages that wait until then; one that is over is no error."""
    return DueTime(max(1, at_ms))


def check_due_ms(due_ms: int, now_ms: float) -> None:
    """Check the time at which a message is to be due; one that is over is no error.

    Raises:
        BadRequestError: it is no time, or more than `MAX_AHEAD_DAYS` ahead.
    """
    if not 0 <= due_ms <= MAX_DUE_MS or due_ms > now_ms + MAX_AHEAD_MS:
        raise BadRequestError(
            f"publish: due at {due_ms} ms since 1970; expected a time that is at most "
            f"{MAX_AHEAD_DAYS} days ahead"
        )


def check_after_ms(after_ms: int) -> None:
    """Check a delay.

    Raises:
        BadRequestError: it is negative, or longer than `MAX_AHEAD_DAYS`.
    """
    if not 0 <= after_ms <= MAX_AHEAD_MS:
        raise BadRequestError(
            f"publish: due after {after_ms} ms; expected 0 to {MAX_AHEAD_MS}, which is "
            f"{MAX_AHEAD_DAYS} days"
        )
