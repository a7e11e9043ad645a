"""Scheduled messages of a client: when they are due; cancelled by their ids."""

from datetime import datetime

from partq.client.transport.session import Session
from partq.core.numbering.scheduled_ids import (
    AT_ONCE,
    MAX_AHEAD_DAYS,
    MAX_AHEAD_MS,
    DueTime,
    ScheduledId,
    at_time,
)
from partq.errors import BadRequestError
from partq.excerpts import excerpt
from partq.wire.calls.scheduled import ScheduledCancel


async def cancel(session: Session, scheduled: object) -> bool:
    """Cancel what waits until it is due, as `Producer.cancel_scheduled`; raises as that."""
    if not isinstance(scheduled, str):
        raise BadRequestError(
            f"cancel_scheduled: got {excerpt(repr(scheduled))}, expected the id of a scheduled "
            f"message as text, such as 1.3/0001795324574173; {_advice(scheduled)}"
        )
    found = ScheduledId.parse(scheduled)
    answer = await session.ask("DELETE", f"/scheduled/{found}", ScheduledCancel)
    return answer.is_cancelled


def _advice(scheduled: object) -> str:
    if scheduled is None:
        return "`scheduled` of a position is None where the message does not wait: it is stored"
    if hasattr(scheduled, "scheduled"):
        return "give the `scheduled` of this position"
    return "give the `scheduled` of the position that `send` has returned"


def to_due_time(deliver_at: datetime | None, deliver_after_s: float | None) -> DueTime:
    """Return when messages are due that a call of a client schedules.

    Raises:
        BadRequestError: both are given, or the one is no time, or no delay of at most
            `MAX_AHEAD_DAYS`.
    """
    if deliver_at is not None and deliver_after_s is not None:
        raise BadRequestError("got deliver_at and deliver_after_s, expected one of them")
    if deliver_at is not None:
        given: object = deliver_at
        if not isinstance(given, datetime) or given.tzinfo is None:
            raise BadRequestError(
                f"deliver_at {excerpt(repr(given))}: expected a datetime with its time zone, such "
                "as datetime.now(UTC)"
            )
        return at_time(round(given.timestamp() * 1000))
    if deliver_after_s is None:
        return AT_ONCE
    if type(deliver_after_s) not in {int, float} or not 0 <= deliver_after_s * 1000 <= MAX_AHEAD_MS:
        raise BadRequestError(
            f"deliver_after_s {excerpt(repr(deliver_after_s))}: expected a number of seconds from "
            f"0 to {MAX_AHEAD_MS // 1000}, which is {MAX_AHEAD_DAYS} days"
        )
    return DueTime(after_ms=round(deliver_after_s * 1000))
