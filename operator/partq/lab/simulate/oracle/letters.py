"""Dead letters, from the outbox of a group to the queue that they go to: each of them once."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from partq.core.dead_letters import HEADER_PREFIX, DeadLetter, DeadLetterReason
from partq.core.model import PartitionId
from partq.lab.simulate.machine.memory_redis import MemoryRedis
from partq.lab.simulate.oracle.facts import GroupPartitionFacts, facts_name
from partq.lab.simulate.oracle.held_keys import HeldKeys
from partq.store.keys import Keys
from partq.store.pipelined_connection import Reply
from partq.store.records.dead_letters import decode_outbox
from partq.wire import batch

TARGET: Final = PartitionId(1, 0)
"""The one partition of the queue that they go to."""


class Letters:
    """Judges what goes into an outbox, what comes out of it, and what its target stores."""

    def __init__(
        self,
        memory: MemoryRedis,
        target: Keys,
        fail: Callable[[str, str], None],
        limits: Mapping[str, int | None],
        is_expired: Callable[[GroupPartitionFacts, int], bool],
        held_keys: HeldKeys,
        effects: Counter[str],
    ) -> None:
        """Prepare it.

        Args:
            memory: the keys of Redis.
            target: those of the queue that dead letters go to.
            fail: called with each violation.
            limits: how often a message of each group is delivered again at most; None: it is not
                known how often that was.
            is_expired: whether the message at an offset has outlived its time to live.
            held_keys: those that wait until they are released.
            effects: where what has happened is counted.
        """
        self.target = target.meta(TARGET).encode()
        self._effects = effects
        self._is_judging = True
        self._memory = memory
        self._stream = target.log(TARGET).encode()
        self._fail = fail
        self._limits = limits
        self._is_expired = is_expired
        self._held_keys = held_keys
        self._last: dict[tuple[str, str | None], int] = {}
        """The last dead letter in the target of each key that is in quarantine, by its place."""
        self._restarted: set[str] = set()
        """The places in which a group has begun again: some dead letters come twice there."""
        self._end = 0
        """Of the target's log, as far as it was looked at."""
        self._added: Counter[tuple[str, int]] = Counter()
        self._arrived: Counter[tuple[str, int]] = Counter()
        self._dropped: set[tuple[str, int]] = set()
        """Those that went with their group: they may be in the target, and need not be."""

    def added(self, facts: GroupPartitionFacts, answer: Reply) -> None:
        """Take the answer to a script that puts messages into an outbox."""
        if isinstance(answer, int):
            return
        for letter in self._read(facts):
            if letter.number in facts.outbox:
                continue
            offset = letter.offset
            where = f"{facts.name}: {offset} becomes a dead letter"
            is_over = letter.reason == DeadLetterReason.EXPIRED
            self._judge(letter.number > facts.top_number, f"{where} under an older number")
            self._judge(offset not in facts.letters, f"{where} a second time")
            self._judge(not facts.is_stored_done(offset), f"{where}, and is done with")
            limit, sent = self._limits[facts.group], facts.sent[offset]
            if is_over:
                self._judge(self._is_expired(facts, offset), f"{where} before its time is over")
            elif self._held_keys.is_on:
                self._judge(
                    self._held_keys.makes_letters and self._held_keys.may_be_held(facts, offset),
                    f"{where}, and its key is {'not ' * self._held_keys.makes_letters}held",
                )
            elif limit is not None:
                self._judge(sent > limit, f"{where}, sent {sent} times of {limit + 1}")
            self._effects["expired letter" if is_over else "dead letter"] += 1
            facts.top_number = max(facts.top_number, letter.number)
            facts.outbox[letter.number] = offset
            facts.letters.add(offset)
            self._dropped.discard((facts.name, offset))
            facts.done.add(facts.log.ids[offset])
            self._added[facts.name, offset] += 1

    def drop(self, facts: GroupPartitionFacts) -> None:
        """Learn that a group is removed, and its outbox with it."""
        self._dropped.update((facts.name, offset) for offset in facts.outbox.values())
        self._effects["dropped letter"] += len(facts.outbox)
        facts.outbox.clear()

    def begin_again(self, facts: GroupPartitionFacts) -> None:
        """Learn that a group begins again in a partition."""
        self._restarted.add(facts.name)

    def roll_back(self, group_partitions: Iterable[GroupPartitionFacts]) -> None:
        """Learn that the store has older keys: nothing is judged from now on."""
        self._is_judging = False
        for facts in group_partitions:
            facts.outbox = {letter.number: letter.offset for letter in self._read(facts)}

    def _read(self, facts: GroupPartitionFacts) -> list[DeadLetter]:
        return decode_outbox(self._memory.hash(facts.key).get(b"outbox", b""))

    def _judge(self, is_right: bool, text: str) -> None:
        if not is_right and self._is_judging:
            self._fail("letters", text)

    def removed(self, facts: GroupPartitionFacts, answer: Reply) -> None:
        """Take the answer to a script that takes a message out of an outbox."""
        if answer != 1:
            return
        left = {letter.number for letter in self._read(facts)}
        for number in [each for each in facts.outbox if each not in left]:
            offset = facts.outbox.pop(number)
            where = f"{facts.name}: {offset} is taken out"
            self._judge(bool(self._arrived[facts.name, offset]), f"{where}, its target lacks it")
            is_done = offset not in facts.letters or facts.is_stored_done(offset)
            self._judge(is_done, f"{where}, and not stored as done")

    def stored(self) -> None:
        """Look at what the target has stored."""
        for entry in self._memory.stream(self._stream).entries[self._end :]:
            self._end += 1
            fields = dict(zip(entry.fields[::2], entry.fields[1::2], strict=True))
            for message in batch.decode(fields[b"batch"]):
                told = message.headers or {}
                name = facts_name(told[f"{HEADER_PREFIX}partition"], told[f"{HEADER_PREFIX}group"])
                offset = int(told[f"{HEADER_PREFIX}offset"])
                times = self._arrived[name, offset] = self._arrived[name, offset] + 1
                is_first = times <= self._added[name, offset]
                self._judge(is_first, f"{name}: {offset} is in the target a second time")
                is_expired = told[f"{HEADER_PREFIX}reason"] == "expired"
                if self._held_keys.is_on and not is_expired and name not in self._restarted:
                    last = self._last.get((name, message.key), -1)
                    self._judge(offset > last, f"{name}: {offset} is in the target behind {last}")
                    self._last[name, message.key] = offset

    def missing(self) -> list[str]:
        """Return the dead letters that their target does not have, once all is quiet."""
        if not self._is_judging:
            return []
        return [
            f"{name}: {at}"
            for name, at in self._added
            if not self._arrived[name, at] and (name, at) not in self._dropped
        ]
