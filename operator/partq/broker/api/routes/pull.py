"""Consuming by plain HTTP: pull, ack, nack, leave."""

import asyncio
from collections.abc import Sequence

from aiohttp import web

from partq.broker.api.app_keys import PEERS, PULLS
from partq.broker.api.endpoints import CONSUMERS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import caller_address
from partq.broker.api.owner_pulls import OWNER_PULLS, leave_all
from partq.broker.api.receipts import call_by_receipts
from partq.broker.delivery.flow import Flow
from partq.broker.operations.pull.acks import (
    ack_one,
    ack_outcome,
    extend_one,
    nack_one,
    partition_of,
)
from partq.broker.operations.pull.pulls import PullWait
from partq.broker.peers.peer_client import FORWARDED
from partq.core.model import MemberId
from partq.errors import (
    BatchTooLargeError,
    ConflictError,
    FencedError,
    MemberInUseError,
    MemberRefusedError,
    NotListedError,
    UnknownPartitionError,
)
from partq.wire.calls.answers import (
    UNSET,
    ItemResult,
    ItemResults,
    Left,
    NackResult,
    NackResults,
    PullAnswer,
)
from partq.wire.calls.bodies import (
    AckBody,
    AckItem,
    InProgressBody,
    LeaveQuery,
    NackBody,
    NackItem,
    PullBody,
)
from partq.wire.receipt import PulledReceipt

MAX_ACKS = 10_000
"""The most entries of a call that acknowledges or gives back."""
MAX_OFFSETS = 100_000
"""The most offsets in all entries of such a call."""

calls = Calls("pull")
PREFIX = "/v1/queues/{queue}/groups/{group}"


@calls.add(
    "POST",
    PREFIX + "/pull",
    roles=CONSUMERS,
    body=PullBody,
    answers={200: PullAnswer},
    errors=(ConflictError, FencedError, MemberInUseError, MemberRefusedError, NotListedError),
)
async def pull(call: EnteredCall, body: PullBody) -> web.Response:
    """Bind the member, if it is not, and deliver to it; for all brokers, if it asks for that."""

    async def here(asked: PullBody, wait: PullWait | None) -> PullAnswer:
        return await call.request.app[PULLS].pull(
            group=call.group,
            member=asked.member,
            incarnation=asked.incarnation,
            address=caller_address(call),
            max_messages=asked.max_messages,
            wait_ms=asked.wait_ms,
            last_answer=asked.last_answer,
            priority=asked.priority,
            ranges=asked.ranges,
            wait=wait,
        )

    if FORWARDED in call.request.headers:
        return json_response(await here(body, PullWait()))
    if body.all_brokers:
        return json_response(await call.request.app[OWNER_PULLS].pull(call, body, here))
    return json_response(await here(body, None))


@calls.add(
    "POST",
    PREFIX + "/acks",
    roles=CONSUMERS,
    body=AckBody,
    answers={200: ItemResults, 207: ItemResults},
    errors=(FencedError, UnknownPartitionError),
)
async def ack(call: EnteredCall, body: AckBody) -> web.Response:
    """Count acks; answer once they are stored."""
    if body.of_flow is not None:
        member, number, acks = body.of_flow
        _check_size("acks", [len(item.offsets) for item in acks])
        bound = _find_flow(call, member, number, acks)
        outcomes = await asyncio.gather(*(ack_one(call.broker, bound, item) for item in acks))
        return _results(ItemResults([ack_outcome(outcome) for outcome in outcomes]))

    async def apply_delivery(flow: Flow, receipt: PulledReceipt, offsets: list[int]) -> ItemResult:
        item = AckItem(
            str(receipt.partition),
            receipt.broker_epoch,
            receipt.epoch,
            receipt.delivery,
            offsets=offsets,
            key=body.key,
            state=body.state,
        )
        return ack_outcome(await ack_one(call.broker, flow, item))

    return _results(
        ItemResults(await call_by_receipts(call, body.receipts, body, ItemResult, apply_delivery))
    )


@calls.add(
    "POST",
    PREFIX + "/nacks",
    roles=CONSUMERS,
    body=NackBody,
    answers={200: NackResults, 207: NackResults},
    errors=(FencedError, UnknownPartitionError),
)
async def nack(call: EnteredCall, body: NackBody) -> web.Response:
    """Take messages back that could not be processed; answer once their counts are stored."""
    if body.of_flow is not None:
        member, number, nacks = body.of_flow
        _check_size("nacks", [len(item.offsets) for item in nacks])
        bound = _find_flow(call, member, number, nacks)
        outcomes = await asyncio.gather(*(nack_one(call.broker, bound, item) for item in nacks))
        return _results(NackResults(outcomes))

    async def apply_delivery(flow: Flow, receipt: PulledReceipt, offsets: list[int]) -> NackResult:
        item = NackItem(
            str(receipt.partition),
            receipt.broker_epoch,
            receipt.epoch,
            offsets,
            receipt.delivery,
            delay_ms=body.delay_ms,
            reason=body.reason,
            makes_dead_letters=body.makes_dead_letters,
            description=body.description,
        )
        return await nack_one(call.broker, flow, item)

    return _results(
        NackResults(await call_by_receipts(call, body.receipts, body, NackResult, apply_delivery))
    )


@calls.add(
    "POST",
    PREFIX + "/in-progress",
    roles=CONSUMERS,
    body=InProgressBody,
    answers={200: ItemResults, 207: ItemResults},
)
async def extend(call: EnteredCall, body: InProgressBody) -> web.Response:
    """Let the time for the acks of messages start again."""

    async def apply_delivery(flow: Flow, receipt: PulledReceipt, offsets: list[int]) -> ItemResult:
        return ack_outcome(await extend_one(call.broker, flow, receipt, offsets))

    return _results(
        ItemResults(await call_by_receipts(call, body.receipts, body, ItemResult, apply_delivery))
    )


@calls.add(
    "DELETE",
    PREFIX + "/members/{member}",
    roles=CONSUMERS,
    query=LeaveQuery,
    answers={200: Left},
    errors=(FencedError,),
)
async def leave(call: EnteredCall, query: LeaveQuery) -> web.Response:
    """Note that a member leaves: its partitions are handed over while it continues pulling."""
    if query.flow is None:
        return json_response(await leave_all(call, call.request.app[PEERS]))
    flow = call.request.app[PULLS].find(
        call.group, MemberId(call.request.match_info["member"]), query.flow, call.address
    )
    call.broker.flow_registry.leave(flow)
    return json_response(Left(sorted(str(each.partition) for each in flow.partitions)))


def _results(results: ItemResults | NackResults) -> web.Response:
    has_failed = any(each.error is not UNSET for each in results.results)
    return json_response(results, status=207 if has_failed else 200)


def _find_flow(
    call: EnteredCall, member: str, number: int, items: Sequence[AckItem | NackItem]
) -> Flow:
    """Return the flow that a call names.

    Raises:
        BadRequestError, UnknownPartitionError: it has ended, and a name is not that of a partition:
            whatever flow the caller takes next, that stays so.
        FencedError: it has ended.
        ForbiddenError: it is bound from another address than the call comes from.
    """
    try:
        return call.request.app[PULLS].find(call.group, member, number, call.address)
    except FencedError:
        for item in items:
            call.broker.ack_handler.check_partition(partition_of(item))
        raise


def _check_size(what: str, sizes: list[int]) -> None:
    if len(sizes) > MAX_ACKS or sum(sizes) > MAX_OFFSETS:
        raise BatchTooLargeError(
            f"{what}: expected at most {MAX_ACKS} entries and {MAX_OFFSETS} offsets in a call"
        )
