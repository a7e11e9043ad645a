"""Runs to plant a fault into, and the ways in which that is done."""

from dataclasses import dataclass, field, replace

from partq.core.model import Cause
from partq.pipeline.manifest import ArchiveGap
from tests.pipeline.audit.model import WINDOW, Group, GroupState, Line, Partition


@dataclass
class Planted:
    """A run with one fault in it."""

    partition: Partition
    what: str
    first: int | None = None
    stop: int | None = None
    sequence: int | None = None
    rows: list | None = None
    """The record as it is read, where the fault is in its bytes."""
    archived_to: int | None = None
    """How far the archive says that it has the messages; None: to their end."""
    begins: int = 0
    """Where the archive says that it begins."""
    gap: ArchiveGap | None = None
    """What the archive says that it lacks."""
    others: list[Partition] = field(default_factory=list)
    """Partitions that it is compared with, in which nothing is wrong."""

    def read(self):
        return self.partition.rows() if self.rows is None else self.rows


def busy(name: str) -> Partition:
    """Return a run with most of what can happen, and nothing wrong."""
    partition = Partition(name, seed=7)
    group = partition.groups["workers"]
    for _ in range(3):
        partition.publish()
    group.deliver()
    group.deliver()
    group.ack_all()
    group.deliver()
    group.nack()
    group.deliver()
    group.ack_all()
    for is_forced in (False, True, True):
        for _ in range(3):
            partition.publish()
        group.deliver()
        group.deliver()
        hand_over(group, is_forced)
    group.deliver()
    partition.claim("broker-1", Cause.BROKER_CHANGE)
    group.finish()
    partition.publish()
    group.deliver()
    group.write("pause", attempt=(attempt := partition.draw()))
    group.write("lapse", attempt=attempt)
    partition.publish()
    group.finish()
    return partition


def hand_over(group, is_forced):
    attempt = group.partition.draw()
    group.write("pause", attempt=attempt)
    if not is_forced:
        group.ack_all()
    cause = "drain_timeout" if is_forced else ""
    span = {"first": group.book.cursor, "stop": group.book.position}
    group.write("drained", attempt=attempt, cause=cause, **span)
    group.commit(f"worker-{attempt % 5}", Cause.FORCED_COMMIT if is_forced else Cause.NONE, attempt)


def give_back(group):
    """Have the member give the partition back, with nothing in hand."""
    attempt = group.partition.draw()
    group.write("pause", attempt=attempt)
    group.write("drained", attempt=attempt, first=group.book.cursor, stop=group.book.position)
    group.commit("", Cause.NONE, attempt)


def lines(partition: Partition, kind: str, **wanted) -> list[tuple[int, Line]]:
    """Return the lines of a kind with these fields, and where their groups are."""
    return [
        (at, line)
        for at, group in enumerate(partition.record)
        for line in group.lines
        if line.kind == kind
        and all(line.fields.get(name, "") == value for name, value in wanted.items())
    ]


def publish_of(run: Partition, offset: int) -> Line:
    """Return the publish of the batch that holds an offset."""
    return next(
        line
        for _, line in lines(run, "publish")
        if line.fields["first"] <= offset < line.fields["stop"]
    )


def store_again(partition: Partition) -> None:
    """Give the messages the times of the groups that tell their publishing; they never go back."""
    last = 0
    times: dict[int, int] = {}
    for group in partition.record:
        for line in group.lines:
            if line.kind == "publish":
                last = max(last, group.at_ms)
                times |= dict.fromkeys(range(line.fields["first"], line.fields["stop"]), last)
    partition.messages = [replace(each, at_ms=times[each.offset]) for each in partition.messages]


def insert(partition: Partition, at: int, line: Line) -> None:
    """Put a line behind the group at a place, by the same broker."""
    group = partition.record[at]
    partition.record.insert(at + 1, Group(group.at_ms, group.broker, group.broker_epoch, [line]))


def unfinished(run: Partition) -> GroupState:
    """Have several windows of messages waiting, and the first one delivered; return the group."""
    while run.end < run.groups["workers"].book.cursor + 3 * WINDOW:
        run.publish()
    run.groups["workers"].deliver()
    return run.groups["workers"]
