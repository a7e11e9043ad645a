"""What the coordinator does: prepare a change, commit or abort it, remove what all have passed."""

from collections.abc import Iterator

from tests.model.explorer import Step, Violation
from tests.model.rescale.cluster_state import (
    CLOSED,
    LIVE,
    NO_CURSOR,
    NOT_SEALED,
    REMOVED,
    GroupPosition,
    Partition,
    State,
    has_cursors,
)
from tests.model.rescale.group_steps import is_done_with
from tests.model.rescale.producer_steps import after_lost_connection
from tests.model.rescale.scenarios import Scenario


class ChangeSteps:
    """A coordinator that goes on from the record at each step, so its crash needs no step."""

    def __init__(self, scenario: Scenario, mutant: str) -> None:
        self._scenario = scenario
        self._mutant = mutant

    def steps(self, state: State) -> Iterator[Step]:
        """Yield what the coordinator can do."""
        if state.is_prepared:
            yield from self._commit(state)
            if state.faults.aborts:
                yield self._abort(state)
        elif state.layout < self._scenario.changes:
            yield self._prepare(state)
        if self._mutant == "abort_after_seal" and state.faults.aborts:
            yield from self._abort_after_seal(state)
        if self._scenario.removes:
            for index in range(state.layout):
                yield from self._remove(state, index)

    def _prepare(self, state: State) -> Step:
        """The next partition is made, with a closed gate and a cursor for each known group."""
        index = state.layout + 1
        for group, positions in enumerate(state.groups):
            if has_cursors(positions) and positions[index].cursor == NO_CURSOR:
                state = state.with_position(group, index, GroupPosition(0, 0, CLOSED, 0))
        after = state.with_partition(index, Partition(life=LIVE))
        return Step(f"change {index} is prepared", after._replace(is_prepared=True))

    def _commit(self, state: State) -> Iterator[Step]:
        """The layout changes, if each group that has any cursor has one in the new partition."""
        index = state.layout + 1
        known = [positions for positions in state.groups if has_cursors(positions)]
        if all(positions[index].cursor != NO_CURSOR for positions in known):
            after = state._replace(layout=index, is_prepared=False)
            yield Step(f"change {index} is committed", after)

    def _abort(self, state: State) -> Step:
        """A prepared change is taken back; R8 says that this leaves no trace."""
        index = state.layout + 1
        made, before = state.partitions[index], state.partitions[index - 1]
        if made.log or any(positions[index].sent > 0 for positions in state.groups):
            raise Violation("R8", f"{index} is removed by an abort, with messages")
        if before.sealed_at != NOT_SEALED:
            raise Violation("R8", f"{index - 1} is sealed for a change that is aborted")
        for group in range(len(state.groups)):
            state = state.with_position(group, index, GroupPosition())
        faults = state.faults._replace(aborts=state.faults.aborts - 1)
        after = state.with_partition(index, Partition())
        after = after._replace(is_prepared=False, faults=faults)
        return Step(f"change {index} is aborted", after, is_fault=True)

    def _abort_after_seal(self, state: State) -> Iterator[Step]:
        """The mutant takes the first change back when its seal is already written."""
        if state.layout == 1 and not state.is_prepared and state.partitions[0].sealed_at >= 0:
            unsealed = state.partitions[0]._replace(sealed_at=NOT_SEALED, owner_has_sealed=False)
            faults = state.faults._replace(aborts=0)
            after = state.with_partition(0, unsealed)._replace(layout=0, faults=faults)
            yield Step("change 1 is aborted after its seal", after, is_fault=True)

    def _remove(self, state: State, index: int) -> Iterator[Step]:
        """A sealed partition is removed when all groups have passed it, the oldest one first.

        It stays for minutes so that producers get their answers: here, until none is in doubt.
        """
        partition, pipeline = state.partitions[index], state.pipelines[index]
        if partition.life != LIVE or partition.sealed_at == NOT_SEALED or not partition.has_owner:
            return
        if partition.chain or partition.late_append is not None:
            return
        if any(each.life == LIVE for each in state.partitions[:index]):
            return
        known = [g for g, positions in enumerate(state.groups) if has_cursors(positions)]
        done = [is_done_with(state, group, index) for group in known]
        if not (any(done) if self._mutant == "remove_after_one_group" else done and all(done)):
            return
        in_doubt = any(sent.is_in_doubt or sent.is_in_flight for sent in pipeline.window)
        if self._mutant == "remove_forgets_producers":
            pipeline = after_lost_connection(pipeline)._replace(copies=())
            window = tuple(sent._replace(is_in_doubt=False) for sent in pipeline.window)
            state = state.with_pipeline(index, pipeline._replace(window=window))
        elif in_doubt or pipeline.requests or pipeline.answers or pipeline.copies:
            return
        for group in known:
            if state.groups[group][index].cursor < len(partition.log):
                raise Violation("R5", f"{index} is removed before group {group} has read it all")
        after = state.with_partition(index, partition._replace(life=REMOVED))
        yield Step(f"{index} is removed", after)
