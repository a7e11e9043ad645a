"""`partq dev up`: queues on this machine, from the YAML that `kubectl apply` takes."""

import asyncio
import json
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from partq.aio import cancel_and_wait
from partq.cli.hosting.block_watch import BlockWatch, missing_targets
from partq.cli.hosting.detached import start_detached
from partq.cli.quantity import Quantity
from partq.cli.queues.connection import (
    DEFAULT_DATA_DIR,
    QueueAddress,
    Role,
    data_dir_option,
    find_queues,
    namespace_option,
)
from partq.client.consume.process import stop_signals
from partq.core.slot_table import MAX_PARTITIONS
from partq.embedded.data_dir import DataDir, QueueState, read_state
from partq.embedded.holder import end_holder, wait_until_free
from partq.embedded.runtime import EmbeddedRuntime, RunningQueue
from partq.errors import SettingsError, UnavailableError
from partq.excerpts import some_of
from partq.logs import configure_logging
from partq.path_names import quoted
from partq.resources import (
    MAX_FILE_CHARS,
    Resources,
    group_document,
    parse_resources,
    queue_document,
    resources_of,
)
from partq.settings import LOG_LEVELS

FIRST_PORT = 7411
MAX_FILE_BYTES = 4 * MAX_FILE_CHARS
"""A character has 4 bytes at most."""

log = logging.getLogger("partq.embedded")

_UP_HELP = """Run the queues of FILE until interrupted: Redis, brokers and coordinator, on loopback.

Without a FILE it runs a queue `orders` of 16 partitions with two brokers and a group `workers`.
A queue that has another number of partitions than FILE or --partitions says is changed while it
runs.
What is published stays in the data directory and is there again at the next start. A process that
ends is started again. Logs are in DIR/logs.

\b
  partq dev up
  partq dev up --detach && eval "$(partq dev env)"
  partq dev up -f examples/queue.yaml --data-dir /var/tmp/orders --brokers 3 --port 8000
"""


@click.group()
def dev() -> None:
    """Run queues on this machine, without Kubernetes and without root."""


@dev.command(help=_UP_HELP)
@click.option(
    "-f",
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML with PartitionedQueues and ConsumerGroups. Default: one queue with one group.",
)
@click.option(
    "--brokers",
    type=click.IntRange(1, 64),
    help="Brokers per queue. Default: what the queue's spec.brokers.replicas says.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1, MAX_PARTITIONS),
    help="Partitions of `orders`, without FILE. Default: what it has, at first 16.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_000),
    default=FIRST_PORT,
    show_default=True,
    help="Port of the first broker; the others follow. 0: any that are free, others at each start: "
    "`partq dev env` prints them.",
)
@click.option(
    "--log-level", type=click.Choice(LOG_LEVELS), default="info", help="Log level of all processes."
)
@click.option(
    "--detach",
    is_flag=True,
    help="Run in the background; return when the queues are served. `partq dev down` ends it.",
)
@click.option("--json", "as_json", is_flag=True, help="With --detach: print JSON.")
@data_dir_option
def up(
    *,
    file: Path | None,
    data_dir: Path,
    brokers: int | None,
    partitions: int | None,
    port: int,
    log_level: str,
    detach: bool,
    as_json: bool,
) -> None:
    """Start the runtime and wait for a signal."""
    if file is not None and partitions is not None:
        raise SettingsError("--partitions: got it with --file; set spec.partitions in the file")
    if as_json and not detach:
        raise SettingsError("--json: got it without --detach; give both")
    resources = default_resources(partitions or 16) if file is None else read_resources(file)
    configure_logging(log_level)
    if detach:
        _detach(data_dir, ["dev", "up", *_given_options(click.get_current_context())], as_json)
        return
    for warning in missing_targets(resources):
        log.warning("%s", warning)
    runtime = EmbeddedRuntime(
        resources,
        data_dir,
        broker_count=brokers,
        keeps_partition_counts=file is None and partitions is None,
        port=port,
        log_level=log_level,
    )
    asyncio.run(_run(runtime))


