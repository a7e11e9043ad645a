"""Scheduled messages over HTTP: token, parameters, call, answer."""

from functools import partial

from aiohttp import web

from partq.broker.api.endpoints import ADMINS, PRODUCERS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import OWN_AT_ONCE, ask_owner, ask_owners, by_name, named
from partq.broker.operations.publish.scheduled import (
    READ_BYTES,
    cancel,
    drop,
    list_page,
    merge_pages,
)
from partq.broker.peers.peer_client import FORWARDED
from partq.core.numbering.scheduled_ids import ScheduledId
from partq.errors import ConflictError, UnavailableError, UnknownPartitionError
from partq.server.body import HOLD
from partq.wire.calls.scheduled import (
    DropScheduledBody,
    DropScheduledResult,
    DropScheduledResults,
    ScheduledCancel,
    ScheduledList,
    ScheduledPage,
    ScheduledPages,
    ScheduledPartitions,
    ScheduledQuery,
)

calls = Calls("scheduled")
PREFIX = "/v1/queues/{queue}/scheduled"


@calls.add(
    "GET",
    PREFIX,
    roles=PRODUCERS,
    query=ScheduledQuery,
    body=ScheduledPartitions,
    needs_body=False,
    answers={200: (ScheduledList, ScheduledPages)},
    errors=(UnknownPartitionError,),
)
async def list_scheduled(
    call: EnteredCall, query: ScheduledQuery, body: ScheduledPartitions
) -> web.Response:
    """Show what waits until it is due, the first first; another broker has each partition apart."""
    names = body.partitions or ([query.partition] if query.partition else [])
    partitions = named(call, names)
    hold = call.request[HOLD]
    hold.take(READ_BYTES * min(OWN_AT_ONCE, len(partitions)))
    work = partial(list_page, call.broker, query=query, take=hold.take)
    pages = await ask_owners(call, partitions, work, body, ScheduledPage)
    if FORWARDED in call.request.headers:
        return json_response(ScheduledPages(by_name(pages)))
    return json_response(merge_pages(pages, query.limit))


@calls.add(
    "DELETE",
    PREFIX + "/{partition}/{number}",
    roles=PRODUCERS,
    answers={200: ScheduledCancel},
    errors=(ConflictError, UnavailableError, UnknownPartitionError),
)
async def cancel_scheduled(call: EnteredCall) -> web.Response:
    """Cancel what waits until it is due; it is either cancelled or delivered, never both."""
    parts = call.request.match_info
    wanted = ScheduledId.parse(f"{parts['partition']}/{parts['number']}")
    (partition,) = named(call, [str(wanted.partition)])

    async def work() -> ScheduledCancel:
        return ScheduledCancel(await cancel(call.broker, partition, wanted.number))

    return json_response(await ask_owner(call, partition, work, ScheduledCancel))


@calls.add(
    "POST",
    PREFIX + "/drop",
    roles=ADMINS,
    body=DropScheduledBody,
    answers={200: DropScheduledResults},
    errors=(UnknownPartitionError,),
)
async def drop_scheduled(call: EnteredCall, body: DropScheduledBody) -> web.Response:
    """Drop what waits until it is due, or count it; each partition is judged on its own."""
    named(call, list(body.upto))
    partitions = named(call, body.partitions)
    work = partial(drop, call.broker, body=body)
    answers = await ask_owners(call, partitions, work, body, DropScheduledResult)
    return json_response(DropScheduledResults(by_name(answers)))
