"""Pins over HTTP: what a reader without a group wants to be kept while it reads."""

import hashlib

from aiohttp import web

from partq.broker.server.access import enter, read_body
from partq.broker.server.auth import Role, TokenGrant
from partq.broker.server.endpoints import CONSUMERS, Calls
from partq.broker.server.errors import json_response
from partq.broker.server.owner_calls import ask_owners, by_name, named
from partq.core.model import PartitionId
from partq.errors import BadRequestError, QuotaExceededError, UnknownPartitionError
from partq.store.records.log import MAX_PIN_MS
from partq.wire.calls.bodies import decode
from partq.wire.calls.browse import PinBody, PinResult, PinResults

MAX_NAME_CHARS = 63
OWNER_DIGITS = 16

calls = Calls()


@calls.add(
    "PUT",
    "/v1/queues/{queue}/pins/{pin}",
    roles=CONSUMERS,
    body=PinBody,
    answers={200: PinResults},
    errors=(UnknownPartitionError, QuotaExceededError),
)
async def set_pin(request: web.Request) -> web.Response:
    """Keep what is stored from offsets on for ten minutes from now; a repeat renews it."""
    broker, grant = enter(request)
    name = _name(request, grant)
    body = decode(await read_body(request), PinBody)
    named(broker, list(body.offsets))
    partitions = named(broker, body.partitions or list(body.offsets))

    async def work(partition: PartitionId) -> PinResult:
        offset = await broker.log.set_pin(
            partition,
            name,
            body.offsets.get(str(partition), 0),
            broker_epoch=broker.find(partition).broker_epoch,
        )
        return PinResult(offset, MAX_PIN_MS)

    answers = await ask_owners(request, broker, partitions, work, body, PinResult)
    return json_response(PinResults(by_name(answers)))


@calls.add(
    "DELETE",
    "/v1/queues/{queue}/pins/{pin}",
    roles=CONSUMERS,
    answers={200: PinResults},
    errors=(UnknownPartitionError,),
)
async def remove_pin(request: web.Request) -> web.Response:
    """Let go of what a pin holds, in every partition."""
    broker, grant = enter(request)
    name = _name(request, grant)
    # A broker that asks the owners names their partitions; a client names none.
    text = await read_body(request)
    body = decode(text, PinBody) if text else PinBody()

    async def work(partition: PartitionId) -> PinResult:
        epoch = broker.find(partition).broker_epoch
        await broker.log.remove_pin(partition, name, broker_epoch=epoch)
        return PinResult()

    partitions = named(broker, body.partitions)
    answers = await ask_owners(request, broker, partitions, work, body, PinResult)
    return json_response(PinResults(by_name(answers)))


def _name(request: web.Request, grant: TokenGrant) -> str:
    """Return what a pin is called in the store: readers with other tokens do not move or end it."""
    name = request.match_info["pin"]
    if not (len(name) <= MAX_NAME_CHARS and name.isascii() and name.isprintable()):
        raise BadRequestError(
            f"pin {name[:40]!r}: expected 1 to {MAX_NAME_CHARS} printable ASCII characters"
        )
    if grant.role is Role.ADMIN:
        return name
    return f"{hashlib.sha256(grant.token.encode()).hexdigest()[:OWNER_DIGITS]}:{name}"
