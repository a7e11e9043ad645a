"""How commands ask a queue's brokers: any of them will do."""

from partq.cli.queues.connection import QueueAddress
from partq.client.transport.session import Session
from partq.errors import InternalError, SettingsError
from partq.wire.calls.replies import convert
from partq.wire.calls.state import Picture


def open_session(connection: QueueAddress) -> Session:
    """Return a session for `async with`."""
    return Session(
        connection.url,
        queue=connection.queue,
        token=connection.token,
        namespace=connection.namespace,
        ca_file=connection.ca_file,
    )


async def ask_for_group(connection: QueueAddress, group: str | None) -> tuple[str, Picture]:
    """Return a group's name and its picture; None: the only group that there is.

    Raises:
        SettingsError: there are several, or none of this name.
        PartqError: as `Session.ask`.
    """
    async with open_session(connection) as session:
        groups = (await session.ask("GET", "/layout"))["groups"]
        known = ", ".join(groups) or "none"
        if group is None and len(groups) != 1:
            raise SettingsError(
                f"queue {connection.queue}: --group is not given; expected one of: {known}"
            )
        if group is not None and group not in groups:
            raise SettingsError(f"--group: got {group[:80]!r}, expected one of: {known}")
        name = group or groups[0]
        answer = await session.ask("GET", f"/groups/{name}/picture")
    try:
        return name, convert(answer, Picture)
    except ValueError as error:
        raise InternalError(
            f"group {name}: the broker's answer cannot be read: {error}; use the broker's version"
        ) from error
