"""What is wrong with a body: where it is, what was got, what was expected, and what to send."""

import json
import tracemalloc

import pytest
from multidict import MultiDict

from partq.errors import BadJsonError, BadRequestError, BatchTooLargeError
from partq.wire.calls.audit_calls import AuditCursors
from partq.wire.calls.bodies import (
    AckBody,
    AliveBody,
    Drains,
    LeaveQuery,
    NackBody,
    ProducerQuery,
    PublishBody,
    PublishHeaders,
    ResetBody,
)
from partq.wire.calls.body_codec import decode, read_texts
from partq.wire.calls.browse import BrowseBody
from partq.wire.calls.entries import EntriesQuery
from partq.wire.calls.registration import RegisterBody, SubscribableBody
from partq.wire.calls.scheduled import ScheduledQuery
from partq.wire.key_states import KeyStatesQuery


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "nothing came, expected JSON"),
        (b" \n", "nothing came, expected JSON"),
        (rb'{"key":"\ud800"}', r"half of a character, \ud800, at byte 8"),
        (rb'{"key":"\ud800"}', "body: key: half of a character"),
        (rb'{"headers":{"h":"\ud800"}}', "body: headers.h: half of a character"),
        (rb'{"headers":{"a":"b","x\ud800":"c"}}', "body: headers: half of a character"),
        (rb'"\ud800"', "body: half of a character"),
        (rb'{"key":"\ud800x"}', r"half of a character, \ud800, at byte 8"),
        (rb'{"key":"\ud800\u0041"}', r"half of a character, \ud800, at byte 8"),
        (rb'{"key":"\uDC00"}', r"half of a character, \uDC00, at byte 8"),
        (rb'{"key":"\ud83d\ude00\ud83d"}', r"half of a character, \ud83d, at byte 20"),
        (rb'{"key":"\\\ud800"}', r"half of a character, \ud800, at byte 10"),
        (rb'{"headers":{"\udfff":"x"}}', r"half of a character, \udfff, at byte 13"),
        (b'{"key":"a\xff"}', "byte 9 is not UTF-8"),
        (b'{"key":"\xed\xa0\x80"}', "byte 8 is not UTF-8"),
        (rb'{"key":"\\ud800"', "truncated"),
        (rb'{"key":1,"value":"\ud800"}', "key: got a whole number, expected text or null"),
    ],
)
def test_what_is_wrong_is_said(body, expected):
    with pytest.raises(BadJsonError) as caught:
        decode(body, PublishBody)
    assert expected in caught.value.message


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (rb'{"key":"\ud83d\ude00"}', "\U0001f600"),
        (rb'{"key":"\\ud800"}', r"\ud800"),
        (b'{"key":"\xf0\x9f\x98\x80"}', "\U0001f600"),
    ],
)
def test_whole_characters_are_taken(body, key):
    assert decode(body, PublishBody).key == key


def test_half_a_character_in_one_of_many_messages_is_found():
    with pytest.raises(BadJsonError, match=r"body: \[1\]\.value: half of a character"):
        decode(rb'[{"key":"a","value":""},{"key":"b","value":"\ud800"}]', list[PublishBody])


def test_a_body_of_deep_nesting_with_half_a_character():
    body = b"[" * 5000 + rb'"\ud800"' + b"]" * 5000
    with pytest.raises(BadJsonError, match="body: "):
        decode(body, PublishBody)


def test_a_body_of_escapes_is_judged_in_linear_time():
    body = b'{"key":"' + rb"\\" * 500_000 + rb"\ud800" + b'"}'
    with pytest.raises(BadJsonError, match="half of a character"):
        decode(body, PublishBody)


