"""Answers are the bytes that they were: recorded ones of every kind of call, and the document.

What a change is meant to change is recorded again: `RECORD_ANSWERS=1 pytest` with this file.
"""

import json
import os
import re
from pathlib import Path

from partq.broker.api.app_keys import RATES
from partq.broker.api.endpoints import NotJson
from partq.core.samples.ring import STEP_S
from tests.broker.contract import DOCUMENT, TABLE, call_of

HERE = Path(__file__).parent
ANSWERS, OPENAPI = HERE / "recorded_answers.txt", HERE / "recorded_openapi.txt"
QUEUE, ADMIN = "/v1/queues/orders", "/admin/v1/queues/orders"
GROUP = f"{QUEUE}/groups/workers"
TIMES = re.compile(
    r'"((?:held|bound|lost)_s|born|\w*(?:publish_time|lag|now|at|next_redelivery)_ms|flow|answer)":[0-9.e+-]+'
)
"""What differs from run to run; so do the texts below."""
SERIES = re.compile(r'"(accepted|delivered|lag|lag_ms|counts|step_p\d\d_ms)":\[[^\]]*\]')
"""Of rates: what was sampled before the call differs."""
QUANTILES = re.compile(r'"(p\d\d_ms)":[0-9.]+')
TEXTS = re.compile(r'"(incarnation|chain|receipt|version)":"[^"]+"')
EPOCHS = re.compile(r"\b1\d{12}\b")
CHECKSUMS = re.compile(r'"crc32c":\d+')


def recorded(path, text):
    """Return what a file holds; with RECORD_ANSWERS=1 it is written before."""
    if os.environ.get("RECORD_ANSWERS") == "1":
        path.write_text(text, encoding="utf-8")
    return path.read_text(encoding="utf-8")


def test_the_document_is_the_recorded_one():
    parts = {
        **DOCUMENT["paths"],
        **DOCUMENT["components"]["schemas"],
        "info": {**DOCUMENT["info"], "version": "VERSION"},
        "security": DOCUMENT["components"]["securitySchemes"],
        "head": [DOCUMENT["openapi"], DOCUMENT["servers"]],
    }
    assert set(DOCUMENT) == {"openapi", "info", "servers", "paths", "components"}
    text = "".join(
        f"{name} {json.dumps(part, sort_keys=True)}\n" for name, part in sorted(parts.items())
    )
    assert text == recorded(OPENAPI, text)


def by_partition(text):
    """Return a merged answer in an order that is no matter of the millisecond of each append."""
    answer = json.loads(text)
    answer["messages"].sort(key=lambda each: (each["partition"], each["offset"]))
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


class Recorder:
    """Makes calls at a broker and keeps what it answers, without what differs by the run."""

    def __init__(self, running, peers):
        self.running = running
        self.peers = peers
        self.lines = []
        self.called = set()

    async def __call__(self, method, path, json=None, *, token=None, headers=None, ordered=str):
        running, peers = self.running, self.peers
        sent = {"Authorization": f"Bearer {token or peers.ADMIN}", **(headers or {})}
        url = running.url + path
        async with running.session.request(method, url, json=json, headers=sent) as response:
            text = await response.text()
            kind = response.content_type
        plain = TIMES.sub(r'"\1":0', ordered(text).replace(running.url, "URL"))
        plain = TEXTS.sub(r'"\1":"X"', EPOCHS.sub("1700000000000", plain))
        plain = QUANTILES.sub(r'"\1":null', SERIES.sub(r'"\1":[]', plain))
        plain = CHECKSUMS.sub('"crc32c":0', plain)
        self.lines.append(f"{method} {path}\n{response.status} {kind}\n{plain}\n")
        if (found := call_of(method, path)) is not None:
            self.called.add((found.method, found.path))
        return text


