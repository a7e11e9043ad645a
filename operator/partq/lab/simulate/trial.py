"""One seed: begin, let everything happen, wait for the end, judge."""

import random
import zlib
from collections import Counter
from dataclasses import dataclass
from typing import Final

from partq.broker.rescale.gatekeeper import RESET_HOLD_S
from partq.client.transport.layout_watch import OLDER_S
from partq.core.group.planner import GroupType
from partq.lab.simulate.cluster import SimCluster, with_loop
from partq.lab.simulate.events import EventHandlers
from partq.lab.simulate.health import backlog, unready, unsettled
from partq.lab.simulate.machine.memory_redis import MemoryRedis
from partq.lab.simulate.machine.stored import MakeMemory
from partq.lab.simulate.oracle.facts import Violation
from partq.lab.simulate.process_isolation import alone
from partq.lab.simulate.processes.brokers import LEASE_S
from partq.lab.simulate.schedule import Schedule, draw_schedule

DEFAULT_EVENTS: Final = 20
BIND_S: Final = 2.0
CLAIM_S: Final = 4.0
BACKLOG_S: Final = 20.0
SETTLE_S: Final = 30.0
"""How long changes of the partition count may take once everything is consumed."""
LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """What became of a seed."""

    schedule: Schedule
    violation: Violation | None
    digest: int
    """Of everything that happened: a replay has the same."""
    simulated_s: float
    steps: int
    recovery_s: float
    """From the last fault until every partition was consumed again."""
    handed: int
    duplicates: int
    effects: Counter[str]
    """What has happened, and how often."""
    commits: int
    trace: list[tuple[float, str]]

    def lines(self) -> list[str]:
        """Return the schedule, what happened and what was wrong, as people read it."""
        what = [f"{at:7.3f} s  | {text}" for at, text in self.trace]
        lines = [*self.schedule.lines(), *what]
        if self.violation is not None:
            lines.append(
                f"{self.violation.at:7.3f} s  VIOLATED {self.violation.invariant}: "
                f"{self.violation.text}"
            )
        return lines


def run_seed(
    seed: int, event_count: int = DEFAULT_EVENTS, make_memory: MakeMemory = MemoryRedis
) -> TrialOutcome:
    """Run one seed; the same arguments give the same outcome, on every machine."""
    return run_schedule(draw_schedule(seed, event_count), make_memory)


def run_schedule(schedule: Schedule, make_memory: MakeMemory = MemoryRedis) -> TrialOutcome:
    """Run a schedule, which may be one that was shortened."""
    with alone(schedule.seed):
        return _TrialRun(schedule, make_memory).run()


class _TrialRun:
    def __init__(self, schedule: Schedule, make_memory: MakeMemory) -> None:
        self._schedule = schedule
        rng = random.Random(schedule.seed ^ 0x5EED)  # noqa: S311  chance that can be repeated
        self._cluster = SimCluster(schedule.setting, rng, make_memory)
        self._events = EventHandlers(self._cluster)

    def run(self) -> TrialOutcome:
        cluster = self._cluster
        loop, watcher = cluster.loop, cluster.watcher
        recovery_s = 0.0
        try:
            cluster.begin()
            for event in self._schedule.events:
                self._events.schedule(event)
            last = self._schedule.events[-1].at if self._schedule.events else 0.0
            loop.run_until(last)
            while loop.time() < self._events.ends_at and not loop.is_stopped:
                loop.run_until(self._events.ends_at)
            with_loop(loop, self._mend_all)
            recovery_s = self._recover()
            simulated_s, steps = loop.time(), loop.step_count
        finally:
            watcher.is_over = True
            loop.finish()
        violation = watcher.violation
        if violation is None and loop.trouble:
            violation = Violation("error", repr(loop.trouble[0]), simulated_s)
        return TrialOutcome(
            schedule=self._schedule,
            violation=violation,
            digest=self._digest(steps),
            simulated_s=simulated_s,
            steps=steps,
            recovery_s=recovery_s,
            handed=watcher.handed_count,
            duplicates=watcher.duplicate_count,
            effects=Counter(cluster.records.effects),
            commits=watcher.handoffs.commit_count,
            trace=watcher.trace,
        )

    def _digest(self, steps: int) -> int:
        watcher = self._cluster.watcher
        text = f"{steps} {watcher.trace} {watcher.confirmed}"
        return zlib.crc32(text.encode())

    # ---- the end --------------------------------------------------------------------------------

    def _mend_all(self) -> None:
        cluster = self._cluster
        cluster.watcher.note("everything is mended")
        cluster.mishaps.end()
        cluster.may_unregister = False
        for name in cluster.all_brokers:
            if name not in cluster.brokers:
                cluster.start_broker(name)
        if not cluster.coordinators:
            cluster.start_coordinator()
        cluster.kill_coordinators(keep=1)
        for group in cluster.records.done:
            if not any(p.group == group and not p.is_leaving for p in cluster.pods.values()):
                cluster.start_pod(group=group)

    def _late_locks_s(self) -> float:
        """Return how much later locks end, of members that are gone: Redis's clock went back."""
        if self._schedule.setting.group_type is not GroupType.SESSION:
            return 0.0
        clocks = [each for each in self._schedule.events if each.kind == "redis_clock"]
        return sum(max(0.0, -float(each.args["by_s"])) for each in clocks)

    def _recover(self) -> float:
        """Wait until everything is served again; it must not take longer than is promised."""
        cluster, loop, setting = self._cluster, self._cluster.loop, self._schedule.setting
        began = loop.time()
        bound_s = setting.delay_s + setting.max_handoff_s + 1.0 + 2 * LEASE_S + BIND_S + CLAIM_S
        kinds = {event.kind for event in self._schedule.events}
        is_held = "reset_all" in kinds
        if {"rescale", "redis_rollback"} <= kinds:
            bound_s += OLDER_S  # clients may know a change that the store has forgotten
        while (waiting := unready(cluster)) and not loop.is_stopped:
            if loop.time() - began > bound_s:
                cluster.watcher.fail("G7", f"after {bound_s} s still: {'; '.join(waiting)}")
            loop.run_until(loop.time() + LOOK_S)
        recovery_s = loop.time() - began
        cluster.hurry()
        bound_s += BACKLOG_S + (RESET_HOLD_S if is_held else 0.0) + self._late_locks_s()
        while (left := backlog(cluster)) and not loop.is_stopped:
            if loop.time() - began > bound_s:
                cluster.watcher.fail("G7", f"not consumed: {'; '.join(left)}")
            loop.run_until(loop.time() + LOOK_S)
        bound_s += SETTLE_S
        # While a change is under way, messages may still be published.
        while (left := [*unsettled(cluster), *backlog(cluster)]) and not loop.is_stopped:
            if loop.time() - began > bound_s:
                cluster.watcher.fail("R6", f"not settled: {'; '.join(left)}")
            loop.run_until(loop.time() + LOOK_S)
        if not loop.is_stopped and (missing := cluster.watcher.missing()):
            cluster.watcher.fail("G3", f"confirmed and never delivered: {missing}")
        if letters := cluster.records.letters.missing():
            cluster.watcher.fail("G3", f"dead letters that their target lacks: {letters}")
        return recovery_s