def _given_options(context: click.Context) -> list[str]:
    """Return the options of the command that runs, but for those that are about `--detach`.

    Paths are absolute: the arguments mean the same in another directory.
    """
    arguments = []
    for option in context.command.params:
        value = context.params[option.name or ""]
        if option.name in ("detach", "as_json") or value is None:
            continue
        arguments += [option.opts[-1], str(value.absolute() if isinstance(value, Path) else value)]
    return arguments


def _detach(data_dir: Path, arguments: list[str], as_json: bool) -> None:
    directory = DataDir(data_dir)
    pid = start_detached(directory, arguments)
    queues = read_state(data_dir)
    if as_json:
        rows = [
            {"namespace": each.namespace, "name": each.name, "url": each.url,
             "groups": list(each.groups)}
            for each in queues
        ]  # fmt: skip
        told = {"pid": pid, "data_dir": str(directory.path), "queues": rows}
        click.echo(json.dumps({**told, "log": str(directory.log("dev"))}))
        return
    partq = called_as()
    click.echo(f"process {pid} runs it; its log is {directory.log('dev')}")
    for each in queues:
        page = each.url.partition(",")[0]
        where = place_options(each, data_dir, is_only_one=len(queues) == 1)
        click.echo(f"queue {each.namespace}/{each.name} at {each.url}, page {page}/")
        click.echo(f'  eval "$({partq} dev env{where})"    for other programs')
    click.echo(f"{partq} dev down{_data_dir_option(data_dir)}    ends it; the data stays")


