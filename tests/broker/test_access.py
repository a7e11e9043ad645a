"""Who may make which call: every route with every kind of token."""

import json
import re

import pytest

from tests.broker.contract import TABLE

WHO = ("none", "wrong", "produce", "consume", "consume another group", "admin", "another queue's")
EVERYONE = set(WHO)
ADMINS = {"admin"}
PRODUCERS = {"produce", "admin"}
CONSUMERS = {"consume", "admin"}
OF_THE_QUEUE = {"produce", "consume", "consume another group", "admin"}
QUEUE = "/v1/queues/{queue}"
GROUP = f"{QUEUE}/groups/{{group}}"
ADMIN = "/admin/v1/queues/{queue}"
MAY = {
    "GET /healthz": EVERYONE,
    "GET /readyz": EVERYONE,
    "GET /metrics": EVERYONE,
    "GET /openapi.json": EVERYONE,
    f"GET {QUEUE}/layout": OF_THE_QUEUE,
    f"GET {QUEUE}/status": OF_THE_QUEUE,
    f"GET {QUEUE}/publish": PRODUCERS,
    f"GET {QUEUE}/producers/{{producer}}": PRODUCERS,
    f"POST {QUEUE}/messages": PRODUCERS,
    f"GET {GROUP}/flow": CONSUMERS,
    f"POST {GROUP}/pull": CONSUMERS,
    f"POST {GROUP}/acks": CONSUMERS,
    f"POST {GROUP}/nacks": CONSUMERS,
    f"GET {GROUP}/members/{{member}}": CONSUMERS,
    f"DELETE {GROUP}/members/{{member}}": CONSUMERS,
    f"POST {GROUP}/members/{{member}}/leave": CONSUMERS,
    f"GET {GROUP}/picture": ADMINS,
    f"POST {GROUP}/reset": ADMINS,
    f"GET {ADMIN}/state": ADMINS,
    f"POST {ADMIN}/claim": ADMINS,
    f"POST {ADMIN}/yield": ADMINS,
    f"POST {ADMIN}/groups/{{group}}/pause": ADMINS,
    f"POST {ADMIN}/groups/{{group}}/drain": ADMINS,
    f"POST {ADMIN}/groups/{{group}}/commit": ADMINS,
    f"POST {ADMIN}/groups/{{group}}/cancel": ADMINS,
}
"""Beside the declarations on purpose: what a route lets through is said twice, and compared."""

OTHER_QUEUE = "other-queue-token-01"


@pytest.fixture
def token_of(tokens_file, peers):
    """Return the token of each kind of caller; None: it sends none."""
    rows = json.loads(tokens_file.read_text())
    rows.append({"token": OTHER_QUEUE, "queue": "invoices", "role": "admin"})
    tokens_file.write_text(json.dumps(rows))
    tokens = (None, "nobody-knows-this", peers.PRODUCE, peers.CONSUME, peers.OTHER_GROUP)
    return dict(zip(WHO, (*tokens, peers.ADMIN, OTHER_QUEUE), strict=True))


def expected(who, may):
    """Return the code of a refusal; empty: the call is let through."""
    if who in may:
        return ""
    return "unauthorized" if who in {"none", "wrong"} else "forbidden"


def test_of_every_call_it_is_known_who_may_make_it():
    assert {f"{call.method} {call.path}" for call in TABLE} == set(MAY)


async def test_every_call_lets_through_who_may_make_it_and_nobody_else(token_of, running):
    """No body, no WebSocket: what is let through fails later, or shows something."""
    names = {"queue": "orders", "group": "workers", "member": "m", "producer": "p"}
    for call in TABLE:
        path = re.sub(r"{(\w+)}", lambda match: names[match[1]], call.path)
        for who, token in token_of.items():
            status, answer = await raw_call(running, call.method, path, token)
            wanted = expected(who, MAY[f"{call.method} {call.path}"])
            case = f"{call.method} {call.path} with {who}'s token: {status} {answer}"
            code = json.loads(answer)["error"]["code"] if status in {401, 403} else ""
            assert code == wanted, case
            assert status in {"": {200, 400}, "unauthorized": {401}, "forbidden": {403}}[code], case


async def raw_call(running, method, path, token):
    """Make a call whose answer need not be JSON."""
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    async with running.session.request(method, running.url + path, headers=headers) as response:
        return response.status, await response.text()
