"""Transactions: messages of one key that one write stores, all of them or none."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Self, cast

from partq.client.produce.results import Position
from partq.client.produce.send_calls import PreparedMessage, SendCalls
from partq.client.schedule.scheduled_calls import to_due_time
from partq.core.clocks.time_to_live import to_ttl_ms
from partq.core.numbering.scheduled_ids import AT_ONCE, DueTime
from partq.errors import BatchTooLargeError, NotStoredError
from partq.wire.batch import (
    HEADER_SIZE,
    MAX_BATCH_BYTES,
    MAX_BATCH_COUNT,
    MESSAGE_SIZE,
    Message,
)
from partq.wire.partition_key import key_of_arguments, transaction_key


class Transaction:
    """Messages of one key that are stored together; made by `Producer.transaction`.

    ```python
    async with producer.transaction(key="order-17") as tx:
        tx.send(b"paid")
        tx.send(b"shipped", headers={"carrier": "post"})
    print(tx.positions)
    ```

    Nothing leaves the process before the end of the block. An exception in the block: nothing is
    sent. The end of the block waits for the answer: one batch, stored by one write, with all
    messages behind each other in one partition. Consumers get them one after another, and
    acknowledge each by itself.
    """

    def __init__(
        self,
        calls: Callable[[], SendCalls],
        key: str | None,
        ttl_ms: int,
        due: DueTime = AT_ONCE,
    ) -> None:
        self._calls = calls
        self._given = key
        self._known: str | None = None
        self._ttl_ms = ttl_ms
        self._due = due
        self._prepared: list[PreparedMessage] = []
        self._size_bytes = HEADER_SIZE
        self._state = "is not open"
        self._positions: Sequence[Position] | None = None

    async def __aenter__(self) -> Self:
        """Begin; raises RuntimeError when it was entered before."""
        if self._state != "is not open":
            raise RuntimeError(f"the transaction {self._state}; begin another one")
        self._state = "is open"
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Store all messages and wait for the answer; after an exception in the block, none.

        Raises:
            NotStoredError: within `delivery_timeout_s`; certainly none of them is stored.
            OutcomeUnknownError: all of them are stored, or none; nobody knows.
            PartqError: as `Producer.send`; none is stored.
        """
        self._state = "has ended"
        prepared, self._prepared = self._prepared, []
        if error is not None:
            reason = NotStoredError("the transaction was left by an exception; nothing was sent")
            reason.__cause__ = error
            self._give_up(prepared, reason)
            return
        if not prepared:
            self._positions = ()
            return
        try:
            calls = self._calls()
        except BaseException as closed:
            self._give_up(prepared, closed)
            raise
        stored = await calls.send_whole(prepared, self._ttl_ms, self._due)
        self._positions = await stored

    @staticmethod
    def _give_up(prepared: Sequence[PreparedMessage], error: BaseException) -> None:
        """Let interceptors know that messages were not sent."""
        for each in prepared:
            each.give_up(error)

    def send(
        self,
        value: object,
        *,
        key: str | None = None,
        session_id: str | None = None,
        partition_key: str | None = None,
        headers: dict[str, str] | None = None,
        event_time_ms: int = 0,
    ) -> None:
        """Take a message; arguments as of `Producer.send`. It is sent at the end of the block.

        Its key is that of the transaction. Without one there, each message has a key, and all of
        them the same.

        Raises:
            TransactionWithoutKeyError: neither the transaction nor the message has a key.
            TransactionOverKeysError: the message has another key than the transaction.
            KeyConflictError: two different keys were given for the message; names both.
            BatchTooLargeError: the transaction would have more than 65,536 messages, or 16 MiB.
            BadRequestError, MessageTooLargeError: the message can never be stored.
            RuntimeError: outside the block. In any case the message was not taken.
        """
        if self._state != "is open":
            raise RuntimeError(f"the transaction {self._state}; send inside `async with`")
        number = len(self._prepared)
        own = key_of_arguments(key, session_id, partition_key)
        given = self._given if own is None else own
        if number >= MAX_BATCH_COUNT:
            raise BatchTooLargeError(
                f"transaction: {number + 1} messages; expected at most {MAX_BATCH_COUNT}: send "
                "the rest in another one"
            )

        found = self._given if self._known is None else self._known

        def check(message: Message) -> None:
            nonlocal found
            found = transaction_key(found, message.key, number)

        # A value that is not bytes is refused when it is encoded.
        message = Message(given, cast(bytes, value), headers, event_time_ms)
        prepared = self._calls().prepare(message, check)
        size_bytes = self._size_bytes + MESSAGE_SIZE + len(prepared.encoded)
        if size_bytes > MAX_BATCH_BYTES:
            large = BatchTooLargeError(
                f"transaction: {size_bytes} bytes with message {number}; expected at most "
                f"{MAX_BATCH_BYTES}: send fewer or smaller messages, or keep large values elsewhere"
            )
            prepared.give_up(large)
            raise large
        self._known, self._size_bytes = found, size_bytes
        self._prepared.append(prepared)

    @property
    def positions(self) -> Sequence[Position]:
        """Where the messages are stored, in the order of the calls; empty without messages.

        An offset of -1: a repeat, so late that the broker has forgotten the place. Of messages that
        wait until they are due, `scheduled` of each is their one id.

        Raises:
            RuntimeError: the transaction is not stored, or not yet.
        """
        if self._positions is None:
            raise RuntimeError(
                f"the transaction {self._state} and is not stored; read positions after the block"
            )
        return self._positions


class Transactions(ABC):
    """The transactions of a producer: a base of `Producer`."""

    @abstractmethod
    def _open(self) -> SendCalls:
        """Return what messages are sent by; raises what keeps them from being sent."""

    def transaction(
        self,
        *,
        key: str | None = None,
        session_id: str | None = None,
        partition_key: str | None = None,
        ttl_s: float | None = None,
        deliver_at: datetime | None = None,
        deliver_after_s: float | None = None,
    ) -> Transaction:
        """Return a transaction for `async with`: its messages are stored all, or none.

        `key`, `session_id`, `partition_key`: names for the one key of all its messages, as of
        `send`. None given: each message has it. `ttl_s`: of all its messages, as of `send`.
        `deliver_at`, `deliver_after_s`: when they are stored in the log, all together, as of
        `send`; the positions have one id then, by which all of them are cancelled.
        At most 65,536 messages and 16 MiB together, whatever the limits of batches are.

        Raises:
            KeyConflictError: two different keys were given; names both.
            BadRequestError: `ttl_s`, or a time of delivery, is out of range.
        """
        self._open()
        found = key_of_arguments(key, session_id, partition_key)
        due = to_due_time(deliver_at, deliver_after_s)
        return Transaction(self._open, found, to_ttl_ms(ttl_s), due)
