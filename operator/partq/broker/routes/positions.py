"""Positions in logs, and a group's cursors that are moved to some, over HTTP."""

from functools import partial

from aiohttp import web

from partq.broker.operations.positions import advance, check, find_position
from partq.broker.server.access import enter, group_of, read_body
from partq.broker.server.endpoints import CONSUMERS, Calls
from partq.broker.server.errors import json_response
from partq.broker.server.owner_calls import ask_owners, by_name, named
from partq.core.model import PartitionId
from partq.errors import BadRequestError, UnknownPartitionError
from partq.wire.calls.bodies import decode
from partq.wire.calls.positions import (
    CursorResult,
    CursorResults,
    CursorsBody,
    PositionResult,
    PositionResults,
    PositionsBody,
)

calls = Calls()


@calls.add(
    "POST",
    "/v1/queues/{queue}/positions",
    roles=CONSUMERS,
    body=PositionsBody,
    answers={200: PositionResults},
    errors=(UnknownPartitionError,),
)
async def find(request: web.Request) -> web.Response:
    """Show positions, and what each log holds; each partition is answered by its owner."""
    broker, _ = enter(request)
    body = decode(await read_body(request), PositionsBody)
    check(body)
    named(broker, list(body.offsets or ()))
    partitions = named(broker, body.partitions or list(body.offsets or ()))
    work = partial(find_position, broker, body=body)
    answers = await ask_owners(request, broker, partitions, work, body, PositionResult)
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
async def advance_group(request: web.Request) -> web.Response:
    """Move a group's cursors forward to positions; each partition is judged on its own."""
    broker, _ = enter(request)
    group = await group_of(request, broker)
    body = decode(await read_body(request), CursorsBody)
    if not body.positions:
        raise BadRequestError("cursors: no position; give one for each partition that is meant")
    named(broker, list(body.positions))
    partitions = named(broker, body.partitions or list(body.positions))
    if missing := sorted(set(map(str, partitions)) - body.positions.keys()):
        raise BadRequestError(f"cursors: no position for partition {missing[0]}; give it one")

    async def work(partition: PartitionId) -> CursorResult:
        return await advance(broker, partition, group, body.positions[str(partition)])

    answers = await ask_owners(request, broker, partitions, work, body, CursorResult)
    return json_response(CursorResults(by_name(answers)))
