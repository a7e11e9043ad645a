"""When a message is due, as calls of a client give it."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from partq import BadRequestError, PartitionId
from partq.client.produce.results import ScheduledPosition
from partq.client.schedule.scheduled_calls import cancel, to_due_time
from partq.core.numbering.scheduled_ids import AT_ONCE, MAX_AHEAD_MS, DueTime

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
NOON_MS = 1_796_126_400_000


@pytest.mark.parametrize(
    ("at", "after_s", "due"),
    [
        (None, None, AT_ONCE),
        (NOON, None, DueTime(NOON_MS)),
        (NOON.astimezone(timezone(timedelta(hours=5))), None, DueTime(NOON_MS)),
        (datetime(1960, 1, 1, tzinfo=UTC), None, DueTime(1)),
        (None, 900, DueTime(after_ms=900_000)),
        (None, 0.5, DueTime(after_ms=500)),
        (None, 0, AT_ONCE),
    ],
)
def test_what_a_call_gives_is_a_due_time(at, after_s, due):
    assert to_due_time(at, after_s) == due


@pytest.mark.parametrize(
    ("at", "after_s"),
    [
        (NOON, 5),
        (datetime(2026, 12, 1), None),  # noqa: DTZ001  what is refused
        ("2026-12-01", None),
        (None, -1),
        (None, MAX_AHEAD_MS / 1000 + 1),
        (None, float("nan")),
        (None, True),
        (None, "5"),
    ],
)
def test_what_is_no_due_time_is_refused(at, after_s):
    with pytest.raises(BadRequestError, match="deliver_"):
        to_due_time(at, after_s)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "got None, .* is None where the message does not wait"),
        (ScheduledPosition.of(PartitionId(1, 3), 5, is_known=False), "of this position"),
        (b"1.3/0001795324574173", "got b'1.3/0001795324574173', expected the id"),
        (5, "got 5, expected the id .* that `send` has returned"),
        ("1.3", "expected its id"),
    ],
)
async def test_what_is_no_id_is_refused_before_anything_is_asked(given, told):
    with pytest.raises(BadRequestError, match=told):
        await cancel(None, given)
