"""Faults to plant into a recorded run of a group of type Session: who has which session."""

from itertools import groupby

from tests.pipeline.audit.model import Partition
from tests.pipeline.audit.planting import Planted
from tests.pipeline.audit.shared_plants import A, B, SharedRun


class SessionRun(SharedRun):
    """A partition of which two members lock sessions; two messages of it are of one session."""

    flags = "sessions"

    def __init__(self, run: Partition) -> None:
        self.tokens: dict[tuple[object, str], int] = {}
        """Member and session → the epoch under which it has it, or had it last."""
        self.numbers: dict[str, int] = {}
        super().__init__(run)
        self.one = self.key(self.lower)

    def give_out(self) -> None:
        """Give nobody anything: members lock what they want."""

    def write(self, flow, kind, first=-1, stop=-1, /, **fields) -> None:
        if kind != "bind":  # of sessions there is none
            super().write(flow, kind, first, stop, **fields)

    def key(self, offset: int) -> str:
        return str(self.run.messages[offset].key)

    def lock(self, member, *sessions, number=None) -> None:
        for session in sessions:
            self.numbers[session] = self.run.draw() if number is None else number
            epoch = self.tokens[member["member"], session] = self.run.draw()
            told = {"number": self.numbers[session], "target": session, "flags": self.flags}
            self.write(member, "lock", epoch=epoch, **told)

    def unlock(self, member, *sessions, cause="") -> None:
        for session in sessions:
            told = {"number": self.numbers[session], "target": session, "cause": cause}
            self.write(member, "unlock", epoch=-1, flags=self.flags, **told)

    def cut(self, member, session, cause="flow_lost") -> None:
        epoch = self.tokens[member["member"], session]
        self.write(member, "unbind", epoch=epoch, cause=cause, target=session, flags=self.flags)

    def deliver(self, member, *offsets, cause="", under=None) -> None:
        """Record deliveries of some offsets, each under the lock of its session, or of another."""
        for key, found in groupby(offsets, self.key):
            self.epoch = self.tokens[member["member"], under or key]
            for offset in found:
                super().deliver(member, offset, cause=cause)

    def ended(self, member, kind, *offsets, under=None, **fields) -> None:
        for offset in offsets:
            epoch = self.tokens[member["member"], under or self.key(offset)]
            self.write(member, kind, offset, offset + 1, epoch=epoch, **fields)

    def ack(self, member, *offsets, under=None) -> None:
        self.ended(member, "ack", *offsets, under=under)

    def finish_rest(self, *done) -> None:
        """Have a member lock what is left of other sessions, and do it."""
        left = [each for each in self.rest if self.key(each) != self.one and each not in done]
        self.unlock(A, *{self.key(each) for each in left} & self.numbers.keys())
        self.lock(B, *sorted({self.key(each) for each in left}))
        self.deliver(B, *left)
        self.ack(B, *left)

    @property
    def mine(self) -> list[int]:
        """All messages of the session of the two."""
        return [each for each in range(self.first, self.stop) if self.key(each) == self.one]


def session_at_two_members(run: Partition) -> Planted:
    """A member gets a session before the lock of another one has ended."""
    at = SessionRun(run)
    at.lock(A, at.one)
    at.deliver(A, at.mine[0])
    at.ack(A, at.mine[0])
    at.lock(B, at.one)
    at.deliver(B, *at.mine[1:])
    at.ack(B, *at.mine[1:])
    at.finish_rest()
    return Planted(run, "session_shared")


def session_at_two_processes_of_a_member(run: Partition) -> Planted:
    at = SessionRun(run)
    at.lock(A, at.one)
    at.cut(A, at.one)
    at.lock(A | {"incarnation": "another"}, at.one, number=at.numbers[at.one])
    at.finish_rest()
    return Planted(run, "session_shared")


def lock_that_had_ended(run: Partition) -> Planted:
    at = SessionRun(run)
    at.lock(A, at.one)
    at.unlock(A, at.one, cause="expired")
    at.lock(B, at.one, number=at.numbers[at.one])
    at.deliver(B, *at.mine)
    at.ack(B, *at.mine)
    at.finish_rest()
    return Planted(run, "lock_not_raised")


def sent_after_the_end_of_the_lock(run: Partition) -> Planted:
    at = SessionRun(run)
    at.lock(A, at.one)
    at.unlock(A, at.one)
    at.deliver(A, at.lower)
    at.lock(B, at.one)
    at.deliver(B, *at.mine)
    at.ack(B, *at.mine)
    at.finish_rest()
    return Planted(run, "outside_lock", at.lower, at.lower + 1)


