"""Holds what a broker answers against what it declares: every call of every test of brokers."""

import json
import re
from typing import Any

import msgspec
from aiohttp import ClientResponse

from partq.broker.api.app import CALLS_OF_ALL
from partq.broker.api.endpoints import Call, CallTable, NoContent, NotJson, PageFile
from partq.broker.api.openapi import describe
from partq.wire.calls.answers import Refusal

TABLE = CallTable(CALLS_OF_ALL)
DOCUMENT = describe(TABLE)


def call_of(method: str, path: str) -> Call | None:
    """Return the call that a path belongs to; None: none is declared."""
    plain = path.partition("?")[0]
    for call in TABLE:
        template = re.sub(r"{\w+}", "[^/]+", call.path)
        if call.method == method and re.fullmatch(template, plain):
            return call
    return None


def check_answer(method: str, path: str, response: ClientResponse, text: str) -> None:
    """Check an answer's status, type and fields; those of undeclared paths are errors."""
    call = call_of(method, path)
    if call is None:
        assert response.status in {404, 405}, f"{method} {path} is served, and not declared"
        kinds: tuple[Any, ...] = (Refusal,)
    else:
        status = str(response.status)
        declared = DOCUMENT["paths"][call.path][method.lower()]["responses"]
        assert status in declared, f"{method} {call.path}: {status} is not declared: {text}"
        answer = call.answers.get(response.status, Refusal)
        kinds = answer if isinstance(answer, tuple) else (answer,)
    if isinstance(kinds[0], PageFile):
        assert response.content_type in kinds[0].content_types
    if isinstance(kinds[0], NoContent):
        assert not text
    if isinstance(kinds[0], NotJson):
        return
    assert response.content_type == "application/json"
    problems = [problem for kind in kinds if (problem := _problem(text, kind))]
    assert len(problems) < len(kinds), f"{method} {path}: {problems}: {text}"


def _problem(text: str, kind: Any) -> str:
    """Say what of an answer is not as declared; empty: nothing."""
    try:
        read = msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        return str(error)
    # What the class does not have is lost on the way there and back.
    again = json.loads(msgspec.json.encode(read))
    return "" if again == json.loads(text) else f"more than {kind.__name__} has"
