"""What a worker keeps open for its queue: the store, and the coordinator over it."""

import asyncio
import logging
from dataclasses import replace

from partq.aio import cancel_and_wait
from partq.coordinator.coordinator import Coordinator
from partq.coordinator.ports import RebalanceListener, RescaleListener, ViewListener
from partq.coordinator.rescale.rescaler import RescaleTimes
from partq.kube.member_pods import MemberPods
from partq.kube.names import QueueKey
from partq.kube.objects.broker_addresses import BrokerAddresses
from partq.kube.ports import QueueStore
from partq.kube.reconcile.context import Context, LeadersBrokerAdmin, LeadersTerms
from partq.wire.tls import trust

RESTART_S = 5.0
"""How long to wait after a coordinator has ended by a bug."""

_log = logging.getLogger(__name__)


class CoordinatorHost:
    """The store and the coordinator of one queue, opened again when URL, token or CA change."""

    def __init__(
        self,
        context: Context,
        key: QueueKey,
        member_pods: MemberPods,
        *,
        on_view: ViewListener,
        on_rebalance: RebalanceListener,
        on_rescale: RescaleListener,
    ) -> None:
        self._context = context
        self._key = key
        self._member_pods = member_pods
        self._on_view = on_view
        self._on_rebalance = on_rebalance
        self._on_rescale = on_rescale
        self._store: QueueStore | None = None
        self._opened_with: tuple[str, str] | None = None
        self._coordinator: Coordinator | None = None
        self._task: asyncio.Task[None] | None = None
        self._calls_with = ("", "")

    async def store(self, url: str, uid: str) -> QueueStore:
        """Return the open store at a URL.

        Raises:
            StoreUnavailableError: no answer.
            SettingsError: the server is not one that can be trusted with messages.
        """
        if self._opened_with != (url, uid):
            await self.close()
        if self._store is None:
            self._store = await self._context.open_store(url, self._key, uid)
            self._opened_with = (url, uid)
        return self._store

    async def coordinate(self, token: str, ca_pem: str) -> None:
        """Run a coordinator over the open store, which calls the brokers with this token.

        `ca_pem`: who may sign their certificates; empty: the system's CAs.
        """
        if self._store is None:
            return
        if self._calls_with != (token, ca_pem):
            await self.pause()
        if self._task is None or self._task.done():
            self._calls_with = (token, ca_pem)
            self._coordinator = self._make(self._store, token, ca_pem)
            name = f"coordinator {self._key}"
            self._task = asyncio.create_task(self._run(self._coordinator), name=name)

    def wake(self) -> None:
        """Let the coordinator look soon."""
        if self._coordinator is not None:
            self._coordinator.wake()

    def rebalance_now(self, group: str) -> bool:
        """Move what can move at once; False: the group is not known yet."""
        return self._coordinator is not None and self._coordinator.rebalance_now(group)

    async def pause(self) -> None:
        """End the coordinator; brokers and consumers continue."""
        await cancel_and_wait(self._task)
        self._task = self._coordinator = None

    async def close(self) -> None:
        """End the coordinator and close the store."""
        await self.pause()
        if self._store is not None:
            await self._store.close()
        self._store = self._opened_with = None

    def _make(self, store: QueueStore, token: str, ca_pem: str) -> Coordinator:
        context = self._context
        return Coordinator(
            namespace=self._key.namespace,
            queue=self._key.name,
            store=replace(store.ports, terms=LeadersTerms(store.ports.terms, context.is_leading)),
            brokers=LeadersBrokerAdmin(
                context.session,
                queue=self._key.name,
                token=token,
                trust=trust(ca_pem=ca_pem) if ca_pem else None,
                is_leading=context.is_leading,
            ),
            member_processes=self._member_pods,
            address_of=BrokerAddresses(context.cache, self._key),
            on_rebalance=self._on_rebalance,
            on_rescale=self._on_rescale,
            on_view=self._on_view,
            rescale_times=RescaleTimes(retire_after_s=context.settings.retire_after_s),
        )

    async def _run(self, coordinator: Coordinator) -> None:
        """Run a coordinator; one that ends by a bug is logged, and the worker starts another."""
        try:
            await coordinator.run()
        except Exception:  # noqa: BLE001 - one queue's mistake must not end the others'
            _log.exception("the coordinator of %s has ended", self._key)
            await asyncio.sleep(RESTART_S)
