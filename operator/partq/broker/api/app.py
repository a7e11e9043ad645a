"""Wires a broker: store, broker, routes, server; and runs it until told to stop."""

import asyncio
import logging
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from aiohttp import web

from partq.aio import UntilAnswered, cancel_and_wait
from partq.broker.api.app_keys import (
    BROKER,
    CALLS,
    GUARD,
    LOG_WAITS,
    MEMORY,
    PEERS,
    PLANS,
    PULLS,
    RATES,
    READS,
    STATUS,
    TOKENS,
)
from partq.broker.api.call_entry import routes
from partq.broker.api.endpoints import CallTable
from partq.broker.api.errors import error_response, errors_as_json
from partq.broker.api.frame_socket import SOCKETS, close_all
from partq.broker.api.log_waits import LogWaits
from partq.broker.api.openapi import DOCUMENT, ApiDocument
from partq.broker.api.owner_pulls import MAX_FORWARDED, OWNER_PULLS, OwnerPulls
from partq.broker.api.page import routes as page
from partq.broker.api.revocation import watch_tokens
from partq.broker.api.routes import (
    audit,
    browse,
    coordinator_calls,
    dead_letters,
    entries,
    flow,
    info,
    members,
    pins,
    positions,
    publish_http,
    publish_socket,
    pull,
    removal,
    replay,
    reset,
)
from partq.broker.api.routes.administration import (
    key_states,
    parked_keys,
    partition_count,
    scheduled,
)
from partq.broker.api.routes.assignment import registration, subscribable
from partq.broker.api.routes.sessions import accepts, views
from partq.broker.api.shared_status import SharedStatus
from partq.broker.api.tokens import Tokens
from partq.broker.broker import Broker
from partq.broker.dead_letters.remote_queue import RemoteQueues
from partq.broker.operations.entries import READS_AT_ONCE
from partq.broker.operations.pull.pulls import Pulls
from partq.broker.operations.rates import RateSampler
from partq.broker.peers.peer_client import PeerClient
from partq.broker.peers.tls import BrokerTls
from partq.errors import SettingsError, StoreUnavailableError
from partq.server.guard import Guard
from partq.server.limits import ServerLimits, open_connections
from partq.server.memory import RequestMemory
from partq.server.runner import GuardedRunner
from partq.settings import BrokerSettings, QueueSettings
from partq.store.connection import Store
from partq.store.fail_point import FailPoint
from partq.store.retries import OPEN_RETRY_S

SHUTDOWN_TIMEOUT_S = 5.0
_PARTS = (
    audit,
    publish_socket,
    flow,
    publish_http,
    dead_letters,
    pull,
    browse,
    entries,
    positions,
    pins,
    members,
    registration,
    subscribable,
    info,
    coordinator_calls,
    replay,
    reset,
    removal,
    partition_count,
    parked_keys,
    key_states,
    scheduled,
    accepts,
    views,
    page,
)
CALLS_OF_ALL = tuple(part.calls for part in _PARTS)

_log = logging.getLogger(__name__)


def make_app(broker: Broker, tokens: Tokens, peers: PeerClient) -> web.Application:
    """Return the application that serves a broker."""
    app = web.Application(middlewares=[errors_as_json])
    app[BROKER] = broker
    app[TOKENS] = tokens
    memory = RequestMemory(broker.settings.request_memory_bytes, broker.metrics.overloaded)
    app[MEMORY] = memory
    app[PULLS] = Pulls(broker, memory)
    app[READS] = asyncio.Semaphore(READS_AT_ONCE)
    app[PLANS] = asyncio.Lock()
    app[LOG_WAITS] = LogWaits()
    app[STATUS] = SharedStatus(time.monotonic)
    app[RATES] = RateSampler(broker)
    app[PEERS] = peers
    app[OWNER_PULLS] = OwnerPulls(time.monotonic)
    app[SOCKETS] = set()
    app.on_startup.append(_join_queues)
    app.on_shutdown.append(close_all)
    app.on_shutdown.append(_end_log_waits)
    app.cleanup_ctx.append(watch_tokens)
    app.cleanup_ctx.append(_sample_rates)
    app.cleanup_ctx.append(_pull_at_owners)
    calls = app[CALLS] = CallTable(CALLS_OF_ALL)
    app[DOCUMENT] = ApiDocument(calls)
    app.add_routes(routes(calls))
    return app


async def _sample_rates(app: web.Application) -> AsyncIterator[None]:
    sampling = asyncio.create_task(app[RATES].run(), name="rates")
    yield
    await cancel_and_wait(sampling)


async def _pull_at_owners(app: web.Application) -> AsyncIterator[None]:
    """Connect pulls that wait at other brokers apart from all other calls: they take long."""
    async with PeerClient(app[PEERS].tls, max_connections=MAX_FORWARDED) as peers:
        app[OWNER_PULLS].connect(peers)
        yield


async def _end_log_waits(app: web.Application) -> None:
    app[LOG_WAITS].close()


