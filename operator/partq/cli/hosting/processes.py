"""`partq broker`, `coordinator`, `operator`: the processes of pods, set by the environment."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import click

from partq.logs import configure_logging
from partq.settings import BrokerSettings, CoordinatorSettings, OperatorSettings

_BROKER_HELP = """Run one broker of a queue until SIGTERM.

\b
Environment (all of it: docs/cli.md):
  PARTQ_QUEUE, PARTQ_QUEUE_UID, PARTQ_BROKER_ID, PARTQ_REDIS_URL, PARTQ_TOKENS_FILE   needed
  PARTQ_NAMESPACE, PARTQ_LISTEN_HOST, PARTQ_LISTEN_PORT, PARTQ_ADVERTISED_URL, ...    optional
"""

_COORDINATOR_HELP = """Run the coordinator of a queue until SIGTERM.

It decides which member of a group has which partition. On Kubernetes the operator does this.

\b
Environment (all of it: docs/cli.md):
  PARTQ_QUEUE, PARTQ_QUEUE_UID, PARTQ_REDIS_URL, PARTQ_TOKEN_FILE   needed
  PARTQ_NAMESPACE, PARTQ_KEY_PREFIX, PARTQ_LOG_LEVEL, ...           optional
"""


_OPERATOR_HELP = """Run the operator until SIGTERM: it serves the queues of a Kubernetes cluster.

\b
Environment (all of it: docs/cli.md):
  PARTQ_BROKER_IMAGE, PARTQ_POD_NAME, PARTQ_POD_NAMESPACE   needed
  PARTQ_REDIS_URL, PARTQ_NAMESPACES, PARTQ_LEASE_NAME, ...  optional
"""


@click.command(help=_BROKER_HELP)
def broker() -> None:
    """Read the settings and serve."""
    settings = BrokerSettings.from_env(os.environ)
    configure_logging(settings.log_level)
    # Only here: the coordinator needs none of the server.
    from partq.broker.api.app import serve

    run_on_uvloop(serve(settings))


@click.command(help=_COORDINATOR_HELP)
def coordinator() -> None:
    """Read the settings and coordinate."""
    settings = CoordinatorSettings.from_env(os.environ)
    configure_logging(settings.log_level)
    from partq.cli.hosting.coordinate import coordinate

    run_on_uvloop(coordinate(settings))


@click.command(help=_OPERATOR_HELP)
def operator() -> None:
    """Read the settings and operate."""
    settings = OperatorSettings.from_env(os.environ)
    configure_logging(settings.log_level)
    from partq.cli.hosting.operate import operate

    # Not on uvloop: while connections to the API server fail, it may refuse a file descriptor that
    # another connection has just had, by a RuntimeError, which ends kopf.
    asyncio.run(operate(settings))


def run_on_uvloop(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end, on uvloop where it is installed."""
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ModuleNotFoundError):
        import uvloop

        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(work)
