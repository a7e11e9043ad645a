"""Faults of changes of the partition count to plant: into a partition, or into its successor."""

from partq.core.hashing import slot_of
from tests.pipeline.audit.model import Line, Partition
from tests.pipeline.audit.planting import Planted, insert, lines

CHANGE = 11
"""Generation of the change; no other run has partitions of it."""
MIDDLE = 32_768
"""The slots from here on leave the predecessor."""


def changed(index: int) -> tuple[Partition, Partition]:
    """Return a partition that lost half of its slots, and the one that got them; all is well."""
    old = Partition(f"{CHANGE - 1}.{index}", seed=3)
    for _ in range(3):
        old.publish()
    group = old.groups["workers"]
    group.deliver()
    group.ack_all()
    new = Partition(f"{CHANGE}.{index}", seed=4)
    staying = [key for key in old.keys if slot_of(key) < MIDDLE]
    new.keys = [key for key in old.keys if key not in staying]
    old.write(Line("seal", fields={"number": CHANGE, "stop": old.end, "target": f"0-{MIDDLE}"}))
    sealed_at, old.keys = old.end, staying
    told = f"{old.name}:{sealed_at}:{MIDDLE}-65536"
    new.write(Line("open", fields={"first": 0, "target": told}))
    for run in (new, old, new, old):
        run.publish()
    group.finish()
    evidence = f"{old.name}:{sealed_at}:{len(old.record)}"
    new.write(Line("gate", fields={"group": "workers", "first": 0, "target": evidence}))
    new.groups["workers"].finish()
    old.now_ms += 60_000
    old.publish()
    group.finish()
    return old, new


def slot_not_taken(old: Partition, new: Partition) -> Planted:
    old.keys = new.keys
    old.publish()
    old.groups["workers"].finish()
    at, line = lines(old, "publish")[-1]
    first, stop = line.fields["first"], line.fields["stop"]
    return Planted(old, "slot_not_taken", first, stop, at, others=[new])


def slot_not_taken_by_the_new_one(old: Partition, new: Partition) -> Planted:
    new.keys = old.keys
    new.publish()
    new.groups["workers"].finish()
    at, line = lines(new, "publish")[-1]
    first, stop = line.fields["first"], line.fields["stop"]
    return Planted(new, "slot_not_taken", first, stop, at, others=[old])


def published_before_open(old: Partition, new: Partition) -> Planted:
    at, line = lines(new, "open")[0]
    del new.record[at]
    published, batch = lines(new, "publish")[0]
    insert(new, published, line)
    new.record[published + 1].at_ms = new.record[published].at_ms
    first, stop = batch.fields["first"], batch.fields["stop"]
    return Planted(new, "published_before_open", first, stop, published, others=[old])


def published_without_open(old: Partition, new: Partition) -> Planted:
    at, _ = lines(new, "open")[0]
    del new.record[at]
    published, batch = lines(new, "publish")[0]
    first, stop = batch.fields["first"], batch.fields["stop"]
    return Planted(new, "published_before_open", first, stop, published, others=[old])


def opened_before_seal(old: Partition, new: Partition) -> Planted:
    """The log has grown since the owner of the new one has seen its end."""
    at, line = lines(new, "open")[0]
    stop = lines(old, "seal")[0][1].fields["stop"]
    line.fields["target"] = f"{old.name}:{stop - 1}:{MIDDLE}-65536"
    return Planted(new, "opened_before_seal", sequence=at, others=[old])


def opened_without_seal(old: Partition, new: Partition) -> Planted:
    sealed, _ = lines(old, "seal")[0]
    del old.record[sealed]
    opened, _ = lines(new, "open")[0]
    return Planted(new, "opened_before_seal", sequence=opened, others=[old])


def slot_covered_twice(old: Partition, new: Partition) -> Planted:
    """The predecessor keeps a slot that the new one has got."""
    lines(old, "seal")[0][1].fields["target"] = f"0-{MIDDLE + 1}"
    at, _ = lines(new, "open")[0]
    return Planted(new, "slot_covered_twice", sequence=at, others=[old])


def slot_covered_by_two_new_ones(old: Partition, new: Partition) -> Planted:
    other = Partition(f"{CHANGE}.9{new.name.partition('.')[2]}", seed=5)
    other.write(lines(new, "open")[0][1])
    at, _ = lines(other, "open")[0]
    return Planted(other, "slot_covered_twice", sequence=at, others=[old, new])


def delivered_before_gate(old: Partition, new: Partition) -> Planted:
    at, _ = lines(new, "gate")[0]
    del new.record[at]
    delivered, line = lines(new, "deliver")[0]
    first, stop = line.fields["first"], line.fields["stop"]
    return Planted(new, "delivered_before_gate", first, stop, delivered, others=[old])


def gate_too_early(old: Partition, new: Partition) -> Planted:
    """The record of the predecessor had not come to the last acknowledgement below the seal."""
    sealed, line = lines(old, "seal")[0]
    at, gate = lines(new, "gate")[0]
    gate.fields["target"] = f"{old.name}:{line.fields['stop']}:{sealed + 1}"
    return Planted(new, "gate_too_early", sequence=at, others=[old])


def gate_after_a_reset(old: Partition, new: Partition) -> Planted:
    """All partitions are read again, and the new one before the old one."""
    group = new.groups["workers"]
    group.epoch, group.is_bound = new.draw(), False
    group.write("reset", first=0, stop=0, number=new.end, flags="held")
    group.book = type(group.book)(0)
    group.deliver()
    delivered, line = lines(new, "deliver")[-1]
    line.fields["cause"] = "reset"
    group.ack_all()
    while group.book.cursor < new.end:
        group.deliver()
        lines(new, "deliver")[-1][1].fields["cause"] = "reset"
        group.ack_all()
    first, stop = line.fields["first"], line.fields["stop"]
    return Planted(new, "delivered_before_gate", first, stop, delivered, others=[old])


CHANGE_PLANTS = [
    slot_not_taken,
    slot_not_taken_by_the_new_one,
    published_before_open,
    published_without_open,
    opened_before_seal,
    opened_without_seal,
    slot_covered_twice,
    slot_covered_by_two_new_ones,
    delivered_before_gate,
    gate_too_early,
    gate_after_a_reset,
]
