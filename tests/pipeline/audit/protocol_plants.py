"""Faults in the protocol to plant into a recorded run: handoffs, acks, clocks, numbers."""

from partq.core.model import Cause
from tests.pipeline.audit.keyed_plants import KEYED_PLANTS
from tests.pipeline.audit.model import Line, Partition
from tests.pipeline.audit.planting import Planted, hand_over, insert, lines, store_again, unfinished
from tests.pipeline.audit.session_plants import SESSION_PLANTS
from tests.pipeline.audit.shared_plants import SHARED_PLANTS
from tests.pipeline.audit.turn_plants import TURN_PLANTS


def commit_without_pause(run: Partition) -> Planted:
    at, line = lines(run, "commit", cause="")[-1]
    pause, _ = lines(run, "pause", attempt=line.fields["attempt"])[0]
    del run.record[pause]
    return Planted(run, "commit_without_pause", sequence=at - 1)


def commit_without_drain(run: Partition) -> Planted:
    at, line = lines(run, "commit", cause="")[-1]
    drained, _ = lines(run, "drained", attempt=line.fields["attempt"])[0]
    del run.record[drained]
    return Planted(run, "commit_without_drain", sequence=at - 1)


def missing_commit(run: Partition) -> Planted:
    at, line = lines(run, "commit", cause="")[-1]
    del run.record[at]
    bind, _ = next(each for each in lines(run, "bind") if each[0] >= at)
    assert run.record[bind].lines[0].fields["member"] == line.fields["target"]
    return Planted(run, "missing_commit", sequence=bind)


def missing_forced_commit(run: Partition) -> Planted:
    at, _ = lines(run, "commit", cause="forced_commit")[-1]
    del run.record[at]
    bind, _ = next(each for each in lines(run, "bind") if each[0] >= at)
    return Planted(run, "missing_commit", sequence=bind)


def drain_not_clean(run: Partition) -> Planted:
    """A drain that was cut off by time, and is told as one that was over."""
    group = unfinished(run)
    (line,) = run.record[-1].lines
    hand_over(group, is_forced=True)
    at, drained = lines(run, "drained")[-1]
    drained.fields["cause"] = ""
    group.finish()
    return Planted(run, "drain_not_clean", line.fields["first"], line.fields["stop"], at)


def delivered_while_paused(run: Partition) -> Planted:
    """The old owner is sent one more message, and has it acknowledged, before the commit."""
    group = unfinished(run)
    group.ack_all()
    attempt = run.draw()
    group.write("pause", attempt=attempt)
    group.write("drained", attempt=attempt, first=group.book.cursor, stop=group.book.position)
    group.deliver()
    at, line = lines(run, "deliver")[-1]
    group.ack_all()
    group.commit("worker-9", Cause.NONE, attempt)
    group.finish()
    return Planted(run, "delivered_while_paused", line.fields["first"], line.fields["stop"], at)


def delivered_while_paused_before_a_lapse(run: Partition) -> Planted:
    at, _ = lines(run, "lapse")[-1]
    delivered, line = next(each for each in lines(run, "deliver") if each[0] > at)
    run.record.insert(at, run.record.pop(delivered))
    published = [each for each, _ in lines(run, "publish") if at < each < delivered + 1]
    for each in published:
        run.record.insert(at, run.record.pop(each))
    return Planted(run, "delivered_while_paused", line.fields["first"], line.fields["stop"])


def commit_of_another_source(run: Partition) -> Planted:
    at, line = lines(run, "commit", cause="")[-1]
    line.fields["member"] = "worker-9"
    return Planted(run, "commit_not_held", sequence=at)


def ack_of_another_member(run: Partition) -> Planted:
    at, line = lines(run, "ack")[-1]
    line.fields["member"] = "worker-9"
    return Planted(run, "ack_not_held", line.fields["first"], line.fields["stop"], at)


def acked_twice(run: Partition) -> Planted:
    at, line = lines(run, "ack")[-1]
    insert(run, at, Line("ack", fields=dict(line.fields)))
    return Planted(run, "acked_twice", line.fields["first"], line.fields["stop"], at + 1)


def time_went_back(run: Partition) -> Planted:
    """By an hour, for ten groups."""
    for group in run.record[30:40]:
        group.at_ms -= 3_600_000
    store_again(run)
    return Planted(run, "time_went_back", sequence=30)


def number_skipped(run: Partition) -> Planted:
    at, line = lines(run, "publish", producer="p-1")[-1]
    line.fields["number"] += 1_000
    return Planted(run, "number_skipped", line.fields["first"], line.fields["stop"], at)


PROTOCOL_PLANTS = [
    commit_without_pause,
    commit_without_drain,
    missing_commit,
    missing_forced_commit,
    drain_not_clean,
    delivered_while_paused,
    delivered_while_paused_before_a_lapse,
    commit_of_another_source,
    ack_of_another_member,
    acked_twice,
    time_went_back,
    number_skipped,
    *KEYED_PLANTS,
    *SHARED_PLANTS,
    *TURN_PLANTS,
    *SESSION_PLANTS,
]
