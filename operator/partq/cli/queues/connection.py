"""How commands find a queue: options, environment, or the runtime that `partq dev up` runs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any, Literal, Protocol

import click
from click.core import ParameterSource

from partq.cli.quantity import Quantity
from partq.client.arguments import broker_urls, check_names, check_token
from partq.client.transport.options import ConnectionOptions
from partq.errors import SettingsError, UnauthorizedError, UnknownGroupError, UnknownQueueError
from partq.excerpts import excerpt, some_of

Role = Literal["produce", "consume", "admin"]

DEFAULT_DATA_DIR = Path(".partq")
_NAMED = ("queue", "namespace", "url", "token", "ca_file", "data_dir")
"""What `connection_options` adds, and `find_connection` takes."""


@dataclass(frozen=True, slots=True)
class QueueAddress:
    """Where a queue is, and the right to call it."""

    url: str
    queue: str
    namespace: str
    token: str
    ca_file: Path | None = None
    groups: tuple[str, ...] = ()
    """The queue's groups as far as they are known."""
    is_local: bool = False
    """Whether `partq dev up` runs it on this machine."""
    is_created: bool = False
    """Whether it is a dead-letter queue that was created there: it has to be named."""

    def options(self) -> ConnectionOptions:
        """Return what a client of the queue is made with."""
        return ConnectionOptions(
            self.url, self.queue, token=self.token, namespace=self.namespace, ca_file=self.ca_file
        )


class Connect(Protocol):
    """Finds the queue, with a token of that role; raises as `find_connection`."""

    def __call__(self, role: Role, *, queue: str = ...) -> QueueAddress:
        """Return its address. `queue`: a name that the command got in the place of `--queue`."""


FindQueues = Callable[[Role], list[QueueAddress]]
"""Finds every queue that the options name; raises as `find_queues`."""


def connection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say where a queue is; the command gets `connect`, a `Connect`.

    The help lists them behind the command's own ones.
    """
    return _with_options(command, "connect", find_connection)


def queues_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the same options for several queues; the command gets `find_queues`, a `FindQueues`."""
    return _with_options(command, "find_queues", find_queues)


def _with_options(
    command: Callable[..., None], argument: str, find: Callable[..., object]
) -> Callable[..., None]:
    @wraps(command)
    def connected(**given: Any) -> None:
        named = {name: given.pop(name) for name in _NAMED}
        try:
            command(**{argument: partial(find, **named)}, **given)
        except (UnknownQueueError, UnauthorizedError) as error:
            raise _with_origin(error) from error

    # Here click collects the options of a function, those of the help's end first.
    own: list[click.Parameter] = connected.__dict__.pop("__click_params__", [])

    options = [
        click.option("--queue", envvar="PARTQ_QUEUE", show_envvar=True, help="Name of the queue."),
        namespace_option,
        click.option(
            "--url",
            envvar="PARTQ_URL",
            show_envvar=True,
            help="URL of a broker, or several with commas. Default: what `partq dev up` runs.",
        ),
        click.option(
            "--token",
            envvar="PARTQ_TOKEN",
            show_envvar=True,
            help="Bearer token; better given by the environment, which others cannot list.",
        ),
        click.option(
            "--ca-file",
            envvar="PARTQ_CA_FILE",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            show_envvar=True,
            help="Certificates of the CAs of brokers with https. Default: the system's.",
        ),
        data_dir_option,
    ]
    for option in reversed(options):
        connected = option(connected)
    connected.__dict__["__click_params__"] += own
    return connected


def _from_environment(option: str) -> bool:
    """Say whether the option of the command that runs was set by its variable."""
    context = click.get_current_context(silent=True)
    return context is not None and (
        context.get_parameter_source(option) is ParameterSource.ENVIRONMENT
    )


def _with_origin(
    error: UnknownQueueError | UnauthorizedError,
) -> UnknownQueueError | UnauthorizedError:
    """Return the error, which says which variables may belong to another queue than `--queue`."""
    context = click.get_current_context()
    if context.get_parameter_source("queue") is not ParameterSource.COMMANDLINE:
        return error
    kept = [f"PARTQ_{name.upper()}" for name in ("url", "token") if _from_environment(name)]
    if not kept:
        return error
    set_there = " and ".join(kept)
    are = "are those" if len(kept) > 1 else "is that"
    return type(error)(
        f"{error.message}; {set_there} {are} of the environment, maybe of another queue than "
        f"--queue {excerpt(context.params['queue'])}: give --url and --token of this one, or for "
        "a queue of `partq dev up` unset PARTQ_URL and PARTQ_TOKEN"
    )


wait_option = click.option(
    "--wait",
    "wait_s",
    envvar="PARTQ_WAIT_S",
    type=Quantity(0, 86_400),
    default=300.0,
    show_default=True,
    show_envvar=True,
    help="Seconds to wait for the queue: its brokers, and the group if one is named.",
)
"""For commands that are started together with their queue, as pods are."""

