"""What a handoff, a fault or a bad client interrupts: its own partitions, and no others (G6)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from partq.lab.simulate.oracle.facts import GroupPartitionFacts, Token
from partq.lab.simulate.oracle.fault_windows import FaultWindows

RESPONSE_S: Final = 0.5
"""How long a message may wait for an application that waits for it, with nothing in its way."""


@dataclass(slots=True)
class _ServedPartition:
    """A partition that was given to a flow."""

    broker: str
    token: Token
    since: float
    pause_count: int = 0
    served_since: float = 0.0
    """Since when nothing of it is paused."""


@dataclass(slots=True)
class Isolation:
    """Judges what reaches members that no handoff and no fault concerns."""

    troubles: FaultWindows
    fail: Callable[[str, str], None]
    now: Callable[[], float]
    is_narrow: bool = False
    """Groups of order Key have a narrow span: what is done with may let others go on."""
    settled_at: dict[str, float] = field(default_factory=dict)
    """By when a group that was deleted, or made, has found its members again."""
    _asked: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    """The attempts that a coordinator has asked to pause a partition for, per broker epoch."""
    _yielded: set[tuple[str, int]] = field(default_factory=set)
    """The partitions that brokers were asked to give up, each with the broker epoch it had."""
    _held: dict[tuple[str, str], _ServedPartition] = field(default_factory=dict)
    """The last one of each partition and member."""
    _waits_until: dict[str, float] = field(default_factory=dict)
    """How long what was done to a partition may hold it up."""
    _held_up: dict[str, tuple[float, float]] = field(default_factory=dict)
    """When a place was held up last, and for how long."""
    _disturbed_until: dict[str, float] = field(default_factory=dict)
    """How long a member that was given it may lose it by what somebody did to its group."""
    _waits_since: dict[object, float] = field(default_factory=dict)
    """Since when an application waits for its next message, by its life."""

    def asked_to_pause(self, name: str, broker_epoch: int, attempt: int) -> None:
        """Take a call of a coordinator, which a broker is about to carry out."""
        self._asked.setdefault((name, broker_epoch), set()).add(attempt)

    def asked_to_yield(self, name: str, broker_epoch: int) -> None:
        """Take a call of a coordinator, by which a broker gives a partition to another one."""
        self._yielded.add((name, broker_epoch))

    def assigned(self, facts: GroupPartitionFacts, to: tuple[str, str], token: Token) -> None:
        """Take the news that a broker gives a partition to a member; `to`: member and broker."""
        member, broker = to
        name, now = facts.name, self.now()
        last = self._held.get((name, member))
        if (
            last is not None
            and (last.broker, last.token[0]) == (broker, token[0])
            and facts.commit_epoch <= last.token[1]
            and self.is_untouched(name, member, broker, last.since)
        ):
            self.fail("G6", f"{name}: {member} is bound again at {broker} without a cause")
        self._held[name, member] = _ServedPartition(broker, token, now, served_since=now)

    def paused(self, name: str, member: str, token: Token) -> None:
        """Take the news that a broker pauses a partition."""
        held = self._held[name, member]
        held.pause_count += 1
        if held.pause_count > len(self._asked.get((name, token[0]), ())):
            self.fail("G6", f"{name}: {member} gets a pause that nobody asked for")

    def resumed(self, name: str, member: str) -> None:
        """Take the news that a pause is over."""
        self._held[name, member].served_since = self.now()

    def revoked(self, facts: GroupPartitionFacts, to: tuple[str, str], token: Token) -> None:
        """Take the news that a member's token has ended."""
        member, broker = to
        name = facts.name
        is_over = facts.log.broker_epoch != token[0] or facts.top_epoch > token[1]
        is_over |= (
            not facts.is_there or facts.log.is_gone or (facts.log.name, token[0]) in self._yielded
        )
        since = self._held[name, member].since
        if not is_over and self.is_untouched(name, member, broker, since):
            self.fail("G6", f"{name}: {broker} takes it from {member}, and nothing had happened")

    def disturb(self, name: str, for_s: float = 0.0) -> None:
        """Take the news that somebody interferes with a group's place in a partition.

        A member that has it, or gets it within that time, may lose it, and get it again: brokers
        hear that a group is deleted before its cursors go. A message may wait for this long.
        """
        for until in (self._disturbed_until, self._waits_until):
            until[name] = max(until.get(name, 0.0), self.now() + for_s)

    def begin(self, facts: GroupPartitionFacts) -> None:
        """Take the news that a group begins in a partition, which may be newer than the group."""
        self.disturb(facts.name, max(0.0, self.settled_at.get(facts.group, 0.0) - self.now()))

    def hold_up(self, place: str, for_s: float = 0.0) -> None:
        """Take the news that a message is redelivered: what is behind it may wait for it.

        Args:
            place: of a group in a partition, or of one of its keys there.
            for_s: how long the redelivery waits, beside the time for an answer.
        """
        until = self.now() + for_s + RESPONSE_S
        self._waits_until[place] = max(self._waits_until.get(place, 0.0), until)
        self._held_up[place] = (self.now(), for_s)

    def go_on(self, name: str) -> None:
        """Take the news that deliveries go on: of what waited for dead letters, or for a gate."""
        self._waits_until[name] = max(self._waits_until.get(name, 0.0), self.now())

    def waits(self, life: object) -> None:
        """Take the news that an application has nothing to do."""
        self._waits_since[life] = self.now()

    def idle_s(self, life: object) -> float:
        """Return for how long an application has waited for its next message."""
        return self.now() - self._waits_since.get(life, self.now())

    def handed(
        self, name: str, place: str, member: str, life: object, token: Token, stored_at: float
    ) -> None:
        """Take a message that an application gets for the first time.

        `place`: of its key, where what is given back holds up its own key; else `name`.
        """
        held = self._held.get((name, member))
        if held is None or held.token != token:
            return  # it was on its way as the token ended
        mended = self.troubles.until(member, held.broker)
        held_up_at, wait_s = self._held_up.get(place, (inf, 0.0))
        if held_up_at <= mended:
            mended += wait_s  # a broker that stood still has heard of it then
        began = max(
            stored_at,
            held.served_since,
            self._waits_since[life],
            self._waits_until.get(name, 0.0),
            self._waits_until.get(place, 0.0),
            mended,
        )
        if self.now() > began + RESPONSE_S:
            self.fail("G6", f"{name}: {member} gets a message after {self.now() - began:.3f} s")

    def waits_until(self, place: str) -> float:
        """Return until when what was done to a place may hold it up."""
        return self._waits_until.get(place, 0.0)

    def held_up(self, place: str) -> tuple[float, float]:
        """Return when a place was held up last, and for how long."""
        return self._held_up.get(place, (inf, 0.0))

    def was_yielded(self, name: str, broker_epoch: int) -> bool:
        """Say whether a broker was asked to give a partition up."""
        return (name, broker_epoch) in self._yielded

    def is_untouched(self, name: str, member: str, broker: str, since: float) -> bool:
        """Say whether nothing has happened since then that may end what a member has."""
        disturbed_until = self._disturbed_until.get(name, -1.0)
        return max(disturbed_until, self.troubles.felt_until(member, broker)) < since
