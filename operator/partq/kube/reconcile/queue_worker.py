"""Reconciles one queue: makes the cluster match the resources, and reports status.

Level-triggered: on any event it looks at everything again. It holds no state that a successor
could not read again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import Final, TypeVar

from partq.aio import Backoff, Signal
from partq.coordinator.view import QueueView
from partq.core.group.records import RebalanceRecord
from partq.core.layout import RescaleRecord
from partq.core.rescale.layout_steps import RescaleEvent
from partq.core.views.rescale_status import RescalePhase
from partq.errors import PartqError, StoreUnavailableError, UnknownQueueError
from partq.kube import names
from partq.kube.api import pod_path, queues_path
from partq.kube.bodies import Body
from partq.kube.member_pods import MemberPods
from partq.kube.names import ConditionReason, ConditionType, EventReason, QueueKey
from partq.kube.objects import broker_tls, deletion, queue_place
from partq.kube.objects.apply import Applier
from partq.kube.objects.broker_pods import BrokerPlan, objects, unwanted
from partq.kube.objects.credentials import QueueCredentials, read_access, read_redis_url
from partq.kube.ports import QueueStore
from partq.kube.reconcile.advice_watch import AdviceWatch
from partq.kube.reconcile.context import Context
from partq.kube.reconcile.coordinator_host import CoordinatorHost
from partq.kube.reconcile.groups import Groups
from partq.kube.reconcile.reporter import Reporter
from partq.kube.reconcile.rescale_watch import RescaleWatch, event_of
from partq.kube.reconcile.status_loop import StatusLoop, bodies_of
from partq.kube.reconcile.troubles import trouble
from partq.kube.status.conditions import Finding, bad
from partq.kube.status.event_diff import PendingEvent
from partq.kube.status.facts import Durability, QueueFacts
from partq.kube.status.shortage_watch import ShortageWatch
from partq.kube.watch import parse
from partq.resources import PartitionedQueue, dead_letter_queues

RESYNC_S = 5.0
"""How often everything is looked at without any event."""
LIMIT_S = 90.0
"""How long one look may take; each of its calls has its own time-out."""
MIN_GAP_S = 0.2
FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 30.0
ACCESS_S = 30.0
"""How long Secrets are relied on without reading them again."""
MEASURE_S = 30.0
"""How often lag, sessions and Redis's settings are looked at."""

T = TypeVar("T")
_log = logging.getLogger(__name__)


