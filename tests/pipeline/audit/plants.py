"""Faults to plant into a recorded run, each with the finding that has to come of it."""

from dataclasses import replace

from partq.pipeline.manifest import ArchiveGap
from tests.pipeline.audit.change_plants import CHANGE_PLANTS, changed
from tests.pipeline.audit.content_plants import CONTENT_PLANTS
from tests.pipeline.audit.model import Line, Partition
from tests.pipeline.audit.planting import (
    Planted,
    busy,
    give_back,
    hand_over,
    insert,
    lines,
    publish_of,
    store_again,
    unfinished,
)
from tests.pipeline.audit.protocol_plants import PROTOCOL_PLANTS

HOSTILE = '<script>"1" & 2</script>'
"""A key that a page must not take for its own."""


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
    run.messages[8] = replace(run.messages[8], key=HOSTILE)
    run.seal(publish_of(run, 8))
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
    """An attempt that another one follows, which ends."""
    at, line = lines(run, "lapse")[0]
    later = line.fields["attempt"] + 1
    line.fields["attempt"] = later
    _, pause = lines(run, "pause")[-1]
    insert(run, at - 1, Line("pause", fields=pause.fields | {"attempt": later}))
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
    store_again(run)
    earlier = [row for row in run.rows() if row.sequence < 10]
    later = [row for row in rows if row.sequence >= 10]
    return Planted(run, "broken_link", sequence=10, rows=[*earlier, *later])


def missing_end(run: Partition) -> Planted:
    last = len(run.record) - 1
    kept = [row for row in run.rows() if row.sequence < last]
    return Planted(run, "missing_range", rows=kept, sequence=last - 1)


def missing_start(run: Partition) -> Planted:
    return Planted(run, "missing_range", rows=run.rows(since=4), sequence=4)


def missing_record(run: Partition) -> Planted:
    at, pause = lines(run, "pause")[-1]
    run.record.pop(at)
    run.record[at].lines.insert(0, pause)
    kept = [row for row in run.rows() if (row.sequence, row.place) != (at, 0)]
    return Planted(run, "missing_record", sequence=at, rows=kept)


def recorded_twice(run: Partition) -> Planted:
    at, _ = lines(run, "deliver")[2]
    rows = run.rows()
    return Planted(
        run,
        "recorded_twice",
        sequence=at,
        rows=[*rows, *(each for each in rows if each.sequence == at)],
    )


def added_record(run: Partition) -> Planted:
    """Another record in the place of one, and the true one beside it."""
    at, _ = lines(run, "lapse")[0]
    rows = run.rows()
    false = [replace(each, member="worker-9") for each in rows if each.sequence == at]
    return Planted(run, "changed_group", sequence=at, rows=[*rows, *false])


def broker_epoch_not_raised(run: Partition) -> Planted:
    at, line = lines(run, "claim")[-1]
    insert(run, at, Line("claim", fields=dict(line.fields)))
    return Planted(run, "epoch_not_raised", line.fields["first"], line.fields["stop"], at + 1)


def epoch_not_raised(run: Partition) -> Planted:
    at, line = lines(run, "bind")[-1]
    insert(run, at, Line("bind", fields=dict(line.fields)))
    return Planted(run, "epoch_not_raised", sequence=at + 1)


def registered_while_held(run: Partition) -> Planted:
    group = run.groups["workers"]
    assert group.member
    group.register("worker-9")
    at = len(run.record) - 1
    run.publish()
    group.finish()
    return Planted(run, "registered_while_held", sequence=at)


def bind_without_registration(run: Partition) -> Planted:
    """Nobody holds the partition, and a member that has not registered it gets messages."""
    group = run.groups["workers"]
    give_back(group)
    group.member = "worker-9"
    group.bind()
    at = len(run.record) - 1
    run.publish()
    group.finish()
    return Planted(run, "bind_not_held", sequence=at)


