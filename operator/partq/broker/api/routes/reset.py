"""The admin call that moves a group's cursors, over HTTP: token, body, call, answer."""

import asyncio
from collections.abc import Sequence
from copy import copy
from functools import partial

from aiohttp import web

from partq.broker.api.endpoints import ADMINS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import ask_owners, by_name, named
from partq.broker.broker import Broker
from partq.broker.operations.reset import check, find_births, find_kept, reset
from partq.broker.rescale.whole_reset import Results, reset_all
from partq.core.model import PartitionId
from partq.core.records import lacking_rescale
from partq.errors import UnknownPartitionError
from partq.wire.calls.answers import UNSET, ResetResult, ResetResults
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
    is_whole = set(partitions) == set(broker.config.layout.partitions())
    if is_whole and not (body.is_dry_run or body.reset):
        answers = await reset_all(
            body,
            partial(_reset_some, call),
            group=call.group,
            find_kept=partial(find_kept, broker, call.group),
            find_births=partial(find_births, broker, call.group),
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
    told = [p for p in partitions if not _is_before_changes(call.broker, p)]
    if len(told) == len(partitions) or body.reset is UNSET:
        return await ask_owners(call, partitions, work, body, ResetResult)
    # Such a broker seals nothing: the next owner does, and fences it.
    untold = copy(body)
    untold.reset = untold.births = UNSET
    others = [p for p in partitions if p not in told]
    parts = await asyncio.gather(
        ask_owners(call, told, work, body, ResetResult),
        ask_owners(call, others, work, untold, ResetResult),
    )
    return parts[0] | parts[1]


def _is_before_changes(broker: Broker, partition: PartitionId) -> bool:
    """Whether a broker that knows no change of the partition count owns a partition."""
    owner = broker.claims.owner_url(partition)
    return owner is not None and owner[0] in lacking_rescale(broker.claims.observer.leases)
