"""Journals of consumers beside the record of the brokers."""

import pytest

from partq.core.model import Cause
from partq.lab.demo.record import DeliveryRecord, unrecorded
from partq.lab.verdict.journal_rows import DeliveredRow
from partq.wire.audit import GENESIS, decode_columns, encode_record
from tests.audit_record import encode_group

AGAIN = "flow_lost"


def deliver(first, stop, *, epoch, cause="", group="workers"):
    return encode_record("deliver", group=group, first=first, stop=stop, epoch=epoch, cause=cause)


@pytest.fixture
def record():
    """Offsets 0 to 9 under epoch 1, of which 4 to 9 came again under epoch 2."""
    found = DeliveryRecord("workers")
    records = [
        encode_record("publish", slots=bytes(20), first=0, stop=10),
        deliver(6, 10, epoch=1),
        deliver(0, 6, epoch=1),
        deliver(4, 10, epoch=2, cause=AGAIN),
        deliver(0, 10, epoch=3, group="archive"),
    ]
    made = encode_group(GENESIS, records, sequence=0, at_ms=1, broker="b-0", broker_epoch=7)
    found.add(decode_columns("1.0", [made]))
    return found


def processed(offset, epoch, cause=Cause.NONE, *, partition="1.0", broker_epoch=7):
    return DeliveredRow(0, "a", partition, offset, broker_epoch, epoch, int(cause), "k", offset)


def test_what_was_published_is_counted(record):
    assert record.published == 10


def test_a_processing_stands_in_the_record_under_its_token_and_cause(record):
    rows = [processed(offset, 1) for offset in range(10)]
    rows += [processed(offset, 2, Cause.FLOW_LOST) for offset in range(4, 10)]
    assert unrecorded(rows, record) == (0, [])


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(processed(10, 1), id="behind the last one"),
        pytest.param(processed(3, 2, Cause.FLOW_LOST), id="before what came again"),
        pytest.param(processed(5, 2), id="another cause"),
        pytest.param(processed(5, 3), id="another group's"),
        pytest.param(processed(5, 1, broker_epoch=6), id="another broker's"),
        pytest.param(processed(5, 1, partition="1.1"), id="another partition"),
    ],
)
def test_a_processing_that_no_broker_knows_of_is_found(record, row):
    count, (sentence,) = unrecorded([processed(0, 1), row], record)
    assert count == 1
    assert f"partition {row.partition} offset {row.offset} for a, token" in sentence
