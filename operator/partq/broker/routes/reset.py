"""The admin call that moves a group's cursors, over HTTP: token, body, call, answer."""

from functools import partial

from aiohttp import web

from partq.broker.operations.reset import check, reset
from partq.broker.server.access import enter, group_of, read_body
from partq.broker.server.endpoints import ADMINS, Calls
from partq.broker.server.errors import json_response
from partq.broker.server.owner_calls import ask_owners, by_name, named
from partq.errors import UnknownPartitionError
from partq.wire.calls.answers import ResetResult, ResetResults
from partq.wire.calls.bodies import ResetBody, decode

calls = Calls()


@calls.add(
    "POST",
    "/v1/queues/{queue}/groups/{group}/reset",
    roles=ADMINS,
    body=ResetBody,
    answers={200: ResetResults},
    errors=(UnknownPartitionError,),
)
async def reset_group(request: web.Request) -> web.Response:
    """Move a group's cursors, or show what would change; each partition is judged on its own."""
    broker, _ = enter(request)
    group = await group_of(request, broker)
    body = decode(await read_body(request), ResetBody)
    partitions = named(broker, body.partitions)
    named(broker, list(body.epochs or {}))
    check(body, len(partitions))
    work = partial(reset, broker, group=group, body=body)
    answers = await ask_owners(request, broker, partitions, work, body, ResetResult)
    return json_response(ResetResults(by_name(answers)))
