"""Opens the gates of partitions: for each group that has done with their predecessors."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

from partq.aio import Signal
from partq.broker.ownership.server_looks import Spawn
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.broker.partition.owned_partition import OwnedPartition
from partq.broker.rescale.state_mover import StateMover
from partq.core.lanes.lane_book import LaneBook
from partq.core.lanes.parked_lanes import BLOCKED_MS, QUARANTINED_MS
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale.gates import PredecessorView, find_holds
from partq.errors import ConflictError, PartqError, UnknownGroupError
from partq.store.records.layout.seals import Seals
from partq.store.records.stored_partition import CLOSED_GATE

NEAR_GAP_S = 0.02
"""Seconds between two looks at predecessors in which a group makes progress."""
FAR_GAP_S = 0.5
"""The same where nothing changes, or more than `NEAR_MESSAGES` are missing."""
NEAR_MESSAGES = 1000
GAP_GROWTH = 1.5
"""Each look that has seen no progress makes the gap so much longer."""
REST_FACTOR = 4
"""A look is followed by a rest of so many times its length, unless the broker has read its config
meanwhile: so thousands of closed gates leave it time for its messages."""
LONGEST_REST_S = 2.0
RESET_HOLD_S = 30.0
"""How long a reset holds a gate at most, on the broker's clock. Then its caller is taken for gone:
its steps are refused from then on in all partitions that come before the gate."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _GateWatch:
    """When a gate is looked at again."""

    gate: str
    gate_at: float
    """When it was first seen like this, on the broker's clock."""
    due: float
    gap_s: float = NEAR_GAP_S
    is_opening: bool = False
    is_ending: bool = False
    """The reset that holds it is being ended."""
    is_ended: bool = False
    """The reset that holds it moves no cursor before the gate any more."""


