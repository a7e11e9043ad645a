"""A simulated cluster: Redis, brokers, a coordinator, pods, a producer, and what befalls them."""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final

from partq.broker.delivery.flow_liveness import PULL_LEASE_S
from partq.client.producer import Producer
from partq.core.group.observation import MemberFact
from partq.core.group.planner import GroupType
from partq.core.hashing import slot_of
from partq.core.layout import Layout
from partq.core.model import MemberId, PartitionId
from partq.errors import PartqError
from partq.lab.simulate.health import is_steady
from partq.lab.simulate.judges import KEY_COUNT, MAX_BATCH_COUNT, make_oracle, set_judges
from partq.lab.simulate.machine.loop import Process, SimLoop
from partq.lab.simulate.machine.memory_redis import MemoryRedis
from partq.lab.simulate.machine.network import OUTSIDE, Network, Weather
from partq.lab.simulate.machine.stored import NAME as REDIS
from partq.lab.simulate.machine.stored import MakeMemory, SimRedisServer
from partq.lab.simulate.oracle.facts import GROUP, SECOND
from partq.lab.simulate.oracle.fault_windows import SILENCE_S
from partq.lab.simulate.oracle.letters import TARGET as LETTER_PARTITION
from partq.lab.simulate.oracle.movement import Movement
from partq.lab.simulate.oracle.records import Records
from partq.lab.simulate.processes.administrator import Administrator
from partq.lab.simulate.processes.brokers import QUEUE, TARGET, BrokerProcess
from partq.lab.simulate.processes.chooser import Chooser
from partq.lab.simulate.processes.clerks import Clerks
from partq.lab.simulate.processes.clients import DELIVERY_TIMEOUT_S, Application, connect_by
from partq.lab.simulate.processes.coordinators import (
    KEYS,
    LETTER_KEYS,
    CoordinatorProcess,
    ObservedPods,
)
from partq.lab.simulate.processes.mishaps import Mishaps
from partq.lab.simulate.processes.pulling import PullingApplication
from partq.lab.simulate.schedule import Setting
from partq.path_names import quoted
from partq.wire import batch
from partq.wire.calls import body_codec

RELEASE_GAP_S: Final = 1.0
"""Seconds between two releases of what waits for one."""
RESTART_S: Final = 0.5
"""How long a process that has ended by itself is not there."""
CLAIM_GAP_S: Final = 0.05
TRY_ON: Final = frozenset({"not_owner", "stale_generation", "unknown_partition"})
"""Answers to a message after which it is tried at the next broker: it is not stored."""
WATCH_LAG_S: Final = 0.2
"""How long the coordinator hears of a pod after it happened, at most."""
SIGTERM_S: Final = 0.25
"""How long after a pod was deleted in a rollout its processes are told: the kubelet's share."""
SLOWNESS: Final = 3.0
"""Of the second group: how many times as long it works on a message."""
GONE_S: Final = 3.0
"""How long after its end a pod is still known; one that pulls, for as long as it seems bound."""


SimApplication = Application | PullingApplication | Clerks


class SimPod:
    """A pod with one container, which may live more than once."""

    def __init__(self, name: MemberId, group: str, *, is_pulling: bool) -> None:
        self.name = name
        self.group = group
        self.is_pulling = is_pulling
        """It consumes by HTTP pull."""
        self.process: Process | None = None
        self.application: SimApplication | None = None
        self.chooser: Chooser | None = None
        """What registers partitions for it, in a client-assigned group."""
        self.is_leaving = False


