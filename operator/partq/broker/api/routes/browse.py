"""Browsing over HTTP: token, body, call, answer."""

from collections.abc import Mapping, Sequence
from functools import partial

from aiohttp import web

from partq.broker.api.endpoints import CONSUMERS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import ask_owners, by_name, named
from partq.broker.operations.browse import MAX_PAGES_BYTES, browse, read_page
from partq.core.model import PartitionId
from partq.errors import UnknownPartitionError
from partq.server.body import HOLD
from partq.wire.calls.browse import BrowseAnswer, BrowseBody, BrowsedPage, BrowsedPages, narrowed

calls = Calls("browse")


@calls.add(
    "POST",
    "/v1/queues/{queue}/browse",
    roles=CONSUMERS,
    body=BrowseBody,
    answers={200: (BrowseAnswer, BrowsedPages)},
    errors=(UnknownPartitionError,),
)
async def browse_queue(call: EnteredCall, body: BrowseBody) -> web.Response:
    """Show messages without consuming them, by the time of storing or each partition apart."""
    partitions = named(call, body.partitions)
    named(call, list(body.offsets))

    async def ask(
        wanted: Sequence[PartitionId], narrower: BrowseBody
    ) -> Mapping[PartitionId, BrowsedPage]:
        work = partial(read_page, call.broker, body=narrower)
        return await ask_owners(call, wanted, work, narrower, BrowsedPage)

    # Twice: as objects, and as JSON.
    if not body.is_merged:
        share = max(1, MAX_PAGES_BYTES // max(1, len(partitions)))
        body = narrowed(body, {"max_bytes": min(body.max_bytes, share)})
        call.request[HOLD].take(2 * body.max_bytes * len(partitions))
        return json_response(BrowsedPages(by_name(await ask(partitions, body))))
    call.request[HOLD].take(2 * body.max_bytes)
    return json_response(await browse(call.broker, partitions, body, ask))
