"""Errors stay short, whatever came in: of a long text they repeat the beginning."""

from urllib.parse import quote

import pytest
from msgspec import inspect, structs

from partq.broker.api.openapi import _PATH_PARAMETERS
from partq.wire import frames
from tests.broker.contract import TABLE

LONG = "x" * 3000
MAX_CHARS = 500
"""Of a sentence that says what is wrong."""
NAMES = {"queue": "orders", "group": "workers", "partition": "1.0"}
CALLS = [pytest.param(call, id=f"{call.method} {call.path}") for call in TABLE if call.roles]


def samples(node):
    """Return a good value of a type, and the same with a long text in each place for one."""
    match node:
        case inspect.Metadata():
            return samples(node.type)
        case inspect.UnionType():
            kinds = [each for each in node.types if not isinstance(each, inspect.NoneType)]
            good, bad = samples(kinds[0])
            return good, bad + [each for kind in kinds[1:] for each in samples(kind)[1]]
        case inspect.StructType():
            return struct_samples(node)
        case inspect.ListType() | inspect.VarTupleType():
            good, bad = samples(node.item_type)
            return [good], [[each] for each in bad]
        case inspect.TupleType():
            parts = [samples(each) for each in node.item_types]
            good = [each for each, _ in parts]
            wrong = [
                [*good[:at], each, *good[at + 1 :]]
                for at, (_, bad) in enumerate(parts)
                for each in bad
            ]
            return good, wrong
        case inspect.DictType():
            good, bad = samples(node.value_type)
            return {"1.0": good}, [{"1.0": each} for each in bad] + [{LONG: good}]
        case inspect.StrType():
            return "1.0", [LONG]
        case inspect.LiteralType():
            return node.values[0], [LONG]
        case inspect.BoolType():
            return False, [LONG]
        case inspect.IntType() | inspect.FloatType():
            return max(1, node.ge or 0), [LONG, int("9" * 3000)]
    raise AssertionError(node)


def struct_samples(node):
    parts = {field.encode_name: samples(field.type) for field in node.fields}
    good = {
        field.encode_name: parts[field.encode_name][0] for field in node.fields if field.required
    }
    bad = [{**good, name: each} for name, (_, found) in parts.items() for each in found]
    return good, [*bad, {**good, LONG: 1}]


def requests(call):
    """Return requests of a call with one long text in each: path, query, headers and body."""
    good = NAMES | dict.fromkeys(_PATH_PARAMETERS.keys() - NAMES.keys(), "m")
    path = call.path.format_map(good)
    body = samples(inspect.type_info(call.body)) if call.body is not None else (None, [])
    sent = {} if call.body is None else {"json": body[0]}
    for name in good:
        if f"{{{name}}}" in call.path:
            yield call.path.format_map(good | {name: LONG}), sent
    yield f"{path}?namespace={LONG}", sent
    yield f"{path}?{LONG}=1", sent
    for field in structs.fields(call.query) if call.query is not None else ():
        yield f"{path}?{field.encode_name}={quote(LONG)}", sent
    for field in structs.fields(call.headers) if call.headers is not None else ():
        yield path, {"headers": {field.encode_name: LONG}, **sent}
    for each in body[1]:
        yield path, {"json": each}


def messages(answer):
    """Return every message of an error in an answer."""
    if isinstance(answer, dict):
        found = [answer["message"]] if isinstance(answer.get("message"), str) else []
        return found + [text for each in answer.values() for text in messages(each)]
    if isinstance(answer, list):
        return [text for each in answer for text in messages(each)]
    return []


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_with_a_long_text(running, peers, call):
    told = []
    for path, sent in requests(call):
        for token in (peers.ADMIN, peers.CONSUME):
            status, answer = await running.call(call.method, path, token=token, **sent)
            assert status != 500, (path, sent)
            told += [text for text in messages(answer) if len(text) > MAX_CHARS]
    assert told == []


@pytest.mark.parametrize(
    "frame",
    [
        frames.ProducerHello(LONG),
        frames.ProducerHello("p", version=int("9" * 19)),
        frames.Bind(LONG, "i", 10),
        frames.Bind("m", LONG, 10),
        frames.Bind("m", "i", 10, version=int("9" * 19)),
    ],
)
async def test_a_first_frame_with_a_long_text(running, peers, frame):
    is_producer = isinstance(frame, frames.ProducerHello)
    path = "publish" if is_producer else "groups/workers/flow"
    token = peers.PRODUCE if is_producer else peers.CONSUME
    bad = await peers.connect(running, f"/v1/queues/orders/{path}", token)
    await bad.send(frame)
    failed, _ = await bad.expect(frames.Failed)
    assert len(failed.message) <= MAX_CHARS


async def test_a_nack_with_a_long_reason(running, peers):
    await running.assign("m", [0])
    flow = await peers.open_flow(running, "m")
    assigned, _ = await flow.expect(frames.Assigned)
    token = (assigned.generation, assigned.partition, assigned.broker_epoch, assigned.epoch)
    await flow.send(frames.Nack(1, *token, 0, [(0, 1)], reason=LONG))
    refused, _ = await flow.expect(frames.AckRefused)
    assert len(refused.message) <= MAX_CHARS
