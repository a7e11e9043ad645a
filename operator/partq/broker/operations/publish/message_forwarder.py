"""Sends messages of a plain request to the broker that owns their partition."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from partq.broker.broker import Broker
from partq.broker.peers.peer_client import (
    FORWARDED,
    PeerClient,
    UnansweredError,
    UnreadAnswerError,
    max_bytes,
)
from partq.core.clocks.units import MIN_AT_MS
from partq.core.model import PartitionId
from partq.core.numbering.scheduled_ids import AT_ONCE, DueTime
from partq.errors import (
    BadRequestError,
    NotOwnerError,
    NotStoredError,
    OutcomeUnknownError,
    PartqError,
    UnsupportedError,
)
from partq.path_names import quoted
from partq.server.memory import Hold
from partq.wire import batch
from partq.wire.calls.answers import UNSET, PublishResult, PublishResults
from partq.wire.calls.bodies import DELIVER_AFTER, DELIVER_AT
from partq.wire.calls.replies import to_error
from partq.wire.frame import ATOMIC

FORWARD_TIMEOUT_S = 8.0
"""Seconds that the owner of a partition may take to answer; then the outcome is unknown."""
PRODUCER = "Partq-Producer"
TTL = "Partq-TTL-Ms"
AGE = "Partq-Age-Ms"
UNKNOWN_PARAMETER = f"got the unknown parameter {ATOMIC}"
"""How a broker of an earlier version refuses a transaction, before it reads the messages."""


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """Where a message is stored."""

    partition: PartitionId
    offset: int | None
    """None: a repeat of one that is stored, so long ago that its place is forgotten."""
    is_duplicate: bool = False
    scheduled: str = ""
    """The id under which it waits until it is due, or has waited; empty: it does not."""
    due_ms: int = -1
    """When it is due; -1: it does not wait, or nobody knows."""


@dataclass(frozen=True, slots=True)
class StorableMessage:
    """A message of the request, ready to be stored."""

    at: int
    """Its place in the request."""
    message: batch.Message
    slot: int
    number: int
    """In the series of its key; -1: the request is not numbered."""
    may_move: bool = False
    """It has no key: when its partition is unavailable, another one will do."""
    message_id: str = ""
    """Empty: it has none."""


@dataclass(frozen=True, slots=True)
class Forwarding:
    """How messages reach the brokers that own their partitions: with the token of the call."""

    peers: PeerClient
    authorization: str
    hold: Hold
    """The memory of the call, which pays for the answers."""
    is_forwarded: bool
    """Whether another broker has forwarded the call: it goes no further."""
    is_whole: bool = False
    """Whether the messages are stored all, or none."""


Outcome = MessagePlace | PartqError


class MessageForwarder:
    """Forwards messages of one request, with what its headers say of all of them.

    Args as of `MessageWriter`.
    """

    def __init__(
        self,
        broker: Broker,
        forwarding: Forwarding,
        producer: str,
        *,
        ttl_ms: int,
        age_ms: int,
        due: DueTime = AT_ONCE,
    ) -> None:
        self._broker = broker
        self._forwarding = forwarding
        self._producer = producer
        self._ttl_ms = ttl_ms
        self._age_ms = age_ms
        self._due = due

    async def forward(
        self, partition: PartitionId, rows: list[StorableMessage]
    ) -> Sequence[Outcome]:
        """Let the owner store the rows; once only, a second hop is refused.

        Raises:
            NotOwnerError: the call was forwarded to this broker, which does not own the partition.
            NotStoredError: no broker owns it, or its owner cannot be reached.
            OutcomeUnknownError: the owner gave no usable answer.
        """
        broker, forwarding = self._broker, self._forwarding
        owner = broker.claims.owner_url(partition)
        if forwarding.is_forwarded:
            raise NotOwnerError(
                f"partition {partition}: forwarded to {broker.id}, which does not own it; "
                "publish again",
                retry_after_s=1.0,
            )
        if owner is None:
            raise NotStoredError(
                f"partition {partition}: no broker serves it at the moment; publish again",
                retry_after_s=1.0,
            )
        url = f"{owner[1]}/v1/queues/{quoted(broker.settings.queue, 'queue')}/messages"
        if forwarding.is_whole:
            url += f"?{ATOMIC}=true"
        knows_ids = broker.config.id_window_ms > 0
        headers: dict[str, str] = {FORWARDED: broker.id}
        if self._producer:
            headers[PRODUCER] = self._producer
        if self._ttl_ms:
            headers[TTL] = str(self._ttl_ms)
        if self._age_ms:
            headers[AGE] = str(self._age_ms)
        if self._due.due_ms:
            # A time before 1973 would be taken for one in seconds; it is over, as 0 is.
            headers[DELIVER_AT] = str(self._due.due_ms if self._due.due_ms >= MIN_AT_MS else 0)
        elif self._due.after_ms:
            headers[DELIVER_AFTER] = str(self._due.after_ms)
        try:
            answer = await forwarding.peers.call(
                "POST",
                url,
                PublishResults,
                authorization=forwarding.authorization,
                headers=headers,
                json=[_body(row, knows_ids=knows_ids) for row in rows],
                timeout_s=FORWARD_TIMEOUT_S,
                limit_bytes=max_bytes(len(rows)),
                hold=forwarding.hold,
            )
            return _outcomes(answer, len(rows))
        except BadRequestError as error:
            if forwarding.is_whole and UNKNOWN_PARAMETER in error.message:
                raise UnsupportedError(
                    f"partition {partition}: its broker {owner[0]} is of a version without "
                    f"{ATOMIC}, which the call needs; nothing is stored: upgrade brokers first"
                ) from error
            raise
        except (UnansweredError, ValueError, UnreadAnswerError) as error:
            if isinstance(error, UnansweredError) and not error.is_sent:
                raise NotStoredError(
                    f"partition {partition}: {owner[0]} cannot be reached ({error}); publish again",
                    retry_after_s=1.0,
                ) from error
            raise OutcomeUnknownError(
                f"partition {partition}: {owner[0]} gave no usable answer ({error}); the messages "
                "may be stored: publish again, numbered if they may not be twice"
            ) from error


def _body(row: StorableMessage, *, knows_ids: bool) -> dict[str, object]:
    """Return a message as another broker takes it."""
    return {
        "key": row.message.key,
        "value_base64": base64.b64encode(row.message.value).decode(),
        "headers": row.message.headers,
        "event_time_ms": row.message.event_time_ms,
        "slot": row.slot,
        **({"sequence": row.number} if row.number >= 0 else {}),
        # Elsewhere it is a header, which earlier versions take, too.
        **({"message_id": row.message_id} if row.message_id and knows_ids else {}),
    }


def _outcomes(answer: PublishResults, count: int) -> list[Outcome]:
    """Read another broker's answer for `count` messages; ValueError: it is something else."""
    if len(answer.results) != count:
        raise ValueError(f"got {len(answer.results)} results, expected {count}")
    return [_outcome(result) for result in answer.results]


def _outcome(result: PublishResult) -> Outcome:
    if result.error is not UNSET:
        return to_error(result.error)
    if result.partition is UNSET or result.offset is UNSET:
        raise ValueError("a result has neither a place nor an error")
    partition = PartitionId.parse(result.partition)
    return MessagePlace(
        *(partition, result.offset, result.is_duplicate is True),
        scheduled="" if result.scheduled is UNSET else result.scheduled,
        due_ms=-1 if result.due_ms is UNSET else result.due_ms,
    )
