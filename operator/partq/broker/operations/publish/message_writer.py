"""Stores the messages of one plain request, here or at the brokers that own their partitions.

Messages without numbers: after a refused one all later ones of its partition are refused, but for
those without a key, which go to another partition while theirs is unavailable. With numbers,
each key is a separate series: after a refused one all later ones of its key are.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain

from partq.aio import resolve
from partq.broker.broker import Broker
from partq.broker.operations.publish.message_forwarder import (
    PRODUCER,
    Forwarding,
    MessageForwarder,
    MessagePlace,
    Outcome,
    StorableMessage,
)
from partq.broker.operations.publish.quota_refusal import quota_refusal
from partq.broker.operations.publish.request_partitioner import RequestPartitioner
from partq.core.model import PartitionId
from partq.core.numbering.message_ids import id_digest
from partq.core.numbering.scheduled_ids import AT_ONCE, DueTime, ScheduledId
from partq.core.producer_series import runs, series_name
from partq.errors import (
    NotOwnerError,
    NotStoredError,
    NumberReusedError,
    OutcomeUnknownError,
    OutOfSequenceError,
    PartqError,
    ResendFromError,
    StaleGenerationError,
    UnknownPartitionError,
    UnknownProducerError,
    WrongPartitionError,
)
from partq.excerpts import excerpt
from partq.store.records.log import AppendResult
from partq.wire import batch

PLACES = 3
"""How often a message of a request is placed: each change of the layout may place it again."""
ANSWER_TIMEOUT_S = 10.0
"""Seconds that the store may take to answer; after that the outcome of a message is unknown."""

MISPLACED = (StaleGenerationError, WrongPartitionError, UnknownPartitionError, NotOwnerError)
"""By which an owner says that the layout may be another one than the message was placed by."""

Series = tuple[PartitionId, str | None]
"""The unit that is refused behind a refused message: a key, or all messages without numbers."""


class MessageWriter:
    """The messages of one request, and what became of them.

    Args:
        broker: that got them.
        forwarding: to other brokers.
        producer: whose numbers they carry; empty: they have none.
        count: how many there are.
        ttl_ms: how long they may wait to be delivered; 0: no limit.
        age_ms: how long ago they were first sent; 0: never before, or nobody says.
        is_whole: whether one write stores all of them, or none; they have one key.
        due: when they are to be stored in the log.
    """

    def __init__(
        self,
        broker: Broker,
        forwarding: Forwarding,
        producer: str,
        count: int,
        *,
        ttl_ms: int,
        age_ms: int,
        is_whole: bool = False,
        due: DueTime = AT_ONCE,
    ) -> None:
        self._broker = broker
        self._is_whole = is_whole
        self._forwarder = MessageForwarder(
            broker, forwarding, producer, ttl_ms=ttl_ms, age_ms=age_ms, due=due
        )
        self._producer = producer
        self._ttl_ms = ttl_ms
        self._age_ms = age_ms
        self._due = due
        self._outcomes: list[Outcome | None] = [None] * count
        self._rows: dict[PartitionId, list[StorableMessage]] = {}
        self._refused: dict[Series, PartqError] = {}
        self._revision = broker.config.layout.revision
        """Of the layout that the messages are placed by."""
        self._places_left = PLACES - 1

    def refuse(self, at: int, error: PartqError) -> None:
        """Note that a message cannot be stored, and has no partition behind which others wait."""
        self._outcomes[at] = error

    def add(self, row: StorableMessage, partition: PartitionId) -> None:
        """Note a message that is to be stored."""
        self._rows.setdefault(partition, []).append(row)

    def series(self, partition: PartitionId, key: str | None) -> Series:
        """Return what a message belongs to."""
        return partition, key if self._producer else None

    def refuse_series(self, at: int, series: Series, error: PartqError) -> None:
        """Note that a message cannot be stored, nor those behind it."""
        self._outcomes[at] = error
        self._refused.setdefault(series, error)

    def is_refused(self, at: int, series: Series) -> bool:
        """Refuse a message if an earlier one of its series was; return whether that is so."""
        error = self._refused.get(series)
        if error is not None:
            self._outcomes[at] = _after(error, series[0])
        return error is not None

    async def run(self, placing: RequestPartitioner) -> list[Outcome]:
        """Store what was added, each series in order; return the outcome of each message."""
        now = asyncio.get_running_loop().time
        by = now() + ANSWER_TIMEOUT_S
        while self._rows:
            rows, self._rows = self._rows, {}
            await asyncio.gather(*(self._partition(p, mine) for p, mine in rows.items()))
            if now() < by:
                await self._add_again(rows)
            if now() < by and not self._rows:
                self._add_elsewhere(rows, placing)
        return [outcome for outcome in self._outcomes if outcome is not None]

    async def _add_again(self, rows: Mapping[PartitionId, list[StorableMessage]]) -> None:
        """Place messages by the layout as it is now, if it has changed since they were placed.

        They are certainly not stored, nor is anything behind them in their series.
        """
        misplaced = [
            row
            for mine in rows.values()
            for row in mine
            if self._is_misplaced(self._outcomes[row.at])
        ]
        if not misplaced or not self._places_left:
            return
        self._places_left -= 1
        broker = self._broker
        try:
            if broker.config.layout.revision == self._revision:
                if (await broker.layouts.read()).layout.revision == self._revision:
                    return
                await broker.refresh()
        except PartqError:
            return  # what the owners have said remains the answer
        layout = broker.config.layout
        self._revision = layout.revision
        for row in misplaced:
            self.add(row, layout.partition_of(row.slot))
        if any(p not in broker.owned and broker.claims.owner_url(p) is None for p in self._rows):
            with suppress(PartqError):
                await broker.claims.refresh()  # new partitions have owners since a moment ago

    @staticmethod
    def _is_misplaced(outcome: Outcome | None) -> bool:
        """Whether a message, or one before it in its series, has to be placed again."""
        return isinstance(outcome, MISPLACED) or (
            isinstance(outcome, NotStoredError) and isinstance(outcome.__cause__, MISPLACED)
        )

    def _add_elsewhere(
        self, rows: Mapping[PartitionId, list[StorableMessage]], placing: RequestPartitioner
    ) -> None:
        """Give another partition to those that may have one, and are certainly not stored."""
        left = {
            partition: found
            for partition, mine in rows.items()
            if (found := [row for row in mine if row.may_move and self._is_not_stored(row)])
        }
        placing.avoid(left.keys())
        if placing.has_choice:
            for row in chain.from_iterable(left.values()):
                slot = placing.draw()
                partition = self._broker.config.layout.partition_of(slot)
                self.add(replace(row, slot=slot), partition)

    def _is_not_stored(self, row: StorableMessage) -> bool:
        return isinstance(self._outcomes[row.at], NotStoredError | NotOwnerError)

    async def _partition(self, partition: PartitionId, rows: list[StorableMessage]) -> None:
        # What was refused before anything is stored lies behind every row that was added.
        refused: dict[Series, PartqError] = {}
        for chunk in _chunks(rows):
            due: list[StorableMessage] = []
            for row in chunk:
                error = refused.get(self.series(partition, row.message.key))
                if error is None:
                    due.append(row)
                else:
                    self._outcomes[row.at] = _after(error, partition)
            try:
                outcomes = await self._chunk(partition, due) if due else []
            except PartqError as failure:
                outcomes = [failure] * len(due)
            for row, outcome in zip(due, outcomes, strict=True):
                self._outcomes[row.at] = outcome
                if isinstance(outcome, PartqError):
                    first = refused.setdefault(self.series(partition, row.message.key), outcome)
                    if first is not outcome and isinstance(outcome, NotStoredError):
                        outcome.__cause__ = first  # as another broker says of those behind it

    async def _chunk(
        self, partition: PartitionId, rows: list[StorableMessage]
    ) -> Sequence[Outcome]:
        try:
            self._broker.find(partition)
        except NotOwnerError:
            return await self._forwarder.forward(partition, rows)
        if not self._producer:
            return await self._store_parts(partition, _by_id(rows))
        by_key: dict[str, list[StorableMessage]] = {}
        for row in rows:
            by_key.setdefault(row.message.key or "", []).append(row)
        found = await asyncio.gather(
            *(self._store_series(partition, key, mine) for key, mine in by_key.items())
        )
        of_row = {row.at: outcome for each in found for row, outcome in each}
        return [of_row[row.at] for row in rows]

    async def _store_series(
        self, partition: PartitionId, key: str, rows: list[StorableMessage]
    ) -> list[tuple[StorableMessage, Outcome]]:
        """Store the numbered messages of one key, one run of numbers after another."""
        series = series_name(self._producer, key)
        parts = [
            part
            for run in runs([row.number for row in rows])
            for part in _by_id(rows[run.start : run.stop])
        ]
        return list(zip(rows, await self._store_parts(partition, parts, series), strict=True))

    async def _store_parts(
        self, partition: PartitionId, parts: list[list[StorableMessage]], series: str = ""
    ) -> list[Outcome]:
        """Store messages, each part as one batch, until one is refused."""
        outcomes: list[Outcome] = []
        error: PartqError | None = None
        for part in parts:
            if error is not None:
                outcomes += [_after(error, partition)] * len(part)
                continue
            try:
                outcomes += await self._store_run(partition, part, series)
            except PartqError as failure:
                error = failure
                outcomes += [failure] * len(part)
        return outcomes

    async def _store_run(
        self, partition: PartitionId, rows: list[StorableMessage], series: str
    ) -> Sequence[Outcome]:
        try:
            return await self._store(partition, rows, series)
        except ResendFromError as error:
            if self._is_whole:
                raise
            # The first of them are stored: they are answered for themselves, and the rest follows.
            known = (error.due or 0) - rows[0].number
            return [
                *await self._store(partition, rows[:known], series),
                *await self._store(partition, rows[known:], series),
            ]

    async def _store(
        self, partition: PartitionId, rows: list[StorableMessage], series: str = ""
    ) -> Sequence[Outcome]:
        """Store messages as one batch; `series`: under which name they are numbered."""
        data = batch.encode(
            [batch.encode_message(row.message) for row in rows], [row.slot for row in rows]
        )
        await self._broker.layout_follower.wait_until_open(partition)
        carried = None
        if series:
            carried = await self._broker.carry_over.find(partition, series, rows[0].slot)
        if carried is not None:
            digest = batch.digest(data, batch.read_header(data))
            known = carried.judge(rows[0].number, len(rows), digest)
            if known is not None:
                return self._places(known, carried.partition, rows)
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[AppendResult | PartqError] = loop.create_future()
        moves = NotStoredError(
            f"partition {partition}: it moves to another broker; publish again", retry_after_s=1.0
        )
        try:
            self._broker.publish(
                partition,
                data,
                producer=series,
                first=rows[0].number if series else 0,
                reply=partial(resolve, answered),
                ttl_ms=self._ttl_ms,
                age_ms=self._age_ms,
                start=carried.due if carried is not None else -1,
                due_ms=self._due.due_ms,
                after_ms=self._due.after_ms,
                message_id=id_digest(rows[0].message_id) if rows[0].message_id else "",
            )
        except NotOwnerError:
            raise moves from None
        except PartqError as error:
            self._broker.metrics.refused(error.code)
            raise
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                result = await answered
        except TimeoutError:
            raise OutcomeUnknownError(
                f"partition {partition}: no answer of the store within {ANSWER_TIMEOUT_S:g} s; "
                "the messages may be stored: publish again, numbered if they may not be twice"
            ) from None
        if isinstance(result, NotOwnerError):
            raise moves
        if isinstance(result, PartqError):
            self._broker.metrics.refused(result.code)
            raise result
        return self._places(result, partition, rows)

    def _places(
        self, result: AppendResult, partition: PartitionId, rows: list[StorableMessage]
    ) -> Sequence[Outcome]:
        """Return where messages are stored that were judged as one batch.

        Raises:
            PartqError: they are not.
        """
        scheduled = str(ScheduledId(partition, result.entry)) if result.entry > 0 else ""
        if result.status in {"known_id", "parked"}:
            is_known = result.status == "known_id"
            place = MessagePlace(partition, None, is_known, scheduled, result.due_ms)
            return [place] * len(rows)
        if result.status not in {"stored", "duplicate"}:
            refusal = _refusal(self._broker, result, partition, rows[0])
            self._broker.metrics.refused(refusal.code)
            raise refusal
        is_duplicate = result.status == "duplicate"
        return [
            MessagePlace(
                *(partition, result.offset + at if result.offset >= 0 else None, is_duplicate),
                scheduled=scheduled,
            )
            for at in range(len(rows))
        ]


def _by_id(rows: list[StorableMessage]) -> list[list[StorableMessage]]:
    """Cut rows so that each message with an id stands alone."""
    parts: list[list[StorableMessage]] = []
    for row in rows:
        if not parts or row.message_id or parts[-1][-1].message_id:
            parts.append([])
        parts[-1].append(row)
    return parts


def _chunks(rows: list[StorableMessage]) -> list[list[StorableMessage]]:
    """Cut rows so that each part fits a batch."""
    chunks: list[list[StorableMessage]] = []
    size = 0
    for row in rows:
        length = len(batch.encode_message(row.message))
        if not chunks or size + length > batch.MAX_BATCH_BYTES:
            chunks.append([])
            size = 0
        chunks[-1].append(row)
        size += length
    return chunks


def _refusal(
    broker: Broker, result: AppendResult, partition: PartitionId, row: StorableMessage
) -> PartqError:
    """Return the error of a batch that the store has judged and not taken."""
    where = f"partition {partition}, key {excerpt(row.message.key or '')!r}: number {row.number}"
    match result.status:
        case "out_of_sequence":
            return OutOfSequenceError(
                f"{where} came, {result.due} is due; send again from there", due=result.due
            )
        case "resend_from":
            return ResendFromError(
                f"{where} came, and those below {result.due} are stored; send again from there",
                due=result.due,
            )
        case "number_reused":
            return NumberReusedError(
                f"{where} came before with another message, which is stored; this one is not: "
                f"send it under {result.due}"
            )
        case "unknown_producer":
            return UnknownProducerError(
                f"{where} came, and nothing is known of this {PRODUCER} and key (idle for a day, "
                "pushed out by others, or never begun at 0), so not whether the message is "
                "stored: check whether it is, or take the risk of a duplicate; begin again at 0"
            )
        case _:
            return quota_refusal(broker, partition, result)


def _after(error: PartqError, partition: PartitionId) -> PartqError:
    refusal = NotStoredError(
        f"partition {partition}: an earlier message of it in this request was not stored "
        f"({error.code}); publish this one after it"
    )
    refusal.__cause__ = error
    return refusal
