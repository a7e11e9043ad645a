"""The shell around the core: observe, plan, record, perform, for one queue and its groups."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from partq.aio import Signal, cancel_and_wait
from partq.coordinator.balancer import Balancer, leased_address
from partq.coordinator.group.group_worker import GroupWorker
from partq.coordinator.group.queue_observation import QueueObservation, owners
from partq.coordinator.ports import (
    AddressBook,
    BrokerAdmin,
    MemberProcesses,
    RebalanceListener,
    RescaleListener,
    StorePorts,
    ViewListener,
)
from partq.coordinator.record_sync import RecordSync
from partq.coordinator.rescale.rescaler import Rescaler, RescaleTimes
from partq.coordinator.rules import (
    broker_rules,
    check_partition_count,
    group_rules,
    group_start,
    wanted_partition_count,
)
from partq.coordinator.state_reader import StateReader
from partq.coordinator.view import QueueView
from partq.core.group.planner import GroupRules, Planner, plan
from partq.core.layout import Layout
from partq.core.model import BrokerId, MemberId, Start
from partq.core.records import EventRecord, LeaseRecord
from partq.errors import PartqError, SettingsError, UnknownPartitionError, UnknownQueueError
from partq.wire.effective_specs import EffectiveSpec

RESYNC_S = 0.5
"""How often everything is looked at, whatever is heard. A look costs a few reads."""
MIN_GAP_S = 0.05
"""How far two looks are apart, however much is heard."""
LISTEN_S = 5.0
"""How long one call waits for events."""
SHOW_PATIENCE_S = 10.0
"""How long a broker that renews its lease may answer nothing before that is shown to people."""
CALL_LIMIT_S = 30.0
"""How long one look may take; each of its calls has its own time-out."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Group:
    born: int
    worker: GroupWorker
    task: asyncio.Task[None]


@dataclass(frozen=True, slots=True)
class _Loaded:
    layout: Layout
    generation: int
    """Of the queue's config."""
    queue: EffectiveSpec
    names: Sequence[str]
    """Of all groups."""
    groups: Mapping[str, EffectiveSpec]
    """The specs that there are."""
    births: Mapping[str, int]
    """When each of them was made: a group that was created again has another one."""
    silent: Collection[str]
    """Groups whose node of a Redis Cluster is silent, so it is unknown whether they have specs."""


