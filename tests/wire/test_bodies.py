"""What is wrong with a body that is no JSON: where it is, and what to send."""

import pytest

from partq.errors import BadJsonError
from partq.wire.bodies import PublishBody, decode


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "nothing came, expected JSON"),
        (b" \n", "nothing came, expected JSON"),
        (rb'{"key":"\ud800"}', r"half of a character, \ud800, at byte 8"),
        (rb'{"key":"\ud800x"}', r"half of a character, \ud800, at byte 8"),
        (rb'{"key":"\ud800\u0041"}', r"half of a character, \ud800, at byte 8"),
        (rb'{"key":"\uDC00"}', r"half of a character, \uDC00, at byte 8"),
        (rb'{"key":"\ud83d\ude00\ud83d"}', r"half of a character, \ud83d, at byte 20"),
        (rb'{"key":"\\\ud800"}', r"half of a character, \ud800, at byte 10"),
        (rb'{"headers":{"\udfff":"x"}}', r"half of a character, \udfff, at byte 13"),
        (b'{"key":"a\xff"}', "byte 9 is no UTF-8"),
        (b'{"key":"\xed\xa0\x80"}', "byte 8 is no UTF-8"),
        (rb'{"key":"\\ud800"', "truncated"),
        (rb'{"key":1,"value":"\ud800"}', "Expected `str | null`, got `int` - at `$.key`"),
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


def test_a_body_of_escapes_is_judged_in_linear_time():
    body = b'{"key":"' + rb"\\" * 500_000 + rb"\ud800" + b'"}'
    with pytest.raises(BadJsonError, match="half of a character"):
        decode(body, PublishBody)
