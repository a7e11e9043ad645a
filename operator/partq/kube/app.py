"""The operator process: connections, watches, leadership, workers, probes; and their end."""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from datetime import UTC, datetime

import aiohttp

from partq.aio import Signal, cancel_and_wait
from partq.errors import PartqError
from partq.kube.api import KubeApi
from partq.kube.events import EventRecorder
from partq.kube.health import HealthServer, ProcessHealth
from partq.kube.leader import Leader
from partq.kube.objects.broker_addresses import PodResolver
from partq.kube.objects.deletion_cost import DeletionCosts
from partq.kube.ports import OpenStore
from partq.kube.reconcile.context import Context
from partq.kube.reconcile.workers import Workers
from partq.kube.watch.object_cache import ObjectCache
from partq.kube.watch.relist import Relister
from partq.kube.watch.watches import Watches
from partq.operator_metrics import OperatorMetrics
from partq.settings import OperatorSettings

LIST_S = 30.0
"""How often everything is listed beside the watches."""
RETRY_S = 2.0
BROKER_CONNECTIONS = 256

_log = logging.getLogger(__name__)


class Operator:
    """One replica. `open_store` opens the store of a queue."""

    def __init__(self, settings: OperatorSettings, open_store: OpenStore) -> None:
        self._settings = settings
        self._open_store = open_store
        self._workers = Workers()
        self._cache = ObjectCache(self._workers.notice)
        self._metrics = OperatorMetrics()
        self._health = ProcessHealth(time.monotonic)
        self._leads = asyncio.Event()
        self._stop = Signal()

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT, then give leadership back.

        Raises:
            SettingsError: a setting is unusable, or there is no way to the API server.
        """
        self._handle_signals()
        async with contextlib.AsyncExitStack() as stack:
            api = await KubeApi.open()
            stack.push_async_callback(api.close)
            server = HealthServer(
                self._health,
                lambda: self._render_metrics(api, leader),
                token=self._settings.metrics_token,
            )
            leader = self._leader(api)
            stack.push_async_callback(server.close)
            port = await server.start(self._settings.listen_host, self._settings.listen_port)
            _log.info("operator %s: probes and metrics at port %d", self._settings.pod_name, port)
            connector = aiohttp.TCPConnector(
                limit=BROKER_CONNECTIONS,
                resolver=PodResolver(self._cache),
                use_dns_cache=False,  # the view is at hand, and newer
            )
            session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
            await self._work(api, session, leader)

    def _leader(self, api: KubeApi) -> Leader:
        settings = self._settings
        return Leader(
            api,
            namespace=settings.pod_namespace,
            name=settings.lease_name,
            identity=settings.pod_name,
            clock=time.monotonic,
            now=lambda: datetime.now(UTC),
            on_change=self._leads.set,
            on_attempt=lambda: self._health.turn("leadership"),
        )

    async def _work(self, api: KubeApi, session: aiohttp.ClientSession, leader: Leader) -> None:
        lister = Relister(api, self._cache, self._settings.namespace_list, time.monotonic)
        version = await self._until_listed(api, lister)
        if version is None:
            return
        events = EventRecorder(
            api,
            instance=self._settings.pod_name,
            clock=time.monotonic,
            now=lambda: datetime.now(UTC),
        )
        costs = DeletionCosts(
            api, self._cache, is_leading=lambda: leader.is_leading, clock=time.monotonic
        )
        context = Context(
            settings=self._settings,
            api=api,
            cache=self._cache,
            events=events,
            metrics=self._metrics,
            costs=costs,
            session=session,
            open_store=self._open_store,
            is_leading=lambda: leader.is_leading,
            server_version=version,
        )
        watches = Watches(
            api, self._cache, self._settings.namespace_list, self._health, self._handle_signals
        )
        loops = {
            "watches": watches.run(),
            "lists": self._list(lister),
            "events": events.run(),
            "leadership watch": leader.watch(),
            "leadership": leader.run(),
        }
        if self._settings.pod_deletion_cost == "written":
            loops["deletion costs"] = costs.run()
        async with self._running(loops):
            await self._follow(leader, context)

    @contextlib.asynccontextmanager
    async def _running(
        self, loops: Mapping[str, Coroutine[object, object, None]]
    ) -> AsyncIterator[None]:
        """Run loops beside the block; when one ends, so does the block."""
        tasks = [asyncio.create_task(loop, name=name) for name, loop in loops.items()]
        for task in tasks:
            task.add_done_callback(lambda _: self._stop.set())
        try:
            yield
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            # The last one first: it gives leadership back while all else is still there.
            await cancel_and_wait(*reversed(tasks))

    async def _follow(self, leader: Leader, context: Context) -> None:
        """Run workers while this replica leads, until the process ends."""
        following = asyncio.create_task(
            self._workers.follow(context, lambda: leader.is_leading, self._leads)
        )
        following.add_done_callback(lambda _: self._stop.set())
        try:
            await self._stop.wait()
            if following.done():
                following.result()
        finally:
            await cancel_and_wait(following)

    async def _until_listed(self, api: KubeApi, lister: Relister) -> tuple[int, int] | None:
        """List everything once, however long it takes; None: the process ends meanwhile."""
        while not self._stop.is_set():
            try:
                version = await api.version()
                await lister.refresh()
            except PartqError as error:
                _log.warning("waiting for the cluster: %s", error)
                self._health.turn("lists")
                await self._stop.wait_at_most(RETRY_S)
            else:
                self._health.listed()
                return version
        return None

    async def _list(self, lister: Relister) -> None:
        while True:
            await asyncio.sleep(LIST_S)
            self._health.turn("lists")
            try:
                await lister.refresh()
                self._health.listed()
            except PartqError as error:
                _log.warning("the list of objects could not be read: %s", error)

    def _render_metrics(self, api: KubeApi, leader: Leader) -> bytes:
        self._metrics.observe_process(
            is_leading=leader.is_leading,
            queues=len(self._cache.queue_keys),
            calls=api.call_count,
            errors=api.error_count,
        )
        return self._metrics.render()

    def _handle_signals(self) -> None:
        """End at SIGTERM and SIGINT; kopf takes them for itself when it starts."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