def delivery_without_registration(run: Partition) -> Planted:
    """A member has registered the partition, and another one gets a message under its token."""
    group = run.groups["workers"]
    give_back(group)
    group.register("worker-8")
    run.publish()
    group.deliver()
    at, line = lines(run, "deliver")[-1]
    assert line.fields["member"] == "worker-8"
    insert(run, at, Line("deliver", fields=line.fields | {"member": "worker-9"}))
    group.finish()
    return Planted(run, "two_owners", line.fields["first"], line.fields["stop"])


def registration_without_epoch(run: Partition) -> Planted:
    group = run.groups["workers"]
    give_back(group)
    before = group.epoch
    group.register("worker-9")
    at, line = lines(run, "register")[-1]
    line.fields["epoch"] = before
    run.publish()
    group.finish()
    return Planted(run, "epoch_not_raised", sequence=at)


def published_twice(run: Partition) -> Planted:
    at, line = lines(run, "publish")[1]
    again = line.fields | {"producer": ""}
    again.pop("number", None)
    insert(run, at, Line("publish", line.slots, again))
    return Planted(run, "published_twice", line.fields["first"], line.fields["stop"])


def archived_not_published(run: Partition) -> Planted:
    for _, each in lines(run, "publish"):  # else the numbers of its producer have a gap
        each.fields["producer"] = ""
        each.fields.pop("number", None)
    at, line = lines(run, "publish")[1]
    del run.record[at]
    return Planted(run, "archived_not_published", line.fields["first"], line.fields["stop"])


def no_publish(run: Partition) -> Planted:
    plant = archived_not_published(run)
    offsets = range(plant.first or 0, plant.stop or 0)
    run.messages = [each for each in run.messages if each.offset not in offsets]
    return replace(plant, what="no_publish")


def redelivered_out_of_order(run: Partition) -> Planted:
    """Two windows come again after a forced handoff, the later one first."""
    group = unfinished(run)
    group.deliver()
    hand_over(group, is_forced=True)
    group.deliver()
    group.deliver()
    at = len(run.record) - 1
    (one,), (other,) = run.record[at - 1].lines, run.record[at].lines
    assert {one.fields["cause"], other.fields["cause"]} == {"forced_commit"}
    run.record[at - 1].lines, run.record[at].lines = [other], [one]
    return Planted(run, "redelivered_out_of_order", one.fields["first"], one.fields["stop"])


def ack_before_delivery(run: Partition) -> Planted:
    group = unfinished(run)
    group.ack_all()
    ack, deliver = run.record.pop(), run.record.pop()
    run.record += [ack, deliver]
    (line,) = deliver.lines
    return Planted(run, "ack_before_delivery", line.fields["first"], line.fields["stop"])


def ack_of_other_token(run: Partition) -> Planted:
    group = unfinished(run)
    (line,) = run.record[-1].lines
    group.bind()
    group.ack_all()
    return Planted(run, "ack_of_other_token", line.fields["first"], line.fields["stop"])


def ack_of_a_repeat_of_other_token(run: Partition) -> Planted:
    group = unfinished(run)
    group.flow_lost()
    group.deliver()
    (line,) = run.record[-1].lines
    assert line.fields["cause"] == "flow_lost"
    group.bind()
    group.ack_all()
    return Planted(run, "ack_of_other_token", line.fields["first"], line.fields["stop"])


def lost_when_freed(run: Partition) -> Planted:
    unfinished(run)
    (line,) = run.record[-1].lines
    run.write(Line("trim", fields={"first": 0, "stop": line.fields["stop"]}))
    return Planted(run, "lost", line.fields["first"], line.fields["stop"])


def lost_at_an_earlier_owner(run: Partition) -> Planted:
    group = unfinished(run)
    (line,) = run.record[-1].lines
    group.bind()
    group.deliver()
    return Planted(run, "lost", line.fields["first"], line.fields["stop"])


