"""Joins store, brokers and coordinator for one queue and local processes."""

import asyncio
import logging
import signal
import ssl

import aiohttp

from partq.broker.api.app import open_store
from partq.coordinator.broker_api import HttpBrokerAdmin
from partq.coordinator.coordinator import Coordinator
from partq.coordinator.local_processes import LocalProcesses
from partq.coordinator.rescale.rescaler import RescaleTimes
from partq.embedded.store_ports import store_ports
from partq.errors import SettingsError
from partq.settings import CoordinatorSettings
from partq.store.fail_point import FailPoint
from partq.store.keys import Keys
from partq.wire.tls import trust

MAX_TOKEN_BYTES = 4096

log = logging.getLogger("partq.coordinator")


async def coordinate(settings: CoordinatorSettings, *, fail_point: FailPoint | None = None) -> None:
    """Run the coordinator of one queue, with local processes as members, until SIGTERM or SIGINT.

    `fail_point` is for tests, as in `Store.open`.

    Raises:
        SettingsError: a setting or Redis is unusable.
    """
    token = _read_token(settings)
    trusted = trust(ca_file=settings.ca_file)
    working = asyncio.create_task(
        _coordinate(settings, token, trusted, fail_point), name="coordinator"
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, working.cancel)
    try:
        await working
    except asyncio.CancelledError:
        log.info("coordinator of %s/%s ends", settings.namespace, settings.queue)


async def _coordinate(
    settings: CoordinatorSettings,
    token: str,
    trusted: ssl.SSLContext,
    fail_point: FailPoint | None,
) -> None:
    store = await open_store(settings, fail_point=fail_point)
    keys = Keys(store.prefix, settings.namespace, settings.queue, settings.queue_uid)
    try:
        async with aiohttp.ClientSession() as session:
            coordinator = Coordinator(
                namespace=settings.namespace,
                queue=settings.queue,
                store=store_ports(store, keys),
                brokers=HttpBrokerAdmin(session, queue=settings.queue, token=token, trust=trusted),
                member_processes=LocalProcesses(),
                rescale_times=RescaleTimes(retire_after_s=settings.retire_after_s),
            )
            log.info("coordinator of %s/%s begins", settings.namespace, settings.queue)
            await coordinator.run()
    finally:
        await store.close()


def _read_token(settings: CoordinatorSettings) -> str:
    try:
        with settings.token_file.open(encoding="ascii") as file:
            token = file.read(MAX_TOKEN_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"token file {settings.token_file}: {error}") from error
    if not token:
        raise SettingsError(f"token file {settings.token_file}: got nothing, expected a token")
    return token
