"""One broker process of a queue: joins lease, claims, partitions, flows and flushes."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

from partq.aio import Signal, TaskSet
from partq.broker.config import QueueConfig, dead_letters_of, redelivery_of
from partq.broker.config_refresher import ConfigRefresher
from partq.broker.dead_letters.forwarder import DeadLetterForwarder
from partq.broker.delivery.acks import AckHandler
from partq.broker.delivery.cursor_writer import CursorWriter
from partq.broker.delivery.decode_check import DecodeCheck
from partq.broker.delivery.delivery_waits import DeliveryWaits
from partq.broker.delivery.expected_returns import return_s_of
from partq.broker.delivery.flow_registry import FlowRegistry
from partq.broker.delivery.handoff_executor import HandoffExecutor
from partq.broker.delivery.log_fetcher import LogFetcher
from partq.broker.intake import BatchIntake
from partq.broker.log.buffers import Buffers
from partq.broker.log.holders import Holders
from partq.broker.log.known_ids import KnownIds
from partq.broker.log.quota import StorageQuota
from partq.broker.order_changes import OrderChanges
from partq.broker.ownership.claims import Claims
from partq.broker.ownership.clock import boot_time, wall_time
from partq.broker.ownership.lease import LeaseKeeper
from partq.broker.ownership.owned_partitions import OwnedPartitions
from partq.broker.partition import mended
from partq.broker.partition.books import Books
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.broker.partition.owned_partition import OwnedPartition
from partq.broker.parts.part_executor import PartExecutor
from partq.broker.rescale.carry_over import CarryOver
from partq.broker.rescale.layout_follower import LayoutFollower
from partq.broker.retention.audit_backlog import AuditBacklog
from partq.broker.retention.expiry import Expiry
from partq.broker.retention.periodic_work import LOOK_GAP_S, look_at_times, work_periodically
from partq.broker.retention.retention import Retention
from partq.broker.retention.trimmer import Trimmer
from partq.broker.schedule.backlog import ScheduledBacklog
from partq.broker.schedule.enqueuer import Enqueuer
from partq.broker.sessions.session_acceptor import SessionAcceptor
from partq.core.layout import Layout
from partq.core.model import BrokerId, Cause, PartitionId
from partq.core.samples.waits import WaitCounts
from partq.errors import (
    NotOwnerError,
    PartqError,
    UnavailableError,
    UnknownQueueError,
)
from partq.metrics import BrokerMetrics
from partq.settings import BrokerSettings
from partq.store.connection import IsLost, Store
from partq.store.key_states import KeyStates
from partq.store.keys import Keys
from partq.store.message_ids import IdRecords
from partq.store.records.audit import Audits
from partq.store.records.configs import Configs
from partq.store.records.dead_letters import Outboxes, Replays
from partq.store.records.events import Events
from partq.store.records.layout.layouts import Layouts
from partq.store.records.layout.seals import Seals
from partq.store.records.leases import Leases
from partq.store.records.log import Log
from partq.store.records.members import Members
from partq.store.records.part_records import PartRecords
from partq.store.records.partitions import Partitions
from partq.store.records.pins import Pins
from partq.store.schedule.scheduled_entries import ScheduledEntries

_log = logging.getLogger(__name__)


class Broker:
    """Owns partitions, stores what is published to them and delivers it."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        *,
        url: str,
        clock: Callable[[], float] = boot_time,
        wall_clock: Callable[[], float] = wall_time,
    ) -> None:
        keys = Keys(settings.key_prefix, settings.namespace, settings.queue, settings.queue_uid)
        self.settings, self.store, self.keys = settings, store, keys
        self.id = BrokerId(settings.broker_id)
        self.incarnation = secrets.token_hex(8)
        self.url, self.clock, self.wall_clock = url, clock, wall_clock
        self.metrics = BrokerMetrics(settings.queue, settings.namespace)
        self.layouts, self.configs = Layouts(store, keys), Configs(store, keys)
        self.log, self.pins = Log(store, keys), Pins(store, keys)
        self.replays, self.leases = Replays(store, keys), Leases(store, keys)
        self.partitions, self.audits = Partitions(store, keys), Audits(store, keys)
        self._config: QueueConfig | None = None
        self._tasks, self._is_closing = TaskSet(self._task_failed), False
        self.keyless_turns = count(1)
        """One for each message without a key that HTTP publishes, under RoundRobin."""
        self.peer_token = ""
        """By which brokers of other queues of this Redis know themselves here; empty: not read."""
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Ends with the error that the process cannot continue with."""
        self.drain_signal = Signal()
        """Wakes calls that wait for a drain: a member released messages, or a book was stored."""
        self._make_ownership()
        self._make_delivery()
        rules_of = self.flow_registry.rules_of
        self.sessions = SessionAcceptor(self, self._known_layout, rules_of, self._spawn)
        self._make_retention_and_handoffs()
        intake = BatchIntake(
            self.id,
            config=lambda: self.config,
            find=self.find,
            lease=self.lease,
            metrics=self.metrics,
            wall_clock=wall_clock,
            judged_ms=lambda partition: self.expiry.clocks.judged_ms(partition),
        )
        self.publish = intake.publish
        self.enqueuer = Enqueuer.of(self, self.expiry.clocks, self._known_layout, self._spawn)
        self.scheduled_backlog = ScheduledBacklog(
            *(self.owned, ScheduledEntries(store, self.keys)),
            now_ms=self.expiry.clocks.estimate_ms,
            clock=self.clock,
            metrics=self.metrics,
        )

    def _make_ownership(self) -> None:
        """Make what says which partitions are this broker's, and for how long."""
        settings, store = self.settings, self.store
        self.quota = StorageQuota(
            store,
            self.partitions,
            self.leases,
            broker=self.id,
            config=lambda: self._config,
            living=lambda: self.claims.observer.living(self.clock()),
            holders=Holders(
                lambda: self.ownership.unacknowledged(),
                self.clock,
                lambda: self.scheduled_backlog.size_bytes,
            ),
            metrics=self.metrics,
        )
        self.buffers = Buffers(pending_bytes=settings.pending_bytes, tail_bytes=settings.tail_bytes)
        self.append_waits = WaitCounts()
        """From the arrival of a batch to the answer of its append; each as its oldest one."""
        self.known_ids = KnownIds(
            IdRecords(store, self.keys),
            Seals(store, self.keys),
            lambda: self._config,
            self.clock,
        )
        self.ownership = OwnedPartitions(
            self.partitions,
            self.log,
            self.known_ids,
            broker=self.id,
            incarnation=self.incarnation,
            clock=self.clock,
            buffers=self.buffers,
            quota=self.quota,
            audits=self.audits,
            append_waits=self.append_waits,
            wants_audit=lambda: self.config.audit,
            on_claimed=self._claimed,
            settle_acks=self._empty,
            learn_time=lambda: self.expiry.clocks.observe(),
            make_book=Books(
                lambda group: self._config.redelivery.get(group) if self._config else None,
                lambda partition: self.expiry.clocks.estimate_ms(partition),
                self.clock,
            ).make,
            spawn=self._spawn,
        )
        self.owned = self.ownership.owned
        self.layout_follower = LayoutFollower(
            *(Seals(store, self.keys), KeyStates(store, self.keys), self.ownership),
            layout=self._known_layout,
            clock=self.clock,
            on_pause=self.metrics.rescale_paused,
            spawn=self._spawn,
        )
        self.carry_over = CarryOver(self.owned, self.log, Seals(store, self.keys))
        self.delivery_waits = DeliveryWaits(self.owned, self.clock)
        self.lease = LeaseKeeper(
            self.leases,
            broker=self.id,
            incarnation=self.incarnation,
            ttl_s=settings.lease_ttl_s,
            url=self.url,
            clock=self.clock,
            on_lapsed=self.ownership.affirm,
            on_valid=lambda: self.flow_registry.wake_all(),
            on_stuck=store.leave_connections,
        )
        self.claims = Claims(
            self.leases,
            self.partitions,
            broker=self.id,
            clock=self.clock,
            owned=self.owned.keys,
            all_partitions=self._served,
            claim=self.ownership.claim,
            is_valid=lambda: self.lease.is_valid and not self._is_closing,
            ttl_s=settings.lease_ttl_s,
        )

    def _make_delivery(self) -> None:
        """Make what brings messages to members, and takes their acks, or ends them otherwise."""
        store, keys, owned = self.store, self.keys, self.owned
        self.log_fetcher = LogFetcher(
            owned,
            self.log,
            max_bytes=self.settings.read_ahead_bytes,
            clock=self.clock,
            on_lost=self.ownership.lose_group,
        )
        self.cursor_writer = CursorWriter(
            self.partitions,
            on_lost=self.ownership.lose_group,
            drain_signal=self.drain_signal,
            read_ms=lambda partition: self.expiry.clocks.read_ms(partition),
            clock=self.clock,
        )
        check = DecodeCheck(self.log)
        self.ack_handler = AckHandler(
            owned=owned,
            layout=self._known_layout,
            cursor_writer=self.cursor_writer,
            clock=self.clock,
            rules=lambda group: redelivery_of(self._config, group),
            check=check,
            park=lambda consumed, ranges: self.dead_letters.park(consumed, ranges),
            make_letters=lambda *letters: self.dead_letters.make(*letters),
            spawn=self._spawn,
            metrics=self.metrics,
            drain_signal=self.drain_signal,
            key_states=KeyStates(store, keys),
            leases=self.claims.seen_living,
        )
        self.dead_letters = DeadLetterForwarder(
            *(Outboxes(store, keys), self.log, keys),
            check=check,
            cursor_writer=self.cursor_writer,
            clock=self.clock,
            rules=lambda group: dead_letters_of(self._config, group),
            on_lost=self.ownership.lose_group,
            spawn=self._spawn,
            metrics=self.metrics,
        )
        self.expiry = Expiry(
            owned,
            store,
            self.log,
            config=lambda: self.config,
            clock=self.clock,
            wall_clock=self.wall_clock,
            letter_forwarder=self.dead_letters,
            cursor_writer=self.cursor_writer,
            spawn=self._spawn,
            metrics=self.metrics,
        )
        self.part_executor = PartExecutor(
            PartRecords(store, keys),
            clock=self.clock,
            layout=self._known_layout,
            log_end=lambda partition: owned[partition].tail.end if partition in owned else 0,
            rules=lambda group: redelivery_of(self._config, group),
            find_flow=lambda group, member: self.flow_registry.find(group, member),
            on_lost=self.ownership.lose_group,
        )
        self.flow_registry = FlowRegistry(
            owned=self.owned,
            partitions=self.partitions,
            members=Members(store, keys),
            events=Events(store, keys),
            cursor_writer=self.cursor_writer,
            batch_finder=self.log_fetcher,
            expiry_check=self.expiry,
            clock=self.clock,
            max_unacked=lambda: self.config.max_unacked_per_flow,
            type_of=lambda group: self.config.types.get(group, ""),
            rules_of=lambda group: redelivery_of(self._config, group),
            parts=self.part_executor,
            return_s_of=lambda group: return_s_of(self.config, group),
            on_partition_lost=self.ownership.lose_group,
        )

    def _known_layout(self) -> Layout | None:
        return self._config.layout if self._config and not self._refresher.is_void else None

    def _make_retention_and_handoffs(self) -> None:
        """Make what trims logs, hands partitions over and reads the queue's config again."""
        self.audit_backlog = AuditBacklog(
            self.owned, self.partitions, quota=self.quota, metrics=self.metrics
        )
        kept = Retention(lambda: self._config, self.expiry.clocks, self.quota)
        self.trimmer = Trimmer(
            *(self.owned, self.log, kept, self.known_ids, self.metrics),
            groups=lambda: self._config.groups if self._config is not None else frozenset(),
            on_lost=self.ownership.lose,
            spawn=self._spawn,
        )
        self.handoffs = HandoffExecutor(
            self.partitions,
            self.cursor_writer,
            clock=self.clock,
            find_flow=self.flow_registry.find,
            on_lost=self.ownership.lose_group,
        )
        self._refresher = ConfigRefresher(
            self.layouts,
            self.configs,
            self.leases,
            self.partitions,
            ownership=self.ownership,
            flow_registry=self.flow_registry,
            dead_letters=self.dead_letters,
            learn=self._learn,
            refresh_owners=lambda: self.claims.refresh(),
            order_changes=OrderChanges(
                self.flow_registry, self.cursor_writer, self._spawn, self.claims.seen_living
            ),
            log=self.log,
            spawn=self._spawn,
        )

    # ---- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to renew the lease, to watch and to claim."""
        self.store.on_restart.append(self._store_restarted)
        for name, work in (
            ("lease", self.lease.run()),
            ("claims", self.claims.run()),
            ("cursor writer", self.cursor_writer.run()),
            ("periodic work", self._work_periodically()),
            ("partition opener", self.layout_follower.opener.run()),
            ("expiry", look_at_times(self.flow_registry, self.ack_handler)),
            ("gates", self.layout_follower.gatekeeper.run()),
        ):
            self._spawn(work, name)

    async def close(self) -> None:
        """Give up every partition in order, so that others claim them at once."""
        self._is_closing = True
        await self.ownership.close(self.claims.successor)
        await self.flow_registry.close()
        await self._tasks.close()
        await self.log_fetcher.close()
        try:
            await self.leases.release(self.id, self.incarnation)
        except PartqError as error:
            _log.warning("the lease could not be released: %s", error)

    @property
    def config(self) -> QueueConfig:
        """The queue's config.

        Raises:
            UnavailableError: they were not read yet. That is no word about the queue: a broker
                that has just started says so, too, and clients have to try again.
            UnknownQueueError: the queue is being deleted.
        """
        if self._config is None:
            raise UnavailableError(
                f"queue {self.settings.queue}: this broker has not read its layout yet; ask again",
                retry_after_s=LOOK_GAP_S,
            )
        if self._config.is_deleted:
            raise UnknownQueueError(f"queue {self.settings.queue}: being deleted; end this client")
        return self._config

    @property
    def is_ready(self) -> bool:
        """Whether the broker knows its queue, and its lease is valid."""
        return self._config is not None and self.lease.is_valid and not self._is_closing

    @property
    def trouble(self) -> str:
        """Why only another process in its place helps; empty: no reason."""
        return "a task has failed" if self.failed.done() else self.lease.trouble

    # ---- publishing -----------------------------------------------------------------------------

    def find(self, partition: PartitionId) -> OwnedPartition:
        """Return an owned partition.

        Raises:
            UnknownPartitionError: the layout does not have it.
            NotOwnerError: another broker owns it, or none.
        """
        owned = self.owned.get(partition)
        if owned is not None and not owned.is_yielding:
            return owned
        if partition not in self.config.layout:
            raise self.config.layout.unknown(partition)
        raise NotOwnerError(
            f"partition {partition}: not owned by {self.id}; read /layout for its broker"
        )

    # ---- owning ---------------------------------------------------------------------------------

    def _served(self) -> tuple[PartitionId, ...]:
        """Return the partitions that some broker is to own."""
        config = self._config
        return () if config is None or config.is_deleted else config.layout.all_partitions()

    def _store_restarted(self, is_lost: IsLost) -> None:
        if is_lost(self.keys.layout()):
            self._refresher.forget()
            self.layout_follower.gatekeeper.notice()
        self.ownership.drop_after_restart(lambda partition: is_lost(self.keys.meta(partition)))

    def _claimed(self, owned: OwnedPartition) -> None:
        mended.tell(owned, self.metrics)
        self.dead_letters.watch(owned)
        self.flow_registry.bind_later(owned)
        self.claims.owners[owned.id] = self.id
        self._spawn(self.claims.record_own(owned.id), f"record {owned.id}")
        self.layout_follower.follow_one(owned)  # before its first append
        self.enqueuer.follow(owned)

    async def _empty(self, consumed: ConsumedPartition) -> None:
        """Take a partition from its flow, and wait until the group's book is stored."""
        self.flow_registry.unbind(consumed, Cause.BROKER_CHANGE)
        await self.cursor_writer.settle(consumed)
        await consumed.settle_audit()

    # ---- recurring work -------------------------------------------------------------------------

    def _learn(self, config: QueueConfig, peer_token: str) -> None:
        """Take the queue's config as it is now."""
        self._config, self.peer_token = config, peer_token
        if not config.is_deleted:
            self.layout_follower.follow()

    async def refresh(self) -> None:
        """Read the queue's config now; start the books of new groups, or end it all."""
        await self._refresher.refresh()

    def _work_periodically(self) -> Coroutine[Any, Any, None]:
        return work_periodically(
            lambda: self.refresh(),
            quota=self.quota,
            flow_registry=self.flow_registry,
            expiry=self.expiry,
            trimmer=self.trimmer,
            audit_backlog=self.audit_backlog,
            measure_scheduled=self.scheduled_backlog.measure,
            is_ready=lambda: self.is_ready,
        )

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.start(work, name)

    def _task_failed(self, task: asyncio.Task[None], error: BaseException) -> None:
        _log.error("%s failed: %s", task.get_name(), error, exc_info=error)
        if not self.failed.done():
            self.failed.set_exception(error)
