"""Faults to plant into a recorded run of a group of type Shared."""

from tests.pipeline.audit.model import Partition
from tests.pipeline.audit.planting import Planted
from tests.pipeline.audit.shared_plants import A, B, SharedRun


class TurnRun(SharedRun):
    """A partition of which two members may have any message."""

    flags = "turns"

    def give_out(self) -> None:
        """Give nobody anything: all members have all."""

    @property
    def offsets(self) -> list[int]:
        return list(range(self.first, self.stop))


def message_at_two_members(run: Partition) -> Planted:
    """A message is sent again for the loss of a member that is not lost."""
    at = TurnRun(run)
    at.deliver(A, *at.offsets)
    at.deliver(B, at.later, cause="flow_lost")
    at.ack(B, at.later)
    at.ack(A, at.lower, *at.rest)
    return Planted(run, "message_shared", at.later, at.later + 1)


def sent_again_without_a_cause(run: Partition) -> Planted:
    at = TurnRun(run)
    at.deliver(A, *at.offsets)
    at.lose(A)
    at.deliver(B, at.lower)
    at.deliver(B, at.later, *at.rest, cause="flow_lost")
    at.ack(B, *at.offsets)
    return Planted(run, "duplicate_without_cause", at.lower, at.lower + 1)


def sent_again_for_the_failure_of_another_message(run: Partition) -> Planted:
    at = TurnRun(run)
    at.deliver(A, *at.offsets)
    at.write(A, "nack", at.later, at.later + 1, cause="nack")
    at.deliver(A, at.lower, cause="nack")
    at.deliver(B, at.later, cause="nack")
    at.ack(A, at.lower, *at.rest)
    at.ack(B, at.later)
    return Planted(run, "unfounded_cause", at.lower, at.lower + 1)


def message_sent_to_nobody(run: Partition) -> Planted:
    at = TurnRun(run)
    at.deliver(A, at.later, *at.rest)
    at.ack(A, at.later, *at.rest)
    return Planted(run, "lost", at.lower, at.lower + 1)


def lost_with_its_member(run: Partition) -> Planted:
    """A member is lost, and new messages are sent for long while one that it had is not."""
    at = TurnRun(run)
    first, second, *new = at.offsets
    at.deliver(A, first, second)
    at.lose(A)
    at.deliver(B, second, cause="flow_lost")
    for each in new:
        at.deliver(B, each)
        at.ack(B, each)
    at.ack(B, second)
    return Planted(run, "lost", first, first + 1)


def acknowledged_by_who_did_not_get_it(run: Partition) -> Planted:
    at = TurnRun(run)
    at.deliver(A, *at.offsets)
    at.ack(B, at.later)
    at.ack(A, at.lower, *at.rest)
    return Planted(run, "ack_not_held", at.later, at.later + 1)


def sent_to_a_flow_that_had_ended(run: Partition) -> Planted:
    at = TurnRun(run)
    at.lose(A)
    at.deliver(A, at.lower)
    at.deliver(B, *at.offsets)
    at.ack(B, *at.offsets)
    return Planted(run, "two_owners", at.lower, at.lower + 1)


TURN_PLANTS = [
    message_at_two_members,
    sent_again_without_a_cause,
    sent_again_for_the_failure_of_another_message,
    message_sent_to_nobody,
    lost_with_its_member,
    acknowledged_by_who_did_not_get_it,
    sent_to_a_flow_that_had_ended,
]
