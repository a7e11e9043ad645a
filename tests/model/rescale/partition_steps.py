"""What brokers and Redis do with a partition: claim, append, seal, open; and crashes."""

from collections.abc import Iterator

from tests.model.explorer import Step, Violation
from tests.model.rescale.cluster_state import (
    LIVE,
    NO_CURSOR,
    NOT_SEALED,
    REMOVED,
    Append,
    Partition,
    State,
    is_moving,
    replaced,
)
from tests.model.rescale.producer_steps import after_lost_connection
from tests.model.rescale.scenarios import Scenario

MAX_CHAIN = 2
"""Batches that wait for their append in one partition."""


class PartitionSteps:
    """The owners of partitions, and the scripts that they run."""

    def __init__(self, scenario: Scenario, mutant: str) -> None:
        self._scenario = scenario
        self._mutant = mutant

    def steps(self, state: State) -> Iterator[Step]:
        """Yield what owners can do."""
        for index, partition in enumerate(state.partitions):
            if partition.life != LIVE:
                continue
            if partition.late_append is not None:
                yield self._append_late(state, index, partition)
            if not partition.has_owner:
                yield self._claim(state, index, partition)
                continue
            if state.faults.crashes:
                yield self._crash(state, index, partition)
            yield from self._seal(state, index, partition)
            yield from self._open(state, index, partition)
            yield from self._receive(state, index, partition)
            if partition.chain:
                yield self._append(state, index, partition)
        yield from self._publish_single(state)

    def _claim(self, state: State, index: int, partition: Partition) -> Step:
        """A broker claims a partition without an owner. It delivers from the cursors.

        Its broker epoch fences the call of an earlier owner to open a gate.
        """
        for group, positions in enumerate(state.groups):
            at = positions[index]
            if at.cursor != NO_CURSOR:
                state = state.with_position(
                    group, index, at._replace(sent=at.cursor, unfinished=at.cursor, opening="")
                )
        is_sealed = partition.sealed_at != NOT_SEALED and self._mutant != "seal_in_memory"
        claimed = partition._replace(
            has_owner=True,
            owner_has_sealed=is_sealed,
            broker_epoch=partition.broker_epoch + 1,
            chain=(),
        )
        return Step(f"a broker claims {index}", state.with_partition(index, claimed))

    def _crash(self, state: State, index: int, partition: Partition) -> Step:
        """The owner crashes. Its append that is under way may reach Redis at any time."""
        late = partition.late_append
        if partition.chain:
            late = (partition.broker_epoch, partition.chain[0])
        lost = partition._replace(
            has_owner=False, owner_has_sealed=False, chain=(), late_append=late
        )
        pipeline = after_lost_connection(state.pipelines[index])
        faults = state.faults._replace(crashes=state.faults.crashes - 1)
        after = state.with_partition(index, lost).with_pipeline(index, pipeline)
        return Step(f"the broker of {index} crashes", after._replace(faults=faults), is_fault=True)

    def _append_late(self, state: State, index: int, partition: Partition) -> Step:
        """Redis gets the append of a broker that has crashed. The broker epoch fences it."""
        assert partition.late_append is not None
        epoch, append = partition.late_append
        state = state.with_partition(index, partition._replace(late_append=None))
        if epoch == partition.broker_epoch or self._mutant == "append_not_fenced":
            state, _ = append_batch(state, index, append)
        return Step(f"a late append reaches {index}", state)

    def _seal(self, state: State, index: int, partition: Partition) -> Iterator[Step]:
        """The owner ends the moving slot here, between two appends of the chain.

        Batches that wait were checked for the slots of before, so they become probes.
        """
        wanted = state.layout + (self._mutant == "seal_before_commit" and state.is_prepared)
        is_due = wanted > index and not partition.owner_has_sealed
        if not is_due or not (partition.is_open or self._mutant == "seal_before_open"):
            return
        chain = partition.chain
        if self._mutant != "chain_not_rechecked":
            chain = tuple(
                each._replace(is_probe=each.is_probe or is_moving(each.batch.message))
                for each in chain
            )
        end = partition.sealed_at if partition.sealed_at != NOT_SEALED else len(partition.log)
        sealed = partition._replace(sealed_at=end, owner_has_sealed=True, chain=chain)
        yield Step(f"{index} is sealed at {end}", state.with_partition(index, sealed))

    def _open(self, state: State, index: int, partition: Partition) -> Iterator[Step]:
        """A successor opens for messages when the record of its predecessor has the seal."""
        if partition.is_open or not 0 < index <= state.layout:
            return
        before = state.partitions[index - 1]
        is_sealed = before.sealed_at != NOT_SEALED or before.life == REMOVED
        if is_sealed or self._mutant == "open_before_seal":
            opened = partition._replace(is_open=True)
            yield Step(f"{index} opens", state.with_partition(index, opened))

    def _receive(self, state: State, index: int, partition: Partition) -> Iterator[Step]:
        """The owner gets a batch: the next one of the connection, or a copy of an older one."""
        if len(partition.chain) >= MAX_CHAIN:
            return
        pipeline = state.pipelines[index]
        if pipeline.requests:
            batch, *others = pipeline.requests
            after, refusal = self._check(state, index, Append(batch, False, True))
            answers = (*pipeline.answers, (batch.number, refusal)) if refusal else pipeline.answers
            rest = pipeline._replace(requests=tuple(others), answers=answers)
            label = f"the broker of {index} gets {batch.message} as number {batch.number}"
            yield Step(label, after.with_pipeline(index, rest))
        for place, batch in enumerate(pipeline.copies):
            after, _ = self._check(state, index, Append(batch, False, False))
            copies = pipeline.copies[:place] + pipeline.copies[place + 1 :]
            label = f"the broker of {index} gets an old copy of {batch.message}"
            yield Step(label, after.with_pipeline(index, pipeline._replace(copies=copies)))

    def _check(self, state: State, index: int, append: Append) -> tuple[State, str]:
        """Put a batch into the chain, or return the refusal."""
        partition = state.partitions[index]
        if not partition.is_open:
            return state, "opening"
        if partition.owner_has_sealed and is_moving(append.batch.message):
            if self._mutant == "repeats_after_slots":
                return state, "moved"
            append = append._replace(is_probe=True)
        chain = (*partition.chain, append)
        return state.with_partition(index, partition._replace(chain=chain)), ""

    def _append(self, state: State, index: int, partition: Partition) -> Step:
        """Redis runs the append at the head of the chain."""
        append, *others = partition.chain
        state = state.with_partition(index, partition._replace(chain=tuple(others)))
        state, answer = append_batch(state, index, append)
        if append.is_answered:
            pipeline = state.pipelines[index]
            answers = (*pipeline.answers, (append.batch.number, answer))
            state = state.with_pipeline(index, pipeline._replace(answers=answers))
        return Step(f"append of {append.batch.message} to {index}: {answer}", state)

    def _publish_single(self, state: State) -> Iterator[Step]:
        """A producer that knows any committed layout sends a message without a number.

        They are alike, so they publish one after the other.
        """
        if all(state.singles):
            return
        single = state.singles.index(False)
        singles = replaced(state.singles, single, True)
        for index, partition in enumerate(state.partitions[: state.layout + 1]):
            accepts = partition.life == LIVE and partition.has_owner and partition.is_open
            if accepts and not partition.owner_has_sealed and not partition.chain:
                after = store_message(state, index, f"single-{single}")
                yield Step(f"single-{single} is stored in {index}", after._replace(singles=singles))


