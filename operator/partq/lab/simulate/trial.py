"""One seed: begin, let everything happen, wait for the end, judge."""

import random
import zlib
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Final

from partq.core.model import MemberId
from partq.lab.simulate.cluster import SimCluster, SimPod, with_loop
from partq.lab.simulate.health import backlog, unready
from partq.lab.simulate.interventions import Interventions
from partq.lab.simulate.machine.memory_redis import MemoryRedis, Value
from partq.lab.simulate.machine.network import SLOW_S, Weather
from partq.lab.simulate.machine.stored import NAME as REDIS
from partq.lab.simulate.machine.stored import MakeMemory
from partq.lab.simulate.oracle.facts import Violation
from partq.lab.simulate.oracle.fault_windows import EVERYBODY, SILENCE_S, road
from partq.lab.simulate.process_isolation import alone
from partq.lab.simulate.processes.brokers import LEASE_S
from partq.lab.simulate.rolling import Rolling
from partq.lab.simulate.schedule import Event, EventArgs, Schedule, draw_schedule

DEFAULT_EVENTS: Final = 20
BIND_S: Final = 2.0
CLAIM_S: Final = 4.0
BACKLOG_S: Final = 20.0
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
        return _Trial(schedule, make_memory).run()


class _Trial:
    def __init__(self, schedule: Schedule, make_memory: MakeMemory) -> None:
        self._schedule = schedule
        rng = random.Random(schedule.seed ^ 0x5EED)  # noqa: S311  chance that can be repeated
        self._cluster = SimCluster(schedule.setting, rng, make_memory)
        self._ends_at = 0.0
        self._kept_keys: dict[int, dict[bytes, Value]] = {}
        """By the identity of the rollback that they are for: two may come at the same time."""
        self._rolling: Rolling | None = None
        self._interventions = Interventions(self._cluster, self._last_until)

    def run(self) -> TrialOutcome:
        cluster = self._cluster
        loop, watcher = cluster.loop, cluster.watcher
        recovery_s = 0.0
        try:
            cluster.begin()
            for event in self._schedule.events:
                loop.call_at(event.at, self._strike, event)
                if event.kind == "redis_rollback":
                    loop.call_at(max(0.0, event.at - event.args["lost_s"]), self._keep, event)
            last = self._schedule.events[-1].at if self._schedule.events else 0.0
            loop.run_until(last)
            while loop.time() < self._ends_at and not loop.is_stopped:
                loop.run_until(self._ends_at)
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
        for name in cluster.all_brokers:
            if name not in cluster.brokers:
                cluster.start_broker(name)
        if not cluster.coordinators:
            cluster.start_coordinator()
        cluster.kill_coordinators(keep=1)
        for group in cluster.records.done:
            if not any(p.group == group and not p.is_leaving for p in cluster.pods.values()):
                cluster.start_pod(group=group)

    def _recover(self) -> float:
        """Wait until everything is served again; it must not take longer than is promised."""
        cluster, loop, setting = self._cluster, self._cluster.loop, self._schedule.setting
        began = loop.time()
        bound_s = setting.delay_s + setting.max_handoff_s + 1.0 + 2 * LEASE_S + BIND_S + CLAIM_S
        while (waiting := unready(cluster)) and not loop.is_stopped:
            if loop.time() - began > bound_s:
                cluster.watcher.fail("G7", f"after {bound_s} s still: {'; '.join(waiting)}")
            loop.run_until(loop.time() + LOOK_S)
        recovery_s = loop.time() - began
        cluster.hurry()
        bound_s += BACKLOG_S
        while (left := backlog(cluster)) and not loop.is_stopped:
            if loop.time() - began > bound_s:
                cluster.watcher.fail("G7", f"not consumed: {'; '.join(left)}")
            loop.run_until(loop.time() + LOOK_S)
        if missing := cluster.watcher.missing():
            cluster.watcher.fail("G3", f"confirmed and never delivered: {missing}")
        if letters := cluster.records.letters.missing():
            cluster.watcher.fail("G3", f"dead letters that their target lacks: {letters}")
        return recovery_s

    # ---- what happens ---------------------------------------------------------------------------

    def _keep(self, event: Event) -> None:
        self._kept_keys[id(event)] = self._cluster.redis.memory.copy()

    def _strike(self, event: Event) -> None:
        args = dict(event.args)
        self._last_until(self._cluster.loop.time() + args.get("for_s", 0.0) + 0.01)
        own = getattr(self, f"_{event.kind}", None)
        work = partial(own, event) if own else getattr(self._interventions, event.kind)
        done = work(args)
        self._cluster.watcher.note(f"{event.kind}: {done}" if done else event.kind)

    def _last_until(self, end: float) -> None:
        """Mend nothing before `end`."""
        self._ends_at = max(self._ends_at, end)

    def _hit(self, args: EventArgs, what: str, *, under_way_s: float = 0.0) -> None:
        """Let the oracle know whom a fault concerns while it lasts.

        `under_way_s`: for how long what was sent during the fault may still be on its way after it.
        """
        self._cluster.troubles.hit(what, args["for_s"] + under_way_s, linger_s=SILENCE_S)

    def _publish(self, event: Event, args: EventArgs) -> None:
        self._cluster.publish(args["count"], args["gap_s"])
        self._last_until(self._cluster.loop.time() + args["count"] * args["gap_s"])

    def _post(self, event: Event, args: EventArgs) -> None:
        self._cluster.post(args["count"])

    def _broker(self, args: EventArgs) -> str:
        names = self._cluster.all_brokers
        index: int = args["which"] % len(names)
        return names[index]

    def _broker_kill(self, event: Event, args: EventArgs) -> str:
        name = self._broker(args)
        self._hit(args, name)
        self._cluster.kill_broker(name, is_silent=args["is_silent"])
        self._cluster.later(args["for_s"], lambda: self._cluster.start_broker(name))
        return name

    def _broker_end(self, event: Event, args: EventArgs) -> str:
        name = self._broker(args)
        self._hit(args, name)
        if (life := self._cluster.brokers.get(name)) is not None:
            life.terminate()
        self._cluster.later(args["for_s"], lambda: self._cluster.start_broker(name))
        return name

    def _broker_freeze(self, event: Event, args: EventArgs) -> str:
        name = self._broker(args)
        self._hit(args, name)
        if (life := self._cluster.brokers.get(name)) is not None:
            life.process.freeze()
            self._cluster.later(args["for_s"], life.process.thaw)
        return name

    def _pod(self, args: EventArgs) -> SimPod | None:
        pods = [pod for pod in self._cluster.pods.values() if not pod.is_leaving]
        return pods[args["which"] % len(pods)] if pods else None

    def _pod_start(self, event: Event, args: EventArgs) -> None:
        if len(self._cluster.pods) < 4:
            self._cluster.start_pod()

    def _pod_crash(self, event: Event, args: EventArgs) -> MemberId | None:
        if (pod := self._pod(args)) is None:
            return None
        self._cluster.kill_container(pod)
        self._cluster.later(args["for_s"], lambda: self._cluster.start_container(pod))
        return pod.name

    def _pod_end(self, event: Event, args: EventArgs) -> MemberId | None:
        if (pod := self._pod(args)) is None:
            return None
        self._cluster.end_pod(pod, args["grace_s"])
        self._last_until(self._cluster.loop.time() + args["grace_s"])
        return pod.name

    def _pod_vanish(self, event: Event, args: EventArgs) -> MemberId | None:
        if (pod := self._pod(args)) is None:
            return None
        # Of one that pulls nobody would see it for half a minute, which would cost too much.
        self._cluster.remove_pod(pod, is_silent=args["is_silent"], is_known=pod.is_pulling)
        return pod.name

    def _pod_freeze(self, event: Event, args: EventArgs) -> MemberId | None:
        if (pod := self._pod(args)) is None or pod.process is None:
            return None
        self._hit(args, pod.name)
        pod.process.freeze()
        self._cluster.later(args["for_s"], pod.process.thaw)
        return pod.name

    def _rollout(self, event: Event, args: EventArgs) -> str:
        """Roll out; back, when that is under way."""
        if self._rolling is not None:
            self._rolling.turn_back()
            return "back"
        shape = {name: args[name] for name in ("is_surge", "ready_s", "grace_s")}
        rolling = self._rolling = Rolling(self._cluster, **shape)
        rolling.go_on()
        self._cluster.later(args["for_s"], self._stop_rolling)
        # The last pod that it ends has its grace period as well.
        self._last_until(self._cluster.loop.time() + args["for_s"] + args["grace_s"])
        return "on"

    def _stop_rolling(self) -> None:
        rolling, self._rolling = self._rolling, None
        if rolling is not None:
            rolling.stop()

    def _coordinator_kill(self, event: Event, args: EventArgs) -> None:
        self._cluster.kill_coordinators()
        self._cluster.later(args["for_s"], self._cluster.start_coordinator)

    def _coordinator_freeze(self, event: Event, args: EventArgs) -> None:
        cluster = self._cluster
        for process in cluster.coordinators.values():
            process.freeze()
            cluster.later(args["for_s"], process.thaw)
        if args["has_second"]:
            cluster.start_coordinator()
        cluster.later(args["for_s"] + 1.0, lambda: cluster.kill_coordinators(keep=1))

    def _redis_kill(self, event: Event, args: EventArgs) -> None:
        self._hit(args, REDIS)
        self._cluster.redis.stop()
        self._cluster.later(args["for_s"], self._cluster.redis.start)

    def _redis_rollback(self, event: Event, args: EventArgs) -> None:
        self._hit(args, REDIS)
        redis = self._cluster.redis
        redis.stop()
        redis.memory.restore(self._kept_keys.pop(id(event)))
        self._cluster.records.roll_back()
        # What was kept since then is of a past that has not been.
        self._kept_keys = {event_id: redis.memory.copy() for event_id in self._kept_keys}
        self._cluster.later(args["for_s"], redis.start)
        # Groups and limits may be as they were: the operator looks at them again and again.
        self._cluster.administrator.wish()

    def _redis_stall(self, event: Event, args: EventArgs) -> None:
        self._hit(args, REDIS)
        self._cluster.redis.stalled_until = self._cluster.loop.time() + args["for_s"]

    def _redis_clock(self, event: Event, args: EventArgs) -> None:
        self._cluster.redis.ahead_s += args["by_s"]

    def _places(self) -> list[str]:
        cluster = self._cluster
        return [REDIS, "coordinator", *cluster.broker_names, *cluster.pods, "producer"]

    def _cut(self, event: Event, args: EventArgs) -> str:
        places = self._places()
        one = places[args["from"] % len(places)]
        other = places[(args["from"] + 1 + args["to"]) % len(places)]
        roads = [(one, other), (other, one)] if args["is_both"] else [(one, other)]
        self._hit(args, road(one, other))
        for each in roads:
            self._cluster.network.cut(*each)
            self._cluster.later(args["for_s"], partial(self._cluster.network.mend, *each))
        return f"{one} and {other}"

    def _slow(self, event: Event, args: EventArgs) -> str:
        places = self._places()
        name: str = places[args["who"] % len(places)]
        self._hit(args, name, under_way_s=SLOW_S)
        self._cluster.network.slow_down(name)
        self._cluster.later(args["for_s"], lambda: self._cluster.network.speed_up(name))
        return name

    def _storm(self, event: Event, args: EventArgs) -> None:
        self._hit(args, EVERYBODY, under_way_s=SLOW_S)
        network = self._cluster.network
        network.weather = Weather(args["lost"], args["repeated"], args["reset"], args["slow"])
        self._cluster.later(args["for_s"], lambda: setattr(network, "weather", Weather()))

    def _hostile(self, event: Event, args: EventArgs) -> None:
        self._cluster.watcher.hostile_count += args["count"]
