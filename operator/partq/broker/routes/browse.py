"""Browsing over HTTP: token, body, call, answer."""

from collections.abc import Mapping, Sequence
from functools import partial

from aiohttp import web

from partq.broker.operations.browse import MAX_PAGES_BYTES, browse, read_page
from partq.broker.server.access import enter, read_body
from partq.broker.server.endpoints import CONSUMERS, Calls
from partq.broker.server.errors import json_response
from partq.broker.server.owner_calls import ask_owners, by_name, named
from partq.core.model import PartitionId
from partq.errors import UnknownPartitionError
from partq.server.body import HOLD
from partq.wire.calls.bodies import decode
from partq.wire.calls.browse import BrowseAnswer, BrowseBody, BrowsedPage, BrowsedPages, narrowed

calls = Calls()


@calls.add(
    "POST",
    "/v1/queues/{queue}/browse",
    roles=CONSUMERS,
    body=BrowseBody,
    answers={200: (BrowseAnswer, BrowsedPages)},
    errors=(UnknownPartitionError,),
)
async def browse_queue(request: web.Request) -> web.Response:
    """Show messages without consuming them, by the time of storing or each partition apart."""
    broker, _ = enter(request)
    body = decode(await read_body(request), BrowseBody)
    partitions = named(broker, body.partitions)
    named(broker, list(body.offsets))

    async def ask(
        wanted: Sequence[PartitionId], narrower: BrowseBody
    ) -> Mapping[PartitionId, BrowsedPage]:
        work = partial(read_page, broker, body=narrower)
        return await ask_owners(request, broker, wanted, work, narrower, BrowsedPage)

    # Twice: as objects, and as JSON.
    if not body.is_merged:
        share = max(1, MAX_PAGES_BYTES // max(1, len(partitions)))
        body = narrowed(body, {"max_bytes": min(body.max_bytes, share)})
        request[HOLD].take(2 * body.max_bytes * len(partitions))
        return json_response(BrowsedPages(by_name(await ask(partitions, body))))
    request[HOLD].take(2 * body.max_bytes)
    return json_response(await browse(broker, partitions, body, ask))
