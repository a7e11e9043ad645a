"""Calls by receipts: the broker that is asked takes its part, and sends the rest to the owners."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from partq.broker.api.app_keys import PEERS, PULLS
from partq.broker.api.endpoints import EnteredCall
from partq.broker.api.owner_calls import (
    OWNER_TIMEOUT_S,
    caller_address,
    forward_headers,
    not_owned,
    unserved,
)
from partq.broker.delivery.flow import Flow
from partq.broker.peers.peer_client import FORWARDED, UnansweredError
from partq.core.model import PartitionId
from partq.errors import BatchTooLargeError, OutcomeUnknownError, PartqError, UnavailableError
from partq.server.body import HOLD
from partq.wire.calls.answers import UNSET, ByItem, ItemResult, Struct
from partq.wire.calls.bodies import MAX_RECEIPTS
from partq.wire.calls.replies import error_detail, plain, to_error
from partq.wire.receipt import PulledReceipt

R = TypeVar("R", bound=ItemResult)
Apply = Callable[[Flow, PulledReceipt, list[int]], Awaitable[R]]
"""Takes a flow, a receipt and offsets of its delivery: acks, gives back or extends these."""


@dataclass(slots=True)
class _DeliveryReceipts:
    """The receipts of one delivery of a partition: one ack or nack is about all."""

    receipt: PulledReceipt
    places: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)


async def call_by_receipts(
    call: EnteredCall,
    receipts: Sequence[str],
    body: Struct,
    kind: type[R],
    apply_delivery: Apply[R],
) -> list[R]:
    """Return what became of each message, in the order of its receipts.

    An owner that does not answer holds up the messages of no other. A call that another broker has
    forwarded goes no further.

    Args:
        call: that is made.
        receipts: of the messages.
        body: of the call, that another broker gets with the receipts of its partitions.
        kind: of the results.
        apply_delivery: does it at this broker.

    Raises:
        BatchTooLargeError: there are too many; nothing was done.
    """
    if len(receipts) > MAX_RECEIPTS:
        raise BatchTooLargeError(
            f"receipts: got {len(receipts)}, expected at most {MAX_RECEIPTS}; make several calls"
        )
    results: dict[int, R] = {}
    mine: dict[tuple[int, ...], _DeliveryReceipts] = {}
    others: dict[tuple[str, str], list[int]] = {}
    partitions: dict[int, PartitionId] = {}
    for place, text in enumerate(receipts):
        try:
            receipt = PulledReceipt.decode(text)
            owner = _owner_of(call, receipt.partition)
        except PartqError as error:
            results[place] = _failed(kind, error)
            continue
        partitions[place] = receipt.partition
        if owner is not None:
            others.setdefault(owner, []).append(place)
            continue
        name = (*receipt.partition, receipt.broker_epoch, receipt.epoch)
        delivery = mine.setdefault(
            (*name, receipt.delivery, receipt.flow), _DeliveryReceipts(receipt)
        )
        delivery.places.append(place)
        delivery.offsets.append(receipt.offset)

    async def here(delivery: _DeliveryReceipts) -> R:
        pulls = call.request.app[PULLS]
        try:
            flow = pulls.find_flow_of_receipt(call.group, delivery.receipt, caller_address(call))
            return await apply_delivery(flow, delivery.receipt, delivery.offsets)
        except PartqError as error:
            return _failed(kind, error)

    async def there(owner: tuple[str, str], places: list[int]) -> list[R]:
        texts = [receipts[place] for place in places]
        return await _ask(call, owner, texts, partitions[places[0]], body, kind)

    found, answered = await asyncio.gather(
        asyncio.gather(*map(here, mine.values())),
        asyncio.gather(*(there(*each) for each in others.items())),
    )
    for delivery, result in zip(mine.values(), found, strict=True):
        results.update(dict.fromkeys(delivery.places, result))
    for places, answer in zip(others.values(), answered, strict=True):
        results.update(zip(places, answer, strict=True))
    return [results[place] for place in range(len(receipts))]


def _owner_of(call: EnteredCall, partition: PartitionId) -> tuple[str, str] | None:
    """Return the name and the URL of the owner of a partition; None: it is this broker.

    Raises:
        UnknownPartitionError: the queue never had it.
        NotOwnerError: another broker has forwarded the call, and this one does not own it.
        UnavailableError: no broker serves it.
    """
    broker = call.broker
    if partition in broker.owned:
        return None
    broker.ack_handler.check_partition(partition)
    if FORWARDED in call.request.headers:
        raise not_owned(broker, partition)
    owner = broker.claims.owner_url(partition)
    if owner is None:
        raise unserved(partition)
    return owner


async def _ask(
    call: EnteredCall,
    owner: tuple[str, str],
    receipts: list[str],
    example: PartitionId,
    body: Struct,
    kind: type[R],
) -> list[R]:
    """Make the call at another broker, for its partitions; `example` is one of them."""
    request, (name, url) = call.request, owner
    try:
        answer = await request.app[PEERS].call(
            request.method,
            url + request.path,
            ByItem[kind],  # type: ignore[valid-type]
            authorization=request.headers["Authorization"],
            headers=forward_headers(call),
            json={**plain(body), "receipts": receipts},
            timeout_s=OWNER_TIMEOUT_S,
            hold=request[HOLD],
        )
        if len(answer.results) != len(receipts):
            raise UnansweredError(
                f"got {len(answer.results)} results, expected {len(receipts)}", is_sent=True
            )
    except UnansweredError as error:
        text = (
            f"partition {example}: {name}, which owns it, gave no usable answer within "
            f"{OWNER_TIMEOUT_S:g} s ({error})"
        )
        lost: PartqError = (
            OutcomeUnknownError(f"{text}; send the receipts again, a repeat changes nothing")
            if error.is_sent
            else UnavailableError(f"{text}; send the receipts again", retry_after_s=1.0)
        )
        return [_failed(kind, lost)] * len(receipts)
    except PartqError as error:
        return [_failed(kind, error)] * len(receipts)
    return [_known(kind, result) for result in answer.results]


def _failed(kind: type[R], error: PartqError) -> R:
    result = kind()
    result.error = error_detail(error)
    return result


def _known(kind: type[R], result: R) -> R:
    """Return what another broker says; its error is one that is known here."""
    return result if result.error is UNSET else _failed(kind, to_error(result.error))
