"""Names of scheduled messages, and how far ahead they may be due."""

import pytest

from partq.core.model import PartitionId
from partq.core.numbering.scheduled_ids import (
    MAX_AHEAD_MS,
    ScheduledId,
    check_after_ms,
    check_due_ms,
)
from partq.errors import BadRequestError

NOON_MS = 1_796_126_400_000


def test_an_id_is_read_as_it_is_written():
    found = ScheduledId(PartitionId(1, 3), 1_795_324_574_173)
    assert str(found) == "1.3/0001795324574173"
    assert ScheduledId.parse(str(found)) == found


@pytest.mark.parametrize(
    "text",
    ["", "1.3", "1.3/5", "1.3/00017953245741731", "1/0001795324574173", "1.3/٠٠٠١٧٩٥٣٢٤٥٧٤١٧٣"],
)
def test_what_is_no_id_is_refused(text):
    with pytest.raises(BadRequestError, match="expected its id"):
        ScheduledId.parse(text)


def test_at_most_400_days_ahead():
    check_due_ms(0, NOON_MS)
    check_due_ms(NOON_MS + MAX_AHEAD_MS, NOON_MS)
    check_after_ms(MAX_AHEAD_MS)
    for check in (
        lambda: check_due_ms(NOON_MS + MAX_AHEAD_MS + 1, NOON_MS),
        lambda: check_due_ms(-1, NOON_MS),
        lambda: check_after_ms(MAX_AHEAD_MS + 1),
        lambda: check_after_ms(-1),
    ):
        with pytest.raises(BadRequestError):
            check()
