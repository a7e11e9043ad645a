"""The admin call that moves a group's cursors, over HTTP: token, body, call, answer."""

from functools import partial

from aiohttp import web

from partq.broker.api.endpoints import ADMINS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import ask_owners, by_name, named
from partq.broker.operations.reset import check, reset
from partq.errors import UnknownPartitionError
from partq.wire.calls.answers import ResetResult, ResetResults
from partq.wire.calls.bodies import ResetBody

calls = Calls("reset")


@calls.add(
    "POST",
    "/v1/queues/{queue}/groups/{group}/reset",
    roles=ADMINS,
    body=ResetBody,
    answers={200: ResetResults},
    errors=(UnknownPartitionError,),
)
async def reset_group(call: EnteredCall, body: ResetBody) -> web.Response:
    """Move a group's cursors, or show what would change; each partition is judged on its own."""
    partitions = named(call.broker, body.partitions)
    named(call.broker, list(body.epochs or {}))
    check(body, len(partitions))
    work = partial(reset, call.broker, group=call.group, body=body)
    answers = await ask_owners(call, partitions, work, body, ResetResult)
    return json_response(ResetResults(by_name(answers)))
