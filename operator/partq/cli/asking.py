"""How commands ask a queue's brokers: any of them will do."""

from typing import Any

from partq.cli.connection import Connection
from partq.client.session import NOT_REACHED, Session, why
from partq.errors import PartqError, SettingsError, UnavailableError


def open_session(connection: Connection) -> Session:
    """Return a session for `async with`."""
    return Session(
        connection.url,
        queue=connection.queue,
        token=connection.token,
        namespace=connection.namespace,
        ca_file=connection.ca_file,
    )


async def ask(session: Session, path: str, body: Any = None) -> Any:
    """Return the answer of the first broker that gives one; with a body it is posted.

    A broker that does not answer may have done what was posted: post what can be repeated.

    Raises:
        UnavailableError: none does.
        PartqError: one refuses, and so would the others.
    """
    reasons = []
    for seed in session.seeds:
        try:
            if body is None:
                return await session.get(seed, path)
            return await session.post(seed, path, body)
        except NOT_REACHED as error:
            reasons.append(f"{seed}: {why(seed, error)}")
        except PartqError as error:
            if not error.is_retryable:
                raise
            reasons.append(f"{seed}: {error.message}")
    raise UnavailableError("no broker answers: " + "; ".join(reasons))


async def ask_for_group(connection: Connection, group: str | None) -> tuple[str, Any]:
    """Return a group's name and its picture; None: the only group that there is.

    Raises:
        SettingsError: there are several, or none of this name.
        PartqError: as `ask`.
    """
    async with open_session(connection) as session:
        groups = (await ask(session, "/layout"))["groups"]
        known = ", ".join(groups) or "none"
        if group is None and len(groups) != 1:
            raise SettingsError(
                f"queue {connection.queue}: --group is not given; expected one of: {known}"
            )
        if group is not None and group not in groups:
            raise SettingsError(f"--group: got {group[:80]!r}, expected one of: {known}")
        name = group or groups[0]
        return name, await ask(session, f"/groups/{name}/picture")
