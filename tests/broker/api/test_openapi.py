"""`/openapi.json`: what it describes is what is served, and the answers are as it says."""

import ast
import inspect
import json
import re
import sys
from types import SimpleNamespace, UnionType

import pytest
from aiohttp import web

from partq.broker.api.app import make_app
from partq.broker.api.endpoints import ANYONE, OPEN, PEERS, EnteredCall
from partq.broker.api.errors import STATUS_BY_CODE
from partq.broker.api.openapi import ApiDocument, describe
from partq.broker.peers.peer_client import PeerClient
from partq.wire.calls import body_codec
from tests.broker.contract import DOCUMENT, TABLE, check_answer

PATHS = DOCUMENT["paths"]
OPERATIONS = {
    (method.upper(), path): operation
    for path, operations in PATHS.items()
    for method, operation in operations.items()
}


async def test_the_document_is_made_once_and_not_before_somebody_asks(monkeypatch):
    made = []

    def counted(calls):
        made.append(calls)
        return describe(calls)

    monkeypatch.setattr("partq.broker.api.openapi.describe", counted)
    document = ApiDocument(TABLE)
    assert made == []
    first = await document.read()
    assert json.loads(first) == DOCUMENT
    assert await document.read() is first
    assert made == [TABLE]


async def test_the_document_has_every_route_and_no_other():
    """HEAD, which goes with every GET but those of sockets, is not named."""
    async with PeerClient() as peers:
        broker = SimpleNamespace(
            settings=SimpleNamespace(request_memory_bytes=1 << 20),
            metrics=SimpleNamespace(overloaded=None),
        )
        app = make_app(broker, SimpleNamespace(), peers)
        served = {
            (route.method, route.resource.canonical)
            for route in app.router.routes()
            if route.resource is not None
        }
    heads = {route for route in served if route[0] == "HEAD"}
    assert served - heads == set(OPERATIONS)
    sockets = {path for (_, path), each in OPERATIONS.items() if "101" in each["responses"]}
    assert sockets == {
        "/v1/queues/{queue}/publish",
        "/v1/queues/{queue}/groups/{group}/flow",
    }
    gets = {path for method, path in OPERATIONS if method == "GET"}
    assert {path for _, path in heads} == gets - sockets


def test_every_parameter_of_a_path_is_described():
    for (_, path), operation in OPERATIONS.items():
        named = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
        assert named == set(re.findall(r"{(\w+)}", path))
        assert all(p["description"] for p in operation["parameters"] if p["in"] == "path")


def test_a_handler_takes_what_its_call_declares():
    for call in TABLE:
        taken = list(inspect.get_annotations(call.handler, eval_str=True).values())[:-1]
        declared = [kind for kind in (call.query, call.body) if isinstance(kind, type)]
        assert taken == ([EnteredCall, *declared] if call.roles else [web.Request]), call.path


def test_every_operation_has_a_name_a_sentence_and_its_roles():
    names = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(names)) == len(names)
    for call in TABLE:
        operation = OPERATIONS[call.method, call.path]
        assert operation["summary"].endswith(".")
        roles = [] if call.roles == OPEN else [{"token": sorted(call.roles)}]
        assert operation["security"] == roles
        assert ("401" in operation["responses"]) == bool(roles)
        assert call.roles <= ANYONE | PEERS


def test_all_that_is_referred_to_is_there():
    text = json.dumps(DOCUMENT)
    referred = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert referred == set(DOCUMENT["components"]["schemas"])


def called_by(call):
    """Return the names of all that a call's handler, and what it calls of its module, calls."""
    module = sys.modules[call.handler.__module__]
    left, names = [call.handler.__name__], set()
    while left:
        function = getattr(module, left.pop(), None)
        if inspect.isfunction(function) and function.__module__ == module.__name__:
            nodes = ast.walk(ast.parse(inspect.getsource(function)))
            found = {n.func.id for n in nodes if isinstance(n, ast.Call) and hasattr(n.func, "id")}
            left += found - names
            names |= found
    return names


def test_what_a_handler_reads_is_declared():
    """So the document, which is made of the declarations, has every body and parameter."""
    for call in TABLE:
        reads = called_by(call) & {"decode", "read_body", "read_texts"}
        told = {"read_texts"} if call.headers else set()
        if isinstance(call.body, UnionType):
            told |= {"decode", "read_body"}  # one of several, which it has to find out
        assert reads == told, f"{call.method} {call.path}: declare its body, take it as an argument"


def test_the_codes_of_errors_stand_under_their_status():
    listed = [
        (status, response["description"])
        for operation in OPERATIONS.values()
        for status, response in operation["responses"].items()
        if response["description"].startswith("One of: ")
    ]
    assert listed
    for status, description in listed:
        codes = re.findall(r"`(\w+)`", description)
        assert {STATUS_BY_CODE[code] for code in codes} == {int(status)}


async def test_a_broker_serves_it_to_everyone(running):
    status, answer = await running.call("GET", "/openapi.json", token=None)
    assert (status, answer) == (200, json.loads(body_codec.encode(DOCUMENT)))


async def test_a_method_that_is_not_served_is_answered_with_those_that_are(running):
    async with running.session.put(f"{running.url}/readyz") as response:
        assert (response.status, response.headers["Allow"]) == (405, "GET,HEAD")


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        pytest.param("/healthz", 200, {"status": "ok"}, id="a field is missing"),
        pytest.param(
            "/healthz",
            200,
            {"status": "ok", "broker": "b", "more": 1},
            id="a field is not declared",
        ),
        pytest.param("/healthz", 200, {"status": "ok", "broker": 1}, id="a field of another type"),
        pytest.param(
            "/healthz", 418, {"error": {"code": "x", "message": "y"}}, id="a status not declared"
        ),
        pytest.param("/nowhere", 200, {}, id="a route not declared"),
    ],
)
def test_an_answer_that_is_not_as_declared_fails_every_test_that_gets_it(path, status, body):
    response = web.json_response(body, status=status)
    with pytest.raises(AssertionError):
        check_answer("GET", path, response, json.dumps(body))
