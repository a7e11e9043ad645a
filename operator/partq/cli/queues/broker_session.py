"""How commands ask a queue's brokers: any of them will do."""

from collections.abc import Sequence
from typing import TypeVar

from partq.cli.queues.connection import QueueAddress
from partq.client.transport.layout import QueueLayout
from partq.client.transport.session import Session
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.errors import (
    ConflictError,
    PartqError,
    SettingsError,
    UnavailableError,
    UnknownGroupError,
    UnknownPartitionError,
    is_retryable,
)
from partq.excerpts import excerpt, some_of
from partq.path_names import quoted
from partq.wire.calls.answers import ErrorDetail, LayoutAnswer
from partq.wire.calls.state import Picture

T = TypeVar("T")


def open_session(connection: QueueAddress) -> Session:
    """Return a session for `async with`."""
    return Session(connection.options())


async def ask(
    connection: QueueAddress,
    method: str,
    path: str,
    kind: type[T],
    body: object = None,
) -> T:
    """Return what a broker answers to a single call; raises as `Session.ask`."""
    async with open_session(connection) as session:
        return await session.ask(method, path, kind, body)


async def find_layout(connection: QueueAddress) -> Layout:
    """Return the layout of the queue; raises as `Session.ask`."""
    return QueueLayout.of(await ask(connection, "GET", "/layout", LayoutAnswer)).layout


async def find_partitions(connection: QueueAddress, names: Sequence[str]) -> list[PartitionId]:
    """Return the partitions that people name with `--partition`, as `1.3` or `3`.

    A number alone means the partition of that number that takes messages; if none does, the newest
    one that is still there.

    Raises:
        SettingsError: a name is not one of a partition.
        UnknownPartitionError: the queue has no partition of a number.
        PartqError: as `Session.ask`.
    """
    parsed = [parse_partition(name) for name in names]
    if not any(isinstance(each, int) for each in parsed):
        return [each for each in parsed if not isinstance(each, int)]
    layout = await find_layout(connection)
    return [_numbered(layout, each) if isinstance(each, int) else each for each in parsed]


def parse_partition(text: str) -> PartitionId | int:
    """Return the partition of a name such as `1.3`, or the number of one such as `3`.

    Raises:
        SettingsError: it is neither.
    """
    try:
        return PartitionId.parse(text) if "." in text else PartitionId.parse(f"1.{text}").index
    except ValueError:
        raise SettingsError(
            f"partition {excerpt(text)!r}: expected a number such as 3, or 1.3 with its generation"
        ) from None


def _numbered(layout: Layout, index: int) -> PartitionId:
    there = [*layout.current_partitions, *layout.retired]
    found = [each for each in there if each.index == index]
    if not found:
        raise UnknownPartitionError(
            f"partition {index}: not in the queue, expected a number from 0 to "
            f"{max(each.index for each in there)}"
        )
    return max(found)


def unfinished(failures: Sequence[tuple[str, ErrorDetail]], count: int) -> PartqError:
    """Return the error of a call that was not carried out in some of `count` partitions.

    It repeats what lasts before what passes, and advises to run the command again only where that
    can help.

    Args:
        failures: partitions with what was answered of them, at least one.
        count: of how many partitions.
    """
    lasting = [each for each in failures if not is_retryable(each[1].code)]
    passing = len(failures) - len(lasting)
    name, error = (lasting or failures)[0]
    told = f"{len(failures)} of {count} partitions are not done, such as {name}: {error.message}"
    if not lasting:
        return UnavailableError(f"{told}; run it again")
    more = f"; for {passing} of them it may help to run it again" if passing else ""
    return ConflictError(told + more)


async def ask_for_group(connection: QueueAddress, group: str | None) -> tuple[str, Picture]:
    """Return a group's name and its snapshot; None: the only group that there is.

    Raises:
        SettingsError: none is named, and there is not just one.
        UnknownGroupError: the queue has no group of this name.
        PartqError: as `Session.ask`.
    """
    async with open_session(connection) as session:
        groups = (await session.ask("GET", "/layout", LayoutAnswer)).groups
        known = some_of(groups)
        if group is None and len(groups) != 1:
            raise SettingsError(
                f"queue {connection.queue}: --group is not given; expected one of: {known}"
            )
        if group is not None and group not in groups:
            raise UnknownGroupError(f"--group: got {excerpt(group)!r}, expected one of: {known}")
        name = group or groups[0]
        return name, await session.ask("GET", f"/groups/{quoted(name, 'group')}/picture", Picture)
