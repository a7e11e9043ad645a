"""The admin call that changes the number of partitions, over HTTP: token, body, call, answer."""

import asyncio

from aiohttp import web

from partq.broker.api.app_keys import PEERS, PLANS, RATES
from partq.broker.api.endpoints import ADMINS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import ask_states
from partq.broker.operations.group_snapshot import read_group_snapshot
from partq.broker.operations.rates import read_rates
from partq.broker.operations.rescale import add_groups, read_blocked, read_plan, want_partitions
from partq.coordinator.group_snapshot import GroupSnapshot, read_snapshot
from partq.errors import ConflictError, UnknownGroupError
from partq.server.body import HOLD
from partq.wire.calls.bodies import RescaleBody
from partq.wire.calls.status import RescalePlan

MAX_FORECASTS = 20
"""Groups whose members are forecast; of more, the first by name."""

calls = Calls("partition_count")


@calls.add(
    "POST",
    "/admin/v1/queues/{queue}/partitions",
    roles=ADMINS,
    body=RescaleBody,
    answers={200: RescalePlan},
    errors=(ConflictError,),
)
async def change(call: EnteredCall, body: RescaleBody) -> web.Response:
    """Change how many partitions the queue has, or show what that would do.

    The answer comes when the number is recorded; the queue's coordinator carries the change out.
    """
    broker, request = call.broker, call.request
    layout = broker.config.layout
    if not body.is_dry_run:
        # Before the other brokers are asked: a silent one is no reason to wait with it.
        await want_partitions(broker, body)
    states = await ask_states(call)
    rates = await read_rates(
        request.app[RATES],
        broker,
        request.app[PEERS],
        group=None,
        authorization=request.headers["Authorization"],
        hold=request[HOLD],
    )
    snapshots: dict[str, GroupSnapshot] = {}
    for group in sorted(broker.config.groups)[:MAX_FORECASTS]:
        try:
            picture = await read_group_snapshot(broker, group, states)
        except UnknownGroupError:
            continue  # it goes
        snapshots[group] = read_snapshot(group, picture)
    plan = await read_plan(broker, body.partitions)
    blocked = await read_blocked(broker, plan, layout, states)
    async with request.app[PLANS]:
        # As of plans: deliveries and leases do not wait for it.
        await asyncio.to_thread(add_groups, plan, layout, states, rates, snapshots, blocked)
    return json_response(plan)