def make_runner(app: web.Application) -> GuardedRunner:
    """Return what serves the application, within the bounds of the broker's settings."""
    broker = app[BROKER]
    settings, metrics = broker.settings, broker.metrics
    wanted = settings.max_connections
    limits = ServerLimits(
        max_connections=open_connections(wanted),
        max_connections_per_token=settings.max_connections_per_token,
        max_connections_per_address=settings.max_connections_per_address,
        headers_s=settings.headers_timeout_s,
        body_s=settings.body_timeout_s,
        answer_s=settings.answer_timeout_s,
        idle_s=settings.idle_timeout_s,
    )
    if limits.max_connections < wanted:
        _log.warning(
            "PARTQ_MAX_CONNECTIONS: %d connections instead of %d, as the process may open no more "
            "files (ulimit -n)",
            limits.max_connections,
            wanted,
        )
    guard = app[GUARD] = Guard(
        refuse=error_response,
        limits=limits,
        memory=app[MEMORY],
        on_cut=metrics.connection_cut,
    )
    return GuardedRunner(app, guard, shutdown_timeout=SHUTDOWN_TIMEOUT_S)


async def _join_queues(app: web.Application) -> None:
    """Let the broker call those of other queues, and know them when they call."""
    broker = app[BROKER]
    app[TOKENS].peer_token = lambda: broker.peer_token
    broker.dead_letters.connect(RemoteQueues(broker.store, broker.keys, app[PEERS]))


async def open_store(settings: QueueSettings, *, fail_point: FailPoint | None = None) -> Store:
    """Connect to Redis, waiting for it as long as it takes: pods start in any order.

    `fail_point` is for tests, as in `Store.open`.

    Raises:
        SettingsError: Redis answers, and is not one that can be trusted with messages.
    """
    until_answered = UntilAnswered(_log, OPEN_RETRY_S)
    while True:
        try:
            return await Store.open(
                settings.redis_url, prefix=settings.key_prefix, fail_point=fail_point
            )
        except StoreUnavailableError as error:
            await until_answered.failed("waiting for Redis: %s", error)


def open_tls(settings: BrokerSettings, *, clock: Callable[[], float]) -> BrokerTls | None:
    """Read the broker's certificate; None: it serves plain HTTP.

    Raises:
        SettingsError: it cannot be used, or the broker would send its callers to plain HTTP.
    """
    if settings.tls_dir is None:
        return None
    url = settings.advertised_url
    if url is not None and not url.startswith("https://"):
        raise SettingsError(
            f"PARTQ_ADVERTISED_URL: got {url!r}, expected https://, because PARTQ_TLS_DIR is set"
        )
    return BrokerTls(settings.tls_dir, clock=clock)


async def serve(settings: BrokerSettings, *, fail_point: FailPoint | None = None) -> None:
    """Run one broker until SIGTERM or SIGINT; `fail_point` is for tests, as in `Store.open`.

    Raises:
        SettingsError: a setting or Redis is unusable.
        FencedError: another process runs under this broker's name.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    tokens = Tokens(settings.tokens_file, clock=loop.time)
    tls = open_tls(settings, clock=loop.time)
    opening = asyncio.create_task(open_store(settings, fail_point=fail_point))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not opening.done():
        opening.cancel()
        return
    store = opening.result()
    try:
        await _serve(settings, store, tokens, tls, stop.wait)
    finally:
        stopping.cancel()
        await store.close()


async def _serve(
    settings: BrokerSettings,
    store: Store,
    tokens: Tokens,
    tls: BrokerTls | None,
    stopped: Callable[[], Coroutine[Any, Any, Any]],
) -> None:
    async with PeerClient(tls) as peers:
        # The socket is bound first: with port 0 its number is known only then.
        server = _socket(settings)
        host, port = server.getsockname()[:2]
        scheme = "http" if tls is None else "https"
        url = settings.advertised_url or f"{scheme}://{host}:{port}"
        broker = Broker(settings, store, url=url)
        runner = make_runner(make_app(broker, tokens, peers))
        await runner.setup()
        await web.SockSite(runner, server, ssl_context=tls.server if tls else None).start()
        broker.start()
        _log.info("broker %s serves %s at %s", broker.id, settings.queue, url)
        waiting = asyncio.create_task(stopped())
        try:
            ends: list[asyncio.Future[Any]] = [waiting, broker.failed]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if broker.failed.done():
                broker.failed.result()
        finally:
            waiting.cancel()
            await broker.close()
            await runner.cleanup()


def _socket(settings: BrokerSettings) -> socket.socket:
    address = (settings.listen_host, settings.listen_port)
    try:
        return socket.create_server(address, backlog=1024, reuse_port=False)
    except OSError as error:
        raise SettingsError(
            f"listen address {address[0]}:{address[1]}: {error.strerror}; choose another "
            "PARTQ_LISTEN_HOST or PARTQ_LISTEN_PORT"
        ) from error
