"""Describes the calls of a broker as OpenAPI 3.1."""

import asyncio
import inspect
import re
from collections.abc import Iterable
from importlib.metadata import version

from aiohttp import web

from partq.broker.api.endpoints import (
    Binary,
    Call,
    NoContent,
    NotJson,
    PageFile,
    PlainText,
    WebSocket,
)
from partq.broker.api.errors import STATUS_BY_CODE
from partq.errors import (
    BadJsonError,
    BadRequestError,
    BatchTooLargeError,
    ForbiddenError,
    InternalError,
    OverloadedError,
    PartqError,
    RequestTimeoutError,
    StoreUnavailableError,
    TooManyConnectionsError,
    UnauthorizedError,
    UnavailableError,
    UnknownGroupError,
    UnknownQueueError,
    UnsupportedEncodingError,
)
from partq.wire.calls import body_codec
from partq.wire.calls.answers import Refusal
from partq.wire.calls.schemas import Schema, fields, schemas

_PATH_PARAMETERS = {
    "queue": "The queue's name; its namespace is the broker's.",
    "group": "The consumer group.",
    "member": "The member's id.",
    "producer": "The producer's id.",
    "pin": "Name of the pin.",
    "partition": "The partition, as `GENERATION.INDEX`.",
    "number": "The number of a scheduled message, 16 digits.",
    "broker": "A broker's name, as the layout has it.",
    "file": "A file of the page.",
}
_ALWAYS: tuple[type[PartqError], ...] = (
    BadRequestError,
    InternalError,
    UnsupportedEncodingError,
)
_WITH_TOKEN: tuple[type[PartqError], ...] = (
    UnauthorizedError,
    ForbiddenError,
    UnknownQueueError,
    UnavailableError,
    StoreUnavailableError,
    OverloadedError,
    TooManyConnectionsError,
)
_SEVERAL_STATUSES = {207: "Some were refused, each with its own error."}


class ApiDocument:
    """What `/openapi.json` answers, made when it is asked for the first time.

    Most brokers are never asked, and making it took nine tenths of the time of `make_app`.
    """

    def __init__(self, calls: Iterable[Call]) -> None:
        self._calls = calls
        self._encoded: bytes | None = None

    async def read(self) -> bytes:
        """Return the JSON; the broker goes on with everything else while it is made."""
        if self._encoded is None:
            self._encoded = await asyncio.to_thread(self._encode)
        return self._encoded

    def _encode(self) -> bytes:
        return body_codec.encode(describe(self._calls))


DOCUMENT = web.AppKey("document", ApiDocument)
"""Of the application that describes itself."""


def describe(calls: Iterable[Call]) -> Schema:
    """Return the document; it says the same of every broker of a version."""
    table = list(calls)
    kinds = [Refusal, *(kind for call in table for kind in _kinds(call))]
    found, components = schemas(kinds)
    schema_of = {id(kind): schema for kind, schema in zip(kinds, found, strict=True)}
    paths: dict[str, Schema] = {}
    for call in table:
        paths.setdefault(call.path, {})[call.method.lower()] = _operation(call, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "partq broker",
            "version": version("partq"),
            "description": "Partitioned queues: publish with a key, consume in order. What the "
            "fields mean, and the frames of the WebSockets: docs/protocol.md.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Names a queue, a role and, for consumers, the groups.",
                }
            },
        },
    }


def _kinds(call: Call) -> list[object]:
    """Return every class of JSON that a call takes or answers."""
    answers = [kind for answer in call.answers.values() for kind in _alternatives(answer)]
    kinds = [kind for kind in answers if not isinstance(kind, NotJson)]
    return kinds if call.body is None else [call.body, *kinds]


def _alternatives(answer: object) -> tuple[object, ...]:
    return answer if isinstance(answer, tuple) else (answer,)


def _operation(call: Call, schema_of: dict[int, Schema]) -> Schema:
    name = call.handler.__name__.rstrip("_")
    text = inspect.getdoc(call.handler) or ""
    summary, _, rest = text.partition("\n\n")
    operation: Schema = {
        "operationId": f"{call.part}.{name}",
        "tags": [call.part],
        "summary": " ".join(summary.split()),
        "parameters": _parameters(call),
        "responses": _responses(call, schema_of),
        "security": [{"token": sorted(call.roles)}] if call.roles else [],
    }
    described = rest.partition("Raises:")[0].strip()
    if described:
        operation["description"] = described
    if call.body is not None:
        operation["requestBody"] = {
            "required": call.needs_body,
            "content": {"application/json": {"schema": schema_of[id(call.body)]}},
        }
    return operation


def _parameters(call: Call) -> list[Schema]:
    parameters: list[Schema] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATH_PARAMETERS[name],
            "schema": {"type": "string", "minLength": 1},
        }
        for name in re.findall(r"{(\w+)}", call.path)
    ]
    if call.roles:
        parameters.append(
            {
                "name": "namespace",
                "in": "query",
                "description": "The queue's namespace, where the caller wants it checked.",
                "schema": {"type": "string"},
            }
        )
    for place, kind in (("query", call.query), ("header", call.headers)):
        if kind is not None:
            parameters += [
                {"name": name, "in": place, "required": is_required, "schema": schema}
                for name, schema, is_required in fields(kind)
            ]
    return parameters


def _responses(call: Call, schema_of: dict[int, Schema]) -> Schema:
    responses: Schema = {}
    for status, answer in call.answers.items():
        responses[str(status)] = _response(status, answer, schema_of)
    for status, codes in sorted(_codes(call).items()):
        if str(status) not in responses:
            responses[str(status)] = {
                "description": "One of: " + ", ".join(f"`{code}`" for code in codes) + ".",
                "content": {"application/json": {"schema": schema_of[id(Refusal)]}},
            }
    return responses


def _response(status: int, answer: object, schema_of: dict[int, Schema]) -> Schema:
    if isinstance(answer, WebSocket):
        return {
            "description": "A WebSocket (RFC 6455) of binary frames; docs/protocol.md has them.",
            "headers": {"Upgrade": {"schema": {"type": "string", "const": "websocket"}}},
        }
    if isinstance(answer, NoContent):
        return {"description": "Done; there is no body."}
    if isinstance(answer, PlainText):
        content = {"text/plain": {"schema": {"type": "string"}}}
        return {"description": "Text.", "content": content}
    if isinstance(answer, PageFile):
        files = {each: {"schema": {"type": "string"}} for each in answer.content_types}
        return {"description": "A file of the page for browsers.", "content": files}
    if isinstance(answer, Binary):
        binary = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        return {"description": "Bytes; docs/protocol.md has them.", "content": binary}
    found = [schema_of[id(kind)] for kind in _alternatives(answer)]
    schema = found[0] if len(found) == 1 else {"anyOf": found}
    description = _SEVERAL_STATUSES.get(status) or inspect.getdoc(_alternatives(answer)[0])
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _codes(call: Call) -> dict[int, list[str]]:
    """Return the codes of the errors that a call can end with, by their status."""
    errors = {*_ALWAYS, *call.errors}
    if call.roles:
        errors |= set(_WITH_TOKEN)
    if "{group}" in call.path:
        errors.add(UnknownGroupError)
    if call.body is not None:
        errors |= {BadJsonError, BatchTooLargeError, RequestTimeoutError}
    codes: dict[int, list[str]] = {}
    for code in sorted({error.code for error in errors}):
        codes.setdefault(STATUS_BY_CODE[code], []).append(code)
    return codes