@dev.command()
@click.option(
    "--wait",
    "wait_s",
    type=Quantity(0, 600),
    default=60.0,
    show_default=True,
    help="Seconds to wait for the end.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@data_dir_option
def down(*, data_dir: Path, wait_s: float, as_json: bool) -> None:
    """End the `partq dev up` that runs on a data directory, in order; the data stays.

    It is no error if none runs.
    """
    pid = end_holder(data_dir)
    if pid is not None and not wait_until_free(data_dir, wait_s):
        raise UnavailableError(
            f"process {pid} is still ending after {wait_s:g} s; wait longer with --wait, or look "
            f"into {DataDir(data_dir).log('dev')}"
        )
    if as_json:
        click.echo(json.dumps({"pid": pid, "is_ended": pid is not None}))
    elif pid is None:
        click.echo(f"partq: nothing runs on {data_dir.absolute()}", err=True)
    else:
        click.echo(f"process {pid} has ended; the data stays in {data_dir.absolute()}")


@dev.command()
@click.option(
    "--role",
    type=click.Choice(["produce", "consume", "admin"]),
    default="admin",
    show_default=True,
    help="Of the token; that of an admin may do everything.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--queue", help="Name of the queue; needed only if several run.")
@namespace_option
@data_dir_option
def env(*, queue: str | None, namespace: str, role: Role, data_dir: Path, as_json: bool) -> None:
    """Print where a queue that runs here is, and a token: `eval "$(partq dev env)"`.

    The variables are those that the commands of partq read: PARTQ_URL, PARTQ_QUEUE,
    PARTQ_NAMESPACE, PARTQ_TOKEN, and PARTQ_GROUP if the queue has one group. Without a namespace
    it looks in `default`, then in the others.
    """
    found = _one_of(
        find_queues(
            role, queue=queue, namespace=namespace, url=None, token=None, ca_file=None,
            data_dir=data_dir,
        ),
        namespace,
    )  # fmt: skip
    variables = {
        "PARTQ_URL": found.url,
        "PARTQ_QUEUE": found.queue,
        "PARTQ_NAMESPACE": found.namespace,
        "PARTQ_TOKEN": found.token,
    }
    if len(found.groups) == 1:
        variables["PARTQ_GROUP"] = found.groups[0]
    if as_json:
        click.echo(json.dumps(variables))
        return
    for name, value in variables.items():
        click.echo(f"export {name}={shlex.quote(value)}")


def _one_of(queues: Sequence[QueueAddress], namespace: str) -> QueueAddress:
    """Return the queue that is meant: the only one of a namespace, else the only one of all.

    Dead-letter queues that were created are not meant, unless there is no other.
    """
    declared = [each for each in queues if not each.is_created] or queues
    found = [each for each in declared if each.namespace == namespace] or declared
    if len(found) > 1:
        names = some_of([f"{each.namespace}/{each.queue}" for each in found])
        raise SettingsError(f"several queues run: {names}; choose one with --queue and --namespace")
    return found[0]


def default_resources(partition_count: int) -> Resources:
    """Return what runs without a file: as examples/queue.yaml, but for the selector of pods."""
    rebalance = {"delaySeconds": 5, "maxHandoffSeconds": 3}
    spec = {"partitions": partition_count, "brokers": {"replicas": 2}, "rebalance": rebalance}
    return resources_of(queue_document("orders", **spec), group_document("workers", "orders"))


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


def place_options(queue: RunningQueue | QueueState, data_dir: Path, *, is_only_one: bool) -> str:
    """Return the options by which a command in another terminal finds a queue; a space first."""
    name = "" if is_only_one else f" --queue {queue.name}"
    namespace = "" if queue.namespace == "default" else f" --namespace {queue.namespace}"
    return f"{name}{namespace}{_data_dir_option(data_dir)}"


def called_as() -> str:
    """Return how a shell finds this `partq`: by its name, else by the path it was called by.

    What is run as a module is called `partq`.
    """
    path = sys.argv[0]
    if Path(path).name != "partq" or os.sep not in path:
        return "partq"
    found = shutil.which("partq")
    is_found = found is not None and os.path.realpath(found) == os.path.realpath(path)
    return "partq" if is_found else shlex.quote(path)


def _data_dir_option(data_dir: Path) -> str:
    path = data_dir.absolute()
    is_default = path == DEFAULT_DATA_DIR.absolute()
    return "" if is_default else f" --data-dir {shlex.quote(str(path))}"


def introduce(queue: RunningQueue, data_dir: Path, *, is_only_one: bool) -> str:
    """Return what to do with a queue, to be copied into another terminal."""
    base = f"{queue.brokers[0].url}/v1/queues/{quoted(queue.name, 'queue')}"
    special = queue.client_assigned | queue.with_sessions
    served = [each for each in queue.groups if each not in special]
    chosen = [each for each in queue.groups if each in queue.client_assigned]
    group = served[0] if served else "GROUP"
    where, partq = place_options(queue, data_dir, is_only_one=is_only_one), called_as()
    json_header = "-H 'Content-Type: application/json'"
    consume = pull = note = ""
    if served or not queue.groups:
        consume = f"  {partq} consume --group {group}{where}\n"
        at_group = f"{base}/groups/{quoted(group, 'group')}"
        pull = f"""
  curl -H 'Authorization: Bearer {queue.tokens.consume}' {json_header} \\
    -d '{{"member": "me", "incarnation": "1", "all_brokers": true}}' '{at_group}/pull'
  curl -H 'Authorization: Bearer {queue.tokens.consume}' {json_header} \\
    -d '{{"receipts": ["RECEIPT OF A MESSAGE"]}}' '{at_group}/acks'
  curl -X DELETE -H 'Authorization: Bearer {queue.tokens.consume}' \\
    '{at_group}/members/me'"""
    for each in chosen:
        consume += f"  {partq} partitions --group {each}{where}\n"
        note += f"""

  group {each} has assignment: Client. Its members register the partitions that they choose, with
  partq.ClientAssignedConsumer; `partq consume` gets no messages there."""
    for each in sorted(queue.with_sessions):
        consume += f"  {partq} sessions list --group {each}{where}\n"
        note += f"""

  group {each} has the type Session. Its members accept sessions, with partq.SessionConsumer;
  `partq consume` is refused there."""
    return f"""
queue {queue.namespace}/{queue.name}
  page     {queue.brokers[0].url}/
  brokers  {queue.url}
  groups   {", ".join(queue.groups) or "none"}
  tokens   produce  {queue.tokens.produce}
           consume  {queue.tokens.consume}
           admin    {queue.tokens.admin}

  eval "$({partq} dev env{where})"    for commands and programs elsewhere
  echo hello | {partq} publish --key k{where}
{consume}  {partq} status{where}

  curl -H 'Authorization: Bearer {queue.tokens.produce}' {json_header} \\
    -d '{{"key": "k", "value": "hello"}}' '{base}/messages'{pull}{note}
"""
