"""A run for the page: what happens in production, and faults that follow from each other."""

from partq.core.model import Cause
from tests.pipeline.audit.model import Partition
from tests.pipeline.audit.planting import hand_over, lines

STALL_MS = 5_000
KILLED, WITHOUT_COMMIT, SILENT, QUIET = "1.2", "1.10", "1.3", "1.0"
STALE = 40


def faulty_run() -> list[Partition]:
    """Return partitions: a consumer killed, a commit missing, deliveries without a cause."""
    made = [Partition(f"1.{index}", seed=40 + index) for index in (0, 1, 2, 3, 10)]
    runs = {run.name: run for run in made}
    for run in made:
        for member in range(3):
            work(run, 12)
            hand_over(run.groups["workers"], is_forced=False)
            run.groups["workers"].bind()
            run.now_ms += 40 * member
    killed_consumer(runs[KILLED])
    missing_commit(runs[WITHOUT_COMMIT])
    deliveries_without_cause(runs[SILENT])
    for run in made:
        work(run, 25)
        run.groups["workers"].finish()
    return made


def work(run: Partition, steps: int) -> None:
    """Publish, deliver and acknowledge, a few times a second."""
    for _ in range(steps):
        run.now_ms += 60
        run.publish()
        run.groups["workers"].deliver()
        run.groups["workers"].ack_all()


def killed_consumer(run: Partition) -> None:
    """Let a member die with messages in flight, while others are published."""
    group = run.groups["workers"]
    work(run, 10)
    run.publish()
    group.deliver()
    for _ in range(10):
        run.now_ms += STALL_MS // 10
        run.publish()
    attempt = run.draw()
    source = group.member
    group.commit("worker-5", Cause.FORCED_COMMIT, attempt)
    _, line = lines(run, "commit", member=source, target="worker-5")[-1]
    line.fields["cause"] = "source_lost"
    group.deliver()
    group.ack_all()


def missing_commit(run: Partition) -> None:
    """Take a commit away: what comes after it seems to be under a token that nobody gave."""
    group = run.groups["workers"]
    run.publish()
    group.deliver()
    before = {"member": group.member, "epoch": group.epoch, "flow": group.flow}
    incarnation = f"i-{group.member}"
    hand_over(group, is_forced=False)
    run.record.pop()
    group.deliver()
    group.ack_all()
    for offset in range(STALE):
        group.write("ack", first=offset, stop=offset + 1, incarnation=incarnation, **before)


def deliveries_without_cause(run: Partition) -> None:
    """Deliver messages again, and say nothing why."""
    group = run.groups["workers"]
    run.publish()
    group.deliver()
    _, line = lines(run, "deliver")[-1]
    group.write("deliver", **{name: line.fields[name] for name in ("first", "stop")}, delivery=1)
    group.ack_all()