def sent_without_a_lock(run: Partition) -> Planted:
    at = SessionRun(run)
    at.tokens[A["member"], at.one] = run.draw()
    at.deliver(A, at.lower)
    at.lock(B, at.one)
    at.deliver(B, *at.mine)
    at.ack(B, *at.mine)
    at.finish_rest()
    return Planted(run, "outside_lock", at.lower, at.lower + 1)


def sent_under_the_lock_of_another_session(run: Partition) -> Planted:
    at = SessionRun(run)
    at.finish_rest()
    other = next(session for _, session in at.tokens)
    at.deliver(B, at.lower, under=other)
    at.ack(B, at.lower, under=other)
    at.lock(A, at.one)
    left = [each for each in at.mine if each != at.lower]
    at.deliver(A, *left)
    at.ack(A, *left)
    return Planted(run, "outside_lock", at.lower, at.lower + 1)


def acknowledged_without_the_lock(run: Partition) -> Planted:
    at = SessionRun(run)
    at.lock(A, at.one)
    at.deliver(A, *at.mine)
    at.finish_rest()
    other = at.key(next(each for each in at.rest if at.key(each) != at.one))
    at.ack(B, at.lower, under=other)
    at.ack(A, *(each for each in at.mine if each != at.lower))
    return Planted(run, "ack_not_held", at.lower, at.lower + 1)


def session_out_of_order(run: Partition) -> Planted:
    at = SessionRun(run)
    first, second, *rest = at.mine
    at.lock(A, at.one)
    at.deliver(A, second, first, *rest)
    at.ack(A, *at.mine)
    at.finish_rest()
    return Planted(run, "out_of_order", first, first + 1)


def session_out_of_order_across_locks(run: Partition) -> Planted:
    at = SessionRun(run)
    at.lock(A, at.one)
    at.deliver(A, *at.mine[1:])
    at.ack(A, *at.mine[1:])
    at.unlock(A, at.one)
    at.lock(B, at.one)
    at.deliver(B, at.lower)
    at.ack(B, at.lower)
    at.finish_rest()
    return Planted(run, "out_of_order", at.lower, at.lower + 1)


def session_passed_what_was_lost(run: Partition) -> Planted:
    """The next holder finishes a later message before what the one before it has left."""
    at = SessionRun(run)
    first, second, *rest = at.mine
    at.lock(A, at.one)
    at.deliver(A, first, second)
    at.cut(A, at.one, cause="forced_commit")
    at.unlock(A, at.one, cause="expired")
    at.lock(B, at.one)
    at.deliver(B, second, cause="forced_commit")
    at.ack(B, second)
    at.deliver(B, first, cause="forced_commit")
    at.ack(B, first)
    at.deliver(B, *rest)
    at.ack(B, *rest)
    at.finish_rest()
    return Planted(run, "out_of_order", second, second + 1)


def sent_again_to_the_next_holder_without_a_cause(run: Partition) -> Planted:
    at = SessionRun(run)
    at.lock(A, at.one)
    at.deliver(A, at.lower)
    at.cut(A, at.one)
    at.lock(A, at.one, number=at.numbers[at.one])
    at.deliver(A, *at.mine)
    at.ack(A, *at.mine)
    at.finish_rest()
    return Planted(run, "duplicate_without_cause", at.lower, at.lower + 1)


def sent_again_for_the_failure_of_another_session(run: Partition) -> Planted:
    at = SessionRun(run)
    other = next(each for each in at.rest if at.key(each) != at.one)
    at.lock(A, at.one, at.key(other))
    at.deliver(A, *at.mine)
    at.deliver(A, other)
    at.ended(A, "nack", other, cause="nack")
    at.deliver(A, other, cause="nack")
    at.deliver(A, at.lower, cause="nack")
    at.ack(A, *at.mine, other)
    at.finish_rest(other)
    return Planted(run, "unfounded_cause", at.lower, at.lower + 1)


def sent_after_its_ack(run: Partition) -> Planted:
    at = SessionRun(run)
    at.lock(A, at.one)
    at.deliver(A, *at.mine)
    at.ack(A, *at.mine)
    at.cut(A, at.one)
    at.unlock(A, at.one, cause="expired")
    at.lock(B, at.one)
    at.deliver(B, at.lower, cause="flow_lost")
    at.finish_rest()
    return Planted(run, "delivered_after_ack", at.lower, at.lower + 1)


SESSION_PLANTS = [
    session_at_two_members,
    session_at_two_processes_of_a_member,
    lock_that_had_ended,
    sent_after_the_end_of_the_lock,
    sent_without_a_lock,
    sent_under_the_lock_of_another_session,
    acknowledged_without_the_lock,
    session_out_of_order,
    session_out_of_order_across_locks,
    session_passed_what_was_lost,
    sent_again_to_the_next_holder_without_a_cause,
    sent_again_for_the_failure_of_another_session,
    sent_after_its_ack,
]