class QueueWorker:
    """Serves one queue and its groups until `run` is cancelled."""

    def __init__(self, context: Context, key: QueueKey) -> None:
        self.key = key
        self._context = context
        self._wake = Signal()
        self._groups = Groups(context.cache, key)
        self._member_pods = MemberPods(
            context.cache,
            key.namespace,
            policy_of=self._groups.policy_of,
            delay_s_of=self._groups.delay_s_of,
            clock=context.clock,
        )
        self._host = CoordinatorHost(
            context,
            key,
            self._member_pods,
            on_view=self._apply_view,
            on_rebalance=self._count,
            on_rescale=self._tell_rescale,
        )
        self._reporter = Reporter(context, key, self._member_pods)
        self.statuses: Final = StatusLoop(
            context, key, reporter=self._reporter, groups=self._groups, facts_of=self._facts
        )
        self._applier = Applier(context.api, context.clock)
        self._deletion: deletion.Deletion | None = None
        self._model: PartitionedQueue | None = None
        """The last spec that was valid."""
        self._troubles: dict[str, Finding] = {}
        self._access: QueueCredentials | None = None
        self._access_of: tuple[float, object] = (float("-inf"), None)
        self._is_provisioned = self._is_applied = False
        self._partition_count: int | None = None
        self._rescale = RescaleWatch()
        self._advice = AdviceWatch()
        self._recorded: PartitionedQueue | None = None
        """The spec in the store, in force until the resource has a valid one."""
        self._durability: Durability | None = None
        self._measured_at = float("-inf")
        self._view: QueueView | None = None
        self._patience = ShortageWatch(context.clock())

    @property
    def troubles(self) -> Collection[Finding]:
        """The last error of each part of the work that has not succeeded since."""
        return self._troubles.values()

    def notice(self) -> None:
        """Look again soon."""
        self._wake.set()
        self.statuses.wake()
        self._host.wake()

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._work(), name=f"work {self.key}")
                tasks.create_task(self.statuses.run(), name=f"statuses {self.key}")
        finally:
            await self._host.close()

    # ---- work -----------------------------------------------------------------------------------

    async def _work(self) -> None:
        backoff = Backoff(FIRST_BACKOFF_S, MAX_BACKOFF_S)
        while True:
            self._wake.clear()
            began = self._context.clock()
            is_done = await self.look()
            self._context.metrics.reconciled(self._context.clock() - began, is_done=is_done)
            await asyncio.sleep(MIN_GAP_S if is_done else FIRST_BACKOFF_S)
            if is_done:
                backoff.reset()
            await self._wake.wait_at_most(RESYNC_S if is_done else backoff.next_s())

    async def look(self) -> bool:
        """Look at everything once; False: something did not succeed."""
        judged: Collection[Body] = bodies_of(self._context.cache, self.key)
        try:
            async with asyncio.timeout(LIMIT_S):
                if not await self._reconcile():
                    judged = ()
        except (PartqError, TimeoutError) as error:
            self._note("look", error)
        except Exception as error:  # noqa: BLE001 - one queue's mistake must not end the others'
            _log.exception("the look at queue %s has failed", self.key)
            self._note("look", error)
        else:
            self._troubles.pop("look", None)
        self.statuses.note_look(judged)
        return not self._troubles

    async def _reconcile(self) -> bool:
        """Bring objects and records in line with the resources; False: it is paused or ends."""
        body = self._context.cache.queue(self.key)
        if body is None:
            await self._forget()
        elif parse.is_deleting(body):
            await self._delete(body)
        elif parse.is_on(body, names.PAUSE):
            self._deletion = None
            await self._host.pause()
            return False
        else:
            self._deletion = None
            held = await self._step("finalizer", lambda: deletion.hold(self._context.api, body))
            if not held:  # a queue that goes without it leaves what is made, and its name
                return held is None
            await self._serve(body)
        return True

    async def _serve(self, body: Body) -> None:
        self._model = await self._step("spec", lambda: self._read(body)) or self._model
        known = self._model or (parse.whereabouts(body) if parse.was_served(body) else None)
        if known is None:
            return
        access = await self._step("access", lambda: self._read_access(known, body))
        if access is None:
            return  # a store and brokers that run continue
        uid = store_uid(body)
        store = await self._step("store", lambda: self._host.store(access.redis_url, uid))
        if store is not None:
            await self._step("records", lambda: self._provision(store, body, access))
        if (model := self._model) is not None:
            await self._step("partitions", lambda: self._groups.check_partition_count(model))
            await self._step("objects", lambda: self._apply(model, body, access))
            await self._step("dead letters", lambda: self._make_dead_letter_queues(model, body))
        if store is not None and self._is_provisioned:
            await self._host.coordinate(access.admin_token, access.ca_pem)
            self._groups.hurry(self._host.rebalance_now)
            await self._step("rescale", lambda: self._watch_rescale(store, body))
            await self._step("measure", lambda: self._measure(store))
            await self._step("pods", self._verify_pods)

    async def _step(self, name: str, work: Callable[[], Awaitable[T]]) -> T | None:
        """Do one part of the work; an error is noted, and the other parts continue."""
        try:
            result = await work()
        except (PartqError, TimeoutError) as error:
            self._note(name, error)
            return None
        self._troubles.pop(name, None)
        return result

    def _note(self, part: str, error: BaseException) -> None:
        self._troubles[part] = trouble(self.key, part, error, self._access)

    async def _read(self, body: Body) -> PartitionedQueue:
        return parse.queue(body)

    async def _read_access(self, model: PartitionedQueue, body: Body) -> QueueCredentials:
        now, generation = self._context.clock(), int(body["metadata"].get("generation", 0))
        groups = frozenset(self._context.cache.groups(self.key))
        read_at, read_for = self._access_of
        asked = generation, groups, parse.annotation(body, names.REDIS)
        if self._access is None or now - read_at >= ACCESS_S or asked != read_for:
            uid, settings = body["metadata"]["uid"], self._context.settings
            url, hosts = settings.redis_url, settings.redis_host_list
            access = await read_access(self._context.api, model, uid, url, groups, hosts=hosts)
            self._access = await self._at_its_place(access, body)
            self._access_of = now, asked
        return self._access

    async def _at_its_place(self, access: QueueCredentials, body: Body) -> QueueCredentials:
        """Return the access to the queue's records: a changed URL is reported and ignored."""
        url, refusal = await queue_place.usable_url(
            self._context.api, self.key, body, access.redis_url
        )
        self._troubles.pop("redis", None)
        if refusal is not None:
            self._note("redis", refusal)
        return replace(access, redis_url=url)

    async def _provision(self, store: QueueStore, body: Body, access: QueueCredentials) -> None:
        await queue_place.refuse_loss(store, self.key, body, access.redis_url)
        model = self._model
        if model is None:
            recorded = await store.records.configs.read_queue()
            if recorded is None:
                return
            model = self._recorded = parse.recorded_queue(body, recorded.spec)
        is_paused = parse.is_on(body, names.PAUSE_REBALANCE)
        self._partition_count = await self._groups.provision(
            store,
            model,
            store_uid(body),
            queue_uid=str(body["metadata"]["uid"]),
            is_paused=is_paused,
        )
        self._is_provisioned = True

    async def _apply(self, model: PartitionedQueue, body: Body, access: QueueCredentials) -> None:
        settings, uid = self._context.settings, body["metadata"]["uid"]
        plan = BrokerPlan(
            queue=model,
            operator=names.operator_label(settings.pod_namespace, settings.lease_name),
            owner_uid=uid,
            store_uid=store_uid(body),
            redis_url=access.redis_url,
            tokens_secret=access.tokens_secret,
            image=settings.broker_image,
            image_pull_policy=settings.broker_image_pull_policy,
            key_prefix=settings.key_prefix,
            log_level=settings.broker_log_level,
            has_fixed_user=settings.broker_user == "fixed",
            network_policy=settings.broker_network_policy,
            server_version=self._context.server_version,
        )
        is_new = await self._applier.apply(objects(plan), uid, unwanted=unwanted(plan))
        self._is_applied = True
        if is_new:
            note = PendingEvent(
                EventReason.UPDATED, "brokers, Services and policies are as specified"
            )
            self._reporter.tell(body, "PartitionedQueue", note)

    async def _make_dead_letter_queues(self, model: PartitionedQueue, body: Body) -> None:
        """Make those that groups ask for and are not there; what is there is never changed."""
        namespace = self.key.namespace
        for name in self._groups.dead_letter_queues:
            if self._context.cache.queue(QueueKey(namespace, name)) is not None:
                continue
            made = dead_letter_queues.body_of(name, model)
            if await self._context.api.create(queues_path(namespace), made) is not None:
                text = f"PartitionedQueue {name} is made for dead letters"
                note = PendingEvent(EventReason.DEAD_LETTER_QUEUE_CREATED, text)
                self._reporter.tell(body, "PartitionedQueue", note)

    async def _measure(self, store: QueueStore) -> None:
        now = self._context.clock()
        if now - self._measured_at < MEASURE_S or self._view is None:
            return
        self._durability = await store.durability()
        await self._groups.measure(store, self._view)
        self._measured_at = now
        self._advise()

    def _advise(self) -> None:
        """Look which number of partitions is to be advised."""
        model, change, view = self._model or self._recorded, self._rescale.status, self._view
        if model is None or view is None or self._partition_count is None:
            return
        if change is not None and change.phase not in (RescalePhase.SETTLED, RescalePhase.ABORTED):
            self._advice.forget_samples()
        else:
            policy, groups = model.spec.partitions_policy, self._groups.sample(view)
            self._advice.add(groups, self._partition_count, policy, self._context.now())
        if (advice := self._advice.advice) is not None:
            self._context.metrics.observe_advice(*self.key, advice.partitions)

    async def _watch_rescale(self, store: QueueStore, body: Body) -> None:
        """Look how far a change of the number of partitions has come."""
        model = self._model or self._recorded
        if model is None or self._view is None:
            return
        try:
            notes = await self._rescale.look(
                store.ports,
                store.partitions,
                wanted_count=model.spec.partitions,
                groups=self._groups.names,
                brokers=self._view.brokers,
                now_ms=round(self._context.now().timestamp() * 1000),
            )
        except UnknownQueueError:
            return  # of a store that has lost it, the step that makes its records tells
        status = self._rescale.status
        self._context.metrics.observe_rescale(
            *self.key,
            phase=str(status.phase) if status is not None else None,
            retired_bytes=self._rescale.retired_bytes,
        )
        for note in notes:
            self._reporter.tell(body, "PartitionedQueue", note)

    async def _tell_rescale(
        self, event: RescaleEvent, change: RescaleRecord, *, pause_ms: int | None
    ) -> None:
        """Write an Event about a step that the coordinator has taken, and look how far it is."""
        if (body := self._context.cache.queue(self.key)) is not None:
            self._reporter.tell(body, "PartitionedQueue", event_of(event, change, pause_ms))
        self._wake.set()

    async def _verify_pods(self) -> None:
        """Look again at the pods of lost members: a watch that was broken misses deletions."""
        for pod in self._groups.doubtful_pods(self._view, self._member_pods):
            found = await self._context.api.get(pod_path(pod.namespace, pod.name))
            if found is None or found["metadata"]["uid"] != pod.uid:
                self._context.cache.drop_pod(pod)
            else:
                self._context.cache.put_pod(parse.pod(found))

    async def _count(self, group: str, rebalance: RebalanceRecord) -> None:
        self._context.metrics.rebalanced(
            (*self.key, group),
            rebalance.trigger,
            moved=rebalance.moved,
            pause_ms=rebalance.longest_pause_ms,
        )

    # ---- the end --------------------------------------------------------------------------------

    async def _delete(self, body: Body) -> None:
        if names.FINALIZER not in (body["metadata"].get("finalizers") or ()):
            await self._forget()
            return
        await self._host.pause()
        if self._deletion is None:
            self._deletion = deletion.Deletion(
                self._context.api, self._context.cache, self.key, self._context.clock
            )
        valid = await self._step("spec", lambda: self._read(body))
        model = valid or self._model or parse.whereabouts(body)
        keeps_data = model is not None and model.spec.deletion_policy == "Retain"
        store = await self._step("store", lambda: self._store_at_the_end(model, body))
        is_over = await self._deletion.step(
            body,
            store,
            keeps_data=keeps_data,
            tell=lambda note: self._reporter.tell(body, "PartitionedQueue", note),
        )
        if is_over:
            await self._forget()
        else:
            self._wake_later()

    async def _store_at_the_end(self, model: PartitionedQueue | None, body: Body) -> QueueStore:
        """Open the store of a queue that goes; its tokens may be gone, or never have been there."""
        if self._access is not None:
            url = self._access.redis_url
        elif model is not None:
            api, settings = self._context.api, self._context.settings
            url = await read_redis_url(api, model, settings.redis_url, settings.redis_host_list)
            url, _ = await queue_place.usable_url(api, self.key, body, url)
        else:
            raise StoreUnavailableError(
                "the spec does not say where the store is; correct the spec"
            )
        return await self._host.store(url, store_uid(body))

    def _wake_later(self) -> None:
        asyncio.get_running_loop().call_later(FIRST_BACKOFF_S, self._wake.set)

    async def _forget(self) -> None:
        await self._host.close()
        self._model = self._recorded = self._access = self._view = self._durability = None
        self._partition_count, self._is_provisioned, self._is_applied = None, False, False
        self._rescale, self._advice = RescaleWatch(), AdviceWatch()
        self._troubles.clear()
        self._context.metrics.forget(*self.key)
        self._context.costs.forget(self.key)

    # ---- report ---------------------------------------------------------------------------------

    def _apply_view(self, view: QueueView) -> None:
        if view != self._view:
            self._view = view
            self._patience.note(view)
            self.statuses.wake()
            self._context.costs.note(self.key, self._groups.held_counts(view, self._member_pods))

    def _facts(self, body: Body, generation: int) -> QueueFacts:
        self._advice.recall(body)
        troubles = {each.type: each for each in self._troubles.values()}
        if parse.is_deleting(body):
            text = "brokers and data are being removed"
            finding = bad(ConditionType.OBJECTS_APPLIED, ConditionReason.DELETING, text)
            troubles = {finding.type: finding, **troubles}
        pods, model = self._context.cache.brokers(self.key), self._model or self._recorded
        partitions = (body.get("status") or {}).get("partitions") or {}
        facts = QueueFacts(
            key=self.key,
            generation=generation,
            troubles=troubles,
            is_applied=self._is_applied,
            is_provisioned=self._is_provisioned,
            partition_count=self._partition_count,
            rescale=self._rescale.status,
            advice=self._advice.advice,
            advised_since=self._advice.since,
            desired_brokers=model.spec.brokers.replicas if model else 0,
            ready_pods=sum(pod.is_ready and not pod.is_terminating for pod in pods),
            durability=self._durability,
            view=self._view,
            group_count=len(self._context.cache.groups(self.key)),
            scheme=broker_tls.scheme(self._model) if self._model else "http",
            is_paused=parse.is_on(body, names.PAUSE),
            is_rebalance_paused=parse.is_on(body, names.PAUSE_REBALANCE),
            tokens_secret=self._access.tokens_secret if self._access else None,
            store_uid=store_uid(body),
            store=queue_place.place_of(self._access.redis_url)
            if self._access is not None and self._is_provisioned
            else queue_place.recorded_place(body),
            is_store_ephemeral=self._context.settings.redis_storage == "ephemeral"
            and (model is None or model.spec.redis is None),
        )
        has_served = bool(partitions.get("ready"))
        return self._patience.judge(facts, has_served=has_served, now=self._context.clock())


def store_uid(body: Body) -> str:
    """Return what the queue's keys in Redis are named by: the first 8 of its uid."""
    return str(body["metadata"]["uid"])[:8]
