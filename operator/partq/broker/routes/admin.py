"""The admin API of a broker over HTTP, for its coordinator: token, body, call, answer."""

from aiohttp import web

from partq.broker.operations import state as admin
from partq.broker.server.access import enter, group_of, read_body
from partq.broker.server.endpoints import ADMINS, Calls
from partq.broker.server.errors import json_response
from partq.wire.calls.answers import (
    ClaimResults,
    CommitResults,
    DrainResults,
    ExpiryAnswer,
    PartitionResults,
)
from partq.wire.calls.bodies import Cancels, Commits, Drains, PartitionNames, Pauses, decode
from partq.wire.calls.state import BrokerState

calls = Calls()
PREFIX = "/admin/v1/queues/{queue}"


@calls.add("GET", PREFIX + "/state", roles=ADMINS, answers={200: BrokerState})
async def state(request: web.Request) -> web.Response:
    """Show what this broker owns and who is bound."""
    broker, _ = enter(request)
    return json_response(admin.state(broker))


@calls.add("POST", PREFIX + "/expiry/confirm", roles=ADMINS, answers={200: ExpiryAnswer})
async def confirm_expiry(request: web.Request) -> web.Response:
    """Trust Redis's clock as it is: messages expire again after it has jumped."""
    broker, _ = enter(request)
    broker.expiry.clocks.confirm()
    return json_response(ExpiryAnswer(broker.expiry.clocks.is_suspended))


@calls.add(
    "POST",
    PREFIX + "/groups/{group}/pause",
    roles=ADMINS,
    body=Pauses,
    answers={200: DrainResults},
)
async def pause(request: web.Request) -> web.Response:
    """Pause partitions, or renew their pauses."""
    broker, _ = enter(request)
    group = await group_of(request, broker)
    body = decode(await read_body(request), Pauses)
    return json_response(await admin.pause(broker, group, body))


@calls.add(
    "POST",
    PREFIX + "/groups/{group}/drain",
    roles=ADMINS,
    body=Drains,
    answers={200: DrainResults},
)
async def drain(request: web.Request) -> web.Response:
    """Wait until one of the pauses is drained or over."""
    broker, _ = enter(request)
    group = await group_of(request, broker)
    body = decode(await read_body(request), Drains)
    return json_response(await admin.drain(broker, group, body))


@calls.add(
    "POST",
    PREFIX + "/groups/{group}/commit",
    roles=ADMINS,
    body=Commits,
    answers={200: CommitResults},
)
async def commit(request: web.Request) -> web.Response:
    """Give partitions to their targets."""
    broker, _ = enter(request)
    group = await group_of(request, broker)
    body = decode(await read_body(request), Commits)
    return json_response(await admin.commit(broker, group, body))


@calls.add(
    "POST",
    PREFIX + "/groups/{group}/cancel",
    roles=ADMINS,
    body=Cancels,
    answers={200: PartitionResults},
)
async def cancel(request: web.Request) -> web.Response:
    """Let the sources of handoffs go on."""
    broker, _ = enter(request)
    group = await group_of(request, broker)
    body = decode(await read_body(request), Cancels)
    return json_response(await admin.cancel(broker, group, body))


@calls.add(
    "POST", PREFIX + "/claim", roles=ADMINS, body=PartitionNames, answers={200: ClaimResults}
)
async def claim(request: web.Request) -> web.Response:
    """Own partitions that nobody owns."""
    broker, _ = enter(request)
    body = decode(await read_body(request), PartitionNames)
    return json_response(await admin.claim(broker, body))


@calls.add(
    "POST", PREFIX + "/yield", roles=ADMINS, body=PartitionNames, answers={200: PartitionResults}
)
async def yield_(request: web.Request) -> web.Response:
    """Give partitions up."""
    broker, _ = enter(request)
    body = decode(await read_body(request), PartitionNames)
    return json_response(await admin.yield_(broker, body))
