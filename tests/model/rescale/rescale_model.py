"""A change of the partition count of a queue under traffic, as a model that can be searched.

It says what the parts of a queue do, one atomic step at a time: a script in Redis, a frame that is
taken, a fault. The steps stand in the modules beside it, by the process that takes them.
"""

from collections.abc import Iterator

from tests.model.explorer import Step, Violation
from tests.model.rescale.change_steps import ChangeSteps
from tests.model.rescale.cluster_state import (
    LIVE,
    OPEN,
    PARTITION_COUNT,
    Faults,
    GroupPosition,
    Partition,
    Pipeline,
    Reset,
    State,
)
from tests.model.rescale.group_steps import GroupSteps
from tests.model.rescale.partition_steps import PartitionSteps
from tests.model.rescale.producer_steps import ProducerSteps, messages_of
from tests.model.rescale.scenarios import Scenario


class RescaleModel:
    """The protocol under one scenario, with one mistake or with none."""

    liveness = "R6"

    def __init__(self, scenario: Scenario, mutant: str = "") -> None:
        self._scenario = scenario
        self._processes = [
            kind(scenario, mutant)
            for kind in (ChangeSteps, PartitionSteps, GroupSteps, ProducerSteps)
        ]

    def initial(self) -> State:
        """Return a queue whose partition 0 has both slots, and nothing published."""
        scenario = self._scenario
        begun = (GroupPosition(0, 0, OPEN, 0), *[GroupPosition()] * (PARTITION_COUNT - 1))
        groups = [begun] * scenario.groups
        if scenario.late_group:
            groups[-1] = (GroupPosition(),) * PARTITION_COUNT
        first = Partition(life=LIVE, is_open=True, has_owner=True)
        return State(
            layout=0,
            is_prepared=False,
            partitions=(first, *[Partition()] * (PARTITION_COUNT - 1)),
            pipelines=(Pipeline(),) * PARTITION_COUNT,
            route=0,
            known_layout=0,
            published=0,
            confirmed=(),
            singles=(False,) * scenario.singles,
            groups=tuple(groups),
            is_group_arriving=scenario.late_group,
            reset=Reset(remaining=scenario.resets),
            faults=Faults(
                lost_connections=scenario.lost_connections,
                crashes=scenario.crashes,
                forced_moves=scenario.forced_moves,
                aborts=scenario.aborts,
            ),
        )

    def steps(self, state: State) -> Iterator[Step]:
        """Yield each step that any process can take."""
        for process in self._processes:
            yield from process.steps(state)

    def check_rest(self, state: State) -> None:
        """Check R5 and R6 where nothing but faults can happen."""
        stored = {message for partition in state.partitions for message in partition.log}
        if lost := set(state.confirmed) - stored:
            raise Violation("R5", f"{sorted(lost)} confirmed, and not stored")
        waiting = set(messages_of(self._scenario)) - set(state.confirmed)
        if waiting or not all(state.singles):
            raise Violation("R6", f"{sorted(waiting)} never confirmed, singles {state.singles}")
        if state.layout < self._scenario.changes:
            raise Violation("R6", f"change {state.layout + 1} is never committed")
        for group, positions in enumerate(state.groups):
            for index, partition in enumerate(state.partitions):
                if partition.life == LIVE and positions[index].cursor != len(partition.log):
                    raise Violation(
                        "R6",
                        f"group {group} stays at {positions[index]} in {index}, "
                        f"which has {partition.log}",
                    )
