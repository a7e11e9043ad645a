"""Deliveries to two members who share partitions by lanes, as a model that can be searched.

It says what brokers, Redis, clients and applications do, one atomic step at a time. The steps stand
in the modules beside it, by the process that takes them. What joins partitions is here: the gate
of a successor, and a Redis that loses the last writes of all of them.
"""

from collections.abc import Iterator

from tests.model.delivery.book_rules import BookRules
from tests.model.delivery.broker_steps import BrokerSteps, PartitionStep, book_of
from tests.model.delivery.member_steps import MemberSteps
from tests.model.delivery.partition_state import (
    DONE,
    MEMBERS,
    OPEN,
    Link,
    Partition,
    Record,
    State,
)
from tests.model.delivery.scenarios import Scenario
from tests.model.explorer import Step, Violation


class DeliveryModel:
    """The protocol under one scenario, with one mistake or with none."""

    liveness = "D4"

    def __init__(self, scenario: Scenario, mutant: str = "") -> None:
        self._scenario = scenario
        self._mutant = mutant
        has_tokens = scenario.has_tokens
        self._rules = [BookRules(lanes, mutant) for lanes in scenario.logs]
        self._brokers = [BrokerSteps(rules, mutant, has_tokens=has_tokens) for rules in self._rules]
        self._members = [
            MemberSteps(
                index, self._rules, mutant, has_tokens=has_tokens, has_states=scenario.has_states
            )
            for index in range(len(self._rules))
        ]

    def initial(self) -> State:
        """Return a group whose members are bound, with nothing delivered."""
        partitions = tuple(self._partition(rules, index) for index, rules in enumerate(self._rules))
        return State(partitions, self._scenario.faults)

    def _partition(self, rules: BookRules, index: int) -> Partition:
        """Return a partition whose first lane belongs to member 1, and the others to member 2."""
        lane_count, message_count = len(rules.offsets), len(rules.lanes)
        record = Record(
            owners=tuple(MEMBERS[lane > 0] for lane in range(lane_count)),
            acked=(False,) * message_count,
            counts=(0,) * message_count,
            parked=(False,) * lane_count,
            states=(0,) * lane_count,
            is_gate_open=index == 0,
        )
        flows = (1,) * len(MEMBERS)
        book = book_of(record, lane_count * len(MEMBERS))._replace(flows=flows)
        if self._scenario.has_tokens:
            book = book._replace(round=2, bind_rounds=(2, 1))
        return Partition(
            record=record,
            book=book,
            links=(Link(flow=1),) * len(MEMBERS),
            last_flows=flows,
            finished=(False,) * message_count,
            is_due=(False,) * lane_count,
            must_wait=(False,) * lane_count,
            highest=((0, 0),) * lane_count,
        )

    def steps(self, state: State) -> Iterator[Step]:
        """Yield each step that any process can take, until everything is stored as done."""
        if is_done(state):
            return
        is_alone = len(state.partitions) == 1
        for index, partition in enumerate(state.partitions):
            prefix = "" if is_alone else f"partition {index}: "
            for label, after, fault in self._partition_steps(state, index, partition):
                left = state.with_partition(index, trimmed(after))
                if fault:
                    left = left._replace(faults=state.faults.without(fault))
                yield Step(prefix + label, left, is_fault=bool(fault))
            if not partition.record.is_gate_open and self._may_open(state, index):
                yield Step(f"the gate of {index} opens", self._opened(state, index))
        if state.faults.rollbacks:
            yield from self._lose_writes(state)

    def _partition_steps(
        self, state: State, index: int, partition: Partition
    ) -> Iterator[PartitionStep]:
        """Yield the steps of one partition, and check what is sent beside the other ones."""
        for step in self._brokers[index].steps(partition, state.faults):
            if len(state.partitions) > 1:
                self._check_barrier(state, index, step.after)
            yield step
        yield from self._members[index].steps(state)

    def _may_open(self, state: State, index: int) -> bool:
        """Return whether the predecessor's record allows the gate of a partition to open."""
        before = state.partitions[index - 1]
        record, book = before.record, before.book
        if not record.is_gate_open and self._mutant != "gate_by_cursor_alone":
            return False
        rules = self._rules[index - 1]
        below = range(rules.sealed_at)
        if self._mutant == "gate_by_memory":
            return all(book.holders[offset] == DONE for offset in below)
        if self._mutant == "gate_by_sent":
            return all(book.holders[offset] != OPEN for offset in below)
        return all(
            record.acked[offset]
            or (self._mutant == "gate_passes_parked" and record.parked[rules.lanes[offset]])
            for offset in below
        )

    def _opened(self, state: State, index: int) -> State:
        """One script opens the gate and carries the states of keys over."""
        before, after = state.partitions[index - 1], state.partitions[index]
        after = after.with_record(is_gate_open=True)
        if self._scenario.has_states and self._mutant != "state_left_behind":
            carried = list(after.record.states)
            for lane, value in enumerate(before.record.states[: len(carried)]):
                carried[lane] = value
            after = after.with_record(states=tuple(carried)).with_book(states=tuple(carried))
        return state.with_partition(index, after)

    def _check_barrier(self, state: State, index: int, after: Partition) -> None:
        """Check what is sent: its older partitions are acknowledged, nothing newer was sent."""
        holders = state.partitions[index].book.holders
        for offset, (was, holder) in enumerate(zip(holders, after.book.holders, strict=True)):
            if was != OPEN or holder in (OPEN, DONE):
                continue
            lane = self._rules[index].lanes[offset]
            for other, partition in enumerate(state.partitions):
                for each, of_lane in enumerate(self._rules[other].lanes):
                    if of_lane != lane or other == index:
                        continue
                    if other < index and not partition.record.acked[each]:
                        raise Violation(
                            "D9", f"{index}.{offset} is sent, {other}.{each} is not acknowledged"
                        )
                    if other > index and partition.book.holders[each] != OPEN:
                        raise Violation("D9", f"{index}.{offset} is sent after {other}.{each}")

    def _lose_writes(self, state: State) -> Iterator[Step]:
        """A replica stops following; later it takes the place of the Redis that it followed."""
        if state.partitions[0].replica is None:
            kept = tuple(each._replace(replica=each.record) for each in state.partitions)
            yield Step("a replica stops following", state._replace(partitions=kept), is_fault=True)
            return
        lost = []
        for broker, partition in zip(self._brokers, state.partitions, strict=True):
            assert partition.replica is not None
            after = partition._replace(record=partition.replica, replica=None)
            if self._mutant != "memory_outlives_store":
                after = broker.claimed(after)
            # What is not stored any more is promised no longer.
            promised = tuple(
                waits and is_parked
                for waits, is_parked in zip(after.must_wait, after.record.parked, strict=True)
            )
            lost.append(trimmed(after._replace(must_wait=promised)))
        faults = state.faults.without("rollbacks")
        after_all = State(tuple(lost), faults)
        yield Step("Redis loses its last writes", after_all, is_fault=True)

    def check_rest(self, state: State) -> None:
        """Check D4 where nothing but faults can happen."""
        if not is_done(state):
            acked = [partition.record.acked for partition in state.partitions]
            raise Violation("D4", f"nothing can happen, and acknowledged is {acked}")


def is_done(state: State) -> bool:
    """Return whether each message is stored as acknowledged."""
    return all(all(partition.record.acked) for partition in state.partitions)


def trimmed(partition: Partition) -> Partition:
    """Return the partition without what no step looks at again: there are fewer states so."""
    record, book = partition.record, partition.book
    is_due = tuple(
        due and (parked or stored)
        for due, parked, stored in zip(partition.is_due, book.parked, record.parked, strict=True)
    )
    return partition if is_due == partition.is_due else partition._replace(is_due=is_due)
