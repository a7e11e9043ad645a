"""Calls of the coordinator at one broker, and the confirmation of Redis's clock by a person.

All of them are below `/admin`, with a token of the role `admin`.
"""

from aiohttp import web

from partq.broker.api.endpoints import ADMINS, Calls, EnteredCall, NoContent
from partq.broker.api.errors import json_response
from partq.broker.operations import coordinator_calls as operations
from partq.wire.calls.answers import (
    ClaimResults,
    CommitResults,
    DrainResults,
    ExpiryAnswer,
    PartitionResults,
)
from partq.wire.calls.bodies import Cancels, Commits, Drains, PartitionNames, Pauses
from partq.wire.calls.group.parts import PartCommits, PartResults
from partq.wire.calls.state import BrokerState

calls = Calls("admin")
PREFIX = "/admin/v1/queues/{queue}"


@calls.add("GET", PREFIX + "/state", roles=ADMINS, answers={200: BrokerState})
async def state(call: EnteredCall) -> web.Response:
    """Show which partitions this broker owns and which members are bound."""
    return json_response(operations.state(call.broker))


@calls.add("POST", PREFIX + "/expiry/confirm", roles=ADMINS, answers={200: ExpiryAnswer})
async def confirm_expiry(call: EnteredCall) -> web.Response:
    """Trust Redis's clock as it is: messages expire again after it has jumped."""
    call.broker.expiry.clocks.confirm()
    return json_response(ExpiryAnswer(call.broker.expiry.clocks.is_suspended))


@calls.add(
    "POST",
    PREFIX + "/groups/{group}/pause",
    roles=ADMINS,
    body=Pauses,
    answers={200: DrainResults},
)
async def pause(call: EnteredCall, body: Pauses) -> web.Response:
    """Pause partitions, or renew their pauses."""
    return json_response(await operations.pause(call.broker, call.group, body))


@calls.add(
    "POST",
    PREFIX + "/groups/{group}/drain",
    roles=ADMINS,
    body=Drains,
    answers={200: DrainResults},
)
async def drain(call: EnteredCall, body: Drains) -> web.Response:
    """Wait until one of the pauses is drained or over."""
    return json_response(await operations.drain(call.broker, call.group, body))


@calls.add(
    "POST",
    PREFIX + "/groups/{group}/commit",
    roles=ADMINS,
    body=Commits,
    answers={200: CommitResults},
)
async def commit(call: EnteredCall, body: Commits) -> web.Response:
    """Give partitions to their targets."""
    return json_response(await operations.commit(call.broker, call.group, body))


@calls.add(
    "POST",
    PREFIX + "/groups/{group}/parts",
    roles=ADMINS,
    body=PartCommits,
    answers={200: PartResults},
)
async def commit_parts(call: EnteredCall, body: PartCommits) -> web.Response:
    """Give parts of partitions to their targets."""
    return json_response(await operations.commit_parts(call.broker, call.group, body))


@calls.add(
    "POST",
    PREFIX + "/groups/{group}/cancel",
    roles=ADMINS,
    body=Cancels,
    answers={200: PartitionResults},
)
async def cancel(call: EnteredCall, body: Cancels) -> web.Response:
    """Let the sources of handoffs continue."""
    return json_response(await operations.cancel(call.broker, call.group, body))


@calls.add(
    "POST", PREFIX + "/claim", roles=ADMINS, body=PartitionNames, answers={200: ClaimResults}
)
async def claim(call: EnteredCall, body: PartitionNames) -> web.Response:
    """Own partitions that nobody owns."""
    return json_response(await operations.claim(call.broker, body))


@calls.add(
    "POST", PREFIX + "/yield", roles=ADMINS, body=PartitionNames, answers={200: PartitionResults}
)
async def yield_(call: EnteredCall, body: PartitionNames) -> web.Response:
    """Give partitions up."""
    return json_response(await operations.yield_(call.broker, body))


@calls.add("POST", PREFIX + "/refresh", roles=ADMINS, answers={204: NoContent()})
async def refresh(call: EnteredCall) -> web.Response:
    """Read layout and settings now, and begin what they ask for: seals, openings."""
    await call.broker.refresh()
    return web.Response(status=204)