ITEM = {"partition": "1.0", "broker_epoch": 1, "epoch": 1}


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (PublishBody, [1], "body: got an array, expected an object; see"),
        (PublishBody, {"x": 1}, "got the unknown field x, expected key, value, value_base64, "),
        (list[PublishBody], [{}, {"key": 1}], "[1].key: got a whole number, expected text or null"),
        (PublishBody, {"headers": {"a": "", "b": 1}}, "headers[b]: got a whole number, expected"),
        (PublishBody, {"event_time_ms": 1.5}, "event_time_ms: got a number that is not whole, "),
        (PublishBody, {"sequence": -1}, "sequence: got -1, expected 0 or more"),
        (AckBody, {"flow": 1, "acks": []}, "got flow, acks, expected 1 or more receipts alone, "),
        (AckBody, {}, "got no receipts, expected 1 or more receipts alone, or member, flow, acks"),
        (AckBody, {"receipts": []}, "got no receipts, expected 1 or more receipts alone, or mem"),
        (NackBody, {"receipts": ["r"], "flow": 1}, "got receipts, flow, expected 1 or more "),
        (
            NackBody, {"member": "m", "flow": 1, "nacks": [], "delay_ms": 0},
            "beside nacks, expected them in each of the nacks",
        ),
        (
            AckBody, {"member": "m", "flow": 1, "acks": [{"upto": 1}]},
            "acks[0].partition: got nothing, expected the field; send it",
        ),
        (
            NackBody, {"member": "m", "flow": 1, "nacks": [{**ITEM, "offsets": []}]},
            "nacks[0].offsets: got 0 entries, expected 1 or more",
        ),
        (AliveBody, {"flow": True, "incarnation": "i"}, "flow: got true or false, expected a"),
        (AliveBody, {"flow": 1, "incarnation": ""}, "got 0 characters, expected 1 or more"),
        (AliveBody, {"flow": 10**18, "incarnation": "i"}, f"expected at most {10**18 - 1}"),
        (ResetBody, {"to": "last"}, "to: got 'last', expected 'earliest' or 'latest'"),
        (ResetBody, {"offset": 2**53 + 1}, f"offset: got {2**53 + 1}, expected at most {2**53}"),
        (BrowseBody, {"offsets": {"1.0": 1, "1.1": -4}}, "offsets[1.1]: got -4, expected 0"),
        (AuditCursors, {"cursors": {}}, "cursors: got 0 entries, expected 1 or more"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_told_as_every_other_error(kind, value, expected):
    with pytest.raises(BadJsonError) as caught:
        decode(json.dumps(value).encode(), kind)
    assert expected in caught.value.message
    assert "`" not in caught.value.message


def test_a_number_without_end_is_told():
    with pytest.raises(BadJsonError, match="flow: got a number that is too large to read"):
        decode(b'{"incarnation":"i","flow":' + b"9" * 5000 + b"}", AliveBody)


def test_a_large_body_is_not_looked_at_again_to_say_what_was_got():
    body = json.dumps({"value": "x" * 300_000, "sequence": -1}).encode()
    with pytest.raises(BadJsonError, match="sequence: got a number out of range, expected 0"):
        decode(body, PublishBody)


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (PublishHeaders, {"Partq-TTL-Ms": "0"}, "query: Partq-TTL-Ms: got 0, expected 1 or more;"),
        (PublishHeaders, {"Partq-TTL-Ms": "x"}, "Partq-TTL-Ms: got text 'x', expected a whole"),
        (ProducerQuery, {"outlines": "1"}, "outlines: got '1', expected 'false' or 'true'"),
        (LeaveQuery, {"flow": "-1"}, "query: flow: got -1, expected 0 or more"),
        (
            ScheduledQuery,
            {"after": "abc"},
            "query: after: got 'abc', expected what the last answer calls next; left out: from",
        ),
        (
            KeyStatesQuery,
            {"partition": "1.0", "after": "x"},
            "after: got 'x', expected text that matches '^[0-9]{1,20}$'",
        ),
        (EntriesQuery, {}, "query: from: got nothing, expected the field; send it"),
    ],
)
def test_a_parameter_that_does_not_fit_is_told_likewise(kind, given, expected):
    with pytest.raises(BadRequestError) as caught:
        read_texts(MultiDict(given), kind, "query")
    assert expected in caught.value.message


@pytest.mark.parametrize(
    ("kind", "body", "name"),
    [
        (PublishBody, '{"key":"a","value":"v","key":"b"}', "key"),
        (PublishBody, '{"value":"v","value":"v"}', "value"),
        (PublishBody, r'{"value":"a\u003ab","value":"v"}', "value"),
        (PublishBody, r'{"value":"v","v\u0061lue":"w"}', "value"),
        (PublishBody, '{"value":"v","headers":{"a":"b","a":"c"}}', "a"),
        (PublishBody, '{"key":null,"value":"v","key":"b"}', "key"),
        (list[PublishBody], '[{"value":"v"},{"value":"v","value":"w"}]', "value"),
        (SubscribableBody, '{"is_subscribable":false,"is_subscribable":true}', "is_subscribable"),
        (RegisterBody, '{"incarnation":"x","epoch":9,"epoch":10}', "epoch"),
        (ResetBody, '{"to":"latest","is_dry_run":true,"is_dry_run":false}', "is_dry_run"),
        (BrowseBody, '{"offsets":{"1.0":1,"1.0":2}}', "1.0"),
        (Drains, '{"drains":[],"comment":{"x":1,"x":2}}', "x"),
    ],
)
def test_a_field_that_stands_there_twice_is_refused_and_named(kind, body, name):
    """The last one would count, and nobody would know."""
    with pytest.raises(BadJsonError) as caught:
        decode(body.encode(), kind)
    assert f"body: {name}: got the field twice in one object" in caught.value.message


@pytest.mark.parametrize(
    "value",
    [
        {"key": "a:b", "value": '{"a":1,"a":2}', "headers": {"a:b": "::", "c": ""}},
        {"key": None, "value": "\u003a", "headers": None, "event_time_ms": 0, "slot": None},
        {"key": "", "value": "\\u003a"},
    ],
)
def test_what_only_looks_like_a_field_is_none(value):
    """Colons in texts, escapes, and fields that are set to what they are without."""
    for body in (json.dumps(value, indent=1), json.dumps(value).replace(":", r":")):
        assert decode(body.encode(), PublishBody).value == value["value"]
    assert len(decode(json.dumps([value, value]).encode(), list[PublishBody])) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"{}," * 1_500_000 + b"{}]",
        b"[" + b'{"key":null},' * 1_500_000 + b"{}]",
        b'[{"value":"' + b'\\"' * 10 + b'"},' + b'{"value":","},' * 1_500_000 + b"{}]",
        b"[" * 1_500_000,
        b'{"headers":{' + b'"a":"b",' * 1_500_000 + b'"c":"d"}}',
    ],
    ids=["objects", "fields", "texts", "arrays", "headers"],
)
def test_a_body_of_many_small_parts_is_refused_before_it_is_decoded(body):
    tracemalloc.start()
    try:
        with pytest.raises(BatchTooLargeError, match="more than 500000 objects, fields and items"):
            decode(body, list[PublishBody])
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * len(body) + 1_000_000


@pytest.mark.parametrize("text", ["{[:,", '"{', '\\",', "\\\\", '\\"\\'])
def test_what_stands_in_texts_is_no_part(text):
    value = text * 600_000
    body = json.dumps([{"key": text, "value": value}]).encode()
    assert decode(body, list[PublishBody])[0].value == value
