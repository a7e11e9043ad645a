"""Lines come as they are there, whatever they are read from."""

import asyncio
import os
import sys

import pytest

from partq.cli import input_lines
from partq.cli.input_lines import Line, open_lines
from partq.cli.messages.publish import Outgoing, parse_record
from partq.errors import BadRequestError, MessageTooLargeError, SettingsError


async def all_of(path):
    return [(line.number, line.text) async for line in open_lines(path)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"one", [(1, b"one")]),
        (b"one\n", [(1, b"one")]),
        (b"one\r\n\ntwo", [(1, b"one"), (2, b""), (3, b"two")]),
    ],
)
@pytest.mark.parametrize("chunk_bytes", [1, 2, 65536])
async def test_lines(tmp_path, monkeypatch, content, expected, chunk_bytes):
    monkeypatch.setattr(input_lines, "CHUNK_BYTES", chunk_bytes)
    file = tmp_path / "input"
    file.write_bytes(content)

    assert await all_of(file) == expected


async def test_a_line_of_a_pipe_does_not_wait_for_the_next(monkeypatch):
    reading, writing = os.pipe()
    monkeypatch.setattr(input_lines, "_STDIN", reading)
    source = open_lines(None)

    os.write(writing, b"first\nsec")
    async with asyncio.timeout(60):
        assert (await anext(source)).text == b"first"
        os.write(writing, b"ond\n")
        assert (await anext(source)).text == b"second"
        os.close(writing)
        assert [line async for line in source] == []
    os.close(reading)


async def test_line_that_is_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(input_lines, "MAX_LINE_BYTES", 100)
    file = tmp_path / "input"
    file.write_bytes(b"ok\n" + b"x" * 101)
    with pytest.raises(MessageTooLargeError, match="line 2: got more than 100 bytes"):
        await all_of(file)


async def test_file_that_cannot_be_read(tmp_path):
    with pytest.raises(SettingsError, match="No such file"):
        await all_of(tmp_path / "nothing")


def parse(text):
    return parse_record(Line(7, text.encode(), 99), "line 7")


@pytest.mark.parametrize(
    ("text", "value", "key"),
    [
        ('{"value": "v", "key": "k", "seq": 3}', b"v", "k"),
        ('{"value": "é", "key": null}', "é".encode(), None),
        ('{"value": {"a": [1, "é"]}}', '{"a": [1, "é"]}'.encode(), None),
        ('{"value": null}', b"null", None),
        ('{"value": [true, {}, [], ""]}', b'[true, {}, [], ""]', None),
        ('{"value_base64": "/w==", "key": ""}', b"\xff", ""),
    ],
)
def test_record(text, value, key):
    assert parse(text) == Outgoing(value, key, "line 7", 99)


@pytest.mark.parametrize(
    "number",
    ["12345678901234567890.5", "0.10", "1e5", "-0", "-0.0", "1E+2", "9" * 40, "9" * 5000, "1"],
)
def test_a_number_arrives_as_it_was_written(number):
    """As a float it lost digits: 12345678901234567890.5 became 1.2345678901234567e+19."""
    assert parse(f'{{"value": {number}, "seq": 1.10}}').value == number.encode()
    nested = f'{{"a": [1, {number}], "b": {{"é": {number}}}}}'
    assert parse(f'{{"value": {nested}}}').value == nested.encode()


def test_a_number_that_cannot_be_taken_is_shown_as_it_was_written():
    number = "12345678901234567890.50"
    for field in ("key", "event_time_ms", "value_base64"):
        other = "" if field == "value_base64" else '"value": "v", '
        with pytest.raises(BadRequestError, match=rf"{field}: got {number}, expected"):
            parse(f'{{{other}"{field}": {number}}}')


def test_a_value_that_is_nested_too_deep_is_refused_by_its_line():
    limit = sys.getrecursionlimit()
    refusals = []
    for depth in range(limit // 4, limit, limit // 20):
        try:
            parse('{"value": ' + "[" * depth + "]" * depth + "}")
        except BadRequestError as error:
            refusals.append(error.message)
    assert refusals
    assert all(told.startswith("line 7: ") for told in refusals)


def test_record_with_everything():
    outgoing = parse('{"value": "v", "headers": {"a": "b"}, "event_time_ms": 5}')
    assert (outgoing.headers, outgoing.event_time_ms) == ({"a": "b"}, 5)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "got no JSON"),
        ("[]", "got JSON that is not an object"),
        ("{}", "expected one of `value` and `value_base64`"),
        ('{"value": "a", "value_base64": "YQ=="}', "expected one of `value` and `value_base64`"),
        ('{"value_base64": "?"}', "value_base64: "),
        ('{"value_base64": 5}', "value_base64: "),
        ('{"value": "a", "key": 5}', "key: got 5, expected a text or null"),
        ('{"value": "a", "headers": {"a": 1}}', "headers: got {'a': 1}, expected texts by name"),
        ('{"value": "a", "event_time_ms": "now"}', "event_time_ms: got 'now', expected a whole"),
        ("[" * 100_000, "got no JSON"),
        ('{"value": "\\ud800"}', "value: "),
        ('{"value": "a", "value": "b"}', "got the field 'value' twice, expected it once"),
        ('{"value": {"a": 1, "a": 2}}', "got the field 'a' twice, expected it once"),
        ('{"value": [NaN]}', "value: got a number that JSON does not have"),
        ('{"value": {"a": -Infinity}}', "value: got a number that JSON does not have"),
        ('{"value": "a", "event_time_ms": true}', "event_time_ms: got True, expected a whole"),
        ('{"value": "a", "event_time_ms": 5.0}', "event_time_ms: got 5.0, expected a whole"),
        ('{"value": "a", "key": NaN}', "key: got NaN, expected a text or null"),
        ('{"value": 1e999}', "value: got a number that JSON does not have"),
    ],
    ids=range(19),
)
def test_wrong_record(text, sentence):
    with pytest.raises(BadRequestError, match=r"^line 7: ") as caught:
        parse(text)
    assert sentence in caught.value.message
    assert len(caught.value.message) < 300


async def test_what_was_opened_to_be_written_is_told(tmp_path, monkeypatch):
    with (tmp_path / "written").open("wb") as written:
        monkeypatch.setattr(input_lines, "_STDIN", written.fileno())
        with pytest.raises(SettingsError, match=r"^standard input: .*; it cannot be read"):
            await all_of(None)


def test_what_is_no_base64_is_named():
    with pytest.raises(BadRequestError, match="value_base64: got 'abc', expected base64 with its"):
        parse_record(Line(1, b'{"value_base64": "abc"}', 1), "line")
