"""Faults to plant into a recorded run, each with the finding that has to come of it."""

from dataclasses import dataclass, replace

from partq.core.model import Cause
from tests.spark.audit.model import Group, Line, Partition


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
    if is_forced:
        group.write("drained", attempt=attempt, cause="drain_timeout")
    else:
        group.ack_all()
        group.write("drained", attempt=attempt)
    group.commit(f"worker-{attempt % 5}", Cause.FORCED_COMMIT if is_forced else Cause.NONE, attempt)


def lines(partition: Partition, kind: str, **wanted) -> list[tuple[int, Line]]:
    """Return the lines of a kind with these fields, and where their groups are."""
    return [
        (at, line)
        for at, group in enumerate(partition.record)
        for line in group.lines
        if line.kind == kind
        and all(line.fields.get(name, "") == value for name, value in wanted.items())
    ]


def insert(partition: Partition, at: int, line: Line) -> None:
    """Put a line behind the group at a place, by the same broker."""
    group = partition.record[at]
    partition.record.insert(at + 1, Group(group.at_ms, group.broker, group.broker_epoch, [line]))


def swapped_pair(run: Partition) -> Planted:
    (at, one), (after, other) = lines(run, "deliver", cause="")[:2]
    assert after == at + 1
    run.record[at].lines, run.record[after].lines = [other], [one]
    return Planted(run, "out_of_order", one.fields["first"], one.fields["stop"])


def lost_message(run: Partition) -> Planted:
    _, line = lines(run, "deliver", cause="")[0]
    acks = [ack for _, ack in lines(run, "ack") if ack.fields["first"] == line.fields["first"]]
    offset = line.fields["first"]
    for each in (line, *acks):
        each.fields["first"] += 1
    return Planted(run, "lost", offset, offset + 1)


def lost_in_archive(run: Partition) -> Planted:
    del run.messages[5]
    return Planted(run, "not_archived", 5, 6)


def archived_twice(run: Partition) -> Planted:
    run.messages.append(run.messages[8])
    return Planted(run, "archived_twice", 8, 9)


def other_archived(run: Partition) -> Planted:
    run.messages[9] = replace(run.messages[9], append_broker_epoch=3)
    return Planted(run, "other_archived", 9, 10)


def two_owners(run: Partition) -> Planted:
    at, line = lines(run, "deliver", cause="")[-1]
    other = line.fields | {"member": "worker-9", "epoch": line.fields["epoch"] - 1}
    insert(run, at, Line("deliver", fields=other))
    return Planted(run, "two_owners", line.fields["first"], line.fields["stop"])


def two_flows(run: Partition) -> Planted:
    (_, line), (_, other) = lines(run, "deliver", cause="")[:2]
    other.fields["flow"] += 7
    token = lines(run, "deliver", epoch=line.fields["epoch"])
    return Planted(
        run, "two_flows", line.fields["first"], max(each.fields["stop"] for _, each in token)
    )


def two_brokers(run: Partition) -> Planted:
    at, line = lines(run, "publish")[-1]
    run.record[at].broker_epoch -= 1
    return Planted(run, "two_brokers", line.fields["first"], line.fields["stop"])


def stale_ack(run: Partition) -> Planted:
    at, _ = lines(run, "bind")[-1]
    _, ack = [each for each in lines(run, "ack") if each[0] < at][-1]
    insert(run, at, Line("ack", fields=dict(ack.fields)))
    return Planted(run, "stale_ack", ack.fields["first"], ack.fields["stop"])


def ack_not_delivered(run: Partition) -> Planted:
    run.publish()
    group = run.groups["workers"]
    group.write("ack", first=run.end - 1, stop=run.end)
    return Planted(run, "ack_not_delivered", run.end - 1, run.end)


def duplicate_without_cause(run: Partition) -> Planted:
    _, line = lines(run, "deliver", cause="nack")[0]
    line.fields["cause"] = ""
    return Planted(run, "duplicate_without_cause", line.fields["first"], line.fields["stop"])


def unfounded_cause(run: Partition) -> Planted:
    _, line = lines(run, "deliver", cause="nack")[0]
    line.fields["cause"] = "forced_commit"
    return Planted(run, "unfounded_cause", line.fields["first"], line.fields["stop"])


def delivered_after_ack(run: Partition) -> Planted:
    at, _ = lines(run, "ack")[0]
    _, line = lines(run, "deliver")[0]
    insert(run, at, Line("deliver", fields=line.fields | {"cause": "flow_lost", "delivery": 1}))
    return Planted(run, "delivered_after_ack", line.fields["first"], line.fields["stop"])


def skipped_ahead(run: Partition) -> Planted:
    binds = lines(run, "bind")
    line_at, line = next(
        each for each in lines(run, "deliver", cause="forced_commit") if each[0] > binds[2][0]
    )
    assert line.fields["epoch"] == binds[2][1].fields["epoch"]
    del run.record[line_at]
    return Planted(run, "skipped_ahead", line.fields["first"], line.fields["stop"])


def delivered_unpublished(run: Partition) -> Planted:
    at, line = lines(run, "deliver", cause="")[-1]
    published = max(each for each, _ in lines(run, "publish") if each < at)
    run.record.insert(at, run.record.pop(published))
    return Planted(run, "delivered_unpublished", line.fields["first"], line.fields["stop"])


def number_stored_twice(run: Partition) -> Planted:
    producer = "p-1"
    _, line = lines(run, "publish", producer=producer)[-1]
    line.fields["number"] -= 1
    return Planted(run, "number_stored_twice", line.fields["first"], line.fields["stop"])


def handoff_without_end(run: Partition) -> Planted:
    at, _ = lines(run, "lapse")[0]
    del run.record[at]
    return Planted(run, "handoff_without_end", sequence=at - 1)


def missing_range(run: Partition) -> Planted:
    rows = run.rows()
    kept = [row for row in rows if not 8 <= row.sequence < 11]
    return Planted(run, "missing_range", sequence=11, rows=kept)


def forked_chain(run: Partition) -> Planted:
    rows = run.rows()
    run.record[9].at_ms -= 1
    others = [row for row in run.rows() if row.sequence == 9]
    run.record[9].at_ms += 1
    return Planted(run, "forked_chain", sequence=9, rows=[*rows, *others])


def changed_group(run: Partition) -> Planted:
    rows = run.rows()
    rows[12] = replace(rows[12], at_ms=rows[12].at_ms + 5)
    return Planted(run, "changed_group", sequence=rows[12].sequence, rows=rows)


def broken_link(run: Partition) -> Planted:
    rows = run.rows()
    cut = run.record[:10]
    for group in cut:
        group.at_ms -= 1
    earlier = [row for row in run.rows() if row.sequence < 10]
    later = [row for row in rows if row.sequence >= 10]
    return Planted(run, "broken_link", sequence=10, rows=[*earlier, *later])


PLANTS = [
    swapped_pair,
    lost_message,
    lost_in_archive,
    archived_twice,
    other_archived,
    two_owners,
    two_flows,
    two_brokers,
    stale_ack,
    ack_not_delivered,
    duplicate_without_cause,
    unfounded_cause,
    delivered_after_ack,
    skipped_ahead,
    delivered_unpublished,
    number_stored_twice,
    handoff_without_end,
    missing_range,
    forked_chain,
    changed_group,
    broken_link,
]


def plant_all() -> list[Planted]:
    """Return a run for each fault, in a partition of its own."""
    return [plant(busy(f"1.{at}")) for at, plant in enumerate(PLANTS)]
