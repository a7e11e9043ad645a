"""The admin call that moves a group's cursors, over HTTP: token, body, call, answer."""

from collections.abc import Sequence
from functools import partial

from aiohttp import web

from partq.broker.api.endpoints import ADMINS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import ask_owners, by_name, named
from partq.broker.operations.reset import check, find_kept, reset
from partq.broker.rescale.whole_reset import Results, reset_all
from partq.core.model import PartitionId
from partq.errors import UnknownPartitionError
from partq.wire.calls.answers import ResetResult, ResetResults
from partq.wire.calls.bodies import ResetBody

calls = Calls("reset")


@calls.add(
    "POST",
    "/v1/queues/{queue}/groups/{group}/reset",
    roles=ADMINS,
    body=ResetBody,
    answers={200: ResetResults},
    errors=(UnknownPartitionError,),
)
async def reset_group(call: EnteredCall, body: ResetBody) -> web.Response:
    """Move a group's cursors, or show what would change; each partition is judged on its own."""
    partitions = named(call, body.partitions)
    named(call, list(body.epochs or {}))
    check(body, len(partitions))
    broker = call.broker
    layout = broker.config.layout
    is_whole = layout.generation > 1 and set(partitions) == set(layout.partitions())
    if is_whole and not (body.is_dry_run or body.reset):
        answers = await reset_all(
            body,
            partial(_reset_some, call),
            group=call.group,
            find_kept=partial(find_kept, broker, call.group),
            store=broker.store,
            read_layout=lambda: broker.config.layout,
            refresh=broker.refresh,
        )
    else:
        answers = await _reset_some(call, partitions, body)
    return json_response(ResetResults(by_name(answers)))


async def _reset_some(
    call: EnteredCall, partitions: Sequence[PartitionId], body: ResetBody
) -> Results:
    work = partial(reset, call.broker, group=call.group, body=body)
    return await ask_owners(call, partitions, work, body, ResetResult)
