"""First steps of every call: token, queue, group, query, body; its handler does the rest.

Roles and tokens are in `tokens.py`; `endpoints.py` has the roles that may make each kind of call.
"""

from aiohttp import web

from partq.broker.api.app_keys import BROKER, CALLS, TOKENS
from partq.broker.api.endpoints import Call, CallTable, EnteredCall, Handler
from partq.broker.api.tokens import TokenGrant
from partq.broker.broker import Broker
from partq.errors import (
    BadRequestError,
    TooManyConnectionsError,
    UnknownGroupError,
    UnknownQueueError,
)
from partq.excerpts import excerpt, some_of
from partq.path_names import check_path_name
from partq.server import body
from partq.server.connection import Connection
from partq.wire.calls import body_codec
from partq.wire.calls.body_codec import Texts

GRANT = web.RequestKey("grant", TokenGrant)
"""Rights of a call's token."""


def routes(table: CallTable) -> list[web.RouteDef]:
    """Return the routes of an application; HEAD is served wherever GET is, sockets aside."""
    return [
        web.get(call.path, _served(call), allow_head=not call.is_socket)
        if call.method == "GET"
        else web.route(call.method, call.path, _served(call))
        for call in table
    ]


def _served(call: Call) -> Handler:
    if not call.roles:
        return call.handler

    async def serve(request: web.Request) -> web.StreamResponse:
        broker, grant = enter(request)
        group = request.match_info.get("group", "")
        if group and not call.may_lack_group:
            await _check_group(request, broker, group)
        entered = EnteredCall(request, broker, grant, group)
        wanted: list[object] = []
        if call.query is not None:
            wanted.append(body_codec.read_texts(request.query, call.query, "query"))
        if isinstance(call.body, type):
            text = await read_body(request)
            is_default = not (text or call.needs_body)
            wanted.append(call.body() if is_default else body_codec.decode(text, call.body))
        return await call.handler(entered, *wanted)

    return serve


def enter(request: web.Request) -> tuple[Broker, TokenGrant]:
    """Check queue and token of a call; return the broker and what the token grants.

    Which roles may make the call, its declaration says.

    Raises:
        BadRequestError: the token or the namespace is given twice, or the query has a parameter
            that the call has not, or a name in the path has what cannot stand there.
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
    for what, name in request.match_info.items():
        check_path_name(name, what)
    for name in request.query:
        if name not in call.parameters:
            raise BadRequestError(
                f"query: got the unknown parameter {excerpt(name)}, expected "
                f"{', '.join(call.parameters)}; leave it out"
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
            f"queue {excerpt(namespace or broker.settings.namespace)}/{excerpt(queue)}: this "
            "broker serves "
            f"{broker.settings.namespace}/{served} only; check queue, namespace and URL"
        )
    return broker, grant


def _one(texts: Texts, name: str, what: str) -> str | None:
    """Return the value of a name; a proxy may have judged another one than the first."""
    values = texts.getall(name, [])
    if len(values) > 1:
        raise BadRequestError(f"{what}: {name}: got {len(values)} of them, expected one")
    return values[0] if values else None


async def _check_group(request: web.Request, broker: Broker, group: str) -> None:
    if group not in broker.config.groups:
        await broker.refresh()
    if group not in broker.config.groups:
        raise unknown_group(request, broker, group)


def unknown_group(request: web.Request, broker: Broker, group: str) -> UnknownGroupError:
    """Return the error of a call that names a group that is not there.

    A token for some groups does not learn of others.
    """
    known = some_of(broker.config.groups)
    has = f" has {known}" if request[GRANT].groups is None else " does not have it"
    return UnknownGroupError(
        f"group {excerpt(group)}: queue {broker.settings.queue}{has}; create a ConsumerGroup of "
        "this name"
    )


async def read_body(request: web.Request) -> bytes:
    """Return the body of a call, within the bound of its declaration.

    Raises as `partq.server.body.read_body`.
    """
    return await body.read_body(request, request.app[CALLS].of(request).max_body_bytes)
