"""Which flow has which messages of each slot, where several members share a partition."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from partq.pipeline.audit.judge.groups.history import FlowName, RecordedEvent
from partq.pipeline.audit.judge.groups.lanes import PublishedSlots
from partq.pipeline.audit.judge.groups.session_lanes import SessionLanes
from partq.pipeline.audit.judge.lines import RecordLine

MAX_ENDED = 10_000
"""Flows whose end is remembered: what was delivered to one is redelivered soon after."""
MAX_FLUSHES = 2
"""An ack that a broker has accepted is recorded by the next flush, or by the one behind that, as
one may be on its way; what the ack allows may be recorded before."""


@dataclass(slots=True)
class SharedSlot:
    """A message that was delivered while another flow had messages of its slot, by the record."""

    offset: int
    slot: int
    line: RecordLine
    """The delivery."""
    others: dict[int, FlowName]
    """Offset → the flow that had it; it may have been acknowledged, and not recorded yet."""
    flushes: int = 0
    """How many flushes of the group were recorded since then."""


class Alone:
    """In the place of slots, where each message stands for itself."""

    def within(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Return each offset of [first, stop) twice: it is its own lane."""
        return ((offset, offset) for offset in range(first, stop))


class Shares:
    """Follows who holds what of each slot."""

    def __init__(self, slots: PublishedSlots | Alone | SessionLanes) -> None:
        self._slots = slots
        self._held: dict[int, dict[int, FlowName]] = {}
        """Slot → offset → the flow that has it."""
        self._ended: OrderedDict[FlowName, RecordedEvent] = OrderedDict()
        self._begun: OrderedDict[FlowName, None] = OrderedDict()
        self._is_back: set[FlowName] = set()
        """Of those that have ended: which have begun again."""
        self._shared: dict[int, SharedSlot] = {}
        self._flush: int | None = None
        """Sequence of the flush whose records are being read."""
        self._parts: dict[int, str] = {}

    def has_ended(self, flow: FlowName) -> bool:
        """Return whether the record says that a flow has nothing any more."""
        return flow in self._ended and flow not in self._is_back

    def begin(self, flow: FlowName) -> None:
        """Note that a flow has some slots, for the first time or again."""
        self._begun[flow] = None
        if len(self._begun) > MAX_ENDED:
            self._begun.popitem(last=False)
        if flow in self._ended:
            self._is_back.add(flow)

    def has_begun(self, flow: FlowName) -> bool:
        """Return whether the record has the begin of a flow, and so all that it was sent."""
        return flow in self._begun

    def end_of(self, flow: FlowName | None) -> RecordedEvent | None:
        """Return the line that a flow has ended with."""
        return None if flow is None else self._ended.get(flow)

    def pass_part(self, line: RecordLine) -> str | None:
        """Note who has a part from now on; return who had it, if that is known."""
        before = self._parts.get(line.number)
        self._parts[line.number] = line.target
        return before

    def deliver(
        self, line: RecordLine, flow: FlowName, is_done: Callable[[int], bool]
    ) -> list[tuple[int, FlowName]]:
        """Note a delivery; return what of it another flow has still: with that flow.

        What is done was decided on before, and is not sent.
        """
        twice: list[tuple[int, FlowName]] = []
        for offset, slot in self._slots.within(line.first, line.stop):
            if is_done(offset):
                continue
            held = self._held.setdefault(slot, {})
            before = held.get(offset, flow)
            others = {o: each for o, each in held.items() if each != flow and o != offset}
            if before != flow:
                twice.append((offset, before))
            elif others:
                self._shared[offset] = SharedSlot(offset, slot, line, others)
            held[offset] = flow
        return twice

    def finished(self, line: RecordLine) -> list[SharedSlot]:
        """Return what of an ack or a nack its member had while others had its slot."""
        found = [at for at in self._shared if line.first <= at < line.stop]
        return [self._shared.pop(at) for at in found]

    def clear(self, first: int, stop: int) -> None:
        """Note that no flow has anything of [first, stop)."""
        if self._held:
            self._forget(self._slots.within(first, stop))

    def end(self, flow: FlowName, event: RecordedEvent) -> list[int]:
        """Note that a flow has nothing any more; return what it had."""
        self._is_back.discard(flow)
        self._ended[flow] = event
        if len(self._ended) > MAX_ENDED:
            self._is_back.discard(self._ended.popitem(last=False)[0])
        mine = [
            (offset, slot)
            for slot, held in self._held.items()
            for offset, each in held.items()
            if each == flow
        ]
        self._forget(mine)
        return sorted(offset for offset, _ in mine)

    def forget(self) -> list[int]:
        """Note that nobody has anything any more; return what flows had."""
        held = sorted(offset for each in self._held.values() for offset in each)
        self._held.clear()
        self._shared.clear()
        self._flush = None
        return held

    def note_flush(self, line: RecordLine) -> list[SharedSlot]:
        """Note a line of the group; return whose slot is held by others after flushes enough."""
        late: list[SharedSlot] = []
        flush = self._flush
        if flush is not None and line.sequence != flush:
            self._flush = None
            for each in list(self._shared.values()):
                each.flushes += each.line.sequence < flush
                if each.flushes >= MAX_FLUSHES:
                    late.append(self._shared.pop(each.offset))
        if line.kind in ("ack", "nack"):
            self._flush = line.sequence
        return late

    def _forget(self, found: Iterable[tuple[int, int]]) -> None:
        for offset, slot in found:
            held = self._held.get(slot)
            if held is None or held.pop(offset, None) is None:
                continue
            if not held:
                del self._held[slot]
            if self._shared:
                self._shared.pop(offset, None)
                for each in list(self._shared.values()):
                    if each.others.pop(offset, None) is not None and not each.others:
                        del self._shared[each.offset]
