"""What a client and a person ask of a broker: layout, status, producers, health, metrics."""

import asyncio
from collections.abc import Iterable
from typing import Any

from aiohttp import web

from partq.broker.api.app_keys import BROKER, GUARD, PEERS, PLANS, RATES, STATUS
from partq.broker.api.endpoints import (
    ADMINS,
    ANYONE,
    OPEN,
    PRODUCERS,
    Calls,
    EnteredCall,
    PlainText,
)
from partq.broker.api.errors import json_response
from partq.broker.api.openapi import DOCUMENT
from partq.broker.api.owner_calls import ask_states
from partq.broker.api.tokens import Role
from partq.broker.broker import Broker
from partq.broker.operations.gauges import render_metrics
from partq.broker.operations.group_snapshot import read_group_snapshot
from partq.broker.operations.producer_batches import read_earlier, read_outlines
from partq.broker.operations.rates import read_rates
from partq.broker.operations.status import read_layout, read_status
from partq.broker.peers.peer_client import FORWARDED
from partq.coordinator.plan_forecast import plan_forecast, read_complete_snapshot, scaled
from partq.core.hashing import slot_of
from partq.core.model import PartitionId
from partq.core.producer_series import series_name
from partq.metrics import CONTENT_TYPE
from partq.server.body import HOLD
from partq.wire.calls.answers import (
    UNSET,
    Health,
    LayoutAnswer,
    ProducerDue,
    Readiness,
)
from partq.wire.calls.bodies import PlanQuery, ProducerQuery, RatesQuery, StatusQuery
from partq.wire.calls.state import Picture
from partq.wire.calls.status import PlanForecast, RatesAnswer, StatusAnswer
from partq.wire.frame import FEATURES

calls = Calls("info")


@calls.add("GET", "/healthz", roles=OPEN, answers={200: Health, 503: Health})
async def health(request: web.Request) -> web.Response:
    """Answer 200, or 503 once a restart of the process is the only help: for liveness probes.

    A Redis that is away is no reason: a restart would not bring it back.
    """
    broker = request.app[BROKER]
    body = Health(broker.trouble or "ok", broker.id)
    return json_response(body, status=503 if broker.trouble else 200)


@calls.add("GET", "/readyz", roles=OPEN, answers={200: Readiness, 503: Readiness})
async def ready(request: web.Request) -> web.Response:
    """Answer 200 once the broker knows its queue and its lease is valid, else 503."""
    broker = request.app[BROKER]
    body = Readiness(
        status="ready" if broker.is_ready else "not ready",
        has_lease=broker.lease.is_valid,
        partitions=len(broker.owned),
    )
    return json_response(body, status=200 if broker.is_ready else 503)


@calls.add("GET", "/openapi.json", roles=OPEN, answers={200: dict[str, Any]})
async def openapi(request: web.Request) -> web.Response:
    """Show what is served, as OpenAPI 3.1."""
    body = await request.app[DOCUMENT].read()
    return web.Response(body=body, content_type="application/json")


@calls.add("GET", "/metrics", roles=OPEN, answers={200: PlainText()})
async def metrics(request: web.Request) -> web.Response:
    """Show all metrics in Prometheus's text format."""
    broker, tls = request.app[BROKER], request.app[PEERS].tls
    if tls is not None:
        broker.metrics.observe_certificate(is_refused=tls.is_refused)
    guard = request.app[GUARD]
    broker.metrics.observe_server(
        known=guard.census.known_count,
        unknown=guard.census.unknown_count,
        request_bytes=guard.memory.used_bytes,
    )
    body = render_metrics(broker)
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})


@calls.add("GET", "/v1/queues/{queue}/layout", roles=ANYONE, answers={200: LayoutAnswer})
async def layout(call: EnteredCall) -> web.Response:
    """Show partitions, brokers and owners."""
    answer = read_layout(call.broker)
    answer.features = list(FEATURES) or UNSET
    return json_response(answer)


@calls.add(
    "GET",
    "/v1/queues/{queue}/status",
    roles=ANYONE,
    query=StatusQuery,
    answers={200: StatusAnswer},
)
async def status(call: EnteredCall, query: StatusQuery) -> web.Response:
    """Show every partition and group, read from the records.

    With `max_age_ms` callers that ask often share one answer, as long as it is not older.
    """
    answer = await call.request.app[STATUS].read(
        lambda: read_status(call.broker, lambda: ask_states(call)),
        max_age_s=query.max_age_ms / 1000,
        is_admin=call.grant.role is Role.ADMIN,
    )
    return json_response(answer)