def append_batch(state: State, index: int, append: Append) -> tuple[State, str]:
    """Run the append script, which judges the number of a batch before its slot.

    Its answers: stored (also for a repeat), gap, or moved: not stored, and never will be.
    """
    producer_id, number, message = append.batch
    due = state.partitions[index].due
    if number < due[producer_id]:
        return state, "stored"
    if number > due[producer_id]:
        return state, "gap"
    if append.is_probe:
        return state, "moved"
    state = store_message(state, index, message)
    partition = state.partitions[index]._replace(due=replaced(due, producer_id, number + 1))
    return state.with_partition(index, partition), "stored"


def store_message(state: State, index: int, message: str) -> State:
    """Add a message to a log.

    Raises:
        Violation: R1, R2, R3 or R8 does not hold any more.
    """
    partitions = state.partitions
    if any(message in each.log for each in partitions):
        raise Violation("R1", f"{message} is stored twice, now in {index}")
    if index > state.layout:
        raise Violation("R8", f"{message} is stored in {index}, which is only prepared")
    if is_moving(message):
        for later in range(index + 1, len(partitions)):
            if any(map(is_moving, partitions[later].log)):
                raise Violation("R2", f"{message} is stored in {index}, after one in {later}")
    if message.startswith("move"):
        behind = [
            m for each in partitions for m in each.log if m.startswith("move") and m > message
        ]
        if behind:
            raise Violation("R3", f"{message} is stored in {index}, after {behind}")
    partition = partitions[index]
    return state.with_partition(index, partition._replace(log=(*partition.log, message)))