def lost_as_a_dead_letter(run: Partition) -> Planted:
    group = unfinished(run)
    group.dead_letter()
    _, line = lines(run, "dead_letter", flags="sent")[-1]
    line.fields |= {"flags": "lost", "cause": "not_in_log"}
    group.ack_all()
    group.finish()
    return Planted(run, "lost", line.fields["first"], line.fields["stop"])


def lost_when_a_claim_moved_the_cursor(run: Partition) -> Planted:
    group, start = run.groups["workers"], run.end
    run.publish()
    run.write(Line("trim", fields={"first": 0, "stop": run.end}))
    group.epoch = run.draw()
    group.write("reset", first=run.end, stop=run.end, number=start, cause="not_in_log")
    return Planted(run, "lost", start, run.end)


def archive_gap(run: Partition) -> Planted:
    del run.messages[:3]
    gap = ArchiveGap("messages", run.name, 0, 3)
    return Planted(run, "archive_gap", 0, 3, gap=gap)


def archive_behind(run: Partition) -> Planted:
    del run.messages[-2:]
    return Planted(run, "archive_behind", run.end - 2, run.end, archived_to=run.end - 2)


def archive_begins_late(run: Partition) -> Planted:
    del run.messages[:3]
    return Planted(run, "archive_begins_late", 0, 3, begins=3)


def first_rows_gone(run: Partition) -> Planted:
    del run.messages[:3]
    return Planted(run, "not_archived", 0, 3)


def no_record(run: Partition) -> Planted:
    return Planted(run, "no_record", 0, run.end, rows=[])


def record_switched_on_later(run: Partition) -> Planted:
    late = Partition(run.name, seed=7, start=5)
    late.run(40)
    return Planted(late, "not_recorded", 0, 5, 0)


def record_switched_off(run: Partition) -> Planted:
    run.write(Line("end"))
    start = run.end
    run.publish()
    del run.record[-1]
    return Planted(run, "not_recorded", start, run.end, len(run.record) - 1)


def record_switched_off_and_on(run: Partition) -> Planted:
    run.write(Line("end"))
    start = run.end
    run.publish()
    del run.record[-1]
    run.write(Line("begin", fields={"first": 0, "stop": run.end}))
    run.write(Line("begin", fields={"group": "workers", "first": 0, "stop": run.end}))
    return Planted(run, "not_recorded", start, run.end, len(run.record) - 2)


def record_behind(run: Partition) -> Planted:
    start = run.end
    run.publish()
    del run.record[-1]
    return Planted(run, "record_behind", start, run.end)


def handoff_under_way(run: Partition) -> Planted:
    run.groups["workers"].write("pause", attempt=run.draw())
    return Planted(run, "handoff_under_way", sequence=len(run.record) - 1)


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
    missing_end,
    missing_start,
    missing_record,
    recorded_twice,
    added_record,
    broker_epoch_not_raised,
    epoch_not_raised,
    registered_while_held,
    bind_without_registration,
    delivery_without_registration,
    registration_without_epoch,
    published_twice,
    archived_not_published,
    no_publish,
    redelivered_out_of_order,
    ack_before_delivery,
    ack_of_other_token,
    ack_of_a_repeat_of_other_token,
    lost_when_freed,
    lost_at_an_earlier_owner,
    lost_as_a_dead_letter,
    lost_when_a_claim_moved_the_cursor,
    archive_gap,
    archive_behind,
    archive_begins_late,
    first_rows_gone,
    no_record,
    record_switched_on_later,
    record_switched_off,
    record_switched_off_and_on,
    record_behind,
    handoff_under_way,
    *CONTENT_PLANTS,
    *PROTOCOL_PLANTS,
]


def plant_all() -> list[Planted]:
    """Return a run for each fault, in a partition of its own; behind them, those of changes."""
    planted = [plant(busy(f"1.{at}")) for at, plant in enumerate(PLANTS)]
    return planted + [plant(*changed(at)) for at, plant in enumerate(CHANGE_PLANTS)]