async def test_answers_are_the_recorded_ones(running, peers):
    call = Recorder(running, peers)
    key, other = peers.key_of(0), peers.key_of(1)

    # ---- layout, status, health
    for path in ("/healthz", "/readyz", f"{QUEUE}/layout", f"{QUEUE}/status"):
        await call("GET", path)
    await call("GET", f"{QUEUE}/layout", token="wrong")
    await call("GET", "/v1/queues/others/layout", token=peers.CONSUME)
    await call("GET", "/v1/queues/nowhere")

    # ---- publish
    await call("POST", f"{QUEUE}/messages", {"key": key, "value": "a", "event_time_ms": 5})
    many = [
        {"key": key, "value": "b", "headers": {"h": "x"}},
        {"key": key},
        {"key": other, "value_base64": "/w=="},
    ]
    await call("POST", f"{QUEUE}/messages", many)
    await call("POST", f"{QUEUE}/messages", [{"key": other, "value": "ü"}])
    numbered = {"Partq-Producer": "p", "Partq-Sequence": "0"}
    for _ in range(2):
        await call("POST", f"{QUEUE}/messages", {"key": key, "value": "c"}, headers=numbered)
    gap = {"Partq-Producer": "p", "Partq-Sequence": "9"}
    await call("POST", f"{QUEUE}/messages", {"key": key, "value": "c"}, headers=gap)
    await call("POST", f"{QUEUE}/messages", {"key": key, "value": 5})
    await call("GET", f"{QUEUE}/producers/p")
    await call("GET", f"{QUEUE}/producers/p?key={key}&outlines=true")

    # ---- browse, positions, pins
    await call("POST", f"{QUEUE}/browse", {"partitions": ["1.0", "1.1"]}, ordered=by_partition)
    await call("POST", f"{QUEUE}/browse", {"partitions": ["1.1"], "is_merged": False})
    await call("POST", f"{QUEUE}/positions", {"to": "latest"})
    await call("POST", f"{QUEUE}/positions", {"offsets": {"1.0": 1, "1.1": 99}})
    await call("POST", f"{QUEUE}/positions", {"group": "nobody", "partitions": ["1.0"]})
    pin = f"{QUEUE}/pins/mine"
    await call("PUT", pin, {"offsets": {"1.0": 1}})
    await call("DELETE", pin)
    # Nothing of the logs is trimmed meanwhile: when that happens, no call says.
    await call("PUT", f"{QUEUE}/pins/other", {"offsets": {"1.0": 0, "1.1": 0}})

    # ---- a member, its acks and nacks
    await running.assign("m", [0, 1])
    pull = {"member": "m", "incarnation": "i", "max_messages": 100, "wait_ms": 10_000}
    text = await call("POST", f"{GROUP}/pull", pull)
    found = running.broker.flow_registry.find("workers", "m")
    message = json.loads(text)["messages"][0]
    token = {name: message[name] for name in ("partition", "broker_epoch", "epoch", "delivery")}
    acks = [{**token, "offsets": [0]}, {**token, "epoch": 99, "upto": 1}]
    for name, items in (("acks", acks[:1]), ("acks", acks)):
        await call("POST", f"{GROUP}/acks", {"member": "m", "flow": found.number, name: items})
    nacks = [{**token, "offsets": [1]}, {**token, "partition": "none", "offsets": [1]}]
    await call("POST", f"{GROUP}/nacks", {"member": "m", "flow": found.number, "nacks": nacks})
    receipts = {"receipts": [message["receipt"], "none"]}
    for name in ("in-progress", "acks", "nacks"):
        await call("POST", f"{GROUP}/{name}", receipts)
    await call("GET", f"{GROUP}/members/m")
    alive = {"flow": found.number, "incarnation": "i"}
    await call("POST", f"{GROUP}/members/n/alive", {**alive, "flow": 1})
    flow = await peers.open_flow(running, "n", "j")
    bound = running.broker.flow_registry.find("workers", "n")
    alive = {"flow": bound.number, "incarnation": "j"}
    await call("POST", f"{GROUP}/members/n/alive", alive, token=peers.CONSUME)
    await call("POST", f"{GROUP}/members/n/leave")
    await flow.close()
    await peers.eventually(
        lambda: running.broker.flow_registry.find("workers", "n") is None, "the flow is lost"
    )

    # ---- what a coordinator asks
    await call("GET", f"{ADMIN}/state")
    await call("GET", f"{QUEUE}/status")
    await running.app[RATES].sample(int(running.broker.clock() / STEP_S) - 1)
    await call("GET", f"{QUEUE}/rates")
    await call("GET", f"{GROUP}/picture")
    for query in ("?members=2", "?members=1001", "?members=x", ""):
        await call("GET", f"{GROUP}/plan{query}")
    state = await running.state(2)
    fence = {"partition": "1.2", "broker_epoch": state["broker_epoch"], "epoch": state["epoch"]}
    fence |= {"attempt": state["attempt"] + 1}
    odd = {**fence, "partition": "9.9"}
    calls = f"{ADMIN}/groups/workers"
    times = {"lease_ms": 20_000, "drain_ms": 20_000}
    await call("POST", f"{calls}/pause", {"pauses": [{**fence, **times}, {**odd, **times}]})
    await call("POST", f"{calls}/drain", {"drains": [fence, odd]})
    await call("POST", f"{calls}/cancel", {"cancels": [fence, odd]})
    ends = {"source": "", "target": "m", "cause": "unassigned"}
    await call("POST", f"{calls}/commit", {"commits": [{**fence, **ends}, {**odd, **ends}]})
    part = {**ends, "part": 0, "drain_ms": 0}
    await call("POST", f"{calls}/parts", {"commits": [{**fence, **part}, {**odd, **part}]})
    await call("POST", f"{ADMIN}/yield", {"partitions": ["1.3", "no"]})
    await call("POST", f"{ADMIN}/claim", {"partitions": ["1.3", "9.9"]})
    await call("POST", f"{ADMIN}/expiry/confirm")

    # ---- partitions that members choose: not in this group
    own = f"{GROUP}/members/m/partitions/1.0"
    await call("GET", f"{GROUP}/partitions")
    await call("PUT", own, {"incarnation": "i", "epoch": 0, "offset": 0})
    await call("DELETE", f"{own}?incarnation=i&epoch=0")
    node = {"incarnation": "i", "source_count": 2, "node_id": 0}
    await call("PUT", f"{GROUP}/members/m/node", node)
    await call("DELETE", f"{GROUP}/members/m/node?incarnation=i")
    for what in ("partitions/1.0", "brokers/orders-0"):
        mark = {"is_subscribable": False, "reason": "its disk is full"}
        await call("PUT", f"{QUEUE}/{what}/subscribable", mark)
        await call("PUT", f"{QUEUE}/{what}/subscribable", {"is_subscribable": True})

    # ---- what an administrator asks
    moved = {"to": "earliest", "is_dry_run": True}
    await call("POST", f"{GROUP}/reset", moved)
    await call("POST", f"{GROUP}/reset", {"to": "latest", "partitions": ["1.1"]})
    await call("GET", f"{GROUP}/keys")
    await call("POST", f"{GROUP}/keys/release", {"slot": 11, "partitions": ["1.0"]})
    await call("POST", f"{GROUP}/keys/release", {})
    await call("GET", f"{GROUP}/state?key=order-17")
    process = {"member": "m", "incarnation": "i"}
    lock = {**process, "session": "order-17", "lock": 1}
    await call("POST", f"{GROUP}/sessions/accept", {**process, "session": "order-17", "lock": -1})
    await call("POST", f"{GROUP}/sessions/renew", lock)
    await call("POST", f"{GROUP}/sessions/close", lock)
    await call("POST", f"{GROUP}/sessions/release", {"session": "order-17"})
    await call("GET", f"{GROUP}/sessions?partition=1.0")
    await call("GET", f"{GROUP}/session-state?session=order-17")
    await call("PUT", f"{GROUP}/session-state", {**lock, "state": None})
    await call("GET", f"{GROUP}/states?partition=1.0")
    await call("GET", f"{GROUP}/states?partition=1.0&after=x")
    positions = {"1.2": {"offset": 0}, "1.3": {"offset": 7}, "1.0": {"offset": 1}}
    await call("POST", f"{GROUP}/cursors", {"positions": positions})
    await call("POST", f"{GROUP}/remove", {"is_dry_run": True})
    await call("POST", f"{ADMIN}/partitions", {"partitions": 6, "is_dry_run": True})
    await call("POST", f"{ADMIN}/partitions", {"partitions": 0})
    await call("DELETE", f"{GROUP}/members/m?flow={found.number}")
    await call("POST", f"{QUEUE}/dead-letters/replay", {})
    await call("POST", f"{QUEUE}/dead-letters/drop", {"is_dry_run": True})
    await call("POST", f"{QUEUE}/dead-letters", {})
    await call("GET", f"{QUEUE}/scheduled")
    await call("GET", f"{QUEUE}/scheduled?limit=0")
    await call("DELETE", f"{QUEUE}/scheduled/1.0/0001795324574173")
    await call("DELETE", f"{QUEUE}/scheduled/1.0/7")
    await call("POST", f"{QUEUE}/scheduled/drop", {"is_dry_run": True})
    await call("GET", f"{QUEUE}/audit")
    await call("POST", f"{QUEUE}/audit/cursor", {"cursors": {"1.0": 0}})

    due = {
        (each.method, each.path)
        for each in TABLE
        if not isinstance(next(iter(each.answers.values())), NotJson)
        and each.path != "/openapi.json"
    }
    assert call.called == due, "no answer of a call is recorded"
    text = "\n".join(call.lines)
    assert text == recorded(ANSWERS, text)
