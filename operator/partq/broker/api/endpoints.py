"""The calls that a broker serves, each declared once: route, tokens, bodies and answers.

From a declaration come the route itself, the roles that its token is checked for, and its
description in `/openapi.json`. A route that is not declared here cannot be served.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType, UnionType
from typing import TypeVar

from aiohttp import web

from partq.broker.api.tokens import FILE_ROLES, Role, TokenGrant
from partq.broker.broker import Broker
from partq.errors import PartqError
from partq.wire.calls.answers import Struct
from partq.wire.calls.schemas import names

Handler = Callable[..., Awaitable[web.StreamResponse]]
"""Takes the `EnteredCall`, and what the call declares: the parameters of the query, its body.

A body of several shapes it reads itself. The handler of a call that needs no token takes the
request, as nothing of it was checked.
"""
H = TypeVar("H", bound=Handler)

OPEN: frozenset[Role] = frozenset()
"""No token is asked for."""
MAX_CALL_BYTES = 4 * 1024 * 1024
"""Of a call that says nothing else: it names partitions, offsets, members."""
ANYONE = frozenset(FILE_ROLES)
PRODUCERS = frozenset({Role.PRODUCE, Role.ADMIN})
CONSUMERS = frozenset({Role.CONSUME, Role.ADMIN})
ADMINS = frozenset({Role.ADMIN})
PEERS = frozenset({Role.PEER})
"""Brokers of other queues, which send dead letters."""


@dataclass(frozen=True, slots=True)
class PlainText:
    """An answer of plain text."""


@dataclass(frozen=True, slots=True)
class Binary:
    """An answer of bytes, as the protocol's page has them."""


@dataclass(frozen=True, slots=True)
class NoContent:
    """An answer without a body."""


class PageFile:
    """An answer of text for browsers: a file of the page, of one of these types."""

    def __init__(self, *content_types: str) -> None:
        self.content_types = content_types


@dataclass(frozen=True, slots=True)
class WebSocket:
    """No answer, but a WebSocket of binary frames, as the protocol's page has them."""


NotJson = PlainText | Binary | NoContent | PageFile | WebSocket
"""Answers other than JSON."""
Answer = type[object] | tuple[type[object], ...] | NotJson


@dataclass(frozen=True, slots=True)
class EnteredCall:
    """A call whose token, queue and group are checked: what its handler works with."""

    request: web.Request
    broker: Broker
    grant: TokenGrant
    """The rights of its token."""
    group: str
    """The group that its path names; empty: it names none."""

    @property
    def address(self) -> str:
        """Where it comes from."""
        return self.request.remote or ""


@dataclass(frozen=True, slots=True)
class Call:
    """One route with all that a caller must know of it."""

    part: str
    """The name of the part of the API that it belongs to."""
    method: str
    path: str
    handler: Handler
    roles: frozenset[Role]
    """Of the tokens that may make the call; empty: it needs none."""
    answers: Mapping[int, Answer]
    """By status: the class of the JSON (several: any of them), or one of `NotJson`. Statuses of
    errors are not among them, except where the body is not that of an error."""
    body: type[object] | UnionType | None
    """The class of the JSON body; None: no body."""
    needs_body: bool
    """False: a call without a body is one with all defaults."""
    query: type[Struct] | None
    """The struct of the parameters behind the `?`; None: only the namespace is a parameter."""
    headers: type[Struct] | None
    """The struct of the headers that the call reads; None: only the token's."""
    errors: tuple[type[PartqError], ...]
    """Beside those that every call of its kind can end with."""
    max_body_bytes: int
    """What a body may have; a larger one is refused before it is read."""
    is_by_name: bool
    """Whether a token must name the group: one for every group of the queue is not enough."""
    may_lack_group: bool
    """Whether the queue need not have the group that the path names."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of all parameters behind the `?`."""
        own = names(self.query) if self.query is not None else ()
        return (*own, "namespace")

    @property
    def is_socket(self) -> bool:
        """Whether it opens a WebSocket."""
        return any(isinstance(kind, WebSocket) for kind in self.answers.values())


class Calls:
    """The calls of one module of routes.

    `part` names them in `/openapi.json`, where callers rely on it: it outlives the module's name.
    """

    def __init__(self, part: str) -> None:
        self._part = part
        self._calls: list[Call] = []

    def __iter__(self) -> Iterator[Call]:
        return iter(self._calls)

    def add(
        self,
        method: str,
        path: str,
        *,
        roles: frozenset[Role],
        answers: Mapping[int, Answer],
        body: type[object] | UnionType | None = None,
        needs_body: bool = True,
        query: type[Struct] | None = None,
        headers: type[Struct] | None = None,
        errors: tuple[type[PartqError], ...] = (),
        max_body_bytes: int = MAX_CALL_BYTES,
        is_by_name: bool = False,
        may_lack_group: bool = False,
    ) -> Callable[[H], H]:
        """Declare the call that a handler serves; the fields are those of `Call`."""

        def declare(handler: H) -> H:
            self._calls.append(
                Call(
                    self._part,
                    method,
                    path,
                    handler,
                    roles,
                    MappingProxyType(dict(answers)),
                    body,
                    needs_body,
                    query,
                    headers,
                    errors,
                    max_body_bytes,
                    is_by_name,
                    may_lack_group,
                )
            )
            return handler

        return declare


class CallTable:
    """All calls of an application, found again by its requests."""

    def __init__(self, parts: tuple[Calls, ...]) -> None:
        self._calls = {(call.method, call.path): call for part in parts for call in part}

    def __iter__(self) -> Iterator[Call]:
        return iter(self._calls.values())

    def of(self, request: web.Request) -> Call:
        """Return the call that a request makes."""
        method = "GET" if request.method == "HEAD" else request.method
        resource = request.match_info.route.resource
        if resource is None:
            raise KeyError(request.path)
        return self._calls[method, resource.canonical]
