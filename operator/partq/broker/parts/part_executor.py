"""The broker's part of moves of parts: the commit in Redis, then in memory."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from weakref import WeakValueDictionary

from partq.aio import UntilAnswered
from partq.broker.partition.consumed_partition import ConsumedPartition, FlowPort
from partq.broker.parts.partition_shares import PartitionShares
from partq.broker.parts.range_check import RangeCheck
from partq.broker.parts.turn_shares import TurnShares
from partq.core.cursor.redelivery_rules import RedeliveryRules
from partq.core.group.moves import Forced
from partq.core.lanes.shared_book import SharedBook
from partq.core.layout import Layout
from partq.core.model import BrokerEpoch, Epoch, MemberId, PartitionId
from partq.core.parts.part_owners import PartMove, PartOwners
from partq.core.sessions.session_book import SessionBook
from partq.core.turns.turn_book import TurnBook
from partq.core.turns.turns import TurnOrder
from partq.errors import (
    AttemptRefusedError,
    BadRequestError,
    ConflictError,
    FencedError,
    PartqError,
    StoreUnavailableError,
    UnavailableError,
    UnknownGroupError,
)
from partq.excerpts import excerpt
from partq.store.records.part_records import CommitPartsResult, PartRecords
from partq.store.retries import WRITE_RETRY_S

MAX_DRAIN_S = 3600.0
"""The longest that the member of a part may keep what it has when the part moves."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PartCommit:
    """A part that is to move, as a coordinator asks for it."""

    move: PartMove
    epoch: Epoch
    """Of the group in the partition, as the coordinator has seen it."""
    drain_s: float


