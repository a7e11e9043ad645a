"""Who may make which call: every route with every kind of token."""

import asyncio
import json
import re
from urllib.parse import unquote

import pytest
from yarl import URL

from partq.wire import frames
from tests.broker.contract import TABLE, check_answer

WHO = (
    "none",
    "wrong",
    "produce",
    "consume",
    "consume another group",
    "consume every group",
    "admin",
    "another queue's",
    "peer",
)
EVERYONE = set(WHO)
ADMINS = {"admin"}
PRODUCERS = {"produce", "admin"}
BY_NAME = {"consume", "admin"}
CONSUMERS = {"consume", "consume every group", "admin"}
PEERS = {"peer"}
OF_THE_QUEUE = {"produce", "consume another group", *CONSUMERS, "admin"}
QUEUE = "/v1/queues/{queue}"
GROUP = f"{QUEUE}/groups/{{group}}"
ADMIN = "/admin/v1/queues/{queue}"
MAY = {
    "GET /healthz": EVERYONE,
    "GET /readyz": EVERYONE,
    "GET /metrics": EVERYONE,
    "GET /openapi.json": EVERYONE,
    "GET /": EVERYONE,
    "GET /page/{file}": EVERYONE,
    f"GET {QUEUE}/layout": OF_THE_QUEUE,
    f"GET {QUEUE}/status": OF_THE_QUEUE,
    f"GET {QUEUE}/rates": OF_THE_QUEUE,
    f"GET {QUEUE}/publish": PRODUCERS,
    f"GET {QUEUE}/producers/{{producer}}": PRODUCERS,
    f"POST {QUEUE}/messages": PRODUCERS,
    f"POST {QUEUE}/browse": {*CONSUMERS, "consume another group"},
    f"GET {QUEUE}/partitions/{{partition}}/entries": {*CONSUMERS, "consume another group"},
    f"GET {QUEUE}/audit": ADMINS,
    f"GET {QUEUE}/partitions/{{partition}}/audit": ADMINS,
    f"POST {QUEUE}/audit/cursor": ADMINS,
    f"POST {QUEUE}/positions": {*CONSUMERS, "consume another group"},
    f"POST {GROUP}/cursors": BY_NAME,
    f"PUT {QUEUE}/pins/{{pin}}": {*CONSUMERS, "consume another group"},
    f"DELETE {QUEUE}/pins/{{pin}}": {*CONSUMERS, "consume another group"},
    f"GET {GROUP}/flow": CONSUMERS,
    f"POST {GROUP}/pull": CONSUMERS,
    f"POST {GROUP}/acks": CONSUMERS,
    f"POST {GROUP}/nacks": CONSUMERS,
    f"POST {GROUP}/in-progress": CONSUMERS,
    f"GET {GROUP}/members/{{member}}": CONSUMERS,
    f"DELETE {GROUP}/members/{{member}}": CONSUMERS,
    f"POST {GROUP}/members/{{member}}/leave": CONSUMERS,
    f"POST {GROUP}/members/{{member}}/alive": CONSUMERS,
    f"GET {GROUP}/partitions": CONSUMERS,
    f"PUT {GROUP}/members/{{member}}/partitions/{{partition}}": CONSUMERS,
    f"DELETE {GROUP}/members/{{member}}/partitions/{{partition}}": CONSUMERS,
    f"PUT {GROUP}/members/{{member}}/node": CONSUMERS,
    f"DELETE {GROUP}/members/{{member}}/node": CONSUMERS,
    f"PUT {QUEUE}/partitions/{{partition}}/subscribable": ADMINS,
    f"PUT {QUEUE}/brokers/{{broker}}/subscribable": ADMINS,
    f"GET {GROUP}/picture": ADMINS,
    f"GET {GROUP}/plan": ADMINS,
    f"POST {GROUP}/reset": ADMINS,
    f"GET {GROUP}/keys": ADMINS,
    f"POST {GROUP}/keys/release": ADMINS,
    f"GET {GROUP}/state": CONSUMERS,
    f"GET {GROUP}/states": ADMINS,
    f"POST {GROUP}/sessions/accept": CONSUMERS,
    f"POST {GROUP}/sessions/renew": CONSUMERS,
    f"POST {GROUP}/sessions/close": CONSUMERS,
    f"POST {GROUP}/sessions/release": ADMINS,
    f"GET {GROUP}/sessions": ADMINS,
    f"GET {GROUP}/session-state": CONSUMERS,
    f"PUT {GROUP}/session-state": CONSUMERS,
    f"POST {GROUP}/remove": ADMINS,
    f"GET {ADMIN}/state": ADMINS,
    f"POST {QUEUE}/dead-letters": PEERS,
    f"POST {QUEUE}/dead-letters/replay": ADMINS,
    f"POST {QUEUE}/dead-letters/drop": ADMINS,
    f"GET {QUEUE}/scheduled": PRODUCERS,
    f"DELETE {QUEUE}/scheduled/{{partition}}/{{number}}": PRODUCERS,
    f"POST {QUEUE}/scheduled/drop": ADMINS,
    f"POST {ADMIN}/expiry/confirm": ADMINS,
    f"POST {ADMIN}/refresh": ADMINS,
    f"POST {ADMIN}/partitions": ADMINS,
    f"POST {ADMIN}/claim": ADMINS,
    f"POST {ADMIN}/yield": ADMINS,
    f"POST {ADMIN}/groups/{{group}}/pause": ADMINS,
    f"POST {ADMIN}/groups/{{group}}/drain": ADMINS,
    f"POST {ADMIN}/groups/{{group}}/commit": ADMINS,
    f"POST {ADMIN}/groups/{{group}}/parts": ADMINS,
    f"POST {ADMIN}/groups/{{group}}/cancel": ADMINS,
}
"""Beside the declarations on purpose: what a route lets through is said twice, and compared."""

