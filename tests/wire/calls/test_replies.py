from typing import Any

import pytest

from partq.errors import InternalError, OutOfSequenceError, UnavailableError
from partq.wire.calls import replies
from partq.wire.calls.answers import Left
from partq.wire.calls.state import BrokerState


@pytest.mark.parametrize(
    "text",
    [b"", b"<html>", b"[" * 50_000, b"Infinity", b"[1e999]", b"NaN", b"1" * 5000, b'"\\ud800"'],
    ids=lambda text: text[:10].decode() or "empty",
)
def test_what_is_no_json_is_one_kind_of_error(text):
    with pytest.raises(ValueError, match=r"JSON|truncated|range"):
        replies.parse(text)


@pytest.mark.parametrize("text", [b"null", b"[]", b"502", b'"bad gateway"'])
def test_an_object_is_asked_for(text):
    with pytest.raises(ValueError, match="object"):
        replies.parse_object(text)


def test_an_answer_without_an_error():
    assert replies.read_error({"results": []}) is None


def test_an_error_is_the_one_that_is_named():
    error = {"code": "out_of_sequence", "message": "5 came", "retry_after_ms": 1500, "due": 3}
    found = replies.read_error({"error": error}, "queue q: ")
    assert isinstance(found, OutOfSequenceError)
    assert (found.message, found.due, found.retry_after_s) == ("queue q: 5 came", 3, 1.5)
    unknown = replies.read_error({"error": {"code": "new", "message": "m"}})
    assert isinstance(unknown, InternalError)


@pytest.mark.parametrize(("told", "followed_s"), [(10**400, 3600), (-5, 0)])
def test_advice_to_wait_has_a_bound(told, followed_s):
    error = {"code": "unavailable", "message": "m", "retry_after_ms": told}
    found = replies.read_error({"error": error})
    assert isinstance(found, UnavailableError)
    assert found.retry_after_s == followed_s


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        502,
        {"error": "bad gateway"},
        {"error": None},
        {"error": {"message": "no code"}},
        {"error": {"code": 502, "message": "m"}},
        {"error": {"code": "unavailable", "message": "m", "retry_after_ms": "soon"}},
        {"error": {"code": "unavailable", "message": "m", "retry_after_ms": 0.5}},
    ],
    ids=repr,
)
def test_an_error_of_others(answer):
    with pytest.raises(ValueError, match="expected"):
        replies.read_error(answer)


FLOW = {"group": "g", "member": "m", "incarnation": "i", "bound_s": 1.5}
STATE = {"broker": "b", "incarnation": "i", "partitions": {}, "flows": [FLOW], "lost_flows": []}


@pytest.mark.parametrize("groups", [None, [], {"g": 5}])
def test_a_state_has_a_shape(groups):
    partition = {"broker_epoch": 1, "held_s": 0.5, "groups": {}}
    replies.convert({**STATE, "partitions": {"1.0": partition}}, BrokerState)
    odd = {**partition, "groups": groups}
    with pytest.raises(ValueError, match="groups"):
        replies.convert({**STATE, "partitions": {"1.0": odd}}, BrokerState)


@pytest.mark.parametrize("flows", [None, {}, [{**FLOW, "member": 5}], [{"group": "g"}]])
def test_the_flows_of_a_state_have_a_shape(flows):
    with pytest.raises(ValueError, match="flows"):
        replies.convert({**STATE, "flows": flows}, BrokerState)


def test_a_field_that_is_not_known_is_left_out():
    assert replies.decode(b'{"held": [], "more": 1}', Left) == Left([])


@pytest.mark.parametrize(("text", "what"), [(b"{}", "held: got nothing"), (b'{"held": 5}', "held")])
def test_an_answer_of_another_shape_names_the_field(text, what):
    with pytest.raises(ValueError, match=what):
        replies.decode(text, Left)


@pytest.mark.parametrize("text", [b"", b"<html>", b'{"held": ' + b"[" * 50_000, b'{"held"'])
def test_what_is_no_json_is_told_apart(text):
    with pytest.raises(replies.NotJsonError):
        replies.decode(text, dict[str, Any])
