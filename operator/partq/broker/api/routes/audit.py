"""The audit record over HTTP: how far it is, its groups as bytes, and what an archive has."""

from aiohttp import web

from partq.broker.api.endpoints import ADMINS, Binary, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import ask_owners, by_name, named
from partq.broker.broker import Broker
from partq.core.model import PartitionId
from partq.errors import (
    BadRequestError,
    DataLossError,
    RolledBackError,
    UnavailableError,
    UnknownPartitionError,
)
from partq.server.body import HOLD
from partq.store.records.stored_partition import AuditState
from partq.wire import audit
from partq.wire.calls.audit_calls import AuditBounds, AuditCursors, AuditQuery, AuditStates

calls = Calls("audit")


@calls.add(
    "GET",
    "/v1/queues/{queue}/audit",
    roles=ADMINS,
    answers={200: AuditStates},
    errors=(UnknownPartitionError,),
)
async def show(call: EnteredCall) -> web.Response:
    """Show how far the record of each partition has come; any broker reads that."""
    partitions = call.broker.config.layout.partitions()
    records = await call.broker.partitions.read_many(partitions)
    answers = {partition: _view(record.audit) for partition, record in sorted(records.items())}
    return json_response(AuditStates(by_name(answers)))


@calls.add(
    "GET",
    "/v1/queues/{queue}/partitions/{partition}/audit",
    roles=ADMINS,
    query=AuditQuery,
    answers={200: Binary()},
    errors=(UnknownPartitionError, DataLossError, RolledBackError),
)
async def read(call: EnteredCall, query: AuditQuery) -> web.Response:
    """Show groups of a partition's record from a sequence on; any broker reads them."""
    (partition,) = named(call, [call.request.match_info["partition"]])
    call.request[HOLD].take(2 * query.max_bytes)
    body = await _read(call.broker, partition, query)
    return web.Response(body=body, content_type="application/octet-stream")


async def _read(broker: Broker, partition: PartitionId, query: AuditQuery) -> bytes:
    start = query.from_
    groups = await broker.audits.read(partition, start, max_bytes=query.max_bytes)
    # Asked after the read: what is trimmed by then may be missing in it.
    state = await broker.audits.read_state(partition)
    if start < state.first:
        raise DataLossError(
            f"partition {partition}: group {start} of the audit record is no longer stored; the "
            f"first one that is has the sequence {state.first}; begin there"
        )
    if start > state.next:
        raise RolledBackError(
            f"partition {partition}: the audit record ends at {state.next}, below {start}: the "
            "store has lost groups, or the sequence is not one of this queue; archive it to a "
            "separate place"
        )
    if groups and groups[0].sequence != start:
        raise UnavailableError(
            f"partition {partition}: group {start} of the audit record was not found; ask again",
            retry_after_s=1.0,
        )
    return audit.encode_answer(groups)


@calls.add(
    "POST",
    "/v1/queues/{queue}/audit/cursor",
    roles=ADMINS,
    body=AuditCursors,
    answers={200: AuditStates},
    errors=(UnknownPartitionError,),
)
async def trim(call: EnteredCall, body: AuditCursors) -> web.Response:
    """Free the groups below sequences, which an archive has; each partition by its owner."""
    named(call, list(body.cursors))
    partitions = named(call, body.partitions or list(body.cursors))
    if missing := sorted(set(map(str, partitions)) - body.cursors.keys()):
        raise BadRequestError(f"audit: no cursor for partition {missing[0]}; give it one")

    async def work(partition: PartitionId) -> AuditBounds:
        state = await call.broker.audits.trim(
            partition,
            body.cursors[str(partition)],
            broker_epoch=call.broker.find(partition).broker_epoch,
        )
        return _view(state)

    answers = await ask_owners(call, partitions, work, body, AuditBounds)
    return json_response(AuditStates(by_name(answers)))


def _view(state: AuditState) -> AuditBounds:
    return AuditBounds(state.is_on, state.first, state.next, state.chain, state.stored_bytes)
