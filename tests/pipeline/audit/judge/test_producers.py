"""Numbers that no stored batch has: those of batches that wait, or whose id was known."""

import pytest

from partq.pipeline.audit.judge.lines import RecordLine
from partq.pipeline.audit.judge.producers import ProducerJudge

NOTHING = dict.fromkeys(RecordLine._fields, -1)


def line(first, stop, **fields):
    return RecordLine(**{**NOTHING, "first": first, "stop": stop, "producer": "p", **fields})


def published(offset, number, count=1):
    return line(offset, offset + count, number=number, at_ms=5)


@pytest.mark.parametrize(
    ("used_up", "what"),
    [
        pytest.param([(3, 5)], [], id="they are no gap"),
        pytest.param([(3, 4)], ["number_skipped"], id="a gap behind them is one"),
        pytest.param([(4, 5)], ["number_skipped"], id="so is one before them"),
        pytest.param([(2, 5)], ["number_stored_twice"], id="what was stored does not wait again"),
    ],
)
def test_what_is_not_stored_uses_up_its_numbers(used_up, what):
    found = []
    judge = ProducerJudge("1.0", found.append)
    judge.publish(published(0, 0, 3), 0)
    for first, stop in used_up:
        judge.use_up(line(first, stop, number=1795324574173, at_ms=5), 0)
    judge.publish(published(3, 5), 0)
    assert [each.what for each in found] == what


def test_what_has_no_producer_has_no_numbers():
    judge = ProducerJudge("1.0", [].append)
    judge.use_up(line(7, 9, producer="", at_ms=5), 0)
    judge.use_up(line(0, 2, producer="", at_ms=5), 0)
