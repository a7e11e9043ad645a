"""Faults to plant into a recorded run of a group of type KeyShared: who has which keys."""

from tests.pipeline.audit.keyed_plants import keyed
from tests.pipeline.audit.model import Line, Partition
from tests.pipeline.audit.planting import Planted

A, B = {"member": "worker-a", "flow": 101}, {"member": "worker-b", "flow": 102}


class SharedRun:
    """A partition of which two members have parts; two messages of it have one key."""

    flags = "shared"

    def __init__(self, run: Partition) -> None:
        self.run = run
        self.group, self.first, self.stop, self.lower, self.later = keyed(run)
        self.epoch = run.draw()
        self.give_out()
        for member in (A, B):
            self.write(member, "bind", flags=self.flags)

    def give_out(self) -> None:
        told = {"group": self.group.name, "epoch": self.epoch, "attempt": self.epoch}
        self.run.write(
            *(
                Line("commit_part", fields={**told, "target": each["member"], "number": part})
                for part, each in enumerate((A, B))
            )
        )

    def lose(self, member, cause="flow_lost") -> None:
        self.write(member, "unbind", cause=cause, flags=self.flags)

    def write(self, flow, kind, first=-1, stop=-1, /, **fields) -> None:
        given = {"epoch": self.epoch, "incarnation": "i", "first": first, "stop": stop}
        self.group.write(kind, **{**given, **flow, **fields})

    def deliver(self, member, *offsets, cause="") -> None:
        """Record a delivery of some offsets of one batch, with a mask."""
        first = min(offsets)
        bits = sum(1 << offset - first for offset in offsets)
        mask = bits.to_bytes((bits.bit_length() + 7) // 8, "little").hex()
        stop, number = max(offsets) + 1, self.group.book.number
        told = {"delivery": number, "target": mask, "cause": cause, "flags": self.flags}
        self.write(member, "deliver", first, stop, **told)

    def ack(self, member, *offsets) -> None:
        for offset in offsets:
            self.write(member, "ack", offset, offset + 1)

    @property
    def rest(self) -> list[int]:
        """All offsets but the two of one key."""
        return [o for o in range(self.first, self.stop) if o not in (self.lower, self.later)]


def key_at_two_members(run: Partition) -> Planted:
    """A member is sent a key of which another one has a message for a while after that."""
    at = SharedRun(run)
    at.deliver(A, at.lower, *at.rest)
    at.deliver(B, at.later)
    at.ack(A, *at.rest, at.lower)
    at.ack(B, at.later)
    return Planted(run, "slot_shared", at.later, at.later + 1)


def key_overtaken_by_another_member(run: Partition) -> Planted:
    """A member finishes a message of a key before another one has finished a lower one."""
    at = SharedRun(run)
    at.deliver(A, at.lower, *at.rest)
    at.deliver(B, at.later)
    at.ack(B, at.later)
    at.ack(A, at.lower, *at.rest)
    return Planted(run, "slot_shared", at.later, at.later + 1)


def acknowledged_by_another_member(run: Partition) -> Planted:
    at = SharedRun(run)
    at.deliver(A, at.lower, at.later, *at.rest)
    at.ack(B, at.later)
    at.ack(A, at.lower, *at.rest)
    return Planted(run, "ack_not_held", at.later, at.later + 1)


def key_passed_what_was_lost(run: Partition) -> Planted:
    """A later message of a key is finished before a lower one, which a lost member had."""
    at = SharedRun(run)
    at.deliver(A, at.lower, at.later, *at.rest)
    at.write(A, "unbind", cause="flow_lost", flags="shared")
    at.deliver(B, at.later, cause="flow_lost")
    at.ack(B, at.later)
    at.deliver(B, at.lower, *at.rest, cause="flow_lost")
    at.ack(B, at.lower, *at.rest)
    return Planted(run, "out_of_order", at.later, at.later + 1)


def delivered_to_a_lost_member(run: Partition) -> Planted:
    at = SharedRun(run)
    at.write(A, "unbind", cause="flow_lost", flags="shared")
    at.deliver(A, at.lower)
    at.deliver(B, at.lower, at.later, *at.rest)
    at.ack(B, at.lower, at.later, *at.rest)
    return Planted(run, "two_owners", at.lower, at.lower + 1)


def part_of_another_member(run: Partition) -> Planted:
    """A part passes from a member that did not have it."""
    at = SharedRun(run)
    at.epoch = run.draw()
    at.write(B, "commit_part", target=A["member"], number=0, attempt=at.epoch)
    at.deliver(A, at.lower, at.later, *at.rest)
    at.ack(A, at.lower, at.later, *at.rest)
    return Planted(run, "commit_not_held")


SHARED_PLANTS = [
    key_at_two_members,
    key_overtaken_by_another_member,
    acknowledged_by_another_member,
    key_passed_what_was_lost,
    delivered_to_a_lost_member,
    part_of_another_member,
]
