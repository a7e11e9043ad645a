"""Replaying and dropping dead letters over HTTP: token, body, call, answer."""

from functools import partial

from aiohttp import web

from partq.broker.operations.replay import drop, replay
from partq.broker.server.access import enter, read_body
from partq.broker.server.endpoints import ADMINS, Calls
from partq.broker.server.errors import json_response
from partq.broker.server.owner_calls import ask_owners, by_name, named
from partq.errors import UnknownPartitionError
from partq.wire.calls.bodies import decode
from partq.wire.calls.dead_letters import (
    DropBody,
    DropResult,
    DropResults,
    ReplayBody,
    ReplayResult,
    ReplayResults,
)

calls = Calls()
PREFIX = "/v1/queues/{queue}/dead-letters"


@calls.add(
    "POST",
    PREFIX + "/replay",
    roles=ADMINS,
    body=ReplayBody,
    answers={200: ReplayResults},
    errors=(UnknownPartitionError,),
)
async def replay_letters(request: web.Request) -> web.Response:
    """Send dead letters back to where they came from; each partition is judged on its own."""
    broker, _ = enter(request)
    body = decode(await read_body(request), ReplayBody)
    partitions = named(broker, body.partitions)
    named(broker, list(body.offsets))
    work = partial(replay, broker, body=body)
    answers = await ask_owners(request, broker, partitions, work, body, ReplayResult)
    return json_response(ReplayResults(by_name(answers)))


@calls.add(
    "POST",
    PREFIX + "/drop",
    roles=ADMINS,
    body=DropBody,
    answers={200: DropResults},
    errors=(UnknownPartitionError,),
)
async def drop_letters(request: web.Request) -> web.Response:
    """Drop dead letters, or show which would be; each partition is judged on its own."""
    broker, _ = enter(request)
    body = decode(await read_body(request), DropBody)
    partitions = named(broker, body.partitions)
    work = partial(drop, broker, body=body)
    answers = await ask_owners(request, broker, partitions, work, body, DropResult)
    return json_response(DropResults(by_name(answers)))
