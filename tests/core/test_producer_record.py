"""How a repeat is judged on behalf of a partition that took its slots over."""

import pytest

from partq.core.producer_record import NumberedBatch, ProducerRecord

RECORD = ProducerRecord(7, (NumberedBatch(2, 3, 20, "aa.bb.0"), NumberedBatch(5, 2, 30, "cc.dd.1")))


@pytest.mark.parametrize(("first", "count", "digest", "verdict", "offset"), [
    pytest.param(7, 1, "", "due", -1, id="the due number"),
    pytest.param(8, 1, "", "out_of_sequence", -1, id="behind the due number"),
    pytest.param(5, 2, "cc.dd.1", "duplicate", 30, id="a repeat"),
    pytest.param(6, 1, "", "duplicate", 31, id="a part of a repeat"),
    pytest.param(3, 2, "ee.ff.0", "duplicate", 21, id="cut otherwise, so not compared"),
    pytest.param(0, 1, "", "duplicate", -1, id="so old that its place is forgotten"),
    pytest.param(5, 3, "", "resend_from", -1, id="a repeat, and something new behind it"),
    pytest.param(2, 3, "ee.bb.0", "number_reused", 20, id="other bytes, none compressed"),
    pytest.param(5, 2, "ee.dd.0", "duplicate", 30, id="the same messages, compressed otherwise"),
    pytest.param(5, 2, "ee.ff.0", "number_reused", 30, id="other sizes"),
    pytest.param(5, 2, "", "duplicate", 30, id="nothing to compare"),
])  # fmt: skip
def test_verdict(first, count, digest, verdict, offset):
    assert RECORD.verdict(first, count, digest, is_sparse=False) == verdict
    assert RECORD.place_of(first, count) == offset


@pytest.mark.parametrize(("first", "verdict"), [(7, "due"), (9, "due"), (6, "duplicate")])
def test_numbers_with_gaps(first, verdict):
    assert RECORD.verdict(first, 1, "ee.ff.0", is_sparse=True) == verdict
