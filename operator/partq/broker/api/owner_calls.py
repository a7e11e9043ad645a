"""Calls about partitions of several brokers: the one that is asked asks the owners, once."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from partq.broker.api.app_keys import PEERS
from partq.broker.api.endpoints import EnteredCall
from partq.broker.broker import Broker
from partq.broker.operations.group_snapshot import ask_all
from partq.broker.peers.peer_client import (
    FORWARD_TOKEN,
    FORWARDED,
    FORWARDED_ADDRESS,
    UnansweredError,
)
from partq.core.model import PartitionId
from partq.errors import (
    BadRequestError,
    NotOwnerError,
    PartqError,
    UnavailableError,
)
from partq.server.body import HOLD
from partq.wire.calls.answers import UNSET, ByPartition, PartitionAnswer
from partq.wire.calls.replies import error_detail, plain, to_error
from partq.wire.calls.state import BrokerAnswer

OWNER_TIMEOUT_S = 4.0
"""How long another broker may take: less than a client waits for its answer."""
OWN_AT_ONCE = 8
"""Partitions of this broker that one call works on side by side."""


A = TypeVar("A", bound=PartitionAnswer)
T = TypeVar("T")


def named(call: EnteredCall, names: Sequence[str]) -> list[PartitionId]:
    """Return the partitions that a call names; none named: all of the layout.

    Raises:
        BadRequestError: a name is no partition's, or stands there twice.
        UnknownPartitionError: the layout does not have it. One that is being prepared is unknown,
            but to a broker that forwards the call: it may have read of the commit before this one.
    """
    layout = call.broker.config.layout
    if not names:
        return list(layout.partitions())
    try:
        partitions = [PartitionId.parse(name) for name in names]
    except ValueError as error:
        raise BadRequestError(str(error)) from error
    is_forwarded = FORWARDED in call.request.headers
    for partition in partitions:
        if partition not in layout or (layout.is_prepared(partition) and not is_forwarded):
            raise layout.unknown(partition)
    if len(set(partitions)) < len(partitions):
        raise BadRequestError("partitions: one is named twice; name each once")
    return partitions


async def ask_states(call: EnteredCall) -> dict[str, BrokerAnswer]:
    """Ask every broker for its state, with the token of the call, which may not see it."""
    request = call.request
    return await ask_all(
        call.broker,
        request.app[PEERS],
        authorization=request.headers["Authorization"],
        hold=request[HOLD],
    )


async def ask_owners(
    call: EnteredCall,
    partitions: Sequence[PartitionId],
    work: Callable[[PartitionId], Awaitable[A]],
    body: object,
    kind: type[A],
) -> dict[PartitionId, A]:
    """Return what the owner of each partition answers.

    For its own ones this broker does the `work`; to each other owner the same call goes, with its
    query, `body` and the names of its partitions, which answers {"partitions": {NAME: `kind`}}. One
    that fails holds up nothing else.
    """
    broker, fields = call.broker, plain(body)
    is_forwarded = FORWARDED in call.request.headers
    mine: list[PartitionId] = []
    others: dict[str, list[PartitionId]] = {}
    answers: dict[PartitionId, A] = {}
    for partition in partitions:
        owner = broker.claims.owner_url(partition)
        if partition in broker.owned:
            mine.append(partition)
        elif is_forwarded:
            answers[partition] = _failed(kind, not_owned(broker, partition))
        elif owner is None:
            answers[partition] = _failed(kind, unserved(partition))
        else:
            others.setdefault(owner[1], []).append(partition)
    limit = asyncio.Semaphore(OWN_AT_ONCE)

    async def one(partition: PartitionId) -> A:
        async with limit:
            try:
                return await work(partition)
            except PartqError as error:
                return _failed(kind, error)

    theirs = asyncio.gather(*(_ask(call, *other, fields, kind) for other in others.items()))
    own, found = await asyncio.gather(asyncio.gather(*map(one, mine)), theirs)
    answers |= dict(zip(mine, own, strict=True))
    for each in found:
        answers |= each
    return {partition: answers[partition] for partition in partitions}


async def ask_owner(
    call: EnteredCall,
    partition: PartitionId,
    work: Callable[[], Awaitable[T]],
    kind: type[T],
    body: object = None,
) -> T:
    """Return what the owner of one partition answers to the call, which is of that one alone.

    If that is this broker, it does the `work`; the same call with `body` goes to another owner.

    Raises:
        UnavailableError: no broker serves the partition, or its owner has not answered: then the
            call may have had its effect.
        NotOwnerError: this broker was asked by another one, and does not own it.
        PartqError: what the work, or the owner, refuses it with.
    """
    broker, request = call.broker, call.request
    if partition in broker.owned:
        return await work()
    if FORWARDED in request.headers:
        raise not_owned(broker, partition)
    owner = broker.claims.owner_url(partition)
    if owner is None:
        raise unserved(partition)
    try:
        return await request.app[PEERS].call(
            request.method,
            owner[1] + request.path_qs,
            kind,
            authorization=request.headers["Authorization"],
            headers=forward_headers(call),
            json=None if body is None else plain(body),
            timeout_s=OWNER_TIMEOUT_S,
            hold=request[HOLD],
        )
    except UnansweredError as error:
        raise UnavailableError(
            f"partition {partition}: {owner[0]}, which owns it, gave no usable answer within "
            f"{OWNER_TIMEOUT_S:g} s ({error}); ask again",
            retry_after_s=1.0,
        ) from error


def is_of_broker(call: EnteredCall) -> bool:
    """Say whether a broker of the queue makes the call for a caller, whose rights it has seen.

    The header `Partq-Forwarded` alone anybody can send.
    """
    headers, token = call.request.headers, call.broker.peer_token
    given = headers.get(FORWARD_TOKEN, "").encode(errors="surrogateescape")
    return FORWARDED in headers and bool(token) and hmac.compare_digest(token.encode(), given)


def caller_address(call: EnteredCall) -> str:
    """Return where a call comes from: that of its caller, if a broker of the queue forwards it."""
    forwarded = call.request.headers.get(FORWARDED_ADDRESS, "")
    return forwarded if forwarded and is_of_broker(call) else call.address


def forward_headers(call: EnteredCall) -> dict[str, str]:
    """Return the headers of a call made for a caller, whose rights this broker has seen."""
    return {
        FORWARDED: call.broker.id,
        FORWARD_TOKEN: call.broker.peer_token,
        FORWARDED_ADDRESS: call.address,
    }


def not_owned(broker: Broker, partition: PartitionId) -> NotOwnerError:
    """Return the error of a call that another broker has forwarded to one that is not the owner."""
    return NotOwnerError(
        f"partition {partition}: asked of {broker.id}, which does not own it; ask again",
        retry_after_s=1.0,
    )


def unserved(partition: PartitionId) -> UnavailableError:
    """Return the error of a call about a partition that no broker serves."""
    return UnavailableError(
        f"partition {partition}: no broker serves it at the moment; ask again", retry_after_s=1.0
    )


async def _ask(
    call: EnteredCall,
    url: str,
    partitions: Sequence[PartitionId],
    body: Mapping[str, object],
    kind: type[A],
) -> dict[PartitionId, A]:
    """Make the call at another broker, for its partitions."""
    request = call.request
    try:
        answer = await request.app[PEERS].call(
            request.method,
            url + request.path_qs,
            ByPartition[kind],  # type: ignore[valid-type]
            authorization=request.headers["Authorization"],
            headers={FORWARDED: call.broker.id},
            json={**body, "partitions": [str(partition) for partition in partitions]},
            timeout_s=OWNER_TIMEOUT_S,
            hold=request[HOLD],
        )
        parts = answer.partitions
        return {partition: _part(kind, parts[str(partition)]) for partition in partitions}
    except PartqError as error:
        return dict.fromkeys(partitions, _failed(kind, error))
    except (UnansweredError, KeyError) as error:
        why = f"it lacks partition {error}" if isinstance(error, KeyError) else error
        failed = UnavailableError(
            f"{url}: no usable answer within {OWNER_TIMEOUT_S:g} s ({why}); ask again",
            retry_after_s=1.0,
        )
        return dict.fromkeys(partitions, _failed(kind, failed))


def _part(kind: type[A], answer: A) -> A:
    """Return what another broker answers of one partition; its error is one that is known here."""
    return answer if answer.error is UNSET else _failed(kind, to_error(answer.error))


def by_name(answers: Mapping[PartitionId, A]) -> dict[str, A]:
    """Return the answers by the names of their partitions, as a call gives them."""
    return {str(partition): answer for partition, answer in answers.items()}


def _failed(kind: type[A], error: PartqError) -> A:
    answer = kind()
    answer.error = error_detail(error)
    return answer