class Gatekeeper:
    """Looks at the predecessors of gated partitions, and lets groups have what comes after them.

    Args:
        seals: reads the predecessors, and opens gates.
        state_mover: carries states of keys over before that.
        owned: the partitions of this broker.
        layout: of the queue, as the broker knows it; None: it has not read it yet.
        clock: of the broker, in seconds.
        on_lost: told when a record is not what the broker's memory says.
        spawn: runs what takes a round trip for one gate.
    """

    def __init__(
        self,
        seals: Seals,
        state_mover: StateMover,
        *,
        owned: Mapping[PartitionId, OwnedPartition],
        layout: Callable[[], Layout | None],
        clock: Callable[[], float],
        on_lost: Callable[[ConsumedPartition, PartqError], None],
        spawn: Spawn,
    ) -> None:
        self._owned = owned
        self._seals = seals
        self._state_mover = state_mover
        self._layout = layout
        self._clock = clock
        self._on_lost = on_lost
        self._spawn = spawn
        self._known: Layout | None = None
        """The layout by which the gates are watched."""
        self._watches: dict[ConsumedPartition, _GateWatch] = {}
        self._wake = Signal()

    def notice(self) -> None:
        """Look now: gates may have come, or the layout has changed."""
        self._wake.set()

    async def run(self) -> None:
        """Look until cancelled."""
        listed_at = -inf
        while True:
            if self._wake.is_set() or self._clock() - listed_at >= FAR_GAP_S:
                self._wake.clear()
                listed_at = self._clock()
                self._list_gates()
            began_at = self._clock()
            try:
                await self._look()
            except PartqError as error:
                _log.warning("what groups have left in older partitions is not known: %s", error)
                self._put_off()
            now = self._clock()
            due_s = min((each.due - now for each in self._watches.values()), default=FAR_GAP_S)
            wait_s = max(NEAR_GAP_S / 2, min(due_s, FAR_GAP_S), REST_FACTOR * (now - began_at))
            await self._wake.wait_at_most(min(wait_s, LONGEST_REST_S))

    def _put_off(self) -> None:
        """Look at nothing for a while."""
        for watch in self._watches.values():
            watch.due = self._clock() + FAR_GAP_S

    def _list_gates(self) -> None:
        """Watch the gates that are closed; those of partitions that are only prepared stay so."""
        layout = self._known = self._layout()
        now = self._clock()
        # A queue whose count has never changed has no gates.
        gated = [] if layout is None or layout.generation == 1 else self._find_gated(layout)
        self._watches = {each: self._watch(each, now) for each in gated}

    async def _look(self) -> None:
        """Read the predecessors of the gates that are due, and open those that may be.

        Raises:
            StoreUnavailableError: no answer.
        """
        layout, now = self._known, self._clock()
        self._watches = {
            each: self._watch(each, now)
            for each in self._watches
            if each.is_gated and not each.is_dropped
        }
        # The gates before the predecessors: if a reset closes one in between, it stays closed.
        due = {
            each: w.gate for each, w in self._watches.items() if w.due <= now and not w.is_opening
        }
        if layout is None or not due:
            return
        # Before the cursors are read: no step of what is ended by then moves one later.
        over = {each for each in due if self._watches[each].is_ended}
        # The cursors before the audit records, which have them then.
        progress = await self._seals.read_progress(
            (predecessor, each.group)
            for each in due
            for predecessor in layout.predecessors(each.partition)
        )
        seals = await self._seals.read_seals(
            (predecessor, each.partition.generation)
            for each in due
            for predecessor in layout.predecessors(each.partition)
        )
        for consumed, gate in due.items():
            generation = consumed.partition.generation
            views, sequences = {}, {}
            for predecessor in layout.predecessors(consumed.partition):
                seal = seals.get((predecessor, generation))
                found = progress.get((predecessor, consumed.group))
                views[predecessor] = PredecessorView(
                    None if seal is None else seal.sealed_at,
                    trimmed=0,
                    groups={} if found is None else {consumed.group: found},
                )
                sequences[predecessor] = 0 if seal is None else seal.audit_next
            is_held = gate != CLOSED_GATE and consumed not in over
            self._judge(consumed, gate if is_held else "", views, sequences)

    async def end_reset(self, consumed: ConsumedPartition, reset: str) -> bool:
        """End a reset that holds a gate, or has held it, in all partitions before the gate.

        No late step of it moves a cursor there from then on. False: it cannot be ended in all, as
        the group has no cursor in some.

        Raises:
            StoreUnavailableError: no answer; it may be ended in some.
        """
        layout = self._layout()
        if layout is None:
            return False
        earlier: set[PartitionId] = set()
        found = {*layout.predecessors(consumed.partition)}
        while found:
            earlier |= found
            found = {giver for each in found for giver in layout.predecessors(each)} - earlier
        ended = [
            await self._seals.end_reset(partition, consumed.group, reset)
            for partition in sorted(earlier)
        ]
        return all(ended)

    def _find_gated(self, layout: Layout) -> list[ConsumedPartition]:
        """Return the gated groups of all partitions here but those that are only prepared."""
        prepared = layout.next.lineage if layout.next is not None else {}
        return [
            consumed
            for owned in self._owned.values()
            if owned.id in layout and owned.id not in prepared
            for consumed in owned.groups.values()
            if consumed.is_gated
        ]

    def _watch(self, consumed: ConsumedPartition, now: float) -> _GateWatch:
        watch = self._watches.get(consumed)
        if watch is None or watch.gate != consumed.gate:
            watch = _GateWatch(consumed.gate, gate_at=now, due=now)
        return watch

    def _has_waited(self, consumed: ConsumedPartition, now: float) -> bool:
        """Whether the gate is held by a reset whose caller should have come to its end by now."""
        watch = self._watches[consumed]
        return watch.gate != CLOSED_GATE and now - watch.gate_at >= RESET_HOLD_S

    def _judge(
        self,
        consumed: ConsumedPartition,
        reset: str,
        views: Mapping[PartitionId, PredecessorView],
        sequences: Mapping[PartitionId, int],
    ) -> None:
        """Open a gate, or say what holds it and when to look again.

        `reset`: the one that holds it; empty: none does any more.
        """
        watch = self._watches[consumed]
        now = self._clock()
        holds = find_holds(views, consumed.group, reset=reset)
        if not holds:
            watch.is_opening = True
            passed = {each: (view.sealed_at or 0, sequences[each]) for each, view in views.items()}
            held = self._held_before(consumed, views)
            self._spawn(self._open(consumed, watch, passed, held), f"gate of {consumed.partition}")
            return
        if reset and not watch.is_ending and self._has_waited(consumed, now):
            watch.is_ending = True
            self._spawn(self._end(consumed, watch), f"reset at {consumed.partition}")
        is_far = sum(each.messages for each in holds) >= NEAR_MESSAGES
        if is_far:
            watch.gap_s = FAR_GAP_S
        elif holds != consumed.holds:
            watch.gap_s = NEAR_GAP_S
        else:
            watch.gap_s = min(watch.gap_s * GAP_GROWTH, FAR_GAP_S)
        watch.due = now + watch.gap_s
        consumed.holds = holds

    def _held_before(
        self, consumed: ConsumedPartition, views: Mapping[PartitionId, PredecessorView]
    ) -> dict[int, int]:
        """Return the slots that wait until they are released in the predecessors that had them.

        What waits for them has expired there, or is a dead letter: the keys are held all the same.
        """
        layout, held = self._known, dict[int, int]()
        if layout is None or consumed.keys is None:
            return held
        for predecessor, ranges in layout.predecessors(consumed.partition).items():
            view = views.get(predecessor)
            found = view.groups.get(consumed.group) if view is not None else None
            if found is not None:
                slots = dict.fromkeys(found.blocked, BLOCKED_MS)
                slots |= dict.fromkeys(found.quarantined, QUARANTINED_MS)
                held |= {s: how for s, how in slots.items() if any(s in each for each in ranges)}
        return held

    async def _end(self, consumed: ConsumedPartition, watch: _GateWatch) -> None:
        """End the reset that holds a gate: aside, as no other gate waits for a silent server."""
        try:
            watch.is_ended = await self.end_reset(consumed, watch.gate)
        except PartqError as error:
            _log.warning(
                "the reset of group %s that holds partition %s could not be ended, it is tried "
                "again: %s",
                *(consumed.group, consumed.partition, error),
            )
        finally:
            watch.is_ending = False

    async def _open(
        self,
        consumed: ConsumedPartition,
        watch: _GateWatch,
        passed: Mapping[PartitionId, tuple[int, int]],
        held: dict[int, int],
    ) -> None:
        """Open a gate; the slots that are `held` before it are so behind it."""
        lanes = consumed.keys
        try:
            # A reset holds the lock, too: memory follows the record in the same order.
            async with consumed.lock:
                layout = self._known
                if layout is None or consumed.is_dropped or consumed.gate != watch.gate:
                    return
                givers = layout.predecessors(consumed.partition)
                moved = await self._state_mover.carry(consumed, givers)
                await self._seals.open_gate(
                    consumed.partition,
                    consumed.group,
                    broker_epoch=consumed.broker_epoch,
                    born=consumed.born,
                    gate=watch.gate,
                    passed=passed,
                    parked=held | _held(lanes) if lanes is not None and held else None,
                )
                if lanes is not None:
                    for slot, how in held.items():
                        lanes.hold_lanes([slot], quarantines=how == QUARANTINED_MS)
                consumed.open_gate()
            await self._state_mover.remove(consumed, moved)
        except (ConflictError, UnknownGroupError) as error:
            self._on_lost(consumed, error)
        except PartqError as error:
            watch.due = self._clock() + FAR_GAP_S
            _log.warning(
                "group %s could not be given partition %s, it is tried again: %s",
                *(consumed.group, consumed.partition, error),
            )
        else:
            _log.info(
                "group %s gets partition %s: it has done with what comes before it",
                *(consumed.group, consumed.partition),
            )
        finally:
            watch.is_opening = False


def _held(lanes: LaneBook) -> dict[int, int]:
    """Return the keys that wait until they are released, as they are stored.

    Behind a closed gate no other one waits: nothing was delivered.
    """
    held = dict.fromkeys(lanes.held_lanes, BLOCKED_MS)
    return held | dict.fromkeys(lanes.quarantined_lanes, QUARANTINED_MS)