class PartExecutor:
    """Carries out the moves of parts of partitions that are owned here."""

    def __init__(
        self,
        part_records: PartRecords,
        *,
        clock: Callable[[], float],
        layout: Callable[[], Layout | None],
        log_end: Callable[[PartitionId], int],
        rules: Callable[[str], RedeliveryRules],
        find_flow: Callable[[str, MemberId], FlowPort | None],
        on_lost: Callable[[ConsumedPartition, PartqError], None],
    ) -> None:
        self._part_records = part_records
        self._clock = clock
        self._layout = layout
        self._log_end = log_end
        self._rules = rules
        self.range_check = RangeCheck(layout, rules)
        """Of what members declare as they bind."""
        self._find_flow = find_flow
        self._turn_orders = WeakValueDictionary[str, TurnOrder[FlowPort]]()
        """Of Shared groups; one is forgotten with the group's last partition here."""
        self._on_lost = on_lost

    def shares_of(self, consumed: ConsumedPartition) -> PartitionShares | TurnShares | None:
        """Return the shares of a partition; None: its group shares no partitions out.

        Raises:
            UnavailableError: the layout was not read yet, so nobody knows the slots of parts.
        """
        if not isinstance(consumed.book, SharedBook) or isinstance(consumed.book, SessionBook):
            return None
        shares = consumed.shares
        if isinstance(consumed.book, TurnBook):
            if not isinstance(shares, TurnShares):
                end_of = partial(self._log_end, consumed.partition)
                order = self._turn_orders.setdefault(consumed.group, TurnOrder())
                shares = consumed.shares = TurnShares(consumed, end_of, order)
            return shares
        if not isinstance(shares, PartitionShares):
            layout = self._layout()
            if layout is None or consumed.partition not in layout:
                raise UnavailableError(
                    f"partition {consumed.partition}: this broker has not read the layout that has "
                    "it yet; ask again",
                    retry_after_s=1.0,
                )
            parts = self._rules(consumed.group).parts or 1
            slots = layout.first_slots(consumed.partition)
            shares = consumed.shares = PartitionShares(consumed, slots, parts)
        return shares

    async def commit(
        self,
        consumed: ConsumedPartition,
        broker_epoch: BrokerEpoch,
        commits: Mapping[int, PartCommit],
    ) -> dict[int, Epoch | PartqError]:
        """Give parts to members; return of each the epoch from then on, or why it stays.

        `commits`: by the number of the part. A repeat is answered as it was the first time.

        Raises:
            FencedError, UnknownGroupError: the partition or the group is not served here; nothing
                was changed.
            ConflictError: the group shares no partitions out.
        """
        for each in commits.values():
            _check(each)
        async with consumed.lock:
            if broker_epoch != consumed.broker_epoch or consumed.is_dropped:
                raise FencedError(
                    f"partition {consumed.partition}: broker epoch {broker_epoch} has ended; it is "
                    f"{consumed.broker_epoch}: read the broker's state and plan again"
                )
            shares = self.shares_of(consumed)
            if not isinstance(shares, PartitionShares):
                raise ConflictError(
                    f"partition {consumed.partition} of {consumed.group}: got a move of a part, "
                    "but this broker knows the group as one of another type than KeyShared; "
                    "repeat the call"
                )
            last = max(shares.round, consumed.epoch)  # a reset has raised that of the record alone
            # One below its birth was seen of a group that was removed since, of the same name.
            known = {p: c for p, c in commits.items() if consumed.born <= c.epoch <= last}
            moves = [each.move for each in known.values()]
            result = await self._commit_until_answered(consumed, shares, moves)
            before = shares.owners
            for move in moves:
                if move.part in result.refused and _fits(before, move):
                    # The record differs from memory, as after a store that lost writes: it wins.
                    refusal = self._answer(consumed, move.part, result)
                    assert isinstance(refusal, PartqError)  # noqa: S101 - it was refused
                    self._on_lost(consumed, refusal)
                    break
            passed = [
                move
                for move in moves
                if move.part in result.passed and before.attempts[move.part] != move.attempt
            ]
            if passed and not consumed.is_dropped:
                now = self._clock()
                until = [now + commits[move.part].drain_s for move in passed]
                shares.move(passed, result.epoch, until, self._flow_of(consumed.group))
                _log.info(
                    "%s of %s: parts moved under epoch %d: %s",
                    *(consumed.partition, consumed.group, result.epoch),
                    ", ".join(f"{move.part} to {move.target}" for move in passed),
                )
            return {
                part: self._answer(consumed, part, result) if part in known else _unknown(consumed)
                for part in commits
            }

    def _flow_of(self, group: str) -> Callable[[MemberId], FlowPort | None]:
        return lambda member: self._find_flow(group, member)

    def _answer(
        self, consumed: ConsumedPartition, part: int, result: CommitPartsResult
    ) -> Epoch | PartqError:
        if part in result.passed:
            return consumed.epoch
        return AttemptRefusedError(
            f"partition {consumed.partition}, part {part} of {consumed.group}: "
            f"{result.refused[part]}; read the broker's state and plan again under a new attempt"
        )

    async def _commit_until_answered(
        self,
        consumed: ConsumedPartition,
        shares: PartitionShares,
        moves: Sequence[PartMove],
    ) -> CommitPartsResult:
        until_answered = UntilAnswered(_log, WRITE_RETRY_S)
        while True:
            try:
                return await self._part_records.commit_parts(
                    consumed.partition,
                    consumed.group,
                    broker_epoch=consumed.broker_epoch,
                    born=consumed.born,
                    count=shares.owners.count,
                    epoch=max(shares.round, consumed.epoch),
                    moves=moves,
                )
            except (FencedError, UnknownGroupError) as error:
                self._on_lost(consumed, error)
                raise
            except StoreUnavailableError as error:
                # The same script with the same attempts finds out whether it went through.
                await until_answered.failed(
                    "moves of parts of %s: %s; asking again", consumed.partition, error
                )
                if consumed.is_dropped:
                    raise


def _check(commit: PartCommit) -> None:
    if not 0 <= commit.drain_s <= MAX_DRAIN_S:
        raise BadRequestError(
            f"part {commit.move.part}: drain of {commit.drain_s:g} s; expected 0 to "
            f"{MAX_DRAIN_S:g} s"
        )
    forced = commit.move.forced
    if forced and forced not in tuple(Forced):
        raise BadRequestError(
            f"part {commit.move.part}: cause {excerpt(forced)!r}; expected one of "
            f"{', '.join(Forced)}"
        )


def _fits(owners: PartOwners, move: PartMove) -> bool:
    """Say whether a move could be carried out, as far as memory knows."""
    part = move.part
    return (
        part < owners.count
        and owners.owner(part) == move.source
        and move.attempt > owners.attempts[part]
    )


def _unknown(consumed: ConsumedPartition) -> AttemptRefusedError:
    return AttemptRefusedError(
        f"partition {consumed.partition} of {consumed.group}: got an epoch that is not between "
        f"{consumed.born}, when the group began, and {consumed.epoch}, which is the last one here; "
        "read the broker's state, then plan again"
    )
