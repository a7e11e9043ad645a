"""Calls of a coordinator at a broker: state, pause, drain, commit, cancel, claim, yield.

A call names many partitions and is answered for each on its own. How it came is not known here.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from partq.broker.broker import Broker
from partq.broker.partition import mended
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.broker.partition.key_counts import count_keys
from partq.broker.partition.owned_partition import OwnedPartition
from partq.broker.parts.part_executor import PartCommit
from partq.broker.parts.partition_shares import PartitionShares
from partq.broker.parts.turn_shares import TurnShares
from partq.broker.sessions.session_shares import SessionShares
from partq.core.cursor.lag import lag_of
from partq.core.group.group_type import GroupType
from partq.core.group.observation import NO_EPOCH
from partq.core.model import BrokerEpoch, Epoch, MemberId, PartitionId
from partq.core.parts.part_owners import PartMove
from partq.errors import (
    BadRequestError,
    BatchTooLargeError,
    ConflictError,
    FencedError,
    NotOwnerError,
    PartqError,
    UnavailableError,
)
from partq.excerpts import excerpt
from partq.store.refusals import unknown_partition
from partq.wire.calls.answers import (
    UNSET,
    ClaimResult,
    ClaimResults,
    CommitResult,
    CommitResults,
    DrainResult,
    DrainResults,
    PartitionResult,
    PartitionResults,
    UnsetType,
)
from partq.wire.calls.bodies import (
    MAX_DRAIN_WAIT_MS,
    Cancels,
    CommitItem,
    Commits,
    DrainItem,
    Drains,
    PartitionName,
    PartitionNames,
    PauseItem,
    Pauses,
)
from partq.wire.calls.group.parts import (
    PartCommitItem,
    PartCommits,
    PartResult,
    PartResults,
    PartsDetail,
)
from partq.wire.calls.replies import error_detail
from partq.wire.calls.state import (
    BrokerState,
    FlowDetail,
    GroupDetail,
    LostFlowDetail,
    PartitionDetail,
    SessionCounts,
)

MAX_ITEMS = 65_536
DEADLINE_POLL_S = 0.05

Item = TypeVar("Item", bound=PartitionName)
Result = TypeVar("Result", bound=PartitionResult)


def state(broker: Broker) -> BrokerState:
    """Show which partitions the broker owns and which members are bound."""
    now = broker.clock()
    flow_registry = broker.flow_registry
    return BrokerState(
        broker=broker.id,
        incarnation=broker.incarnation,
        partitions={
            str(owned.id): PartitionDetail(
                broker_epoch=owned.broker_epoch,
                held_s=now - owned.claimed_at,
                end=owned.tail.end,
                opened_after_s=UNSET if owned.opened_after_s is None else owned.opened_after_s,
                groups={
                    each.group: _detail(broker, owned, each, now) for each in owned.groups.values()
                },
            )
            for owned in broker.owned.values()
            if not owned.is_yielding
        },
        flows=flow_details(broker),
        lost_flows=[
            LostFlowDetail(
                group=lost.group,
                member=lost.member,
                incarnation=lost.incarnation,
                lost_s=now - lost.lost_at,
                is_leaving=lost.is_leaving,
                priority=lost.priority,
                ranges=list(lost.ranges) or UNSET,
            )
            for lost in flow_registry.lost
        ],
        is_quota_used_up=broker.quota.is_quota_used_up,
    )


def flow_details(broker: Broker) -> list[FlowDetail]:
    """Return every flow of the broker, with what it has where no partition has a member."""
    now = broker.clock()
    turns, sessions = Counter[object](), Counter[object]()
    for owned in broker.owned.values():
        for each in owned.groups.values():
            if isinstance(each.shares, TurnShares):
                turns.update(each.shares.waiting)
            elif isinstance(each.shares, SessionShares):
                sessions.update(share.flow for share in each.shares.holders())
    types = broker.config.types
    return [
        FlowDetail(
            group=flow.group,
            member=flow.member,
            incarnation=flow.incarnation,
            address=flow.address,
            flow=flow.number,
            is_leaving=flow.is_leaving,
            kind=flow.kind,
            bound_s=now - flow.bound_at,
            unacked=flow.credit.unacked,
            credit=max(0, flow.credit.left) if types.get(flow.group) == GroupType.SHARED else UNSET,
            turns=turns[flow] if types.get(flow.group) == GroupType.SHARED else UNSET,
            sessions=sessions[flow] if types.get(flow.group) == GroupType.SESSION else UNSET,
            priority=flow.priority,
            ranges=list(flow.ranges) or UNSET,
        )
        for flow in broker.flow_registry.flows
    ]


async def pause(broker: Broker, group: str, body: Pauses) -> DrainResults:
    """Pause partitions, or renew their pauses."""

    async def pause_one(item: PauseItem) -> DrainResult:
        consumed = _find(broker, item.partition, group)
        broker.handoffs.pause(
            consumed,
            broker_epoch=BrokerEpoch(item.broker_epoch),
            epoch=Epoch(item.epoch),
            attempt=item.attempt,
            lease_s=item.lease_ms / 1000,
            drain_s=item.drain_ms / 1000,
        )
        result = _drain_result(item, consumed)
        await _await_record(consumed)
        return result

    return DrainResults(await _each(body.pauses, pause_one, DrainResult))


async def drain(broker: Broker, group: str, body: Drains) -> DrainResults:
    """Wait until one of the pauses is drained or over.

    Raises:
        BadRequestError: the time to wait is out of range.
    """
    if not 0 <= body.wait_ms <= MAX_DRAIN_WAIT_MS:
        raise BadRequestError(f"wait_ms {excerpt(body.wait_ms)}; expected 0 to {MAX_DRAIN_WAIT_MS}")
    until = broker.clock() + body.wait_ms / 1000

    def record_end(item: DrainItem, consumed: ConsumedPartition) -> bool:
        return broker.handoffs.record_drain_end(
            consumed,
            broker_epoch=BrokerEpoch(item.broker_epoch),
            epoch=Epoch(item.epoch),
            attempt=item.attempt,
        )

    def is_over(item: DrainItem) -> bool:
        try:
            return record_end(item, _find(broker, item.partition, group))
        except PartqError:
            return True

    while (left := until - broker.clock()) > 0 and not any(map(is_over, body.drains)):
        # A drain also ends by time, which nobody announces.
        await broker.drain_signal.wait_at_most(min(left, DEADLINE_POLL_S))

    async def answer(item: DrainItem) -> DrainResult:
        consumed = _find(broker, item.partition, group)
        record_end(item, consumed)
        result = _drain_result(item, consumed)
        await _await_record(consumed)
        return result

    return DrainResults(await _each(body.drains, answer, DrainResult))


async def commit(broker: Broker, group: str, body: Commits) -> CommitResults:
    """Give partitions to their targets."""

    async def commit_one(item: CommitItem) -> CommitResult:
        closed = await broker.handoffs.commit(
            _find(broker, item.partition, group),
            broker_epoch=BrokerEpoch(item.broker_epoch),
            epoch=Epoch(item.epoch),
            attempt=item.attempt,
            source=MemberId(item.source) if item.source else None,
            target=MemberId(item.target) if item.target else None,
            forced=item.forced,
        )
        return CommitResult(item.partition, epoch=closed.epoch, was_forced=closed.was_forced)

    return CommitResults(await _each(body.commits, commit_one, CommitResult))


async def commit_parts(broker: Broker, group: str, body: PartCommits) -> PartResults:
    """Give parts of partitions to their targets."""
    _check_count(body.commits)
    by_call: dict[tuple[str, int], dict[int, PartCommit]] = {}
    for item in body.commits:
        of_partition = by_call.setdefault((item.partition, item.broker_epoch), {})
        if item.part in of_partition:
            raise BadRequestError(
                f"part {item.part} of partition {item.partition}: got two commits, expected one"
            )
        source, target = MemberId(item.source) or None, MemberId(item.target) or None
        move = PartMove(item.part, source, item.attempt, target, item.forced)
        of_partition[item.part] = PartCommit(move, Epoch(item.epoch), item.drain_ms / 1000)

    async def commit_one(
        call: tuple[str, int], commits: dict[int, PartCommit]
    ) -> dict[int, Epoch | PartqError]:
        name, broker_epoch = call
        try:
            consumed = _find(broker, name, group)
            epochs = await broker.part_executor.commit(consumed, BrokerEpoch(broker_epoch), commits)
            await _await_record(consumed)
        except PartqError as error:
            return dict.fromkeys(commits, error)
        return epochs

    answers = await asyncio.gather(*(commit_one(call, each) for call, each in by_call.items()))
    found = dict(zip(by_call, answers, strict=True))
    return PartResults(
        [
            _part_result(item, found[item.partition, item.broker_epoch][item.part])
            for item in body.commits
        ]
    )


def _part_result(item: PartCommitItem, answer: Epoch | PartqError) -> PartResult:
    if isinstance(answer, PartqError):
        return PartResult(item.partition, error_detail(answer), part=item.part)
    return PartResult(item.partition, part=item.part, epoch=answer)


async def cancel(broker: Broker, group: str, body: Cancels) -> PartitionResults:
    """Let the sources of handoffs continue."""

    async def cancel_one(item: DrainItem) -> PartitionResult:
        consumed = _find(broker, item.partition, group)
        broker.handoffs.cancel(
            consumed,
            broker_epoch=BrokerEpoch(item.broker_epoch),
            epoch=Epoch(item.epoch),
            attempt=item.attempt,
        )
        await _await_record(consumed)
        return PartitionResult(item.partition)

    return PartitionResults(await _each(body.cancels, cancel_one, PartitionResult))


async def claim(broker: Broker, body: PartitionNames) -> ClaimResults:
    """Own partitions that nobody owns.

    Raises:
        BatchTooLargeError: there are too many of them.
    """
    _check_count(body.partitions)
    # The records before the leases: `OwnedPartitions.claim` says why.
    records = await broker.partitions.read_many(_parsable(body.partitions))
    await broker.claims.refresh()
    living = broker.claims.observer.living(broker.clock())

    async def claim_one(item: PartitionName) -> ClaimResult:
        partition = _parse(item.partition)
        if partition not in broker.owned:
            record = records.get(partition)
            if record is None:
                raise unknown_partition(partition)
            if record.owner in living and record.owner != broker.id:
                raise ConflictError(
                    f"partition {partition}: {record.owner} owns it and lives; let it yield first"
                )
            await broker.ownership.claim(partition, record)
        return ClaimResult(item.partition, broker_epoch=broker.find(partition).broker_epoch)

    items = [PartitionName(name) for name in body.partitions]
    return ClaimResults(await _each(items, claim_one, ClaimResult))


async def yield_(broker: Broker, body: PartitionNames) -> PartitionResults:
    """Give partitions up."""

    async def yield_one(item: PartitionName) -> PartitionResult:
        await broker.ownership.give_up(_parse(item.partition))
        return PartitionResult(item.partition)

    items = [PartitionName(name) for name in body.partitions]
    return PartitionResults(await _each(items, yield_one, PartitionResult))


async def _each(
    items: Sequence[Item], work: Callable[[Item], Awaitable[Result]], kind: type[Result]
) -> list[Result]:
    """Do the work for every item side by side; one that fails holds up nothing else.

    Raises:
        BatchTooLargeError: there are too many of them.
    """
    _check_count(items)

    async def one(item: Item) -> Result:
        try:
            return await work(item)
        except PartqError as error:
            return kind(item.partition, error_detail(error))
        except TimeoutError:
            late = NotOwnerError(f"partition {item.partition}: not done in time; look again")
            return kind(item.partition, error_detail(late))

    return await asyncio.gather(*map(one, items))


def _check_count(items: Sequence[object]) -> None:
    if len(items) > MAX_ITEMS:
        raise BatchTooLargeError(f"body: {len(items)} partitions; at most {MAX_ITEMS} in a call")


def _parsable(names: Iterable[str]) -> Iterator[PartitionId]:
    for name in names:
        with suppress(ValueError):
            yield PartitionId.parse(name)


def _parse(name: str) -> PartitionId:
    try:
        return PartitionId.parse(name)
    except ValueError as error:
        raise BadRequestError(str(error)) from error


def _find(broker: Broker, name: str, group: str) -> ConsumedPartition:
    return broker.find(_parse(name)).find(group)


async def _await_record(consumed: ConsumedPartition) -> None:
    """Record what was done, before it is answered.

    Raises:
        FencedError: the partition was lost before that.
    """
    await consumed.settle_audit()
    if consumed.is_dropped:
        raise FencedError(
            f"partition {consumed.partition}: lost before the step was recorded; look again"
        )


def _detail(
    broker: Broker, owned: OwnedPartition, consumed: ConsumedPartition, now: float
) -> GroupDetail:
    book, lanes = consumed.book, consumed.keys
    lowest_parked = lanes.lowest_parked if lanes is not None else -1
    keys, pause = count_keys(owned.layout, consumed), consumed.pause
    return GroupDetail(
        member=consumed.member or "",
        incarnation=consumed.incarnation,
        epoch=consumed.epoch,
        attempt=consumed.closed_attempt,
        cursor=book.cursor,
        position=book.position,
        in_flight=book.in_flight,
        lag=lag_of(owned.tail.end, book.cursor, book.acked_pairs()),
        state=consumed.state,
        is_bound=consumed.flow is not None,
        parts=_parts(broker, consumed),
        pause_attempt=pause.attempt if pause is not None else 0,
        dead_letters=len(consumed.outbox.letters),
        blocked=consumed.blocked,
        missing=consumed.missing,
        parked=consumed.parked,
        is_withheld=any(held.is_withheld for held in consumed.holders()),
        gated_by=consumed.gated_by or UNSET,
        delayed=book.delayed,
        next_redelivery_ms=consumed.next_redelivery_ms(now),
        parked_keys=UNSET if lanes is None else keys.parked,
        blocked_keys=keys.blocked or UNSET,
        quarantined_keys=keys.quarantined or UNSET,
        lowest_parked=lowest_parked if lowest_parked >= 0 else UNSET,
        stands_still=book.stands_still or UNSET,
        order_waits=consumed.order_waits or UNSET,
        mended=mended.describe(owned, consumed.group),
        sessions=session_counts(broker, consumed),
        registered_s=_registered_s(consumed, now),
    )


def _parts(broker: Broker, consumed: ConsumedPartition) -> PartsDetail | UnsetType:
    """Return who has the parts of a partition; left out in groups that share none out."""
    try:
        shares = broker.part_executor.shares_of(consumed)
    except UnavailableError:
        return UNSET
    if not isinstance(shares, PartitionShares):
        return UNSET
    owners, bound = shares.owners, shares.bound_members()
    return PartsDetail(
        members=list(owners.members),
        bound=[member in bound for member in owners.members],
        of=list(owners.of),
        attempts=list(owners.attempts),
        draining=shares.draining(),
    )


def session_counts(broker: Broker, consumed: ConsumedPartition) -> SessionCounts | UnsetType:
    """Return how many sessions there are; left out in groups of other types."""
    shares = broker.sessions.shares_of(consumed)
    if shares is None:
        return UNSET
    waiting = broker.sessions.waiting(consumed.group)
    return SessionCounts(shares.book.open_count, len(shares.locks), waiting)


def _registered_s(consumed: ConsumedPartition, now: float) -> float | UnsetType:
    """Return how long coordinators could have known of the registration: the delay begins then."""
    if consumed.registered == NO_EPOCH:
        return UNSET
    if consumed.shown[0] != consumed.registered:
        consumed.shown = consumed.registered, now
    return now - consumed.shown[1]


def _drain_result(item: PartitionName, consumed: ConsumedPartition) -> DrainResult:
    return DrainResult(
        item.partition,
        in_flight=consumed.book.in_flight,
        is_drained=consumed.is_drained,
        last_delivered=consumed.book.position - 1,
    )
