"""Stored batches over HTTP: token, parameters, call, bytes."""

from typing import cast

from aiohttp import web

from partq.broker.api.app_keys import LOG_WAITS, READS
from partq.broker.api.endpoints import CONSUMERS, Binary, Calls, EnteredCall
from partq.broker.api.owner_calls import named
from partq.broker.operations.entries import read_entries
from partq.errors import (
    DataLossError,
    NotOwnerError,
    RolledBackError,
    UnavailableError,
    UnknownPartitionError,
)
from partq.server.body import HOLD
from partq.server.connection import Connection
from partq.wire.calls.entries import EntriesQuery

calls = Calls("entries")


@calls.add(
    "GET",
    "/v1/queues/{queue}/partitions/{partition}/entries",
    roles=CONSUMERS,
    query=EntriesQuery,
    answers={200: Binary()},
    errors=(UnknownPartitionError, NotOwnerError, DataLossError, RolledBackError),
)
async def read(call: EnteredCall, query: EntriesQuery) -> web.Response:
    """Show stored batches as they are, from the one that holds an offset on.

    Only the broker that owns the partition answers. At the end of the log it waits for `wait_ms`.
    """
    (partition,) = named(call, [call.request.match_info["partition"]])
    if query.wait_ms:
        connection = cast(Connection, call.request.protocol)  # of `server/runner.py`
        await call.request.app[LOG_WAITS].wait(call.broker, partition, query, connection)
        if call.request.transport is None:
            raise UnavailableError("the client has gone while it waited; ask again")
    call.request[HOLD].take(2 * query.max_bytes)
    body = await read_entries(call.broker, partition, query, call.request.app[READS])
    return web.Response(body=body, content_type="application/octet-stream")
