"""What consumer groups do: deliveries, acks, gates, forced moves, resets; and a group made late."""

from collections.abc import Iterator

from tests.model.explorer import Step, Violation
from tests.model.rescale.cluster_state import (
    ABSENT,
    CLOSED,
    CUT_SHORT,
    HELD,
    LIVE,
    NO_CURSOR,
    NOT_SEALED,
    NOWHERE,
    OPEN,
    REMOVED,
    GroupPosition,
    Reset,
    State,
    is_moving,
)
from tests.model.rescale.scenarios import Scenario


class GroupSteps:
    """Groups of one member each, which finishes messages in order."""

    def __init__(self, scenario: Scenario, mutant: str) -> None:
        self._scenario = scenario
        self._mutant = mutant

    def steps(self, state: State) -> Iterator[Step]:
        """Yield what the groups, their brokers and an administrator can do."""
        if state.is_group_arriving:
            yield from self._add_cursors(state)
        if state.reset != Reset():
            yield from self._begin_or_cut_reset(state)
        for index, partition in enumerate(state.partitions):
            if partition.life != LIVE:
                continue
            for group, positions in enumerate(state.groups):
                at = positions[index]
                if at.cursor == NO_CURSOR:
                    continue
                if partition.has_owner:
                    yield from self._consume(state, group, index, at)
                    yield from self._open_gate(state, group, index, at)
                    if state.reset.partition == index and group == 0:
                        yield from self._reset(state, index)
                if at.late_ack != NO_CURSOR:
                    yield self._ack_late(state, group, index, at)

    def _consume(self, state: State, group: int, index: int, at: GroupPosition) -> Iterator[Step]:
        """A message is sent, the member acknowledges one, or loses the partition to another."""
        log = state.partitions[index].log
        if at.sent < len(log) and (at.gate == OPEN or self._mutant == "deliver_at_once"):
            after = state.with_position(group, index, at._replace(sent=at.sent + 1))
            self._check_barrier(after, group, index, log[at.sent])
            yield Step(f"group {group} is sent {log[at.sent]} of {index}", after)
        if at.unfinished < at.sent:
            finished = at.unfinished + 1
            acked = at._replace(cursor=max(at.cursor, finished), unfinished=finished)
            label = f"group {group} acknowledges {log[at.unfinished]} of {index}"
            yield Step(label, state.with_position(group, index, acked))
        if at.cursor < at.sent and state.faults.forced_moves:
            faults = state.faults._replace(forced_moves=state.faults.forced_moves - 1)
            moved = at._replace(sent=at.cursor, unfinished=at.cursor, late_ack=at.sent)
            after = state.with_position(group, index, moved)._replace(faults=faults)
            yield Step(f"{index} is forced to another member of group {group}", after, True)

    def _ack_late(self, state: State, group: int, index: int, at: GroupPosition) -> Step:
        """The ack of a member that has lost the partition arrives. Its epoch fences it."""
        after = at._replace(late_ack=NO_CURSOR)
        if self._mutant == "late_ack_counts" and at.late_ack > at.cursor:
            after = after._replace(cursor=at.late_ack, sent=max(at.sent, at.late_ack))
            if at.sent == at.cursor:  # else the new member works on what counts as done now
                after = after._replace(unfinished=at.late_ack)
        label = f"a late ack of group {group} for {index} arrives"
        return Step(label, state.with_position(group, index, after))

    def _open_gate(self, state: State, group: int, index: int, at: GroupPosition) -> Iterator[Step]:
        """The owner of a successor opens its gate for a group that has passed the predecessor.

        It reads the predecessor's record first, and opens the gate by a second call, which may be
        late: Redis opens the gate only if it is still as the owner saw it. A gate that a reset
        holds stays shut until the reset has reached the predecessor.
        """
        is_held = (
            at.gate == HELD
            and state.reset.partition >= index - 1
            and self._mutant != "reset_does_not_hold"
        )
        if at.opening:
            is_same = at.gate == at.opening or self._mutant == "gate_not_compared"
            opened = at._replace(gate=OPEN if is_same else at.gate, opening="")
            label = f"the call to open the gate of {index} for group {group} reaches Redis"
            yield Step(label, state.with_position(group, index, opened))
        elif (
            index and at.gate != OPEN and not is_held and self._has_passed(state, group, index - 1)
        ):
            after = state.with_position(group, index, at._replace(opening=at.gate))
            yield Step(f"the owner of {index} reads that group {group} has passed", after)

    def _has_passed(self, state: State, group: int, index: int) -> bool:
        """Whether a group has done with the moving slot in a partition and its predecessors.

        The partition's gate stands for its predecessors: closed, its cursor says nothing.
        """
        partition, at = state.partitions[index], state.groups[group][index]
        if partition.life == REMOVED:
            return self._mutant != "gate_asks_removed"
        if partition.sealed_at == NOT_SEALED or at.cursor == NO_CURSOR:
            return False
        if at.gate != OPEN and self._mutant != "gate_by_cursor_alone":
            return False
        done = at.sent if self._mutant == "gate_by_sent" else at.cursor
        return done >= partition.sealed_at

    def _check_barrier(self, state: State, group: int, index: int, message: str) -> None:
        """Check a delivery: nothing older is left, and nothing newer was sent before."""
        if index > state.layout:
            raise Violation("R8", f"{message} of {index} is sent, which is only prepared")
        if not is_moving(message):
            return
        positions = state.groups[group]
        for before in range(index):
            partition = state.partitions[before]
            if partition.life != LIVE or positions[before].cursor == NO_CURSOR:
                continue
            left = [m for m in partition.log[positions[before].unfinished :] if is_moving(m)]
            if left:
                raise Violation(
                    "R4", f"{message} of {index} is sent, {left} of {before} not acknowledged"
                )
        for later in range(index + 1, len(positions)):
            at = positions[later]
            # A reset repeats messages of all partitions; without one nothing newer was sent.
            if at.sent > at.unfinished or (at.sent > 0 and not self._scenario.resets):
                raise Violation("R4", f"{message} of {index} is sent after messages of {later}")

    def _add_cursors(self, state: State) -> Iterator[Step]:
        """A new group gets its cursors, one per call, in any order."""
        group = len(state.groups) - 1
        for index, partition in enumerate(state.partitions):
            if partition.life != LIVE or state.groups[group][index].cursor != NO_CURSOR:
                continue
            is_oldest = index == 0 or state.partitions[index - 1].life == REMOVED
            at = GroupPosition(0, 0, OPEN if is_oldest else CLOSED, 0)
            after = state.with_position(group, index, at)
            is_arriving = any(
                each.cursor == NO_CURSOR
                for each, other in zip(after.groups[group], after.partitions, strict=True)
                if other.life == LIVE
            )
            label = f"group {group} gets a cursor in {index}"
            yield Step(label, after._replace(is_group_arriving=is_arriving))

    def _begin_or_cut_reset(self, state: State) -> Iterator[Step]:
        """An administrator begins a reset of the first group, and may die on the way."""
        reset = state.reset
        if reset.remaining and not state.is_prepared:
            begun = Reset(reset.remaining - 1, state.layout, state.layout)
            yield Step("a reset begins", state._replace(reset=begun), is_fault=True)
        if reset.partition >= 0 and state.partitions[reset.partition].life == REMOVED:
            skipped = reset._replace(partition=reset.partition - 1)
            yield Step("the reset leaves out what is removed", state._replace(reset=skipped))
        if 0 <= reset.partition < state.layout:
            cut = reset._replace(partition=CUT_SHORT)
            yield Step("the caller of the reset dies", state._replace(reset=cut), is_fault=True)

    def _reset(self, state: State, index: int) -> Iterator[Step]:
        """One call of a reset: the cursor goes back and the gate is held.

        The newest partition that the caller knows refuses when a later layout has sealed it.
        """
        reset = state.reset
        is_sealed = state.partitions[index].sealed_at != NOT_SEALED
        ignores = self._mutant == "reset_ignores_seal" or (
            self._mutant == "first_reset_without_id" and reset.layout == 0
        )
        if index == reset.layout and is_sealed and not ignores:
            again = reset._replace(partition=state.layout, layout=state.layout)
            yield Step("the reset begins again by the newer layout", state._replace(reset=again))
            return
        opening = state.groups[0][index].opening  # a call that is under way may come later
        at = GroupPosition(0, 0, HELD if index else OPEN, 0, opening=opening)
        after = state.with_position(0, index, at)
        left = reset._replace(partition=index - 1 if index else NOWHERE)
        yield Step(f"the reset moves the cursor in {index}", after._replace(reset=left))


def is_done_with(state: State, group: int, index: int) -> bool:
    """Whether a group has acknowledged all that a sealed partition has for it, by the record."""
    partition, at = state.partitions[index], state.groups[group][index]
    return (
        partition.life != ABSENT
        and at.gate == OPEN
        and at.cursor != NO_CURSOR
        and at.cursor >= partition.sealed_at
    )
