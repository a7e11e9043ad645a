"""What may be published: one rule for event times, the same as over HTTP."""

import pytest

from partq import Message
from partq.client.produce.message_encoding import encode_checked
from partq.errors import BadRequestError
from partq.wire.batch import MAX_EVENT_TIME_MS, decode_message


@pytest.mark.parametrize("wrong", [-1, MAX_EVENT_TIME_MS + 1, 2**64 - 1, 2**70])
def test_an_event_time_out_of_range_is_refused_before_anything_is_sent(wrong):
    messages = [Message("k", b"v"), Message("k", b"v", None, wrong)]
    with pytest.raises(BadRequestError) as caught:
        encode_checked(messages, 1000)
    told = f"event_time_ms: got {wrong}, expected 0 to {MAX_EVENT_TIME_MS}"
    assert caught.value.message.startswith(told)


def test_event_times_up_to_the_bounds_are_taken():
    times = [0, 1, MAX_EVENT_TIME_MS]
    encoded = encode_checked([Message(None, b"v", None, time) for time in times], 1000)
    assert [decode_message(each).event_time_ms for each in encoded] == times


def test_no_message_at_all_is_no_error():
    assert encode_checked([], 1000) == []


HALF = "\ud800"


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (
            Message(f"a{HALF}", b"v"),
            "partition key 'a\\ud800': got a lone surrogate at character 1",
        ),
        (
            Message("k", b"v", {"h": "v", f"xy{HALF}": "v"}),
            "headers: the name 'xy\\ud800': got a lone surrogate at character 2",
        ),
        (
            Message("k", b"v", {"h": "v", "source": HALF}),
            "headers: source '\\ud800': got a lone surrogate at character 0",
        ),
        (
            Message(f"{HALF}" * 999, b"v"),
            "partition key '" + "\\ud800" * 80 + "...': got a lone surrogate",
        ),
    ],
)
def test_half_a_character_is_refused_by_the_name_of_its_field(message, place):
    with pytest.raises(BadRequestError) as caught:
        encode_checked([Message("k", b"v", {"h": "v"}), message], 10_000)
    assert caught.value.message.startswith(place)
    assert "expected text that UTF-8 can hold" in caught.value.message
    caught.value.message.encode()