class Coordinator:
    """Drives one queue; level-triggered: an event only makes it look sooner.

    Nothing of it lives on in this object that a next one could not read from the store and the
    brokers. Two at once do no harm: every call names epochs and attempt.
    """

    def __init__(
        self,
        *,
        namespace: str,
        queue: str,
        store: StorePorts,
        brokers: BrokerAdmin,
        member_processes: MemberProcesses,
        on_rebalance: RebalanceListener | None = None,
        on_view: ViewListener | None = None,
        address_of: AddressBook = leased_address,
        on_rescale: RescaleListener | None = None,
        planner: Planner = plan,
        rescale_times: RescaleTimes | None = None,
        resync_s: float = RESYNC_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._namespace = namespace
        self._queue = queue
        self._store = store
        self._brokers = brokers
        self._member_processes = member_processes
        self._on_rebalance = on_rebalance
        self._on_view = on_view
        self._planner = planner
        self._resync_s = resync_s
        self._clock = clock
        self._wake = Signal()
        self._groups: dict[str, _Group] = {}
        self._record_sync = RecordSync(store.partitions, store.seals, store.configs)
        self._balancer = Balancer(
            brokers,
            clock=clock,
            on_change=self._wake.set,
            on_missing=self._record_sync.forget,
            address_of=address_of,
        )
        self._states = StateReader(brokers)
        self._rescaler = Rescaler(
            queue,
            store,
            brokers,
            urls=lambda: self._balancer.urls,
            clock=clock,
            on_event=on_rescale,
            times=rescale_times,
        )
        self._has_seen_all = False
        self._heard_at: dict[BrokerId, float] = {}
        """When each living broker answered last, or was first seen."""
        self._rules: dict[str, GroupRules] = {}
        self._troubles: tuple[set[str], set[str]] = (set(), set())
        """What was logged in the last look, and in this one."""

    async def run(self) -> None:
        """Coordinate until cancelled; trouble is logged, and looked at again."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._listen(), name="coordinator events")
                tasks.create_task(self._look_forever(), name="coordinator looks")
        finally:
            await self.close()

    async def close(self) -> None:
        """End everything that is under way; `run` does it itself."""
        await self._keep_groups({})
        await self._balancer.close()
        await self._states.close()
        await self._rescaler.close()

    async def _look_forever(self) -> None:
        while True:
            self._wake.clear()
            began = self._clock()
            next_s = self._resync_s
            try:
                async with asyncio.timeout(CALL_LIMIT_S):
                    next_s = await self.look()
            except (PartqError, TimeoutError) as error:
                self._note(error)
            self._troubles = (self._troubles[1], set())
            await asyncio.sleep(max(0.0, began + MIN_GAP_S - self._clock()))
            await self._wake.wait_at_most(next_s)

    async def look(self) -> float:
        """Look at everything once and start what is to be done.

        Returns:
            When to look again at the latest, in seconds.

        Raises:
            PartqError: the store did not answer; what was started continues.
        """
        loaded = await self._load()
        if loaded is None:
            await self._keep_groups({})
            return self._resync_s
        loaded = self._with_possible_count(loaded)
        layout = await self._plan_rescale(loaded)
        partitions = layout.all_partitions()
        rules, starts = self._read_rules(loaded)
        if set(loaded.names) == starts.keys():
            # Else some spec is missing or broken: no cursor is removed on a guess.
            try:
                await self._record_sync.sync(layout, starts, loaded.generation)
            except UnknownPartitionError:
                self._rescaler.doubt()
                raise
            if self._record_sync.is_layout_behind:
                self._rescaler.doubt()
        index = await self._store.leases.read()
        living = self._balancer.observe(index)
        states = await self._states.read(living)
        seen_at = self._clock()
        is_complete = bool(living) and states.keys() == living.keys()
        queue = QueueObservation(
            partitions=partitions,
            states=states,
            is_complete=is_complete,
            succession=layout.succession(),
            slots=(
                {partition: layout.first_slots(partition) for partition in partitions}
                if any(each.parts for each in rules.values())
                else {}
            ),
            prepared=frozenset(layout.next.lineage if layout.next is not None else ()),
            retired=frozenset(layout.retired),
        )
        await self._keep_groups(self._births(loaded, rules))
        # No plan before every living broker was seen once: a failed list is not an empty list.
        self._has_seen_all = self._has_seen_all or is_complete
        if self._has_seen_all:
            await self._look_at_groups(queue, rules, loaded.silent)
        workers = [group.worker for group in self._groups.values()]
        is_quiet = self._has_seen_all and all(worker.is_quiet for worker in workers)
        self._balancer.step(queue, index, broker_rules(loaded.queue), is_quiet=is_quiet)
        leases = {broker: index.leases[broker] for broker in living}
        layout = await self._advance_rescale(layout, queue, leases, loaded.names)
        self._show(queue, living, layout)
        # What they wait for is counted from when the brokers told its age, not from now.
        looked_at = [
            group.worker for name, group in self._groups.items() if name not in loaded.silent
        ]
        waits_ms = [worker.next_ms for worker in looked_at if worker.next_ms is not None]
        spent_s = self._clock() - seen_at
        return min([self._resync_s, *(max(0.0, ms / 1000 - spent_s) for ms in waits_ms)])

    def wake(self) -> None:
        """Look again soon: something outside of store and brokers has changed."""
        self._wake.set()

    def rebalance_now(self, group: str) -> bool:
        """Move what can move without any delay, once; False: the group is not known yet."""
        known = self._groups.get(group)
        if known is not None:
            known.worker.rebalance_now()
        return known is not None

    def _with_possible_count(self, loaded: _Loaded) -> _Loaded:
        """Leave the partition count as it is if a group would have too many parts with another."""
        try:
            check_partition_count(loaded.queue, loaded.groups)
        except SettingsError as error:
            self._note(error, "partition count: ")
            count = loaded.layout.partition_count
            return replace(loaded, queue={**loaded.queue, "partitions": count})
        return loaded

    async def _plan_rescale(self, loaded: _Loaded) -> Layout:
        """Begin or abort a change of the partition count; its trouble holds up nothing else."""
        try:
            return await self._rescaler.plan(loaded.layout, wanted_partition_count(loaded.queue))
        except PartqError as error:
            self._note(error, "partition count: ")
            return loaded.layout

    async def _advance_rescale(
        self,
        layout: Layout,
        queue: QueueObservation,
        leases: Mapping[BrokerId, LeaseRecord],
        named: Collection[str],
    ) -> Layout:
        """Take the next steps of changes of the partition count, as `_plan_rescale` does."""
        try:
            unfit = self._record_sync.unfit
            return await self._rescaler.advance(layout, queue, leases, named, unfit)
        except PartqError as error:
            self._note(error, "partition count: ")
            return layout

    def _show(
        self, queue: QueueObservation, living: Mapping[BrokerId, str], layout: Layout
    ) -> None:
        if self._on_view is None or self._is_waiting_for_answers(queue, living):
            return
        views = {name: group.worker.view for name, group in self._groups.items()}
        self._on_view(
            QueueView(
                partitions=[each for each in queue.partitions if each not in queue.prepared],
                owners={
                    partition: broker
                    for partition, (broker, _) in owners(queue).items()
                    if partition not in queue.prepared
                },
                brokers={broker: broker in queue.states for broker in living},
                groups={name: view for name, view in views.items() if view is not None},
                is_quota_used_up=any(each.is_quota_used_up for each in queue.states.values()),
                layout=layout,
            )
        )

    def _is_waiting_for_answers(
        self, queue: QueueObservation, living: Collection[BrokerId]
    ) -> bool:
        """Whether a living broker has not answered and may only be late.

        Until its lease is over, or it has been silent for too long, what was shown last stays.
        """
        now = self._clock()
        self._heard_at = {
            broker: now if broker in queue.states else self._heard_at.get(broker, now)
            for broker in living
        }
        return any(
            broker not in queue.states and now - heard_at < SHOW_PATIENCE_S
            for broker, heard_at in self._heard_at.items()
        )

    async def _load(self) -> _Loaded | None:
        """Read layout and specs; None: there is no queue, or it is being deleted."""
        layouts, configs = self._store.layouts, self._store.configs
        try:
            stored, config = await asyncio.gather(layouts.read(), configs.read_queue())
        except UnknownQueueError:
            return None
        if stored.tombstone or config is None:
            return None
        read = await configs.read_reachable_groups(config.groups)
        found = {group: spec for group, spec in read.items() if spec is not None}
        return _Loaded(
            stored.layout,
            config.resource_generation,
            config.spec,
            config.groups,
            groups={group: spec.spec for group, spec in found.items()},
            births={group: spec.born for group, spec in found.items()},
            silent=set(config.groups) - read.keys(),
        )

    def _read_rules(self, loaded: _Loaded) -> tuple[dict[str, GroupRules], dict[str, Start]]:
        """Read what the specs say; a group whose spec is broken continues under its last rules."""
        starts: dict[str, Start] = {}
        for group, spec in loaded.groups.items():
            try:
                self._rules[group] = group_rules(loaded.queue, spec)
                starts[group] = group_start(spec)
            except SettingsError as error:
                self._note(error, f"group {group}: ")
        for group in sorted(loaded.silent):
            self._note(
                "its node of Redis does not answer: it stays as it is, and the others go on",
                f"group {group}: ",
            )
        self._rules = {name: self._rules[name] for name in loaded.names if name in self._rules}
        return self._rules, starts

    def _births(self, loaded: _Loaded, rules: Collection[str]) -> dict[str, int]:
        """Return the groups that are to have a worker; a silent one keeps the one that it has."""
        births = {name: loaded.births.get(name, 0) for name in rules if name not in loaded.silent}
        kept = {name: self._groups[name].born for name in loaded.silent if name in self._groups}
        return births | kept

    async def _keep_groups(self, wanted: Mapping[str, int]) -> None:
        """Have a worker for each group that there is, by name and birth, and none for others."""
        for name in [*self._groups]:
            if wanted.get(name) != self._groups[name].born:
                group = self._groups.pop(name)
                await cancel_and_wait(group.task)
        for name, born in wanted.items():
            if name not in self._groups:
                worker = GroupWorker(
                    name,
                    store=self._store,
                    brokers=self._brokers,
                    member_processes=self._member_processes,
                    url_of=self._balancer.url_of,
                    clock=self._clock,
                    on_change=self._wake.set,
                    on_rebalance=self._on_rebalance,
                    planner=self._planner,
                )
                task = asyncio.create_task(worker.run(), name=f"handoffs {name}")
                self._groups[name] = _Group(born, worker, task)

    async def _look_at_groups(
        self, queue: QueueObservation, rules: Mapping[str, GroupRules], silent: Collection[str]
    ) -> None:
        """Look at all groups but the silent ones; the trouble of one is not the others'."""
        names = [name for name in self._groups if name not in silent]
        results = await asyncio.gather(
            *(self._groups[name].worker.look(queue, rules[name]) for name in names),
            return_exceptions=True,
        )
        for name, result in zip(names, results, strict=True):
            if isinstance(result, PartqError):
                self._note(result, f"group {name}: ")
            elif isinstance(result, BaseException):
                raise result
            if self._groups[name].task.done():
                self._groups[name].task.result()

    # ---- events ---------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Look sooner when something happens to this queue; list at once who asks."""
        last_id = ""
        while True:
            try:
                last_id, events = await self._store.events.wait(last_id, LISTEN_S)
            except PartqError as error:
                self._note(error)
                await asyncio.sleep(self._resync_s)
                continue
            mine = [event for event in events if self._is_mine(event)]
            await asyncio.gather(*(self._admit(event) for event in mine if event.kind == "ask"))
            if mine:
                self._wake.set()

    def _is_mine(self, event: EventRecord) -> bool:
        fields = event.fields
        return (fields.get("namespace"), fields.get("queue")) == (self._namespace, self._queue)

    async def _admit(self, event: EventRecord) -> None:
        group = self._groups.get(event.fields.get("group", ""))
        member = event.fields.get("member", "")
        if group is None or not member:
            return
        try:
            await group.worker.admit(MemberId(member), event.fields.get("address", ""))
        except PartqError as error:
            self._note(error)  # it asks again

    def _note(self, error: BaseException | str, where: str = "") -> None:
        """Log trouble once, not with every look."""
        trouble = f"{where}{error!r}" if not str(error) else f"{where}{error}"
        before, now = self._troubles
        if trouble not in before | now:
            _log.warning("queue %s: %s", self._queue, trouble)
        now.add(trouble)
