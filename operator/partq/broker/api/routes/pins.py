"""Pins over HTTP: what a reader without a group wants to be kept while it reads."""

import hashlib

from aiohttp import web

from partq.broker.api.endpoints import CONSUMERS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import ask_owners, by_name, named
from partq.broker.api.tokens import Role, TokenGrant
from partq.core.model import PartitionId
from partq.errors import BadRequestError, QuotaExceededError, UnknownPartitionError
from partq.excerpts import excerpt
from partq.wire.calls.answers import UNSET
from partq.wire.calls.browse import MAX_PIN_MS, PinBody, PinResult, PinResults

MAX_NAME_CHARS = 63
OWNER_DIGITS = 16

calls = Calls("pins")


@calls.add(
    "PUT",
    "/v1/queues/{queue}/pins/{pin}",
    roles=CONSUMERS,
    body=PinBody,
    answers={200: PinResults},
    errors=(UnknownPartitionError, QuotaExceededError),
)
async def set_pin(call: EnteredCall, body: PinBody) -> web.Response:
    """Keep what is stored from offsets on for ten minutes from now; a repeat renews it.

    With a `number` a call that arrives after a later one of the reader changes nothing.
    """
    name = _name(call.request, call.grant)
    named(call, list(body.offsets))
    partitions = named(call, body.partitions or list(body.offsets))

    async def work(partition: PartitionId) -> PinResult:
        pin = await call.broker.pins.set(
            partition,
            name,
            body.offsets.get(str(partition), 0),
            broker_epoch=call.broker.find(partition).broker_epoch,
            number=_number(body),
        )
        return PinResult(pin.offset, MAX_PIN_MS, UNSET if body.number is UNSET else pin.number)

    answers = await ask_owners(call, partitions, work, body, PinResult)
    return json_response(PinResults(by_name(answers)))


@calls.add(
    "DELETE",
    "/v1/queues/{queue}/pins/{pin}",
    roles=CONSUMERS,
    body=PinBody,
    needs_body=False,
    answers={200: PinResults},
    errors=(UnknownPartitionError,),
)
async def remove_pin(call: EnteredCall, body: PinBody) -> web.Response:
    """Let go of what a pin holds, in every partition, unless a later call has set it."""
    name = _name(call.request, call.grant)

    async def work(partition: PartitionId) -> PinResult:
        epoch = call.broker.find(partition).broker_epoch
        later = await call.broker.pins.remove(
            partition, name, broker_epoch=epoch, number=_number(body)
        )
        return PinResult() if later is None else PinResult(number=later)

    # A broker that asks the owners names their partitions; a client names none.
    partitions = named(call, body.partitions)
    answers = await ask_owners(call, partitions, work, body, PinResult)
    return json_response(PinResults(by_name(answers)))


def _number(body: PinBody) -> int | None:
    return None if body.number is UNSET else body.number


def _name(request: web.Request, grant: TokenGrant) -> str:
    """Return what a pin is called in the store: readers with other tokens do not move or end it."""
    name = request.match_info["pin"]
    if not (len(name) <= MAX_NAME_CHARS and name.isascii()):
        raise BadRequestError(
            f"pin {excerpt(name)!r}: expected 1 to {MAX_NAME_CHARS} ASCII characters"
        )
    if grant.role is Role.ADMIN:
        return name
    return f"{hashlib.sha256(grant.token.encode()).hexdigest()[:OWNER_DIGITS]}:{name}"
