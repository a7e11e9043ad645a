"""Runs kopf: its watches, and nothing else of it, for as long as the operator runs."""

import asyncio
import logging
import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import kopf

from partq.aio import Backoff, cancel_and_wait
from partq.kube.api import KubeApi, is_in_cluster
from partq.kube.errors import KubernetesError
from partq.kube.health import ProcessHealth
from partq.kube.watch.handlers import register, register_nodes
from partq.kube.watch.object_cache import ObjectCache
from partq.logs import without_traces

FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 60.0
BEAT_S = 10.0
SERVER_TIMEOUT_S = 240  # a whole number: the API server takes no other
"""How long one watch lasts at most; a watch without an end can go deaf unnoticed."""

NODES_RETRY_S = 300.0
"""How long after a refusal the operator checks whether it may watch nodes."""

Scope = tuple[str, ...]
"""One namespace; none: the whole cluster."""
Handlers = Callable[[kopf.OperatorRegistry, ObjectCache], frozenset[str]]
"""Registers the handlers of events, and returns the kinds of these, by their plural names."""

_WATCHER = re.compile(r"watcher for (?P<kind>[^.]+)\..+@(?P<namespace>[^@]+)")
_log = logging.getLogger(__name__)


class Watches:
    """Passes changes to the cache; starts kopf again, after growing waits, when it has ended."""

    def __init__(
        self,
        api: KubeApi,
        cache: ObjectCache,
        namespaces: Sequence[str],
        health: ProcessHealth,
        on_started: Callable[[], None],
    ) -> None:
        """Take the cache to fill; `on_started` is called when kopf has taken SIGTERM and SIGINT."""
        self._api = api
        self._cache = cache
        self._scopes: list[Scope] = [(namespace,) for namespace in namespaces] or [()]
        self._health = health
        self._on_started = on_started

    async def run(self) -> None:
        """Watch until cancelled; a refusal in one namespace does not end the watches of others."""
        with without_traces(is_of_kopf):
            async with asyncio.TaskGroup() as tasks:
                for scope in self._scopes:
                    tasks.create_task(self._keep_watching(scope, register))
                tasks.create_task(self._watch_nodes())

    async def _watch_nodes(self) -> None:
        """Watch nodes where that is allowed; where it is not, say so once, and do without.

        Nodes have no namespace: an operator of some namespaces may have no right to watch them.
        """
        has_told = False
        while True:
            try:
                await self._api.get("/api/v1/nodes", limit="1")
            except KubernetesError as error:
                if error.status != 403:
                    await asyncio.sleep(FIRST_BACKOFF_S)
                    continue
                if not has_told:
                    _log.warning("cannot watch nodes; cordons and taints are ignored: %s", error)
                has_told = True
                await asyncio.sleep(NODES_RETRY_S)
            else:
                await self._keep_watching((), register_nodes)

    async def _keep_watching(self, scope: Scope, handlers: Handlers) -> None:
        backoff = Backoff(FIRST_BACKOFF_S, MAX_BACKOFF_S)
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._watch(scope, handlers)
            except Exception as error:  # noqa: BLE001 - kopf's own; the lists continue meanwhile
                _log.warning("the watches of %s have ended: %r", scope or "the cluster", error)
            if loop.time() - began > MAX_BACKOFF_S:
                backoff.reset()
            await asyncio.sleep(backoff.next_s())

    async def _watch(self, scope: Scope, handlers: Handlers) -> None:
        registry = kopf.OperatorRegistry()
        kinds = handlers(registry, self._cache)
        kopf.on.login(registry=registry)(log_in)

        # It would write a line for every change of every pod.
        logging.getLogger("kopf.objects").setLevel(logging.WARNING)
        tasks = await kopf.spawn_tasks(
            registry=registry,
            settings=settings(),
            standalone=True,
            clusterwide=not scope,
            namespaces=scope,
        )
        # From here on by hand: `kopf.operator` cancels every task of the loop when it ends, those
        # of our workers included.
        self._on_started()
        try:
            done: set[asyncio.Task[None]] = set()
            while not done:
                self._health.turn(f"watches {handlers.__name__} {' '.join(scope)}".strip())
                done, _ = await asyncio.wait(
                    tasks, timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED
                )
            for task in done:
                task.result()
        finally:
            await cancel_and_wait(*tasks)
            await cancel_and_wait(*_left_watchers(scope, kinds))


def _left_watchers(scope: Scope, kinds: Collection[str]) -> list[asyncio.Task[object]]:
    """Return the watches of a kopf that has ended through another of its watches.

    It leaves them: each waits for credentials without end, and holds up the end of the process.
    Tasks of kopf are known by their names alone.
    """
    namespace = scope[0] if scope else None
    return [
        task
        for task in asyncio.all_tasks()
        if (told := _WATCHER.fullmatch(task.get_name()))
        and told["kind"] in kinds
        and told["namespace"] == str(namespace)
    ]


def is_of_kopf(error: BaseException) -> bool:
    """Say whether it is an answer that kopf could not use.

    An API server that restarts says 404 to a watch before it knows our kinds again. kopf logs that
    twice, with its trace, and ends; `Watches` starts it again.
    """
    return type(error).__module__.startswith("kopf.")


def settings() -> kopf.OperatorSettings:
    """Return how kopf is to behave: every call bounded, nothing written by itself."""
    found = kopf.OperatorSettings()
    found.posting.enabled = False
    found.watching.server_timeout = SERVER_TIMEOUT_S
    found.watching.client_timeout = SERVER_TIMEOUT_S + 60
    found.watching.connect_timeout = 10
    found.networking.request_timeout = 30
    found.networking.connect_timeout = 10
    # Which namespaces and kinds there are is not watched: that would need rights in all of them.
    found.scanning.disabled = True
    found.process.ultimate_exiting_timeout = None
    return found


async def log_in(*, settings: kopf.OperatorSettings, **kwargs: Any) -> kopf.ConnectionInfo | None:
    """Return the credentials: the pod's service account, else the kubeconfig."""
    if not is_in_cluster(os.environ):
        return kopf.login_with_kubeconfig(settings=settings, **kwargs)
    found = kopf.login_with_service_account(settings=settings, **kwargs)
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    literal = f"[{host}]" if ":" in host else host
    # By address: the operator does not need the cluster's DNS to know the cluster.
    return replace(found, server=f"https://{literal}:{port}") if found is not None else None
