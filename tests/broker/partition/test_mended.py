"""What a broker's log and metrics say of a record that a claim has mended."""

import logging
from types import SimpleNamespace

import pytest

from partq.broker.partition import mended
from partq.store.records.stored_partition import Mended

HEAD = "partition 1.0, group g: its record spoke of messages that the log does not hold; "


@pytest.mark.parametrize(
    ("before", "cursor", "letters", "told", "skipped"),
    [
        (3, 7, (), "its cursor was moved from 3 to 7", 4),
        (9, 7, (), "its cursor was moved from 9 to 7", 0),
        (7, 7, (2, 4), "2 dead letters are dropped", 2),
        (3, 7, (2,), "its cursor was moved from 3 to 7, 1 dead letter is dropped", 5),
        (7, 7, (), "acknowledgements or redelivery counts of them are dropped", 0),
    ],
)
def test_what_was_changed_is_told(caplog, before, cursor, letters, told, skipped):
    counted = []
    metrics = SimpleNamespace(skipped=lambda group, messages: counted.append((group, messages)))
    owned = SimpleNamespace(id="1.0", mended=(Mended("g", before, cursor, letters),))

    with caplog.at_level(logging.ERROR):
        mended.tell(owned, metrics)

    assert [record.getMessage() for record in caplog.records] == [HEAD + told]
    assert counted == [("g", skipped)]
