"""What each kind of event does to the simulated cluster: one method per kind of `schedule`."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from partq.broker.retention.periodic_work import LOOK_GAP_S
from partq.core.model import MemberId, PartitionId
from partq.lab.simulate.cluster import SimCluster, SimPod
from partq.lab.simulate.machine.loop import Process
from partq.lab.simulate.machine.memory_redis import Value
from partq.lab.simulate.machine.network import SLOW_S, Weather
from partq.lab.simulate.machine.stored import NAME as REDIS
from partq.lab.simulate.oracle.facts import GroupPartitionFacts
from partq.lab.simulate.oracle.fault_windows import EVERYBODY, SILENCE_S, road
from partq.lab.simulate.rolling import Rolling
from partq.lab.simulate.schedule import Event
from partq.path_names import quoted

SETTLED_S: Final = 4.0
"""How long a group that was deleted, or made, has to find its members again."""
RESET_S: Final = 1.0
"""How long a reset may hold a partition up."""


class EventHandlers:
    """Apply events to a cluster.

    Each public method but `schedule` is the kind of event of its name. It returns what the event
    was done to, for the trace; None: nothing in particular.
    """

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self.ends_at = 0.0
        """Until when events last, in simulated seconds: nothing may be mended before."""
        self._kept_keys: dict[int, dict[bytes, Value]] = {}
        """By the identity of the rollback that they are for: two may come at the same time."""
        self._rolling: Rolling | None = None

    def schedule(self, event: Event) -> None:
        """Have an event happen at its time."""
        loop = self._cluster.loop
        loop.call_at(event.at, self._apply, event)
        if event.kind == "redis_rollback":
            loop.call_at(max(0.0, event.at - event.args["lost_s"]), self._keep_keys, event)

    def _keep_keys(self, event: Event) -> None:
        self._kept_keys[id(event)] = self._cluster.redis.memory.copy()

    def _apply(self, event: Event) -> None:
        self._last_until(self._cluster.loop.time() + event.args.get("for_s", 0.0) + 0.01)
        done = getattr(self, event.kind)(event)
        self._cluster.watcher.note(f"{event.kind}: {done}" if done else event.kind)

    def _last_until(self, end: float) -> None:
        """Mend nothing before `end`."""
        self.ends_at = max(self.ends_at, end)

    def _hit(self, event: Event, what: str, *, under_way_s: float = 0.0) -> None:
        """Let the oracle know whom a fault concerns while it lasts.

        `under_way_s`: for how long what was sent during the fault may still be on its way after it.
        """
        for_s = event.args["for_s"] + under_way_s
        self._cluster.troubles.hit(what, for_s, linger_s=SILENCE_S)

    def _later(self, delay_s: float, work: Callable[[], None]) -> None:
        self._last_until(self._cluster.loop.time() + delay_s + 0.01)
        self._cluster.later(delay_s, work)

    # ---- messages and applications --------------------------------------------------------------

    def publish(self, event: Event) -> None:
        """Have the producer send messages."""
        self._cluster.publish(event.args["count"], event.args["gap_s"])
        self._last_until(self._cluster.loop.time() + event.args["count"] * event.args["gap_s"])

    def post(self, event: Event) -> None:
        """Publish messages by plain HTTP, without numbers."""
        self._cluster.post(event.args["count"])

    def nack(self, event: Event) -> None:
        """Have the next messages given back."""
        self._cluster.mishaps.nack_count += event.args["count"]

    def hang(self, event: Event) -> None:
        """Let the application take long for the next messages."""
        mishaps = self._cluster.mishaps
        mishaps.hang_count += event.args["count"]
        mishaps.hang_s = event.args["for_s"]

    def bad(self, event: Event) -> None:
        """Publish messages that nobody gets done."""
        self._cluster.post(event.args["count"], is_bad=True)

    def hostile(self, event: Event) -> None:
        """Have forged acknowledgements sent."""
        self._cluster.watcher.hostile_count += event.args["count"]

    # ---- brokers --------------------------------------------------------------------------------

    def _broker(self, event: Event) -> str:
        index: int = event.args["which"] % len(self._cluster.all_brokers)
        return self._cluster.all_brokers[index]

    def broker_kill(self, event: Event) -> str:
        """Kill a broker, and start it again."""
        name = self._broker(event)
        self._hit(event, name)
        self._cluster.kill_broker(name, is_silent=event.args["is_silent"])
        self._cluster.later(event.args["for_s"], lambda: self._cluster.start_broker(name))
        return name

    def broker_end(self, event: Event) -> str:
        """Terminate a broker, and start it again."""
        name = self._broker(event)
        self._hit(event, name)
        if (life := self._cluster.brokers.get(name)) is not None:
            life.terminate()
        self._cluster.later(event.args["for_s"], lambda: self._cluster.start_broker(name))
        return name

    def broker_freeze(self, event: Event) -> str:
        """Stop a broker's process for a while, as SIGSTOP does."""
        name = self._broker(event)
        self._hit(event, name)
        if (life := self._cluster.brokers.get(name)) is not None:
            life.process.freeze()
            self._cluster.later(event.args["for_s"], life.process.thaw)
        return name

    # ---- pods -----------------------------------------------------------------------------------

    def _pod(self, event: Event) -> SimPod | None:
        pods = [pod for pod in self._cluster.pods.values() if not pod.is_leaving]
        return pods[event.args["which"] % len(pods)] if pods else None

    def pod_start(self, event: Event) -> None:
        """Start one more pod, unless there are four."""
        if len(self._cluster.pods) < 4:
            self._cluster.start_pod()

    def pod_crash(self, event: Event) -> MemberId | None:
        """Kill the container of a pod, and start it again."""
        if (pod := self._pod(event)) is None:
            return None
        self._cluster.kill_container(pod)
        self._cluster.later(event.args["for_s"], lambda: self._cluster.start_container(pod))
        return pod.name

    def pod_end(self, event: Event) -> MemberId | None:
        """Delete a pod, which has a grace period."""
        if (pod := self._pod(event)) is None:
            return None
        self._cluster.end_pod(pod, event.args["grace_s"])
        self._last_until(self._cluster.loop.time() + event.args["grace_s"])
        return pod.name

    def pod_vanish(self, event: Event) -> MemberId | None:
        """Remove a pod without an event and without a grace period."""
        if (pod := self._pod(event)) is None:
            return None
        # Of one that pulls nobody would see it for half a minute, which would cost too much.
        self._cluster.remove_pod(pod, is_silent=event.args["is_silent"], is_known=pod.is_pulling)
        return pod.name

    def pod_freeze(self, event: Event) -> MemberId | None:
        """Stop a pod's process for a while, as SIGSTOP does."""
        if (pod := self._pod(event)) is None or pod.process is None:
            return None
        self._hit(event, pod.name)
        pod.process.freeze()
        self._cluster.later(event.args["for_s"], pod.process.thaw)
        return pod.name

    def rollout(self, event: Event) -> str:
        """Roll out; back, when that is under way."""
        if self._rolling is not None:
            self._rolling.turn_back()
            return "back"
        shape = {name: event.args[name] for name in ("is_surge", "ready_s", "grace_s")}
        rolling = self._rolling = Rolling(self._cluster, **shape)
        rolling.go_on()
        self._cluster.later(event.args["for_s"], self._stop_rolling)
        # The last pod that it ends has its grace period as well.
        self._last_until(self._cluster.loop.time() + event.args["for_s"] + event.args["grace_s"])
        return "on"

    def _stop_rolling(self) -> None:
        rolling, self._rolling = self._rolling, None
        if rolling is not None:
            rolling.stop()

    # ---- coordinators ---------------------------------------------------------------------------

    def coordinator_kill(self, event: Event) -> None:
        """Kill all coordinators, and start one again."""
        self._cluster.kill_coordinators()
        self._cluster.later(event.args["for_s"], self._cluster.start_coordinator)

    def coordinator_freeze(self, event: Event) -> None:
        """Stop the coordinators for a while, and perhaps start a second one."""
        cluster = self._cluster
        for process in cluster.coordinators.values():
            process.freeze()
            cluster.later(event.args["for_s"], process.thaw)
        if event.args["has_second"]:
            cluster.start_coordinator()
        cluster.later(event.args["for_s"] + 1.0, lambda: cluster.kill_coordinators(keep=1))

    # ---- Redis ----------------------------------------------------------------------------------

    def redis_kill(self, event: Event) -> None:
        """Kill Redis, and start it again with all that it had."""
        self._hit(event, REDIS)
        self._cluster.redis.stop()
        self._cluster.later(event.args["for_s"], self._cluster.redis.start)

    def redis_rollback(self, event: Event) -> None:
        """Kill Redis, and start it again without its last writes.

        With `is_of_layout` that is the node of a Redis Cluster that has the layout, the config of
        the queue and its leases; the partitions and groups are on others, which lose nothing.
        """
        self._hit(event, REDIS)
        redis = self._cluster.redis
        redis.stop()
        records = self._cluster.records
        is_of_layout = event.args.get("is_of_layout", False)
        prefix = records.rescales.layout_key.removesuffix(b"layout") if is_of_layout else b""
        redis.memory.restore(self._kept_keys.pop(id(event)), prefix)
        records.roll_back()
        self._cluster.watcher.shared.roll_back()
        # What was kept since then is of a past that has not been.
        self._kept_keys = {event_id: redis.memory.copy() for event_id in self._kept_keys}
        self._cluster.later(event.args["for_s"], redis.start)
        # Groups and limits may be as they were: the operator looks at them again and again.
        self._cluster.administrator.wish()

    def redis_stall(self, event: Event) -> None:
        """Let Redis answer nothing for a while."""
        self._hit(event, REDIS)
        self._cluster.redis.stalled_until = self._cluster.loop.time() + event.args["for_s"]

    def redis_clock(self, event: Event) -> None:
        """Set the clock of Redis forward or back."""
        self._cluster.records.see_clock()
        self._cluster.watcher.keyed.was_clock_set = True
        self._cluster.watcher.shared.was_clock_set = True
        self._cluster.redis.ahead_s += event.args["by_s"]

    def store_full(self, event: Event) -> None:
        """Let Redis be full: nearly, so that it says so, or up to its last byte."""
        redis = self._cluster.redis
        redis.used_share = 1.0 if event.args["is_hard"] else 0.9
        self._cluster.troubles.hit(REDIS, event.args["for_s"], linger_s=SILENCE_S)
        if self._cluster.setting.is_audited:
            # Deliveries wait for room for their records until the broker looks the next time.
            self._cluster.troubles.hit(REDIS, event.args["for_s"] + LOOK_GAP_S)
        self._later(event.args["for_s"], lambda: setattr(redis, "used_share", 0.0))

    # ---- network --------------------------------------------------------------------------------

    def _places(self) -> list[str]:
        cluster = self._cluster
        return [REDIS, "coordinator", *cluster.broker_names, *cluster.pods, "producer"]

    def cut(self, event: Event) -> str:
        """Let nothing pass between two processes for a while."""
        places = self._places()
        one = places[event.args["from"] % len(places)]
        other = places[(event.args["from"] + 1 + event.args["to"]) % len(places)]
        roads = [(one, other), (other, one)] if event.args["is_both"] else [(one, other)]
        self._hit(event, road(one, other))
        for each in roads:
            self._cluster.network.cut(*each)
            self._cluster.later(event.args["for_s"], partial(self._cluster.network.mend, *each))
        return f"{one} and {other}"

    def slow(self, event: Event) -> str:
        """Let everything to and from a process take long for a while."""
        places = self._places()
        name: str = places[event.args["who"] % len(places)]
        self._hit(event, name, under_way_s=SLOW_S)
        self._cluster.network.slow_down(name)
        self._cluster.later(event.args["for_s"], lambda: self._cluster.network.speed_up(name))
        return name

    def storm(self, event: Event) -> None:
        """Lose, repeat, reset and delay messages between all processes for a while."""
        self._hit(event, EVERYBODY, under_way_s=SLOW_S)
        network = self._cluster.network
        network.weather = Weather(
            event.args["lost"], event.args["repeated"], event.args["reset"], event.args["slow"]
        )
        self._cluster.later(event.args["for_s"], lambda: setattr(network, "weather", Weather()))

    def late(self, event: Event) -> str | None:
        """Let one connection to Redis carry nothing, be given up, and deliver after that."""
        cluster = self._cluster
        names = [*cluster.broker_names, "coordinator"]
        name: str = names[event.args["who"] % len(names)]
        connections = cluster.redis.connections_of(name)
        if not connections:
            return None
        connection = connections[event.args["lane"] % len(connections)]
        cluster.troubles.hit(road(name, REDIS), event.args["for_s"], linger_s=SILENCE_S)
        connection.stand_still()
        self._later(event.args["for_s"], connection.reset)

        def deliver() -> None:
            cluster.records.effects["late"] += connection.deliver_late()

        self._later(event.args["for_s"] + event.args["late_s"], deliver)
        return name

    # ---- groups ---------------------------------------------------------------------------------

    def group_life(self, event: Event) -> str | None:
        """Delete a group, and make it again under the same name."""
        groups = self._cluster.administrator.groups
        names = list(groups)
        if not names:
            return None
        name: str = names[event.args["which"] % len(names)]
        spec = dict(groups.pop(name))
        if "uid" in spec:
            spec["uid"] = f"{self._cluster.loop.time():.6f}"
        elif event.args["is_one"]:
            self._cluster.administrator.wish()  # without uids each step is a separate wish
        if event.args["is_one"]:  # a reader now and then sees one change, and another uid
            groups[name] = spec
        self._changed(name)

        def make() -> None:
            if name not in groups:
                groups[name] = spec
                self._changed(name)

        self._later(event.args["for_s"], make)
        return name

    def _changed(self, group: str) -> None:
        self._cluster.administrator.wish()
        isolation = self._cluster.watcher.isolation
        isolation.settled_at[group] = self._cluster.loop.time() + SETTLED_S
        for facts in self._cluster.records.group_partitions.values():
            if facts.group == group:
                isolation.disturb(facts.name, SETTLED_S)

    def reset(self, event: Event) -> str | None:
        """Move a group's cursor in a partition, back or forward, now or when something happens.

        That is the next nack, or the next move of a message into an outbox, whose answer is lost.
        """
        cluster = self._cluster
        group_partitions = [
            facts for facts in cluster.records.group_partitions.values() if facts.is_there
        ]
        if not group_partitions:
            return None

        def begin(facts: GroupPartitionFacts) -> None:
            body = {"is_forced": event.args["is_forced"]}
            if event.args["to"] == "offset":
                body["offset"] = round(event.args["share"] * len(facts.log.ids))
            else:
                body["to"] = event.args["to"]
            cluster.process("administrator").start(self._reset(facts, body))

        def begin_at(group: str, message: int) -> None:
            for facts in group_partitions:
                if facts.group == group and message in facts.log.ids:
                    begin(facts)

        if event.args.get("is_after_nack"):
            cluster.mishaps.after_nack.append(begin_at)
            return None
        if event.args.get("is_after_move"):

            def lose(process: Process, keys: Sequence[bytes]) -> None:
                cluster.troubles.hit(road(process.name, REDIS), 0.01, linger_s=SILENCE_S)
                begin(next(facts for facts in group_partitions if facts.key == keys[1]))

            cluster.redis.to_lose["add_dead_letters"] = lose
            return None
        facts: GroupPartitionFacts = group_partitions[event.args["which"] % len(group_partitions)]
        begin(facts)
        return facts.name

    async def _reset(self, facts: GroupPartitionFacts, body: Mapping[str, object]) -> None:
        cluster = self._cluster
        cluster.watcher.isolation.disturb(facts.name, RESET_S)
        partition = PartitionId.parse(facts.log.name)
        route = f"/groups/{quoted(facts.group, 'group')}/reset"
        try:
            answer = await cluster.network.call(facts.log.owner, route, (partition, body))
        except OSError:
            return
        if "error" in answer:
            cluster.watcher.note(f"reset of {facts.name} refused: {answer['error']['code']}")
            return
        cluster.watcher.note(f"reset of {facts.name} from {answer['cursor']} to {answer['to']}")
        cluster.watcher.was_reset(facts, answer["to"])

    def reset_all(self, event: Event) -> str | None:
        """Move a group's cursors in all partitions; the broker that is asked may die meanwhile."""
        cluster = self._cluster
        groups = sorted(cluster.administrator.groups)
        if not groups:
            return None
        group: str = groups[event.args["which"] % len(groups)]
        name: str = cluster.broker_names[event.args["at"] % len(cluster.broker_names)]
        cluster.process("administrator").start(self._reset_all(name, group, event.args["to"]))
        return f"of {group} to {event.args['to']}, by {name}"

    async def _reset_all(self, name: str, group: str, to: str) -> None:
        route = f"/groups/{quoted(group, 'group')}/reset-all"
        try:
            answer = await self._cluster.network.call(name, route, {"to": to, "is_forced": True})
        except OSError:
            return
        parts = {group: answer} if "error" in answer else answer
        refused = {each: part["error"]["code"] for each, part in parts.items() if "error" in part}
        but = f", but {refused}" if refused else ""
        self._cluster.watcher.note(f"reset of {group} in all partitions{but}")

    # ---- the partition count --------------------------------------------------------------------

    def rescale(self, event: Event) -> str:
        """Change the partition count, also while another change is under way."""
        cluster = self._cluster
        cluster.administrator.partition_count = event.args["to"]
        cluster.administrator.wish()
        return str(event.args["to"])

    # ---- limits ---------------------------------------------------------------------------------

    def expire(self, event: Event) -> None:
        """Give the messages of the queue a time to live, for a while."""
        self._cluster.records.let_expire(event.args["ttl_s"])
        spec = self._cluster.administrator.spec
        self._set(spec, "messageTTLSeconds", event.args["ttl_s"], event)

    def quota(self, event: Event) -> None:
        """Let the queue hold only so many bytes, for a while."""
        limits = self._cluster.administrator.limits_spec
        self._set(limits, "maxSpoolBytes", event.args["bytes"], event)

    def _set(self, spec: dict[str, Any], name: str, value: object, event: Event) -> None:
        administrator = self._cluster.administrator
        spec[name] = value
        administrator.wish()

        def end() -> None:
            if spec.pop(name, None) is not None:
                administrator.wish()

        self._later(event.args["for_s"], end)
