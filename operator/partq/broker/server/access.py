"""First steps of every route: token, queue, group, body."""

import asyncio
from typing import TypeVar

from aiohttp import web

from partq.broker.broker import Broker
from partq.broker.server.app_keys import BROKER, CALLS, TOKENS
from partq.broker.server.auth import TokenGrant
from partq.errors import (
    BadRequestError,
    TooManyConnectionsError,
    UnknownGroupError,
    UnknownQueueError,
)
from partq.server import body
from partq.server.connection import Connection
from partq.wire.calls.bodies import Texts

T = TypeVar("T")
GRANT = web.RequestKey("grant", TokenGrant)
"""Rights of a call's token."""


def enter(request: web.Request) -> tuple[Broker, TokenGrant]:
    """Check queue and token of a call; return the broker and what the token grants.

    Which roles may make the call, its declaration says.

    Raises:
        BadRequestError: the token or the namespace is given twice.
        UnknownQueueError, UnauthorizedError, ForbiddenError.
        TooManyConnectionsError: the token has as many as it may.
    """
    broker = request.app[BROKER]
    queue = request.match_info["queue"]
    group = request.match_info.get("group")
    served = broker.settings.queue
    namespace = _one(request.query, "namespace", "query")
    call = request.app[CALLS].of(request)
    grant = request.app[TOKENS].check(
        _one(request.headers, "Authorization", "headers"),
        queue=served,
        roles=call.roles,
        group=group,
        is_by_name=call.is_by_name,
    )
    connection = request.protocol
    if isinstance(connection, Connection) and not connection.identify(grant.token):
        raise TooManyConnectionsError(
            f"the token has as many connections as it may at {broker.id} "
            "(PARTQ_MAX_CONNECTIONS_PER_TOKEN): close some, or share one",
            retry_after_s=1.0,
        )
    request[GRANT] = grant
    if queue != served or namespace not in (None, broker.settings.namespace):
        raise UnknownQueueError(
            f"queue {namespace or broker.settings.namespace}/{queue}: this broker serves "
            f"{broker.settings.namespace}/{served} only; check queue, namespace and URL"
        )
    return broker, grant


def _one(texts: Texts, name: str, what: str) -> str | None:
    """Return the value of a name; a proxy may have judged another one than the first."""
    values = texts.getall(name, [])
    if len(values) > 1:
        raise BadRequestError(f"{what}: {name}: got {len(values)} of them, expected one")
    return values[0] if values else None


async def group_of(request: web.Request, broker: Broker) -> str:
    """Return the group that a call names.

    Raises:
        UnknownGroupError: the queue does not have it.
    """
    group = request.match_info["group"]
    if group not in broker.config.groups:
        await broker.refresh()
    if group not in broker.config.groups:
        # A token for some groups does not learn of others.
        known = ", ".join(sorted(broker.config.groups)) or "none"
        has = f" has {known}" if request[GRANT].groups is None else " does not have it"
        raise UnknownGroupError(
            f"group {group[:80]}: queue {broker.settings.queue}{has}; create a ConsumerGroup of "
            "this name"
        )
    return group


async def read_body(request: web.Request) -> bytes:
    """Return the body of a call, within the bound of its declaration.

    Raises as `partq.server.body.read_body`.
    """
    return await body.read_body(request, request.app[CALLS].of(request).max_body_bytes)


def peer(request: web.Request) -> str:
    """Return the address that a call comes from."""
    return request.remote or ""


def resolve(future: asyncio.Future[T], value: T) -> None:
    """Give a future its result, unless its waiter has gone."""
    if not future.done():
        future.set_result(value)
