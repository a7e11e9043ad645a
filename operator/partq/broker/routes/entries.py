"""Stored batches over HTTP: token, parameters, call, bytes."""

from aiohttp import web

from partq.broker.operations.entries import read_entries
from partq.broker.server.access import enter
from partq.broker.server.app_keys import READS
from partq.broker.server.endpoints import CONSUMERS, Binary, Calls
from partq.broker.server.owner_calls import named
from partq.errors import DataLossError, NotOwnerError, RolledBackError, UnknownPartitionError
from partq.server.body import HOLD
from partq.wire.calls.bodies import read_texts
from partq.wire.calls.entries import EntriesQuery

calls = Calls()


@calls.add(
    "GET",
    "/v1/queues/{queue}/partitions/{partition}/entries",
    roles=CONSUMERS,
    query=EntriesQuery,
    answers={200: Binary()},
    errors=(UnknownPartitionError, NotOwnerError, DataLossError, RolledBackError),
)
async def read(request: web.Request) -> web.Response:
    """Show stored batches as they are, from the one that holds an offset on.

    Only the broker that owns the partition answers.
    """
    broker, _ = enter(request)
    query = read_texts(request.query, EntriesQuery, "query")
    (partition,) = named(broker, [request.match_info["partition"]])
    request[HOLD].take(2 * query.max_bytes)
    body = await read_entries(broker, partition, query, request.app[READS])
    return web.Response(body=body, content_type="application/octet-stream")
