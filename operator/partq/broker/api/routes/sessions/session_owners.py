"""Asks the owners of the partitions that a session may be in, while its partition changes."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from partq.broker.api.endpoints import EnteredCall
from partq.broker.api.owner_calls import ask_owner
from partq.broker.peers.peer_client import FORWARDED
from partq.errors import NotOwnerError, UnavailableError

T = TypeVar("T")


async def ask_places(
    call: EnteredCall,
    session: str,
    work: Callable[[], Awaitable[T]],
    kind: type[T],
    body: object,
) -> T:
    """Return what the first broker answers that has a session, or else takes its new messages.

    Those are asked first that have the partitions which it was in before a change of the partition
    count. A broker that another one has asked does the `work` itself.

    Raises:
        PartqError: as of `ask_owner`.
    """
    if FORWARDED in call.request.headers:
        return await work()
    *former, last = call.broker.sessions.places.all_of(session)
    for partition in former:
        try:
            return await ask_owner(call, partition, work, kind, body)
        except (NotOwnerError, UnavailableError):
            continue  # it has nothing of it; or else the later ones wait, and say so
    return await ask_owner(call, last, work, kind, body)
