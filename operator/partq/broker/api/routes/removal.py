"""The admin call that removes a consumer group, over HTTP: token, body, call, answer."""

from aiohttp import web

from partq.broker.api.endpoints import ADMINS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import ask_states
from partq.broker.operations.removal import remove
from partq.errors import ConflictError
from partq.wire.calls.group.removal import RemoveAnswer, RemoveBody

calls = Calls("removal")


@calls.add(
    "POST",
    "/v1/queues/{queue}/groups/{group}/remove",
    roles=ADMINS,
    body=RemoveBody,
    may_lack_group=True,
    answers={200: RemoveAnswer},
    errors=(ConflictError,),
)
async def remove_group(call: EnteredCall, body: RemoveBody) -> web.Response:
    """Remove a consumer group of a queue outside Kubernetes, or show what would go with it."""
    await call.broker.claims.refresh()  # a broker that has just begun may have members, too
    states = await ask_states(call)
    return json_response(await remove(call.broker, call.group, body, states))
