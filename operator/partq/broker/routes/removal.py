"""The admin call that removes a consumer group, over HTTP: token, body, call, answer."""

from aiohttp import web

from partq.broker.operations.removal import remove
from partq.broker.server.access import enter, read_body
from partq.broker.server.endpoints import ADMINS, Calls
from partq.broker.server.errors import json_response
from partq.broker.server.owner_calls import ask_states
from partq.errors import ConflictError
from partq.wire.calls.bodies import decode
from partq.wire.calls.group_removal import RemoveAnswer, RemoveBody

calls = Calls()


@calls.add(
    "POST",
    "/v1/queues/{queue}/groups/{group}/remove",
    roles=ADMINS,
    body=RemoveBody,
    answers={200: RemoveAnswer},
    errors=(ConflictError,),
)
async def remove_group(request: web.Request) -> web.Response:
    """Remove a consumer group of a queue outside Kubernetes, or show what would go with it."""
    broker, _ = enter(request)
    body = decode(await read_body(request), RemoveBody)
    await broker.claims.refresh()  # a broker that has just begun may have members, too
    states = await ask_states(request, broker)
    return json_response(await remove(broker, request.match_info["group"], body, states))
