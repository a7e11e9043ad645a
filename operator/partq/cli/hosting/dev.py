"""`partq dev up`: queues on this machine, from the YAML that `kubectl apply` takes."""

import asyncio
import logging
import shlex
from pathlib import Path

import click

from partq.aio import cancel_and_wait
from partq.cli.hosting.block_watch import BlockWatch, missing_targets
from partq.cli.queues.connection import DEFAULT_DATA_DIR, data_dir_option
from partq.client.consume import stop_signals
from partq.embedded.runtime import EmbeddedRuntime, RunningQueue
from partq.errors import SettingsError
from partq.logs import configure_logging
from partq.path_names import quoted
from partq.resources import MAX_FILE_CHARS, Resources, parse_resources
from partq.settings import LOG_LEVELS

FIRST_PORT = 7411
MAX_FILE_BYTES = 4 * MAX_FILE_CHARS
"""A character has 4 bytes at most."""

log = logging.getLogger("partq.embedded")

_UP_HELP = """Run the queues of FILE until interrupted: Redis, brokers and coordinator, on loopback.

What is published stays in the data directory and is there again at the next start. A process that
ends is started again. Logs are in DIR/logs.

\b
  partq dev up -f examples/queue.yaml
  partq dev up -f examples/queue.yaml --data-dir /var/tmp/orders --brokers 3 --port 8000
"""


@click.group()
def dev() -> None:
    """Run queues on this machine, without Kubernetes and without root."""


@dev.command(help=_UP_HELP)
@click.option(
    "-f",
    "--file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML with the resources PartitionedQueue and ConsumerGroup.",
)
@data_dir_option
@click.option(
    "--brokers",
    type=click.IntRange(1, 64),
    help="Brokers per queue. Default: what the queue's spec.brokers.replicas says.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_000),
    default=FIRST_PORT,
    show_default=True,
    help="Port of the first broker; the others follow. 0: any that are free.",
)
@click.option(
    "--log-level", type=click.Choice(LOG_LEVELS), default="info", help="Log level of all processes."
)
def up(*, file: Path, data_dir: Path, brokers: int | None, port: int, log_level: str) -> None:
    """Start the runtime and wait for a signal."""
    resources = read_resources(file)
    configure_logging(log_level)
    for warning in missing_targets(resources):
        log.warning("%s", warning)
    runtime = EmbeddedRuntime(
        resources, data_dir, broker_count=brokers, port=port, log_level=log_level
    )
    asyncio.run(_run(runtime))


def read_resources(file: Path) -> Resources:
    """Return what a file declares.

    Raises:
        SettingsError: it cannot be read, or is wrong; each line names the file.
    """
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:  # what has no end, too
            raise SettingsError(
                f"got more than {MAX_FILE_BYTES} bytes, expected at most {MAX_FILE_CHARS} "
                "characters of YAML"
            )
        return parse_resources(data.decode())
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}: got bytes that are not UTF-8, expected YAML") from error
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from error
    except SettingsError as error:
        lines = [f"{file}: {line}" for line in error.message.splitlines()]
        raise SettingsError("\n".join(lines)) from error


async def _run(runtime: EmbeddedRuntime) -> None:
    stopped = asyncio.Event()
    stop_signals.add(stopped.set)
    starting = asyncio.create_task(runtime.start())
    stopping = asyncio.create_task(stopped.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if stopped.is_set() and not starting.done():
        await cancel_and_wait(starting)  # which stops what has been started
        return
    await starting
    watching = asyncio.create_task(BlockWatch().run(runtime))
    try:
        for queue in runtime.queues:
            click.echo(introduce(queue, runtime.data_dir, is_only_one=len(runtime.queues) == 1))
        click.echo("Ctrl-C ends it; the data stays.")
        await stopped.wait()
        click.echo("stopping ...")
    finally:
        await cancel_and_wait(watching)
        await runtime.stop()


def introduce(queue: RunningQueue, data_dir: Path, *, is_only_one: bool) -> str:
    """Return what to do with a queue, to be copied into another terminal."""
    base = f"{queue.brokers[0].url}/v1/queues/{quoted(queue.name, 'queue')}"
    served = [each for each in queue.groups if each not in queue.client_assigned]
    chosen = [each for each in queue.groups if each in queue.client_assigned]
    group = served[0] if served else "GROUP"
    where = "" if is_only_one else f" --queue {queue.name}"
    if queue.namespace != "default":
        where += f" --namespace {queue.namespace}"
    if data_dir != DEFAULT_DATA_DIR.absolute():
        where += f" --data-dir {shlex.quote(str(data_dir))}"
    json_header = "-H 'Content-Type: application/json'"
    consume = pull = note = ""
    if served or not chosen:
        consume = f"  partq consume --group {group}{where}\n"
        pull = f"""
  curl -H 'Authorization: Bearer {queue.tokens.consume}' {json_header} \\
    -d '{{"member": "me", "incarnation": "1", "max_messages": 10, "wait_ms": 1000}}' \\
    '{base}/groups/{quoted(group, "group")}/pull'"""
    for each in chosen:
        consume += f"  partq partitions --group {each}{where}\n"
        note += f"""

  group {each} has assignment: Client. Its members register the partitions that they choose, with
  partq.ClientAssignedConsumer; `partq consume` gets no messages there."""
    return f"""
queue {queue.namespace}/{queue.name}
  page     {queue.brokers[0].url}/
  brokers  {queue.url}
  groups   {", ".join(queue.groups) or "none"}
  produce  {queue.tokens.produce}
  consume  {queue.tokens.consume}
  admin    {queue.tokens.admin}

  echo hello | partq publish --key k{where}
{consume}  partq status{where}

  curl -H 'Authorization: Bearer {queue.tokens.produce}' {json_header} \\
    -d '{{"key": "k", "value": "hello"}}' '{base}/messages'{pull}{note}
"""
