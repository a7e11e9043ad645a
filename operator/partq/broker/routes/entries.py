"""Stored batches over HTTP: token, parameters, call, bytes."""

from aiohttp import web

from partq.broker.calls import CONSUMERS, Binary, Calls
from partq.broker.entries import read_entries
from partq.broker.keys import READS
from partq.broker.routes.access import enter
from partq.broker.routes.owners import named
from partq.errors import DataLossError, NotOwnerError, RolledBackError, UnknownPartitionError
from partq.server.body import HOLD
from partq.wire.bodies import read_texts
from partq.wire.entries import EntriesQuery

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
