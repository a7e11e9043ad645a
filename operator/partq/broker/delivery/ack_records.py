"""What acks, nacks and releases mean for the audit record, and for what a client has."""

from collections.abc import Sequence
from functools import partial

from partq.broker.delivery.flow import Flow
from partq.broker.partition.consumed_partition import ConsumedPartition, FlowPort
from partq.broker.partition.flow_records import record_of
from partq.broker.partition.outbox import Answer
from partq.core.cursor.windows import TakenBack
from partq.core.lanes.lane_book import LaneBook
from partq.core.ranges import Ranges
from partq.errors import NotDeliveredError, PartqError
from partq.wire import frames


def check_sent(
    flow: Flow,
    consumed: ConsumedPartition,
    number: int,
    *,
    upto: int = -1,
    ranges: Sequence[tuple[int, int]] = (),
) -> None:
    """Refuse what speaks of messages that wait for their audit record: nobody has got them.

    `ranges` may name what was sent under any delivery number of the token, `upto` only what was
    sent in turn under `number`.

    Raises:
        NotDeliveredError: it does; nothing was changed.
    """
    partition, unrecorded = consumed.partition, flow.unrecorded
    if consumed.lanes is not None:
        _check_lanes_sent(flow, consumed, ranges)
        return
    stop = max([upto, *(high for _, high in ranges)])
    sent_upto = unrecorded.sent_upto(partition)
    if sent_upto is None or stop <= sent_upto:
        stop, sent_upto = upto, unrecorded.sent_in_turn_upto(partition, number)
    if sent_upto is not None and stop > sent_upto:
        raise NotDeliveredError(
            f"partition {partition}: up to {stop}; delivered up to {sent_upto}: "
            "nothing was changed; acknowledge what this flow was sent"
        )


def _check_lanes_sent(
    flow: Flow, consumed: ConsumedPartition, ranges: Sequence[tuple[int, int]]
) -> None:
    """Do the same in a group of order Key, whose messages are sent in any order."""
    unsent = flow.unsent(consumed.partition)
    for start, stop in ranges if unsent else ():
        if parts := unsent.within(start, stop):
            raise NotDeliveredError(
                f"partition {consumed.partition}: {start} to {stop}; {parts[0][0]} was not "
                "delivered yet: nothing was changed; acknowledge what this flow was sent"
            )


def ack_lanes(book: LaneBook, frame: frames.Ack, answer: Answer) -> tuple[int, Answer]:
    """Count an ack in a group of order Key; return how many were in flight, and what answers it.

    Where the member does not have all of it, the rest counts, and the answer says so once that is
    stored.

    Raises:
        BadRequestError, RewoundError: nothing was changed.
    """
    before = book.in_flight
    try:
        return book.ack(frame.upto, frame.ranges, frame.delivery), answer
    except NotDeliveredError as refusal:
        return before - book.in_flight, partial(answer_instead, answer, refusal)


def answer_instead(answer: Answer, refusal: PartqError, error: PartqError | None) -> None:
    """Answer with a refusal once there is an answer, or with the error that has come of it."""
    answer(error or refusal)


def note_kept(consumed: ConsumedPartition, taken: TakenBack, before: tuple[int, int]) -> None:
    """Note which batches a client has that keeps what it has not begun.

    `before`: which it had, of an earlier step back; what was not sent again yet, it still has.
    """
    if taken.rewound_from is None:
        return
    start, stop = taken.begun_upto, taken.sent_upto
    if before[0] <= stop < before[1]:
        stop = before[1]
    elif stop < before[0]:
        start, stop = before  # nothing of it was sent again yet
    consumed.kept = (start, stop)


def is_open(consumed: ConsumedPartition, ranges: Sequence[tuple[int, int]]) -> bool:
    """Say whether the group has not done with what an ack names."""
    return bool(consumed.book.newly_acked(-1, ranges))


def accepted(consumed: ConsumedPartition, frame: frames.Ack) -> list[tuple[int, int]]:
    """Return what an ack adds to what the group has done with, if somebody wants to know."""
    if consumed.audit_writer is None:
        return []
    return consumed.book.newly_acked(frame.upto, frame.ranges)


def counted(
    consumed: ConsumedPartition, frame: frames.Ack, accepted: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return what of `accepted` has counted: the book may have refused a part of the ack."""
    if not accepted or consumed.lanes is None:
        return accepted
    refused = Ranges(consumed.book.newly_acked(frame.upto, frame.ranges))
    return [each for part in accepted for each in refused.outside(*part)]


def record_the_rest(
    flow: FlowPort, consumed: ConsumedPartition, taken: TakenBack, cause: str
) -> None:
    """Record what a step back has taken beside the messages that were given back.

    In line with the deliveries: one that waits to be recorded is before it, and is sent again.
    """
    audit_writer = consumed.audit_writer
    if audit_writer is None or taken.rewound_from is None:
        return
    recorded = Ranges((offset, offset + 1) for offset in sorted(taken.offsets))
    for undone in consumed.book.undone(taken.rewound_from, taken.begun_upto):
        for part in recorded.outside(*undone):
            audit_writer.note(record_of("nack", consumed, flow, part, cause=cause))
    if taken.begun_upto < taken.sent_upto:
        audit_writer.note(record_of("release", consumed, flow, (taken.begun_upto, taken.sent_upto)))
