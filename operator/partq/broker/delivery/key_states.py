"""States of keys, as members leave them with acks and read them."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from types import EllipsisType
from typing import Any

from partq.broker.delivery.cursor_writer import CursorWriter
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.broker.partition.outbox import Answer
from partq.broker.partition.unstored_states import StateGuard
from partq.core.cursor.redelivery_rules import NackOrder, RedeliveryRules
from partq.core.hashing import slot_of
from partq.core.model import BrokerId
from partq.core.records import LeaseRecord, lacking_states
from partq.errors import (
    BadRequestError,
    FencedError,
    PartqError,
    SessionLostError,
    StatesFullError,
    UnavailableError,
)
from partq.excerpts import excerpt
from partq.store.key_states import KeyStates
from partq.store.retries import WRITE_RETRY_S
from partq.wire import frames

MAX_UNSTORED_BYTES = 8 * 1024 * 1024
"""Of the states that wait at this broker to be stored; above it nothing more is read from flows."""

StateAnswer = Callable[[bytes | PartqError | None], None]
"""Takes the state of a key, or why it is not known."""

_log = logging.getLogger(__name__)


class StateHandler:
    """Judges states that come with acks, and reads states with the acks before.

    Args:
        key_states: the store's.
        cursor_writer: stores books, and with them states.
        rules: of a group.
        leases: of the brokers that live, as far as this one knows.
        spawn: runs what waits for the store.
    """

    def __init__(
        self,
        key_states: KeyStates,
        *,
        cursor_writer: CursorWriter,
        rules: Callable[[str], RedeliveryRules],
        leases: Callable[[], Mapping[BrokerId, LeaseRecord]],
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
    ) -> None:
        self.store = key_states
        self._cursor_writer = cursor_writer
        self._rules = rules
        self._leases = leases
        self._spawn = spawn
        self._unstored_bytes = 0
        self._room = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether so many states wait to be stored that nothing more is to be read from flows."""
        return self._unstored_bytes > MAX_UNSTORED_BYTES

    async def wait_for_room(self) -> None:
        """Wait until further states may be read from flows."""
        while self.is_full:
            self._room.clear()
            await self._room.wait()

    def waits(self, consumed: ConsumedPartition, again: Callable[[], object]) -> bool:
        """Say whether an ack without a state waits behind others, and then calls `again`.

        A cumulative one would do away with the message whose state waits.
        """
        states = consumed.states
        if not states.waiting or states.is_turn:
            return False
        states.waiting.append((None, again))
        return True

    def admit(
        self,
        consumed: ConsumedPartition,
        frame: frames.Ack,
        answer: Answer,
        again: Callable[[], object],
    ) -> Answer | None:
        """Return what answers an ack with a state, which may be counted now.

        None: it was refused, or waits for a look at the store, and then calls `again`.
        """
        key, state, rules = frame.state_key or "", frame.state, self._rules(consumed.group)
        states = consumed.states
        refusal = self._problem(consumed, "ack")
        if refusal is not None:
            answer(refusal)
            return None
        size = len(key) + len(state or b"")
        if states.waiting and not states.is_turn:
            states.waiting.append((key, self._counted(size, again)))
            return None
        if state is not None and not states.has_room(key, rules.max_states):
            if states.is_turn:
                answer(_full(consumed, key, rules.max_states))
            else:
                self._wait(consumed, key, self._counted(size, again))
            return None
        self._unstored_bytes += size

        def answered(error: PartqError | None) -> None:
            self._unstored_bytes -= size
            self._room.set()
            answer(error)

        return answered

    def leave(
        self, consumed: ConsumedPartition, frame: frames.Ack, answer: Answer, *, has_more: bool
    ) -> None:
        """Have the state of a session stored without an ack; `admit` has returned `answer`.

        Args:
            consumed: the partition of the session.
            frame: the state.
            answer: called once it is stored, or is refused.
            has_more: the session has open messages there, or unread ones: then the partition has
                the states. Else they may be on their way to another one: then the store refuses it.
        """
        key = frame.state_key or ""
        guard = None if has_more else StateGuard(slot_of(key))

        def answered(error: PartqError | None) -> None:
            if error is None and guard is not None and guard.is_refused:
                error = SessionLostError(
                    f"session {excerpt(key)}: it goes on in another partition, and nothing of it "
                    "is left in this one; its state was not changed: accept it again"
                )
            answer(error)

        consumed.states.put(key, frame.state, guard)
        self._cursor_writer.notice(consumed, answered)

    def read(
        self,
        consumed: ConsumedPartition,
        key: str,
        answer: StateAnswer,
        again: Callable[[], object],
    ) -> None:
        """Answer with the state of a key, as the acks that came before have left it."""
        states = consumed.states
        refusal = self._problem(consumed, "state")
        if refusal is not None:
            answer(refusal)
        elif states.waiting and not states.is_turn:
            states.waiting.append((key, again))
        elif (found := states.find(key)) is not ...:
            answer(found)
        else:
            self._spawn(self._read(consumed, key, answer), "read the state of a key")

    async def find(self, consumed: ConsumedPartition, key: str) -> bytes | None:
        """Return the state of a key, as the acks that came before have left it.

        Raises:
            StoreUnavailableError: no answer.
        """
        found: bytes | EllipsisType | None = consumed.states.find(key)
        if found is not ...:
            return found
        return await self.store.read(consumed.partition, consumed.group, key)

    async def _read(self, consumed: ConsumedPartition, key: str, answer: StateAnswer) -> None:
        """Read a state until the store answers: the acks before it wait in the same way."""
        while not consumed.is_dropped:
            try:
                answer(await self.store.read(consumed.partition, consumed.group, key))
            except PartqError as error:
                _log.warning("%s: a state could not be read: %s", consumed.partition, error)
                await asyncio.sleep(WRITE_RETRY_S)
            else:
                return
        answer(_ended(consumed))

    def _problem(self, consumed: ConsumedPartition, call: str) -> PartqError | None:
        """Return why the group has no states; None: it may have some."""
        if self._rules(consumed.group).takes_turns:
            return BadRequestError(
                f"{call}: partition {consumed.partition} of {consumed.group}: got a state of a "
                "key in a group of the type Shared, where messages of a key go to any member in "
                "any order; nothing was changed: use a group of the type KeyShared, or leave the "
                "state out"
            )
        if self._rules(consumed.group).order is NackOrder.FREE:
            return BadRequestError(
                f"{call}: partition {consumed.partition} of {consumed.group}: got a state of a "
                "key, and the group's `nack.order` is Free, where messages of a key may overtake "
                "each other; expected Ordered or Key; nothing was changed: change the order, or "
                "leave the state out"
            )
        lacking = lacking_states(self._leases())
        if lacking:
            return UnavailableError(
                f"{call}: {', '.join(lacking[:3])} of the queue's brokers: of an earlier version, "
                "which would lose states of keys; nothing was changed: update all brokers first",
                retry_after_s=1.0,
            )
        return None

    def _counted(self, size: int, again: Callable[[], object]) -> Callable[[], object]:
        """Return `again`; until it is called, the state that waits counts as not stored."""
        self._unstored_bytes += size

        def counted() -> None:
            self._unstored_bytes -= size
            self._room.set()
            again()

        return counted

    def _wait(self, consumed: ConsumedPartition, key: str, again: Callable[[], object]) -> None:
        consumed.states.waiting.append((key, again))
        self._spawn(self._count(consumed), "count states of keys")

    async def _count(self, consumed: ConsumedPartition) -> None:
        """Carry out what waits, in its order: the bound is near, so the store is asked."""
        states = consumed.states
        while states.waiting:
            key, again = states.waiting[0]
            looked_at = None
            try:
                if key is not None:
                    # What is not stored yet may be new, or in the place of others: nobody knows.
                    await self._cursor_writer.store(consumed)
                    count = await self.store.count_without(consumed.partition, consumed.group, key)
                    looked_at = key, count
            except PartqError as error:
                _log.warning("%s: states could not be counted: %s", consumed.partition, error)
                if not consumed.is_dropped:
                    await asyncio.sleep(WRITE_RETRY_S)
                    continue
                # It is refused, as its token has ended.
            states.waiting.popleft()
            states.looked_at, states.is_turn = looked_at, True
            try:
                again()
            finally:
                states.looked_at, states.is_turn = None, False


def _full(consumed: ConsumedPartition, key: str, most: int) -> StatesFullError:
    return StatesFullError(
        f"partition {consumed.partition} of {consumed.group}: {most:,} keys have a state, as many "
        "as `ack.maxStates` of the group allows (`session.maxSessions` in the type Session), and a "
        "further one came with an ack; nothing was acknowledged: acknowledge with state None what "
        "is done with a key, or raise the bound"
    )


def _ended(consumed: ConsumedPartition) -> FencedError:
    return FencedError(
        f"partition {consumed.partition} of {consumed.group}: it went to another broker before the "
        "state was read; stop working on its messages, they are redelivered"
    )
