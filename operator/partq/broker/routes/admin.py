"""The admin API of a broker over HTTP, for its coordinator: token, body, call, answer."""

from aiohttp import web

from partq.broker import admin
from partq.broker.auth import Role
from partq.broker.middlewares import json_response
from partq.broker.routes.access import enter, group_of
from partq.wire.bodies import Cancels, Commits, Drains, PartitionNames, Pauses, decode

routes = web.RouteTableDef()
PREFIX = "/admin/v1/queues/{queue}"


@routes.get(PREFIX + "/state")
async def state(request: web.Request) -> web.Response:
    """Show what this broker owns and who is bound."""
    broker, _ = enter(request, {Role.ADMIN})
    return json_response(admin.state(broker))


@routes.post(PREFIX + "/groups/{group}/pause")
async def pause(request: web.Request) -> web.Response:
    """Pause partitions, or renew their pauses."""
    broker, _ = enter(request, {Role.ADMIN})
    group = await group_of(request, broker)
    body = decode(await request.read(), Pauses)
    return json_response(await admin.pause(broker, group, body))


@routes.post(PREFIX + "/groups/{group}/drain")
async def drain(request: web.Request) -> web.Response:
    """Wait until one of the pauses is drained or over."""
    broker, _ = enter(request, {Role.ADMIN})
    group = await group_of(request, broker)
    body = decode(await request.read(), Drains)
    return json_response(await admin.drain(broker, group, body))


@routes.post(PREFIX + "/groups/{group}/commit")
async def commit(request: web.Request) -> web.Response:
    """Give partitions to their targets."""
    broker, _ = enter(request, {Role.ADMIN})
    group = await group_of(request, broker)
    body = decode(await request.read(), Commits)
    return json_response(await admin.commit(broker, group, body))


@routes.post(PREFIX + "/groups/{group}/cancel")
async def cancel(request: web.Request) -> web.Response:
    """Let the sources of handoffs go on."""
    broker, _ = enter(request, {Role.ADMIN})
    group = await group_of(request, broker)
    body = decode(await request.read(), Cancels)
    return json_response(await admin.cancel(broker, group, body))


@routes.post(PREFIX + "/claim")
async def claim(request: web.Request) -> web.Response:
    """Own partitions that nobody owns."""
    broker, _ = enter(request, {Role.ADMIN})
    body = decode(await request.read(), PartitionNames)
    return json_response(await admin.claim(broker, body))


@routes.post(PREFIX + "/yield")
async def yield_(request: web.Request) -> web.Response:
    """Give partitions up."""
    broker, _ = enter(request, {Role.ADMIN})
    body = decode(await request.read(), PartitionNames)
    return json_response(await admin.yield_(broker, body))
