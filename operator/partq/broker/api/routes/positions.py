"""Positions in logs, and a group's cursors that are moved to some, over HTTP."""

from aiohttp import web

from partq.broker.api.call_entry import unknown_group
from partq.broker.api.endpoints import CONSUMERS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import ask_owners, by_name, named
from partq.broker.operations.positions import advance, check, find_position
from partq.core.model import PartitionId
from partq.errors import BadRequestError, UnknownGroupError, UnknownPartitionError
from partq.wire.calls.positions import (
    CursorResult,
    CursorResults,
    CursorsBody,
    PositionResult,
    PositionResults,
    PositionsBody,
)

calls = Calls("positions")


@calls.add(
    "POST",
    "/v1/queues/{queue}/positions",
    roles=CONSUMERS,
    body=PositionsBody,
    answers={200: PositionResults},
    errors=(UnknownPartitionError,),
)
async def find(call: EnteredCall, body: PositionsBody) -> web.Response:
    """Show positions, and what each log holds; each partition is answered by its owner."""
    check(body)
    named(call, list(body.offsets or ()))
    partitions = named(call, body.partitions or list(body.offsets or ()))
    if body.group is not None and body.group not in call.broker.config.groups:
        await call.broker.refresh()

    async def work(partition: PartitionId) -> PositionResult:
        try:
            return await find_position(call.broker, partition, body)
        except UnknownGroupError:
            if body.group is None or body.group in call.broker.config.groups:
                raise  # its cursor is still to come
            raise unknown_group(call.request, call.broker, body.group) from None

    answers = await ask_owners(call, partitions, work, body, PositionResult)
    return json_response(PositionResults(by_name(answers)))


@calls.add(
    "POST",
    "/v1/queues/{queue}/groups/{group}/cursors",
    roles=CONSUMERS,
    is_by_name=True,
    body=CursorsBody,
    answers={200: CursorResults},
    errors=(UnknownPartitionError,),
)
async def advance_group(call: EnteredCall, body: CursorsBody) -> web.Response:
    """Move a group's cursors forward to positions; each partition is judged on its own."""
    if not body.positions:
        raise BadRequestError("cursors: no position; give one for each partition that is meant")
    named(call, list(body.positions))
    partitions = named(call, body.partitions or list(body.positions))
    if missing := sorted(set(map(str, partitions)) - body.positions.keys()):
        raise BadRequestError(f"cursors: no position for partition {missing[0]}; give it one")

    async def work(partition: PartitionId) -> CursorResult:
        return await advance(call.broker, partition, call.group, body.positions[str(partition)])

    answers = await ask_owners(call, partitions, work, body, CursorResult)
    return json_response(CursorResults(by_name(answers)))
