"""Follows changes of the partition count through the record of one partition."""

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from partq.core.ranges import Ranges
from partq.errors import UndecodableError
from partq.pipeline.audit.judge.finding import GATE, LINEAGE, SEAL, Found, of_line
from partq.pipeline.audit.judge.groups.history import LATER
from partq.pipeline.audit.judge.lines import RecordLine
from partq.pipeline.audit.judge.outcome import RecordedBatch
from partq.pipeline.audit.judge.recorded_changes import (
    Passage,
    RecordedChanges,
    RecordedGate,
    RecordedOpening,
    RecordedSeal,
    SlotMask,
    StoredFirst,
    mask_of,
    openings_of,
    passed_of,
)

HELD = "held"
"""Flag of a reset that has closed the gate: the predecessors are reset, too."""
MAX_PASSAGES = 1_000
"""Of one group and seal: each but the first one needs a reset."""


class ChangeJudge:
    """Judges what one partition can tell by itself; `recorded` is what others are compared with.

    Args:
        partition: its name.
        found: takes findings.
        batches: what was stored so far, by offset; they grow.
    """

    def __init__(self, partition: str, found: Found, batches: Sequence[RecordedBatch]) -> None:
        self._partition = partition
        self._found = found
        self._batches = batches
        self.recorded = RecordedChanges(partition)
        self._has_begun = False
        """Whether the first claim was seen, or what stands there instead."""
        self._taken: SlotMask | None = None
        """The slots that it takes; None: not known."""
        self._stored: RecordLine | None = None
        """The first publish."""
        self._groups: dict[str, _GroupInPredecessor] = {}

    def judge(self, line: RecordLine, *, is_late: bool) -> None:
        """Judge a line.

        `is_late`: what was before the part of the record that it is in, is not known.
        """
        recorded = self.recorded
        recorded.end, recorded.end_ms = line.sequence + 1, line.at_ms
        if not self._has_begun and line.kind != "begin":
            self._has_begun = True
            # A record that was turned on later does not begin with the first claim.
            recorded.is_whole = line.kind == "claim" and line.stop == 0
        if is_late:
            recorded.is_whole = False
        try:
            if line.group:
                self._judge_of_group(line)
            elif line.kind == "publish":
                self._publish(line)
            elif line.kind == "seal":
                self._seal(line)
            elif line.kind == "open":
                self._open(line)
        except UndecodableError:
            recorded.is_whole = False  # no broker writes that: the hash of the group tells it

    def finish(self) -> RecordedChanges:
        """Return what the record says."""
        recorded, stored = self.recorded, self._stored
        recorded.groups = frozenset(self._groups)
        if stored is not None:
            recorded.stored = StoredFirst(
                stored.sequence, stored.at_ms, stored.first, stored.stop, _first_slot(stored.slots)
            )
        for group, progress in self._groups.items():
            for generation, passage in progress.passed.items():
                self._keep(group, generation, passage)
        return recorded

    # ---- of the partition -----------------------------------------------------------------------

    def _publish(self, line: RecordLine) -> None:
        if self._stored is None:
            self._stored = line
        if self._taken is None or len(line.slots) != 2 * (line.stop - line.first):
            return
        slots = np.frombuffer(line.slots, "<u2")
        strange = np.flatnonzero(~self._taken[slots])
        if not strange.size:
            return
        first = line.first + int(strange[0])
        text = (
            f"offset {first} was stored with slot {slots[strange[0]]}, which the partition did not "
            f"take: {self._slots_since()}"
        )
        stop = line.first + int(strange[-1]) + 1
        self._found(of_line(SEAL, "slot_not_taken", self._partition, line, text, first, stop))

    def _slots_since(self) -> str:
        """Say what tells which slots it takes."""
        recorded = self.recorded
        if recorded.seals:
            generation, seal = max(recorded.seals.items())
            what = f"[{seal.slots}]" if seal.slots else "none"
            return (
                f"it was sealed by change {generation} in group {seal.sequence}, at offset "
                f"{seal.stop}, and kept {what}"
            )
        assert recorded.opening is not None  # noqa: S101  one of the two has told it
        return f"it was opened in group {recorded.opening.sequence} for other slots"

    def _seal(self, line: RecordLine) -> None:
        self._taken = mask_of(line.target)
        seal = RecordedSeal(line.sequence, line.at_ms, line.stop, line.target)
        self.recorded.seals[line.number] = seal
        for name, progress in self._groups.items():
            self._follow(name, progress, line)

    def _open(self, line: RecordLine) -> None:
        predecessors = openings_of(line.target)
        self.recorded.opening = RecordedOpening(line.sequence, line.at_ms, line.first, predecessors)
        if predecessors and all(each.slots for each in predecessors.values()):
            self._taken = np.logical_or.reduce(
                [mask_of(each.slots) for each in predecessors.values()]
            )
        stored = self._stored
        if stored is not None and self.recorded.is_whole:
            text = (
                f"offset {stored.first}, of slot {_first_slot(stored.slots)}, was stored before "
                f"the partition was opened, in group {line.sequence}"
            )
            what = "published_before_open"
            self._found(of_line(LINEAGE, what, self._partition, stored, text))

    # ---- of groups ------------------------------------------------------------------------------

    def _judge_of_group(self, line: RecordLine) -> None:
        name, kind = line.group, line.kind
        if kind == "end":
            progress = self._groups.pop(name, None)
            for generation, passage in ({} if progress is None else progress.passed).items():
                self._keep(name, generation, _ended(passage, line))
            return
        if kind == "begin":
            progress = self._groups.setdefault(name, _GroupInPredecessor())
        elif (known := self._groups.get(name)) is not None:
            progress = known
        else:
            return  # of one that was removed, or began before the record
        if kind == "deliver":
            self._deliver(line, progress)
        elif kind == "gate":
            progress.is_gated = False
            passed = passed_of(line.target)
            self.recorded.gates.append(
                RecordedGate(name, line.sequence, line.at_ms, line.first, passed)
            )
        elif kind == "reset":
            progress.is_gated = progress.is_gated or line.flags == HELD
            progress.done = Ranges([(0, line.first)])
            self._follow(name, progress, line)
        elif kind in _DONE and line.flags not in LATER:
            progress.done.add(line.first, line.stop)
            self._follow(name, progress, line)

    def _deliver(self, line: RecordLine, progress: "_GroupInPredecessor") -> None:
        if not progress.is_gated or self.recorded.opening is None or not self.recorded.is_whole:
            return
        progress.is_gated = False  # once is enough: the others follow from it
        text = (
            f"offset {line.first}, of slot {self._slot_of(line.first)}, was delivered to "
            f"{line.member} before the gate of {line.group} was open: there may be messages of the "
            "slot in predecessors that the group has not done with"
        )
        self._found(of_line(GATE, "delivered_before_gate", self._partition, line, text))

    def _follow(self, name: str, progress: "_GroupInPredecessor", line: RecordLine) -> None:
        """Note which seals a group has passed, and of which that is over."""
        reached = progress.done.end_of_run(0) if self.recorded.seals else 0
        for generation, seal in self.recorded.seals.items():
            passage = progress.passed.get(generation)
            if passage is None and reached >= seal.stop:
                is_seal = line.kind == "seal"
                first, stop = (0, 0) if is_seal else (line.first, min(line.stop, seal.stop))
                slot = self._slot_of(first) if first < stop else -1
                progress.passed[generation] = Passage(line.sequence, None, 0, first, stop, slot)
            elif passage is not None and reached < seal.stop:
                self._keep(name, generation, _ended(passage, line))
                del progress.passed[generation]

    def _keep(self, group: str, generation: int, passage: Passage) -> None:
        kept = self.recorded.passages.setdefault((group, generation), [])
        if len(kept) < MAX_PASSAGES:
            kept.append(passage)
        else:
            self.recorded.is_whole = False

    def _slot_of(self, offset: int) -> int:
        """Return the slot of a message; -1: not known."""
        at = bisect_right(self._batches, offset, key=lambda each: each.first) - 1
        if at < 0 or offset >= self._batches[at].stop:
            return -1
        batch = self._batches[at]
        return _first_slot(batch.slots[2 * (offset - batch.first) :])


class _GroupInPredecessor:
    """What a group has done with in the partition."""

    __slots__ = ("done", "is_gated", "passed")

    def __init__(self) -> None:
        self.done = Ranges()
        self.is_gated = True
        """Whether no gate was opened for it; a partition without an opening has none."""
        self.passed: dict[int, Passage] = {}
        """By the generation of a seal."""


_DONE = frozenset({"begin", "ack", "dead_letter", "expired"})


def _ended(passage: Passage, line: RecordLine) -> Passage:
    return passage._replace(end=line.sequence, end_ms=line.at_ms)


def _first_slot(slots: bytes) -> int:
    return int.from_bytes(slots[:2], "little") if len(slots) >= 2 else -1