group_option = click.option(
    "--group",
    envvar="PARTQ_GROUP",
    show_envvar=True,
    help="Consumer group. Default: the queue's only one, on this machine.",
)

namespace_option = click.option(
    "--namespace",
    envvar="PARTQ_NAMESPACE",
    default="default",
    show_default=True,
    show_envvar=True,
    help="Namespace of the queue.",
)

data_dir_option = click.option(
    "--data-dir",
    envvar="PARTQ_DATA_DIR",
    # Looked at where it is used: a command with a URL does not need it.
    type=click.Path(readable=False, path_type=Path),
    default=DEFAULT_DATA_DIR,
    show_default=True,
    show_envvar=True,
    help="Data directory of `partq dev up`.",
)


def find_connection(
    role: Role,
    *,
    queue: str | None,
    namespace: str,
    url: str | None,
    token: str | None,
    ca_file: Path | None,
    data_dir: Path,
) -> QueueAddress:
    """Return the connection that the options name.

    With a URL the token has to be given, too: that of the local runtime is for nobody else.
    Without a name it is the only queue that runs, apart from dead-letter queues that were created.

    Raises:
        SettingsError: something is missing or cannot be used; says what to give.
    """
    check_token(token)
    if url is not None:
        broker_urls(url)
        if queue is None or token is None:
            missing = "--queue (PARTQ_QUEUE)" if queue is None else "--token (PARTQ_TOKEN)"
            if not _from_environment("url"):
                raise SettingsError(f"--url is given without {missing}; give both")
            raise SettingsError(
                f"PARTQ_URL is set, but {missing} is not given; give both, or for a queue of "
                "`partq dev up` unset PARTQ_URL"
            )
        check_names({"--queue": queue, "--namespace": namespace}, needed=("--queue",))
        return QueueAddress(url, queue, namespace, token, ca_file)

    # Only here: the other path needs none of what the runtime needs.
    from partq.embedded.data_dir import read_state

    queues = [each for each in read_state(data_dir) if each.namespace == namespace]
    if not queues:
        raise SettingsError(
            f"no queue of the namespace {namespace} runs in {data_dir}; start "
            "`partq dev up -f FILE`, name its --data-dir, or give --url, --queue and --token"
        )
    names = some_of([each.name for each in queues])
    declared = [each for each in queues if not each.is_created] or queues
    if queue is None and len(declared) > 1:
        raise SettingsError(f"several queues run: {names}; choose one with --queue")
    meant = declared if queue is None else [each for each in queues if each.name == queue]
    found = next(iter(meant), None)
    if found is None:
        raise SettingsError(
            f"queue {excerpt(queue)!r}: got no such queue in {data_dir}; expected {names}"
        )
    own_token = token or getattr(found.tokens, role)
    return QueueAddress(
        *(found.url, found.name, namespace, own_token),
        groups=found.groups,
        is_local=True,
        is_created=found.is_created,
    )


def find_queues(
    role: Role, *, queue: str | None, namespace: str, url: str | None, data_dir: Path, **others: Any
) -> list[QueueAddress]:
    """Return the queue of a URL; without one every queue of the local runtime that is meant.

    Without `--namespace` these are the queues of all namespaces.

    Raises:
        SettingsError: as `find_connection`.
    """
    from partq.embedded.data_dir import read_state

    place = {**others, "data_dir": data_dir, "url": url}
    running = [] if url is not None else read_state(data_dir)
    source = click.get_current_context().get_parameter_source("namespace")
    spaces = [namespace]
    if source is ParameterSource.DEFAULT and running:
        spaces = sorted({each.namespace for each in running})
    found: list[tuple[str, str | None]] = [
        (each.namespace, each.name)
        for each in running
        if each.namespace in spaces and queue in (None, each.name)
    ]
    return [
        find_connection(role, queue=name, namespace=space, **place)
        for space, name in found or [(namespace, queue)]
    ]


def known_group(connection: QueueAddress, group: str | None) -> str:
    """Return the group that is meant; one of a queue on this machine is there, or never will be.

    Raises:
        SettingsError: none is named, and there is not just one; or no group can have that name.
        UnknownGroupError: the queue on this machine has no such group.
    """
    if group is not None:
        check_names({"--group": group}, needed=("--group",))
        if connection.groups and group not in connection.groups:
            raise UnknownGroupError(
                f"queue {connection.queue!r} has no consumer group {excerpt(group)!r}; it has "
                f"{some_of(connection.groups)}"
            )
        return group
    if len(connection.groups) == 1:
        return connection.groups[0]
    if not connection.groups:
        needed = "" if connection.is_local else " (PARTQ_GROUP), and with a URL it has to be"
        raise SettingsError(
            f"--group is not given{needed}; `partq groups` lists the queue's; name one"
        )
    known = some_of(connection.groups)
    raise SettingsError(f"--group is not given, and the queue has {known}; name one")
