"""What becomes of a message that its group does not get done: names, numbers and headers.

No I/O. The broker moves such messages to an outbox, and from there to the dead-letter queue.
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import NamedTuple

from partq.core.model import BrokerEpoch, Offset, PartitionId
from partq.errors import BadRequestError
from partq.excerpts import excerpt

MAX_WAITING = 1000
"""Messages in the outbox of one group in one partition; more of them stop its deliveries."""
MAX_REPLAYED_AHEAD = 10_000
"""Dead letters of a partition that were sent back though earlier ones were not; with more of them,
the earlier ones have to be replayed or dropped first."""
MAX_NOTE_REASON_CHARS = 64
"""The longest reason that an application gives."""
MAX_DESCRIPTION_CHARS = 1024
"""The longest description that an application gives."""
PRODUCER_PREFIX = "dlq:"
"""Producers of this name number with gaps; no client may call itself so."""
HEADER_PREFIX = "partq-dead-letter-"
UNDECODABLE_HEADER = HEADER_PREFIX + "undecodable"
"""The place of an undecodable message in its batch."""
BATCH_HEADER = HEADER_PREFIX + "batch"
"""The position of the dead letter whose value is that batch."""
OMITTED_HEADER = HEADER_PREFIX + "omitted"
"""How many bytes that batch had: more than the dead-letter queue takes."""
REASON_HEADER = HEADER_PREFIX + "application-reason"
DESCRIPTION_HEADER = HEADER_PREFIX + "application-description"


class OnExhausted(StrEnum):
    """What becomes of a key of a group of order Key whose message failed too often."""

    SKIP = "Skip"
    """The message becomes a dead letter, and the key goes on."""
    BLOCK = "Block"
    """The key waits until somebody releases it."""
    QUARANTINE = "Quarantine"
    """The message, and all that follow of the key, become dead letters, until it is released."""


class DeadLetterReason(IntEnum):
    """Why a message was moved."""

    MAX_REDELIVERIES = 1
    """It was redelivered as often as the group allows, and the last delivery failed, too."""
    EXPIRED = 2
    """It outlived its time to live."""
    UNDECODABLE = 3
    """It does not decode. The stored outbox has it as `MAX_REDELIVERIES`, for older brokers."""
    APPLICATION = 4
    """The application asked for it. The stored outbox has it as `MAX_REDELIVERIES`, and a note."""

    QUARANTINED = 5
    """An earlier one of its key failed too often. Stored as `MAX_REDELIVERIES`, and a note."""

    @property
    def word(self) -> str:
        """The reason as the header has it."""
        return _WORDS[self]


_WORDS = {
    DeadLetterReason.MAX_REDELIVERIES: "maxRedeliveries",
    DeadLetterReason.EXPIRED: "expired",
    DeadLetterReason.UNDECODABLE: "undecodable",
    DeadLetterReason.APPLICATION: "application",
    DeadLetterReason.QUARANTINED: "quarantined",
}


class DeadLetter(NamedTuple):
    """A message in an outbox."""

    number: int
    """Under which the target tells a repeat; rises, with gaps."""
    offset: int
    reason: int
    redeliveries: int
    """How often a delivery of it failed for a cause that counts; the last one led here."""


class LetterNote(NamedTuple):
    """What the application said of a message that it could not process."""

    reason: str = ""
    """A short code, for programs; empty: none was given."""
    description: str = ""
    """A text, for people; empty: none was given."""
    is_asked_for: bool = False
    """The application asked for the dead letter; else it gave the message back."""
    is_quarantined: bool = False
    """It becomes a dead letter because an earlier one of its key failed too often."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers that tell it."""
        told = {REASON_HEADER: self.reason, DESCRIPTION_HEADER: self.description}
        return {name: text for name, text in told.items() if text}


def check_note(call: str, reason: str, description: str) -> None:
    """Refuse what the headers of no dead letter can say.

    Raises:
        BadRequestError: the reason or the description is out of range; names the call.
    """
    unprintable = next((char for char in reason if not char.isprintable()), None)
    if unprintable is not None and len(reason) <= MAX_NOTE_REASON_CHARS:
        raise BadRequestError(
            f"{call}: reason {excerpt(reason)!r}: got {unprintable!r}, expected printable "
            "characters only: leave out line ends and control characters, such as by strip(), or "
            "put the text into the description"
        )
    if len(reason) > MAX_NOTE_REASON_CHARS:
        raise BadRequestError(
            f"{call}: reason {excerpt(reason)!r} of {len(reason)} characters; expected at most "
            f"{MAX_NOTE_REASON_CHARS} printable ones: put the rest into the description"
        )
    if len(description) > MAX_DESCRIPTION_CHARS:
        raise BadRequestError(
            f"{call}: description of {len(description)} characters; expected at most "
            f"{MAX_DESCRIPTION_CHARS}: shorten it, or log the rest"
        )
    if any("\ud800" <= char <= "\udfff" for char in description):
        raise BadRequestError(
            f"{call}: description {excerpt(description)!r} has half a surrogate pair; expected "
            "Unicode characters: encode it with errors='replace' first"
        )


class LetterFilter(NamedTuple):
    """Which dead letters are looked for; None: any."""

    key: str | None = None
    reason: str | None = None
    """The broker's, or the application's."""

    def has(self, key: str | None, headers: Mapping[str, str]) -> bool:
        """Say whether a message with this key and these headers is one of them."""
        reasons = [headers.get(name) for name in (HEADER_PREFIX + "reason", REASON_HEADER)]
        return (self.key is None or key == self.key) and (
            self.reason is None or self.reason in reasons
        )


ANY_LETTER = LetterFilter()


class Origin(NamedTuple):
    """Where a dead letter comes from."""

    queue: str
    group: str
    partition: PartitionId
    offset: Offset
    broker_epoch: BrokerEpoch
    """That it was appended under: part of its position."""


def producer_of(uid: str, partition: PartitionId, group: str) -> str:
    """Return the producer's name under which an outbox is emptied."""
    return f"{PRODUCER_PREFIX}{uid}#{partition}/{group}"


def replayer_of(uid: str, partition: PartitionId) -> str:
    """Return the producer's name under which dead letters of a partition are sent back.

    The store keeps it as it keeps an outbox's: a letter may be repeated however late.
    """
    return producer_of(uid, partition, "")


def headers_of(
    headers: Mapping[str, str] | None, origin: Origin, letter: DeadLetter
) -> dict[str, str]:
    """Return a message's own headers, and what became of it.

    A message that dies a second time reports the second death alone.
    """
    told = {
        "reason": DeadLetterReason(letter.reason).word,
        "queue": origin.queue,
        "group": origin.group,
        "partition": str(origin.partition),
        "offset": str(origin.offset),
        "position": f"{origin.partition.generation}.{origin.broker_epoch}.{origin.offset}",
        "redeliveries": str(letter.redeliveries),
    }
    return {**without_death(headers), **{HEADER_PREFIX + name: told[name] for name in told}}


def without_death(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Return a message's own headers."""
    return {k: v for k, v in (headers or {}).items() if not k.startswith(HEADER_PREFIX)}


def is_undecodable(headers: Mapping[str, str] | None) -> bool:
    """Say whether a dead letter stands for an undecodable message, and is not a message itself.

    Its value is the stored batch, or empty. What was decodable of such a batch is a message.
    """
    told = headers or {}
    is_marked = not told.keys().isdisjoint({UNDECODABLE_HEADER, BATCH_HEADER, OMITTED_HEADER})
    return is_marked or told.get(HEADER_PREFIX + "reason") == DeadLetterReason.UNDECODABLE.word