class SimCluster:
    """Makes and ends processes; every change of the cluster is one of these methods."""

    def __init__(
        self, setting: Setting, rng: random.Random, make_memory: MakeMemory = MemoryRedis
    ) -> None:
        self.setting = setting
        self.rng = rng
        self.loop = SimLoop()  # type: ignore[abstract]  # what nothing here uses is missing
        self.network = Network(self.loop, rng)
        self.redis = SimRedisServer(self.loop, self.network, rng, make_memory)
        self.loop.network, self.loop.redis = self.network, self.redis
        self.administrator = Administrator(setting)
        self.watcher = make_oracle(self.loop, rng, setting)
        self.troubles = self.watcher.troubles
        no_limits = dict.fromkeys(self.administrator.groups)
        self.records = Records(
            self.redis.memory,
            KEYS,
            LETTER_KEYS,
            Layout.first(setting.partition_count).partitions(),
            # What was taken for an answer that was lost counts, and nobody sees it.
            self.administrator.limits if not setting.pull_share else no_limits,
            self.watcher.fail,
            self.loop.time,
            self.redis.time,
        )
        self.movement = Movement(
            self.records,
            setting.group_type,
            self.watcher.fail,
            partial(is_steady, self),
            setting.priority_of,
        )
        self.watcher.follow(self.records, self.movement)
        set_judges(self.watcher, setting, self.administrator.limits)
        self.redis.on_script = self.records.follow
        self.broker_names = [f"broker-{index}" for index in range(setting.broker_count)]
        self.all_brokers = [*self.broker_names, *([TARGET] if setting.has_letters else [])]
        """Those of the queue, and the one of the queue that its dead letters go to."""
        # Where a key waits for a message that fails too often, it succeeds in the end.
        ends_bad = setting.has_letters and setting.on_exhausted != "Block"
        self.mishaps = Mishaps(self.administrator.limits if ends_bad else {})
        self.urls = ",".join(f"http://{name}" for name in self.broker_names)
        self.brokers: dict[str, BrokerProcess] = {}
        self.pods: dict[MemberId, SimPod] = {}
        self.pod_facts = ObservedPods(is_aware=setting.is_aware)
        self.coordinators: dict[CoordinatorProcess, Process] = {}
        self._heard_at: dict[MemberId, float] = {}
        """When the last news of each pod arrive."""
        self.may_unregister = True
        """Pods that choose their partitions give some back, now and then."""
        self._work_s = setting.work_s
        self._pod_count = 0
        self._message_count = 0
        self._run_count = 0
        """How many times the producer was told to send messages, one behind the other."""
        self.unanswered: set[int] = set()
        """Messages that the producer has taken, and not confirmed or given up."""
        self._producer: Producer | None = None

    # ---- the start ------------------------------------------------------------------------------

    def begin(self) -> None:
        """Make the queue, and start everything."""
        with_loop(self.loop, self._make_queue)
        self.loop.run_until(1.0, lambda: self.administrator.is_done)
        with_loop(self.loop, self._start_all)

    def _make_queue(self) -> None:
        self.process("administrator").start(self.administrator.run())
        self.administrator.wish()

    def _start_all(self) -> None:
        for name in self.all_brokers:
            self.start_broker(name)
        self.start_coordinator()
        for _ in range(self.setting.pod_count):
            self.start_pod()
        if self.setting.has_second:
            self.start_pod(group=SECOND)
        self.process("producer").start(self._produce())
        if self.setting.has_letters:
            self.process("administrator").start(self._claim_target())
        if self.records.held_keys.is_on:
            self.process("administrator").start(self._release_keys())

    async def _release_keys(self) -> None:
        """Release the keys that wait for that, from time to time."""
        while True:
            await asyncio.sleep(RELEASE_GAP_S)
            for name, partition, group, slot in [*self._held_keys()]:
                with suppress(OSError, TimeoutError, PartqError):
                    async with asyncio.timeout(RELEASE_GAP_S):
                        await self.network.call(
                            name, f"/groups/{quoted(group, 'group')}/release", (partition, slot)
                        )

    def _held_keys(self) -> Iterator[tuple[str, PartitionId, str, int]]:
        for name, process in self.brokers.items():
            owned = process.broker.owned if process.broker is not None else {}
            for partition, each in owned.items():
                for group, consumed in each.groups.items():
                    lanes = consumed.lanes
                    for slot in lanes.held_lanes if lanes is not None else ():
                        yield name, partition, group, slot

    async def _claim_target(self) -> None:
        """Give the queue of dead letters its broker, which no coordinator does here."""
        body = body_codec.encode({"partitions": [str(LETTER_PARTITION)]})
        while True:
            with suppress(OSError):
                answer = await self.network.call(TARGET, "/claim", body)
                if "error" not in answer:
                    return
            await asyncio.sleep(CLAIM_GAP_S)

    def process(self, name: str) -> Process:
        """Begin a process."""
        return Process(self.loop, name)

    def later(self, delay_s: float, work: Callable[[], None]) -> None:
        """Do something after a time, whatever stands still then."""
        self.loop.at(self.loop.time() + delay_s, work)

    def _kill(self, process: Process, *, is_silent: bool = False) -> None:
        self.network.disconnect(process, is_silent=is_silent)
        process.end()

    # ---- brokers --------------------------------------------------------------------------------

    def start_broker(self, name: str) -> None:
        """Start a broker; a life that still continues ends."""
        self.troubles.hit(name)
        older = self.brokers.get(name)
        if older is not None:
            self._kill(older.process)
        process = self.process(name)
        life = BrokerProcess(
            name,
            process,
            self.watcher,
            self.loop.time,
            LETTER_KEYS if name == TARGET else KEYS,
            self._broker_failed,
        )
        self.brokers[name] = life
        self.network.ports[name] = process, life
        process.start(life.run())

    def _broker_failed(self, life: BrokerProcess) -> None:
        """Start a broker again whose process has ended by itself."""
        if self.brokers.get(life.name) is life:
            self.later(RESTART_S, partial(self._restart_broker, life))

    def _restart_broker(self, life: BrokerProcess) -> None:
        if self.brokers.get(life.name) is life:
            self.start_broker(life.name)

    def kill_broker(self, name: str, *, is_silent: bool) -> None:
        """Kill a broker; silently, as when its node is gone."""
        life = self.brokers.pop(name, None)
        if life is not None:
            self._kill(life.process, is_silent=is_silent)

    # ---- pods -----------------------------------------------------------------------------------

    def start_pod(self, fact: MemberFact = MemberFact.EXISTS, *, group: str = GROUP) -> SimPod:
        """Start a pod under a new name; `fact`: what the coordinator hears of it."""
        self._pod_count += 1
        is_pulling = group == GROUP and self.rng.random() < self.setting.pull_share
        name = f"{'pod' if group == GROUP else group}-{self._pod_count}"
        pod = SimPod(MemberId(name), group, is_pulling=is_pulling)
        self.pods[pod.name] = pod
        self.inform(pod.name, fact)
        self.start_container(pod)
        return pod

    def start_container(self, pod: SimPod) -> None:
        """Start the container of a pod, again or for the first time."""
        if self.pods.get(pod.name) is not pod or pod.process is not None:
            return
        self.troubles.hit(pod.name)
        process = pod.process = self.process(pod.name)
        pod.application = self._application(pod, process)
        if pod.is_leaving:
            pod.application.leave()
        process.start(pod.application.run())
        if self.setting.is_client_assigned and pod.group == GROUP:
            chooser = pod.chooser = self._chooser(pod)
            chooser.is_leaving = pod.is_leaving
            process.start(chooser.run())

    def _chooser(self, pod: SimPod) -> Chooser:
        application = pod.application
        return Chooser(
            pod.name,
            self.broker_names,
            self.rng,
            incarnation=lambda: application.incarnation if application is not None else None,
            may_unregister=lambda: self.may_unregister,
        )

    def _application(self, pod: SimPod, process: Process) -> SimApplication:
        watcher, rng = self.watcher, self.rng
        work_s = self._work_s * (SLOWNESS if pod.group == SECOND else 1.0)
        on_exit = partial(self._pod_has_left, pod)
        priority = self.setting.priority_of(pod.name)
        if pod.is_pulling:
            return PullingApplication(
                pod.name, self.broker_names, watcher, rng, on_exit, work_s, priority
            )
        if pod.group == GROUP and self.setting.group_type is GroupType.SESSION:
            return Clerks(
                pod.name, self.urls, watcher, self.mishaps, rng, self.loop.time, process, on_exit,
                work_s, has_states=self.setting.has_states,
            )  # fmt: skip
        return Application(
            pod.group,
            pod.name,
            self.urls,
            watcher,
            self.mishaps,
            rng,
            self.loop.time,
            on_exit,
            work_s,
            priority,
            self.setting.has_states,
        )

    def kill_container(self, pod: SimPod, *, is_silent: bool = False) -> None:
        """Kill the process of a pod."""
        self.troubles.hit(pod.name, linger_s=SILENCE_S if is_silent else 0.0)
        process, pod.process = pod.process, None
        pod.application = None
        if process is not None:
            self._kill(process, is_silent=is_silent)

    def end_pod(self, pod: SimPod, grace_s: float) -> None:
        """Delete a pod: SIGTERM at once, and a kill after its grace period."""
        self.replace_pod(pod, grace_s, MemberFact.IS_TERMINATING, sigterm_s=0.0)

    def replace_pod(
        self,
        pod: SimPod,
        grace_s: float,
        fact: MemberFact = MemberFact.IS_BEING_REPLACED,
        *,
        sigterm_s: float = SIGTERM_S,
    ) -> None:
        """Delete a pod in a rollout; the coordinator hears of that before the pod does."""
        pod.is_leaving = True
        self.troubles.hit(pod.name, grace_s)
        self.inform(pod.name, fact)
        self.later(sigterm_s, partial(self._leave, pod))
        self.later(grace_s, partial(self.remove_pod, pod))

    def _leave(self, pod: SimPod) -> None:
        if pod.chooser is not None:
            pod.chooser.is_leaving = True
        if pod.application is not None:
            pod.application.leave()

    def remove_pod(self, pod: SimPod, *, is_silent: bool = False, is_known: bool = True) -> None:
        """Let a pod be gone for good; `is_known`: and the coordinator hears that."""
        if self.pods.get(pod.name) is not pod:
            return
        self.kill_container(pod, is_silent=is_silent)
        del self.pods[pod.name]
        self.inform(pod.name, MemberFact.IS_GONE_FOR_GOOD if is_known else None)
        known_s = PULL_LEASE_S if pod.is_pulling else GONE_S
        self.later(known_s, lambda: self.inform(pod.name, None))

    def hurry(self) -> None:
        """Let applications work without a rest: nothing more happens that it could meet."""
        self._work_s = 0.0
        for pod in self.pods.values():
            if pod.application is not None:
                pod.application.work_s = 0.0

    def _pod_has_left(self, pod: SimPod) -> None:
        self.later(0.0, lambda: self.remove_pod(pod))

    def inform(self, name: MemberId, fact: MemberFact | None) -> None:
        """Let the coordinator hear of a pod, some time later; None: that nothing is known."""

        def arrive() -> None:
            if fact is None:
                self.pod_facts.known.pop(name, None)
            else:
                self.pod_facts.known[name] = fact
            for life in self.coordinators:
                if life.coordinator is not None:
                    life.coordinator.wake()

        # News of one pod keep their order.
        at = max(self._heard_at.get(name, 0.0), self.loop.time() + self.rng.uniform(0, WATCH_LAG_S))
        self._heard_at[name] = at
        self.loop.at(at, arrive)

    # ---- coordinators ---------------------------------------------------------------------------

    def start_coordinator(self) -> None:
        """Start a coordinator beside those that there are."""
        process = self.process("coordinator")
        life = CoordinatorProcess(
            self.pod_facts, self.loop.time, self.records.plans.heard, self.movement.plan
        )
        self.coordinators[life] = process
        process.start(life.run())

    def kill_coordinators(self, *, keep: int = 0) -> None:
        """Kill all but the newest ones."""
        lives = list(self.coordinators)
        for life in lives[: len(lives) - keep]:
            self._kill(self.coordinators.pop(life))

    # ---- messages -------------------------------------------------------------------------------

    async def _produce(self) -> None:
        made = Producer(
            self.urls,
            queue=QUEUE,
            linger_ms=2,
            max_batch_count=MAX_BATCH_COUNT,
            delivery_timeout_s=DELIVERY_TIMEOUT_S,
            clock=self.loop.time,
        )
        connect_by(made, self.urls)
        async with made as producer:
            self._producer = producer
            await self.loop.create_future()

    def publish(self, count: int, gap_s: float) -> None:
        """Have the producer send some messages, with a time between two of them."""
        producer = self._producer
        if producer is not None:
            self.process("producer").start(self._send(producer, count, gap_s))

    async def _send(self, producer: Producer, count: int, gap_s: float) -> None:
        self._run_count += 1
        run = self._run_count
        for _ in range(count):
            message = self._next_message()
            self.records.numbered.add(message)
            self.records.rescales.sources[message] = run
            key = f"k{self.rng.randrange(KEY_COUNT)}"
            self.unanswered.add(message)
            answer = await producer.send(b"%d" % message, key=key)
            answer.add_done_callback(partial(self._answered, message))
            await asyncio.sleep(gap_s)

    def _answered(self, message: int, answer: asyncio.Future[Any]) -> None:
        self.unanswered.discard(message)
        if not answer.cancelled() and answer.exception() is None:
            self.watcher.confirmed[message] = self.loop.time()

    def post(self, count: int, *, is_bad: bool = False) -> None:
        """Publish some messages without numbers, as plain HTTP does.

        `is_bad`: no application gets them done.
        """
        for _ in range(count):
            message = self._next_message()
            if is_bad:
                self.mishaps.bad.add(message)
            self.process("poster").start(self._post(message))

    async def _post(self, message: int) -> None:
        key = f"k{self.rng.randrange(KEY_COUNT)}"
        data = batch.encode(
            [batch.encode_message(batch.Message(key, b"%d" % message))], [slot_of(key)]
        )
        for name in [*self.broker_names]:
            # The layout as it is stored now. A broker may still have an older one.
            layout = self.records.rescales.layout
            if layout is None:
                return
            with suppress(PartqError, OSError):
                async with asyncio.timeout(5.0):
                    call = (layout.partition_for(key), data)
                    answer = await self.network.call(name, "/post", call)
                if isinstance(answer, int):
                    self.watcher.confirmed[message] = self.loop.time()
                    return
                if answer["error"]["code"] not in TRY_ON:
                    return

    def _next_message(self) -> int:
        self._message_count += 1
        return self._message_count


def with_loop(loop: SimLoop, work: Callable[[], Any]) -> None:
    """Do something inside of a loop, now."""
    loop.call_soon(work, context=OUTSIDE)
    loop.run_until(loop.time())


__all__ = ["REDIS", "SimCluster", "SimPod", "Weather", "with_loop"]
