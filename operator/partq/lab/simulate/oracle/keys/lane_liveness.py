"""What holds up keys of a partition that several members share, and for how long: K5, and G6."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from partq.core.model import BrokerEpoch, Cause
from partq.lab.simulate.oracle.facts import GROUP, TAKEN_BACK, GroupPartitionFacts
from partq.lab.simulate.oracle.isolation import RESPONSE_S, Isolation
from partq.lab.simulate.oracle.keys.shared_place import FlowShare, Receiver, message_place
from partq.wire import frames

TICK_S: Final = 0.1
"""How long after its time a broker may notice that an application takes too long."""


@dataclass(slots=True)
class _Room:
    """How many messages more a client takes, as its broker knows it."""

    messages: int = 0
    since: float = 0.0
    """Since when it takes any."""


@dataclass(slots=True)
class LaneLiveness:
    """Judges that no key waits where nothing holds it up and its member has room.

    Each time that something may have ended for a key is noted: a message of it was sent, is done
    with or was given back, a member was given the slot, or what is owed has come. So a key that is
    sent later than `RESPONSE_S` after the last of them was forgotten for a while.
    """

    isolation: Isolation
    fail: Callable[[str, str], None]
    now: Callable[[], float]
    record_of: Callable[[GroupPartitionFacts], Mapping[bytes, bytes]]
    """What is stored of a group in a partition."""
    is_on: bool = False
    is_by_message: bool = False
    """Each message stands alone, as a key does."""
    causes_again: frozenset[Cause] = TAKEN_BACK
    """Why a member may be handed a message twice under one token."""
    nack_s: float = 0.0
    _touched: dict[tuple[str, int], float] = field(default_factory=dict)
    """Until when what was noted last of a key may hold it up."""
    _moved: dict[str, float] = field(default_factory=dict)
    """When something of each partition was done with: the span may have grown."""
    _failed: set[tuple[str, int]] = field(default_factory=set)
    """Keys that were given back: they may wait once more at the next broker."""
    _room: dict[Receiver, _Room] = field(default_factory=dict)
    _bound: dict[tuple[str, str], tuple[str, int, float]] = field(default_factory=dict)
    """Of each place and member: the broker, its epoch for it, and since when."""

    # ---- what is noted --------------------------------------------------------------------------

    def has_room(self, end: Receiver, frame: frames.Bind | frames.Credit) -> None:
        """Take the news of a client that it has room for messages."""
        messages = frame.credit if isinstance(frame, frames.Bind) else frame.messages
        room = self._room.setdefault(end, _Room())
        if room.messages <= 0:
            room.since = self.now()
        room.messages += messages

    def spend(self, end: Receiver, messages: int) -> None:
        """Take the news that a broker sends messages."""
        self._room.setdefault(end, _Room()).messages -= messages

    def touch(self, facts: GroupPartitionFacts, offsets: Iterable[int], for_s: float = 0.0) -> None:
        """Note that something may have ended, or will in that time, for the keys of offsets."""
        slots, until = facts.log.slots, self.now() + for_s
        self._moved[facts.name] = self.now()
        for offset in offsets:
            if offset < len(slots):
                key = facts.name, self._lane(facts, offset)
                self._touched[key] = max(self._touched.get(key, 0.0), until)

    def gave_back(self, facts: GroupPartitionFacts, offsets: Iterable[int]) -> None:
        """Note that messages were given back as failed."""
        offsets, slots = [*offsets], facts.log.slots
        self.touch(facts, offsets, self.nack_s)
        self._failed.update((facts.name, slots[each]) for each in offsets if each < len(slots))

    def gained(self, facts: GroupPartitionFacts, slots: Iterable[int]) -> None:
        """Note that a member has slots from now on that it did not have."""
        now = self.now()
        for slot in slots:
            key = facts.name, slot
            until = now + (self.nack_s if key in self._failed else 0.0)
            self._touched[key] = max(self._touched.get(key, 0.0), until)

    def _place(self, facts: GroupPartitionFacts, offset: int) -> str:
        return message_place(facts, offset) if self.is_by_message else facts.place_of(offset)

    def _lane(self, facts: GroupPartitionFacts, offset: int) -> int:
        return offset if self.is_by_message else facts.log.slots[offset]

    def place_of(self, facts: GroupPartitionFacts, offset: int, *, is_keyed: bool) -> str:
        """Return the name of the place in which a message has an order, or waits.

        `is_keyed`: that of its key, except where a partition is one place.
        """
        if self.is_by_message and facts.group == GROUP:
            return message_place(facts, offset)
        return facts.place_of(offset) if is_keyed else facts.name

    # ---- what is judged -------------------------------------------------------------------------

    def due_at(self, facts: GroupPartitionFacts, share: FlowShare, offset: int) -> float:
        """Return when nothing held up the message at an offset any more, as far as was noted."""
        name, place, broker = facts.name, self._place(facts, offset), share.end.process.name
        room, isolation = self._room.get(share.end, _Room()), self.isolation
        mended = isolation.troubles.until(share.name, broker)
        held_up_at, wait_s = isolation.held_up(place)
        if held_up_at <= mended:
            mended += wait_s  # a broker that stood still has heard of it then
        return max(
            facts.log.stored_at[offset],
            self._touched.get((name, self._lane(facts, offset)), 0.0),
            self._moved.get(name, 0.0) if self.isolation.is_narrow else 0.0,
            room.since,
            isolation.waits_until(name),
            isolation.waits_until(place),
            mended,
        )

    def judge_sent(self, facts: GroupPartitionFacts, share: FlowShare, offset: int) -> None:
        """Judge that the message at an offset is not sent later than it might have been."""
        due = share.due[offset] = self.due_at(facts, share, offset)
        late_s = self.now() - due
        if self.is_on and not self.is_by_message and late_s > RESPONSE_S:
            text = f"{facts.name}: {offset} of slot {facts.log.slots[offset]} is sent to"
            self.fail("K5", f"{text} {share.name} {late_s:.3f} s after it might have been")

    def judge_handed(
        self, facts: GroupPartitionFacts, share: FlowShare, offset: int, idle_s: float
    ) -> None:
        """Judge what an application gets that has waited for `idle_s` seconds."""
        if not self.is_on or self.is_by_message or offset not in share.due:
            return
        name, isolation = facts.name, self.isolation
        began = max(
            share.due[offset],
            self.now() - idle_s,
            isolation.waits_until(name),
            isolation.waits_until(self._place(facts, offset)),
            isolation.troubles.until(share.name, share.end.process.name),
        )
        if self.now() > began + RESPONSE_S:
            text = f"{name}: {share.name} gets {offset} after {self.now() - began:.3f} s"
            self.fail("G6", text)

    def bound(self, facts: GroupPartitionFacts, share: FlowShare, broker_epoch: int) -> None:
        """Judge that a broker does not give a member its keys once more without a cause."""
        broker, key = share.end.process.name, (facts.name, share.name)
        last = self._bound.get(key)
        is_again = last is not None and last[:2] == (broker, broker_epoch)
        if last is not None and is_again and self.isolation.is_untouched(*key, broker, last[2]):
            self.fail("G6", f"{facts.name}: {share.name} is bound again without a cause")
        self._bound[key] = broker, broker_epoch, self.now()

    def revoked(self, facts: GroupPartitionFacts, share: FlowShare, broker_epoch: int) -> None:
        """Judge that a broker takes its keys from a member only where it has no part any more."""
        broker, key = share.end.process.name, (facts.name, share.name)
        log, last = facts.log, self._bound.get(key)
        is_over = log.broker_epoch != broker_epoch or not facts.is_there or log.is_gone
        is_over |= self.isolation.was_yielded(log.name, BrokerEpoch(broker_epoch))
        is_member = self.is_by_message or share.name in self._members(facts)
        if is_over or not is_member:
            self._bound.pop(key, None)
        elif last is not None and self.isolation.is_untouched(*key, broker, last[2]):
            text = f"{facts.name}: {broker} takes it from {share.name}, and nothing had happened"
            self.fail("G6", text)

    def _members(self, facts: GroupPartitionFacts) -> list[str]:
        parts = self.record_of(facts).get(b"parts")
        return json.loads(parts)["members"] if parts else []
