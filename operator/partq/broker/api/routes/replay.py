"""Replaying and dropping dead letters over HTTP: token, body, call, answer."""

from functools import partial

from aiohttp import web

from partq.broker.api.endpoints import ADMINS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import ask_owners, by_name, named
from partq.broker.operations.replay import drop, replay
from partq.errors import UnknownPartitionError
from partq.wire.calls.dead_letters import (
    DropBody,
    DropResult,
    DropResults,
    ReplayBody,
    ReplayResult,
    ReplayResults,
)

calls = Calls("replay")
PREFIX = "/v1/queues/{queue}/dead-letters"


@calls.add(
    "POST",
    PREFIX + "/replay",
    roles=ADMINS,
    body=ReplayBody,
    answers={200: ReplayResults},
    errors=(UnknownPartitionError,),
)
async def replay_letters(call: EnteredCall, body: ReplayBody) -> web.Response:
    """Send dead letters back to where they came from; each partition is judged on its own."""
    partitions = named(call.broker, body.partitions)
    named(call.broker, list(body.offsets))
    work = partial(replay, call.broker, body=body)
    answers = await ask_owners(call, partitions, work, body, ReplayResult)
    return json_response(ReplayResults(by_name(answers)))


@calls.add(
    "POST",
    PREFIX + "/drop",
    roles=ADMINS,
    body=DropBody,
    answers={200: DropResults},
    errors=(UnknownPartitionError,),
)
async def drop_letters(call: EnteredCall, body: DropBody) -> web.Response:
    """Drop dead letters, or show which would be; each partition is judged on its own."""
    partitions = named(call.broker, body.partitions)
    work = partial(drop, call.broker, body=body)
    answers = await ask_owners(call, partitions, work, body, DropResult)
    return json_response(DropResults(by_name(answers)))
