"""Changes of the partition count: what they store and deliver, and in which order (R1 to R8).

The invariants are those of docs/rescale-model.md. They are judged slot by slot: in generations that
rise, a slot goes from partition to partition.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.slot_table import SlotChange, SlotTable, size_of
from partq.lab.simulate.machine.memory_redis import MemoryRedis
from partq.lab.simulate.oracle.facts import GroupPartitionFacts, LogFacts
from partq.store.codec import decode_counts, decode_predecessors, decode_slots
from partq.store.keys import Keys
from partq.wire.layout_record import FIELDS, decode_layout


class Rescales:
    """Follows the layout and the messages of each slot."""

    def __init__(
        self,
        memory: MemoryRedis,
        keys: Keys,
        logs: Mapping[str, LogFacts],
        fail: Callable[[str, str], None],
        effects: Counter[str],
    ) -> None:
        """Prepare it.

        Args:
            memory: the keys of Redis.
            keys: the names of those of the queue.
            logs: the facts of each partition, by its name.
            fail: called with each violation.
            effects: where what has happened is counted.
        """
        self.layout_key = keys.layout().encode()
        self.layout: Layout | None = None
        """As stored."""
        self.was_rolled_back = False
        self.sources: dict[int, int] = {}
        """Of each numbered message, which run of calls has published it: a run is in order."""
        self.on_layout: Callable[[], None] = lambda: None
        """Told of each step of a change."""
        self.on_gate: Callable[[GroupPartitionFacts], None] | None = None
        """Told of a partition whose messages a group may have from now on."""
        self._memory = memory
        self._logs = logs
        self._fail = fail
        self._effects = effects
        self._messages: dict[int, dict[LogFacts, list[int]]] = {}
        """The offsets of each slot, by log."""
        self._newest: dict[int, LogFacts] = {}
        """Where the last message of each slot was stored."""
        self._homes: dict[int, LogFacts] = {}
        """The log of each numbered message."""
        self._last_of: dict[tuple[int, int], int] = {}
        """The last message of each run and slot that was stored."""

    # ---- the layout -----------------------------------------------------------------------------

    def read_layout(self) -> Layout | None:
        """Return the layout as it is stored; None: the queue was not made yet."""
        fields = self._memory.hash(self.layout_key)
        if b"table" in fields:
            values = {name: fields.get(name.encode()) for name in FIELDS}
            return decode_layout(int(fields.get(b"revision", b"0")), values)
        if b"generations" in fields:
            (count,) = decode_counts(fields[b"generations"]).values()
            return Layout.first(count)
        return None

    def layout_changed(self) -> None:
        """Take the news that a script has written the layout."""
        before, after = self.layout, self.read_layout()
        self.layout = after
        self.on_layout()
        if before is None or after is None:
            return
        if after.generation > before.generation:
            if self.was_rolled_back and (before.next is None or before.next.table != after.table):
                self._effects["layout restored"] += 1  # with several changes in one step
            else:
                self._effects["rescaled"] += 1
                self._judge_least_movement(before.table, after.table)
        elif before.next is not None and after.next is None:
            self._effects["change aborted"] += 1
            self._judge_aborted(before.next, before.last_generation)
        for successor, predecessors in before.lineage.items():
            for predecessor in predecessors:
                if predecessor not in after.lineage.get(successor, {}):
                    self._judge_passed(predecessor, successor)
        for partition in before.retired:
            if partition not in after.retired:
                self._judge_removed(partition)

    def messages_of(self, slot: int) -> list[tuple[LogFacts, list[int]]]:
        """Return the offsets of a slot's messages by log, that of the last change first."""
        return list(reversed(self._messages.get(slot, {}).items()))

    def unnamed(self) -> list[str]:
        """Return the partitions that take messages, and that a layout which was set back lacks."""
        if not self.was_rolled_back:
            return []
        gone = [log for log in self._logs.values() if log.is_gone]
        return [log.name for log in gone if b"open" in self._memory.hash(log.meta)]

    def _judge_aborted(self, change: SlotChange, generation: int) -> None:
        """Judge R8: what is aborted was never in force, also if the layout says so no more."""
        for giver in {giver for givers in change.lineage.values() for giver in givers}:
            log = self._logs[str(giver)]
            if b"seal:%d" % generation in self._memory.hash(log.meta):
                self._fail("R8", f"{log.name}: sealed by change {generation}, which is aborted")

    def _judge_least_movement(self, before: SlotTable, after: SlotTable) -> None:
        """Judge R7: indices change for as few slots as an even distribution allows."""
        owners = {partition.index: ranges for partition, ranges in before.slots.items()}
        kept = sum(
            _common(owners.get(partition.index, ()), ranges)
            for partition, ranges in after.slots.items()
        )
        total = size_of(each for ranges in after.slots.values() for each in ranges)
        counts = sorted((before.partition_count, after.partition_count))
        least = total * (counts[1] - counts[0]) / counts[1]
        if total - kept > least + counts[1]:
            self._fail("R7", f"{total - kept} slots get another index, {least:.0f} have to")

    def _judge_passed(self, partition: PartitionId, successor: PartitionId) -> None:
        """Judge R5: the lineage names a predecessor as long as somebody may have to read it."""
        log = self._logs[str(partition)]
        sealed_at = int(self._memory.hash(log.meta).get(b"seal:%d" % successor.generation, b"-1"))
        self._effects["settled"] += 1
        if sealed_at > log.first:
            self._fail(
                "R5", f"{log.name}: {log.first} to {sealed_at} are stored, and it is settled"
            )
        for facts in log.groups:
            if facts.is_there and facts.cursor < sealed_at:
                self._fail("R5", f"{facts.name}: at {facts.cursor} of {sealed_at}, and settled")

    def _judge_removed(self, partition: PartitionId) -> None:
        """Judge R5: a partition is removed after all groups have done with all of it."""
        log = self._logs[str(partition)]
        self._effects["removed"] += 1
        for facts in log.groups:
            if facts.is_there and (facts.cursor < len(log.ids) or facts.outbox):
                self._fail("R5", f"{facts.name}: at {facts.cursor} of {len(log.ids)}, and removed")

    # ---- records of partitions ------------------------------------------------------------------

    def sealed(self, log: LogFacts, args: Sequence[bytes], answer: int | Sequence[int]) -> None:
        """Take the answer to a script that lets slots leave a partition."""
        if isinstance(answer, int):
            return
        generation = int(args[1])
        self._effects["sealed"] += 1
        if self.layout is None or generation > self.layout.generation:
            self._fail("R8", f"{log.name}: sealed by change {generation}, which is not committed")

    def gate_opened(self, facts: GroupPartitionFacts, args: Sequence[bytes], answer: int) -> None:
        """Take the answer to a script that lets a group have a partition's messages."""
        if answer == 1:
            self._effects["gate opened"] += 1
            if self.on_gate is not None:
                self.on_gate(facts)

    def opened(self, log: LogFacts, args: Sequence[bytes], answer: int) -> None:
        """Take the answer to a script that opens a partition: its predecessors are sealed."""
        if answer != 1:
            return
        generation = log.generation
        self._effects["opened"] += 1
        found = self._memory.hash(log.meta).get(b"preds")
        for predecessor in decode_predecessors(found) if found else ():
            meta = self._memory.hash(self._logs[str(predecessor)].meta)
            # A later seal removes those of settled changes; then the call that opened came twice.
            is_settled = int(meta.get(b"layout", b"1")) > generation
            if meta and not is_settled and b"seal:%d" % generation not in meta:
                self._fail("R2", f"{log.name}: open, and {predecessor} is not sealed")

    # ---- messages -------------------------------------------------------------------------------

    def stored(self, log: LogFacts, first: int, slots: Sequence[int], numbered: set[int]) -> None:
        """Take the news that messages are stored: those at `first` and behind it."""
        fields = self._memory.hash(log.meta)
        self._judge_slots(log, fields, slots)
        for offset, slot in enumerate(slots, first):
            message = log.ids[offset]
            newest = self._newest.setdefault(slot, log)
            if newest is not log:
                if newest.generation > log.generation:
                    self._fail("R2", f"{log.name}: stores slot {slot} after {newest.name} has")
                self._newest[slot] = log
            self._messages.setdefault(slot, {}).setdefault(log, []).append(offset)
            if message in numbered:
                self._judge_numbered(log, message, slot)

    def _judge_slots(
        self, log: LogFacts, fields: Mapping[bytes, bytes], slots: Sequence[int]
    ) -> None:
        """Judge that the partition is open, and takes these slots."""
        if b"preds" in fields and b"open" not in fields:
            self._fail("R2", f"{log.name}: stores messages, and is not open")
        if (text := fields.get(b"slots")) is None:
            return
        taken = decode_slots(text)
        for slot in slots:
            if not any(slot in ranges for ranges in taken):
                self._fail("R2", f"{log.name}: stores slot {slot}, which has left it")

    def _judge_numbered(self, log: LogFacts, message: int, slot: int) -> None:
        home = self._homes.setdefault(message, log)
        if home is not log:
            self._fail("R1", f"{log.name}: message {message} is stored in {home.name} as well")
        if (run := self.sources.get(message)) is not None:
            last = self._last_of.get((run, slot), -1)
            if message < last:
                self._fail("R3", f"{log.name}: message {message} is stored behind {last}")
            self._last_of[run, slot] = max(last, message)

    def sent(self, facts: GroupPartitionFacts, offsets: Iterable[int]) -> None:
        """Judge R4: what is sent of a slot has nothing of it before it, in any partition."""
        generation = facts.log.generation
        if generation == 1:
            return
        for slot in {facts.log.slots[offset] for offset in offsets}:
            for log, before in self._messages[slot].items():
                if log.generation >= generation or log.is_gone:
                    continue
                older = next(each for each in log.groups if each.group == facts.group)
                if not older.is_there or older.was_reset_alone:
                    continue  # its messages are redelivered beside the others
                if left := [o for o in before if not older.is_stored_done(o)]:
                    self._fail(
                        "R4",
                        f"{facts.name}: slot {slot} is sent, and {left[0]} of {older.name} is not "
                        "acknowledged",
                    )

    def roll_back(self, numbered: set[int]) -> None:
        """Learn that the store has come back with older keys; the facts of logs are of those."""
        self.was_rolled_back = True
        for each in (self._messages, self._newest, self._homes, self._last_of):
            each.clear()
        for log in sorted(self._logs.values(), key=lambda each: each.generation):
            for offset, (message, slot) in enumerate(zip(log.ids, log.slots, strict=True)):
                self._messages.setdefault(slot, {}).setdefault(log, []).append(offset)
                self._newest[slot] = log
                if message in numbered:
                    self._homes[message] = log
                    if (run := self.sources.get(message)) is not None:
                        self._last_of[run, slot] = message


def _common(one: Sequence[range], other: Sequence[range]) -> int:
    """Return how many slots are in both."""
    return sum(max(0, min(a.stop, b.stop) - max(a.start, b.start)) for a in one for b in other)