OTHER_QUEUE = "other-queue-token-01"
EVERY_GROUP = "every-group-token-01"
WAIT_S = 60.0


@pytest.fixture
def token_of(tokens_file, peers):
    """Return the token of each kind of caller; None: it sends none."""
    rows = json.loads(tokens_file.read_text())
    rows.append({"token": OTHER_QUEUE, "queue": "invoices", "role": "admin"})
    rows.append({"token": EVERY_GROUP, "queue": "orders", "role": "consume"})
    tokens_file.write_text(json.dumps(rows))
    tokens = (None, "nobody-knows-this", peers.PRODUCE, peers.CONSUME, peers.OTHER_GROUP)
    return dict(zip(WHO, (*tokens, EVERY_GROUP, peers.ADMIN, OTHER_QUEUE, None), strict=True))


def expected(who, may):
    """Return the code of a refusal; empty: the call is let through."""
    if who in may:
        return ""
    return "unauthorized" if who in {"none", "wrong"} else "forbidden"


def test_of_every_call_it_is_known_who_may_make_it():
    assert {f"{call.method} {call.path}" for call in TABLE} == set(MAY)


async def test_every_call_lets_through_who_may_make_it_and_nobody_else(token_of, running):
    """No body, no WebSocket: what is let through fails later, or shows something."""
    token_of["peer"] = running.broker.peer_token  # drawn by the broker, for those of other queues
    assert token_of["peer"]
    names = {"queue": "orders", "group": "workers", "member": "m", "producer": "p", "pin": "x"}
    names |= {"partition": "1.0", "broker": "orders-0", "file": "app.js"}
    names["number"] = "0001795324574173"
    for call in TABLE:
        path = re.sub(r"{(\w+)}", lambda match: names[match[1]], call.path)
        for who, token in token_of.items():
            status, answer = await raw_call(running, call.method, path, token)
            wanted = expected(who, MAY[f"{call.method} {call.path}"])
            case = f"{call.method} {call.path} with {who}'s token: {status} {answer}"
            code = json.loads(answer)["error"]["code"] if status in {401, 403} else ""
            assert code == wanted, case
            assert (
                status in {"": {200, 204, 400}, "unauthorized": {401}, "forbidden": {403}}[code]
            ), case


@pytest.mark.parametrize("name", [".", "..", "%2E%2E", "a%0Ab", "%00"])
async def test_a_name_that_a_client_or_proxy_would_change_is_refused(running, peers, name):
    """Whatever it names: what arrives of it elsewhere is another call."""
    for what in ("queue", "group", "member", "producer", "pin", "broker"):
        names = {"queue": "orders", "group": "workers", "member": "m", "partition": "1.0"}
        names["broker"] = "orders-0"
        names[what] = name
        for call in TABLE:
            who_may = MAY[f"{call.method} {call.path}"]
            if f"{{{what}}}" not in call.path or "admin" not in who_may:
                continue
            path = re.sub(
                r"{(\w+)}", lambda match, names=names: names.get(match[1], "x"), call.path
            )
            url = URL(running.url + path, encoded=True)
            headers = {"Authorization": f"Bearer {peers.ADMIN}"}
            async with running.session.request(call.method, url, headers=headers) as response:
                error = (await response.json())["error"]
            case = f"{call.method} {path}: {error}"
            assert (response.status, error["code"]) == (400, "bad_request"), case
            assert error["message"].startswith(f"{what} {unquote(name)!r}; expected printable"), (
                case
            )