@calls.add(
    "GET",
    "/v1/queues/{queue}/rates",
    roles=ANYONE,
    query=RatesQuery,
    answers={200: RatesAnswer},
)
async def rates(call: EnteredCall, query: RatesQuery) -> web.Response:
    """Show the last ten minutes: messages published and delivered, lag, and waits.

    The sums over all brokers; a broker that another one asks answers for itself alone.
    """
    request, sampler = call.request, call.request.app[RATES]
    if FORWARDED in request.headers:
        return json_response(sampler.read(query.group))
    body = await read_rates(
        sampler,
        call.broker,
        request.app[PEERS],
        group=query.group,
        authorization=request.headers["Authorization"],
        hold=request[HOLD],
    )
    return json_response(body)


# The route and its struct keep the name `picture`, which clients know; the rest says snapshot.
@calls.add("GET", "/v1/queues/{queue}/groups/{group}/picture", roles=ADMINS, answers={200: Picture})
async def picture(call: EnteredCall) -> web.Response:
    """Show all that a plan for a group rests on: its records, and the state of every broker."""
    body = await read_group_snapshot(call.broker, call.group, await ask_states(call))
    return json_response(body)


@calls.add(
    "GET",
    "/v1/queues/{queue}/groups/{group}/plan",
    roles=ADMINS,
    query=PlanQuery,
    answers={200: PlanForecast},
)
async def plan(call: EnteredCall, query: PlanQuery) -> web.Response:
    """Show what would move if the group had this many members; nothing is changed.

    The coordinator's planner computes it from the same records and states as `.../picture` shows.
    """
    body = await read_group_snapshot(call.broker, call.group, await ask_states(call))
    snapshot = read_complete_snapshot(call.group, body)
    changes = [scaled(query.members, snapshot)]
    async with call.request.app[PLANS]:
        # A plan of 65,536 partitions takes 2 s: deliveries and leases do not wait for it.
        found = await asyncio.to_thread(plan_forecast, call.group, snapshot, changes)
    return json_response(found)


@calls.add(
    "GET",
    "/v1/queues/{queue}/producers/{producer}",
    roles=PRODUCERS,
    query=ProducerQuery,
    answers={200: ProducerDue},
)
async def producer(call: EnteredCall, query: ProducerQuery) -> web.Response:
    """Show the next message number of each partition that this broker owns.

    With a key: the next `Partq-Sequence` of that key, in the key's partition alone. With outlines:
    also what its last batch looks like, so that it can see whether it has the same messages again.
    With earlier ones: also what it has stored, with fixed numbers, before the partition count has
    changed; of all partitions, and final once each is at the layout that the change asks of it.
    """
    broker, name = call.broker, call.request.match_info["producer"]
    asked: Iterable[PartitionId] = broker.config.layout.partitions()
    key = query.key
    if key is not None:
        name = series_name(name, key)
        partition = broker.config.layout.partition_for(key)
        asked = [partition]
        # Until it is open, predecessors may still store messages of the key.
        await broker.layout_follower.wait_until_open(partition)
    owned = sorted(
        partition
        for partition in asked
        if partition in broker.owned and (key is None or broker.owned[partition].layout.is_open)
    )
    due = await asyncio.gather(*(_due(broker, p, name, key) for p in owned))
    outlines = await read_outlines(broker, owned, name) if query.outlines == "true" else {}
    layouts = {str(p): broker.owned[p].layout.generation for p in owned if p in broker.owned}
    lacking = [str(partition) for partition in asked if partition not in owned]
    layout = broker.config.layout
    is_earlier = query.earlier == "true"
    return json_response(
        ProducerDue(
            due={str(p): number or 0 for p, number in zip(owned, due, strict=True)},
            unavailable=lacking,
            outlines=outlines,
            layouts=layouts if set(layouts.values()) - {1} else {},
            generation=layout.generation if is_earlier else 0,
            earlier=await read_earlier(broker, layout, name) if is_earlier else {},
        )
    )


async def _due(broker: Broker, partition: PartitionId, name: str, key: str | None) -> int | None:
    """Return the number that is due from a producer, or from its series of a key; None: unknown."""
    due = await broker.log.producer_due(partition, name)
    if due is None and key is not None:
        carried = await broker.carry_over.find(partition, name, slot_of(key))
        return None if carried is None else carried.due
    return due
