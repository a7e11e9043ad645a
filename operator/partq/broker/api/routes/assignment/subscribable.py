"""Administrators say which partitions and brokers members may register, over HTTP."""

from aiohttp import web

from partq.broker.api.endpoints import ADMINS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import named
from partq.broker.operations.assignment.subscribable import mark
from partq.core.model import BrokerId
from partq.errors import NotFoundError, UnknownPartitionError
from partq.wire.calls.registration import Subscribable, SubscribableBody

calls = Calls("subscribable")


@calls.add(
    "PUT",
    "/v1/queues/{queue}/partitions/{partition}/subscribable",
    roles=ADMINS,
    body=SubscribableBody,
    answers={200: Subscribable},
    errors=(UnknownPartitionError,),
)
async def mark_partition(call: EnteredCall, body: SubscribableBody) -> web.Response:
    """Let nobody register a partition, or let members do so again; its holder keeps it."""
    partition = named(call, [call.request.match_info["partition"]])[0]
    return json_response(await mark(call.broker, partition, body))


@calls.add(
    "PUT",
    "/v1/queues/{queue}/brokers/{broker}/subscribable",
    roles=ADMINS,
    body=SubscribableBody,
    answers={200: Subscribable},
    errors=(NotFoundError,),
)
async def mark_broker(call: EnteredCall, body: SubscribableBody) -> web.Response:
    """Let nobody register the partitions of a broker, or let members do so again."""
    broker = BrokerId(call.request.match_info["broker"])
    return json_response(await mark(call.broker, broker, body))
