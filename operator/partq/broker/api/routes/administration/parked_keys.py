"""The admin calls that show and release a group's parked keys, over HTTP."""

from functools import partial

from aiohttp import web

from partq.broker.api.endpoints import ADMINS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import ask_owners, by_name, named
from partq.broker.operations.parked_keys import KEY_BYTES, list_parked, release, slot_of_body
from partq.core.model import PartitionId
from partq.errors import UnknownPartitionError
from partq.server.body import HOLD
from partq.wire.calls.parked_keys import (
    ParkedKeysBody,
    ParkedKeysResult,
    ParkedKeysResults,
    ReleasedKeyResult,
    ReleasedKeyResults,
    ReleaseKeyBody,
)

calls = Calls("parked_keys")


@calls.add(
    "GET",
    "/v1/queues/{queue}/groups/{group}/keys",
    roles=ADMINS,
    body=ParkedKeysBody,
    needs_body=False,
    answers={200: ParkedKeysResults},
    errors=(UnknownPartitionError,),
)
async def list_keys(call: EnteredCall, body: ParkedKeysBody) -> web.Response:
    """Show the keys whose messages wait; each partition is answered by its owner."""
    partitions = named(call, body.partitions)

    async def work(partition: PartitionId) -> ParkedKeysResult:
        result = await list_parked(call.broker, partition, call.group)
        call.request[HOLD].take(KEY_BYTES * len(result.keys or ()))
        return result

    answers = await ask_owners(call, partitions, work, body, ParkedKeysResult)
    return json_response(ParkedKeysResults(by_name(answers)))


@calls.add(
    "POST",
    "/v1/queues/{queue}/groups/{group}/keys/release",
    roles=ADMINS,
    body=ReleaseKeyBody,
    answers={200: ReleasedKeyResults},
    errors=(UnknownPartitionError,),
)
async def release_key(call: EnteredCall, body: ReleaseKeyBody) -> web.Response:
    """Let a parked key wait no longer: its messages are redelivered now."""
    slot = slot_of_body(body)
    partitions = named(call, body.partitions)
    work = partial(release, call.broker, group=call.group, slot=slot)
    answers = await ask_owners(call, partitions, work, body, ReleasedKeyResult)
    return json_response(ReleasedKeyResults(by_name(answers)))
