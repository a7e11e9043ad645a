"""Archived messages compared with what was published."""

import pyarrow as pa
import pytest

from partq.pipeline.audit.archived.log import ArchivedRuns, MessageReach, check_log
from partq.pipeline.audit.judge.outcome import PublishedRange, RecordedLog

PUBLISHED = 5
"""The broker epoch that the record has of them."""


@pytest.mark.parametrize(("broker_epoch", "expected"), [
    (PUBLISHED, []),
    (PUBLISHED - 1, [("other_archived", 0, 3)]),
    (PUBLISHED + 1, [("other_archived", 0, 3)]),
])  # fmt: skip
def test_messages_of_another_broker_epoch_are_others(broker_epoch, expected):
    runs = ArchivedRuns()
    columns = {"offset": [0, 1, 2], "append_broker_epoch": [broker_epoch] * 3}
    runs.add(pa.RecordBatch.from_pydict(columns))
    log = RecordedLog("1.0", published=[PublishedRange(0, 3, PUBLISHED)], areas=[(0, 3)], stop=3)
    found = check_log(log, runs, MessageReach(queue="orders", first=0, stop=3))

    assert [(each.what, each.first, each.stop) for each in found] == expected