@pytest.mark.parametrize("name", [".", "..", "a\n", ""])
async def test_a_member_of_such_a_name_cannot_bind(running, peers, name):
    body = {"member": name, "incarnation": "i"}
    path = "/v1/queues/orders/groups/workers/pull"
    status, answer = await running.call("POST", path, token=peers.CONSUME, json=body)
    assert (status, answer["error"]["code"]) == (400, "bad_request")
    assert "member" in answer["error"]["message"]


async def raw_call(running, method, path, token):
    """Make a call whose answer need not be JSON."""
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    async with running.session.request(method, running.url + path, headers=headers) as response:
        text = await response.text()
        check_answer(method, path, response, text)
        return response.status, text


async def test_who_may_not_know_the_groups_is_not_told_them(running, tokens_file, peers):
    rows = json.loads(tokens_file.read_text())
    ghost = "ghosts-token-00001"
    rows.append({"token": ghost, "queue": "orders", "role": "consume", "groups": ["ghosts"]})
    tokens_file.write_text(json.dumps(rows))
    path = "/v1/queues/orders/groups/ghosts/members/m"

    async def is_known():
        return (await running.call("GET", path, token=ghost))[0] == 404

    await peers.eventually(is_known, "the token counts")
    _, answer = await running.call("GET", path, token=ghost)
    assert answer["error"]["code"] == "unknown_group"
    assert "workers" not in answer["error"]["message"]
    _, answer = await running.call("GET", path, token=peers.ADMIN)
    assert "workers" in answer["error"]["message"]


# ---- rotation -----------------------------------------------------------------------------------

NEW = {"produce": "produce-token-0002", "consume": "consume-token-0003"}


def write_tokens(tokens_file, peers, *, old, new):
    """Write the tokens of a rotation: the old ones, the new ones, or both; admin stays."""
    rows = [{"token": peers.ADMIN, "queue": "orders", "role": "admin"}]
    for role, old_token in (("produce", peers.PRODUCE), ("consume", peers.CONSUME)):
        tokens = [old_token] * old + [NEW[role]] * new
        rows += [{"token": token, "queue": "orders", "role": role} for token in tokens]
    tokens_file.write_text(json.dumps(rows))


async def publish(running, token):
    """Publish a message; return the status."""
    body = {"key": "k", "value": "a"}
    path = "/v1/queues/orders/messages"
    return (await running.call("POST", path, token=token, json=body))[0]


async def test_a_token_is_replaced_without_a_gap_and_the_old_one_ends_what_it_opened(
    scene, peers, tokens_file
):
    """With both in the file both are good; then the old one's flow and producer are closed."""
    running = scene.running
    write_tokens(tokens_file, peers, old=True, new=True)

    async def is_known():
        return await publish(running, NEW["produce"]) == 201

    await peers.eventually(is_known, "the new token counts")
    assert await publish(running, peers.PRODUCE) == 201
    assert await scene.source.ack(scene.held, 1) == "", "the flow under the old token continues"
    later = await peers.connect(running, "/v1/queues/orders/publish", NEW["produce"])
    write_tokens(tokens_file, peers, old=False, new=True)
    for peer in (scene.source, scene.producer):
        failed, _ = await peer.find(frames.Failed)
        assert failed.code == "unauthorized"
    assert await publish(running, peers.PRODUCE) == 401
    await peers.eventually(lambda: not running.broker.flow_registry.flows, "the flow is lost")
    await later.send(frames.ProducerHello("p"))
    await later.expect(frames.ProducerWelcome)
    assert await publish(running, NEW["produce"]) == 201


async def test_a_pull_under_a_token_that_was_removed_is_refused(running, peers, tokens_file):
    await running.assign("m", [0])
    path = "/v1/queues/orders/groups/workers/pull"
    body = {"member": "m", "incarnation": "i", "wait_ms": 0}

    async def pull():
        return (await running.call("POST", path, token=peers.CONSUME, json=body))[0]

    assert await pull() == 200
    write_tokens(tokens_file, peers, old=False, new=True)

    async def is_refused():
        return await pull() == 401

    await peers.eventually(is_refused, "refused")


# ---- headers that are not text -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "value", "code"),
    [
        ("Authorization", b"Bearer \xff\xfe", "unauthorized"),
        ("PartitionKey", b"\xff", "bad_request"),
        ("Partq-Producer", b"\xff", "bad_request"),
    ],
)
async def test_a_header_that_is_no_text_is_refused(running, peers, header, value, code):
    """Bytes that are not UTF-8 reach the broker as they are."""
    body = json.dumps({"value": "a"}).encode()
    lines = [b"POST /v1/queues/orders/messages HTTP/1.1", b"Host: x", b"Connection: close"]
    lines.append(b"Content-Length: %d" % len(body))
    if header != "Authorization":
        lines.append(b"Authorization: Bearer " + peers.PRODUCE.encode())
    lines.append(header.encode() + b": " + value)
    port = int(running.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
    async with asyncio.timeout(WAIT_S):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == code
