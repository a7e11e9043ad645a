"""Keys that wait until they are released, as a message of theirs has failed too often: K7."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from partq.lab.simulate.machine.memory_redis import MemoryRedis
from partq.lab.simulate.oracle.facts import GroupPartitionFacts
from partq.store.codec import decode_counts, decode_parked

RACE_S: Final = 0.5
"""How long a flush that has begun before a release may still store the counts from before it."""


class HeldKeys:
    """Knows which keys are held, from the counts that brokers store, and judges what is sent.

    Args:
        memory: the keys of Redis.
        fail: called with each violation.
        now: the simulated time.
    """

    def __init__(
        self,
        memory: MemoryRedis,
        fail: Callable[[str, str], None],
        now: Callable[[], float],
    ) -> None:
        self.is_on = False
        """A message that fails too often holds its key."""
        self.limits: Mapping[str, int | None] = {}
        """How often a message of each group is delivered again at most."""
        self.makes_letters = False
        """All messages of such a key become dead letters."""
        self._memory = memory
        self._fail = fail
        self._now = now
        self._held: dict[tuple[str, int], str] = {}
        """The place in which a message failed, by group and slot."""
        self._counts: dict[str, dict[int, int]] = {}
        self._may_be_held: set[tuple[str, int]] = set()
        """Those that may have failed too often before their release, or again since."""
        self._released_at: dict[tuple[str, int], float] = {}

    def record_of(self, facts: GroupPartitionFacts) -> Mapping[bytes, bytes]:
        """Return the record of a group in a partition."""
        return self._memory.hash(facts.key)

    def is_held(self, facts: GroupPartitionFacts, offset: int) -> bool:
        """Say whether the key of the message at an offset waits until it is released."""
        slots = facts.log.slots
        return offset < len(slots) and (facts.group, slots[offset]) in self._held

    def may_be_held(self, facts: GroupPartitionFacts, offset: int) -> bool:
        """Say whether the key of a message may be held, or was until just now."""
        slots = facts.log.slots
        key = facts.group, slots[offset] if offset < len(slots) else -1
        is_known = key in self._held or key in self._may_be_held
        return is_known or self._now() <= self._released_at.get(key, -RACE_S) + RACE_S

    def stored(self, facts: GroupPartitionFacts) -> int:
        """Take a stored book; return how many keys are held from now on."""
        limit = self.limits.get(facts.group)
        if not self.is_on or limit is None:
            return 0
        counts = decode_counts(self._memory.hash(facts.key)[b"redeliveries"])
        before, self._counts[facts.name] = self._counts.get(facts.name, {}), counts
        found = 0
        for offset, count in counts.items():
            if count > limit and offset < len(facts.log.slots):
                key = facts.group, facts.log.slots[offset]
                is_late = self._now() > self._released_at.get(key, -RACE_S) + RACE_S
                if count > before.get(offset, 0) and is_late:
                    found += key not in self._held
                    self._held.setdefault(key, facts.name)
                else:
                    self._may_be_held.add(key)
        return found

    def released(self, group: str, slot: int) -> None:
        """Learn that a key is about to be released."""
        self._held.pop((group, slot), None)
        self._may_be_held.discard((group, slot))
        self._released_at[group, slot] = self._now()

    def claimed(self, facts: GroupPartitionFacts) -> None:
        """Learn that a broker begins with the record: a release that is not in it is forgotten."""
        parked, _ = decode_parked(self._memory.hash(facts.key).get(b"parked", b""))
        for slot, until in parked.items() if self.is_on else ():
            if until < 0:
                self._held.setdefault((facts.group, slot), facts.name)

    def begun(self, facts: GroupPartitionFacts) -> None:
        """Learn that a group begins again in a partition: its record says what is held."""
        parked, _ = decode_parked(self._memory.hash(facts.key).get(b"parked", b""))
        self._counts.pop(facts.name, None)
        for (group, slot), name in [*self._held.items()]:
            if name == facts.name and parked.get(slot, 0) >= 0:
                del self._held[group, slot]

    def forget(self) -> None:
        """Learn that the store has older keys: nothing is held from now on."""
        self._held.clear()
        self.is_on = False

    def sent(self, facts: GroupPartitionFacts, offsets: Sequence[int]) -> None:
        """Judge what the owner of a partition sends."""
        for offset in offsets if self._held else ():
            if self.is_held(facts, offset):
                slot = facts.log.slots[offset]
                text = f"{facts.name}: {offset} of slot {slot} is sent, and the key is not released"
                self._fail("K7", text)
