"""Messages as people see them: `partq browse` and `partq dead-letters list` show values alike."""

import pytest

from partq import Message
from partq.cli.dead_letters.letter_table import show_letters
from partq.cli.messages.browse import line
from partq.client.browser import Browsed
from partq.core.model import PartitionId
from partq.wire.calls.browse import BrowseAnswer
from partq.wire.calls.replies import convert

TEXTS = [
    pytest.param('{"item": "caf\u00e9 \\"a\\""}', '{"item": "caf\u00e9 \\"a\\""}', id="JSON"),
    pytest.param("[true]", "[true]", id="brackets"),
    pytest.param(
        "one\ntwo\x1b[2J\x9b\u2028", r"one\ntwo\x1b[2J\x9b\u2028", id="control characters"
    ),
]


def browsed(value, headers=None):
    message = Message("k\u00e9", value.encode(), headers=headers or {})
    return Browsed(PartitionId(1, 0), 4, 1, 7, message)


@pytest.mark.parametrize(("value", "shown"), TEXTS)
def test_browse_shows_a_value_in_one_line_with_its_quotes(value, shown):
    assert line(browsed(value)).endswith(f'  1.0:4  "k\u00e9"  {shown}')


@pytest.mark.parametrize(("value", "shown"), TEXTS)
def test_the_list_of_dead_letters_shows_it_alike(value, shown, capsys):
    row = {
        "partition": "1.0", "offset": 4, "publish_time_ms": 1, "append_broker_epoch": 7,
        "key": "k", "value": value, "headers": {}, "event_time_ms": 0,
    }  # fmt: skip
    answer = {"messages": [row], "next": {"1.0": 5}, "why": "end", "trimmed": {}, "unavailable": {}}
    show_letters(convert(answer, BrowseAnswer))
    (printed,) = [each for each in capsys.readouterr().out.splitlines() if "1.0" in each]
    assert printed.split("\u2502")[-2].strip() == shown


def test_browse_says_why_a_message_is_a_dead_letter():
    headers = {"partq-dead-letter-reason": "expired", "other": "x"}
    assert line(browsed("v", headers)).endswith('"k\u00e9"  v  (dead letter: expired)')
    assert "dead letter" not in line(browsed("v", {"other": "x"}))
