"""Asks the owners of the partitions that a session may be in, while its partition changes."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from partq.broker.api.endpoints import EnteredCall
from partq.broker.api.owner_calls import ask_owner, not_owned
from partq.broker.peers.peer_client import FORWARDED
from partq.core.model import PartitionId
from partq.errors import NotOwnerError, PartqError, SessionLostError, UnavailableError

T = TypeVar("T")


async def ask_places(
    call: EnteredCall,
    session: str,
    work: Callable[[], Awaitable[T]],
    kind: type[T],
    body: object,
    *,
    is_found: Callable[[T], bool],
) -> T:
    """Return what the first broker answers that has a session, or else takes its new messages.

    Those are asked first that have the partitions which it was in before a change of the partition
    count. A broker that another one has asked does the `work` itself.

    Args:
        call: as it came.
        session: its name.
        work: answers for the partitions of this broker.
        kind: of the answer.
        body: of the call.
        is_found: whether an answer shows that the session was given.

    Raises:
        UnavailableError: a broker gave no answer, and no other one gave the session.
        PartqError: as of `ask_owner`.
    """
    if FORWARDED in call.request.headers:
        return await work()
    *former, last = call.broker.sessions.places.all_of(session)
    doubt: UnavailableError | None = None
    for partition in former:
        try:
            answer = await ask_owner(call, partition, work, kind, body)
            break
        except NotOwnerError:
            continue  # it has nothing of it
        except UnavailableError as error:
            doubt = error  # it may have given the session
    else:
        answer = await ask_owner(call, last, work, kind, body)
    if doubt is not None and not is_found(answer):
        raise doubt
    return answer


async def ask_holders(
    call: EnteredCall,
    session: str,
    work: Callable[[PartitionId], Awaitable[T]],
    kind: type[T],
    body: object,
    *,
    lock: int = 0,
    is_found: Callable[[T], bool] = lambda _: True,
) -> T:
    """Return what the owner of the partition answers where a session is locked.

    The partitions that it was in before a change of the partition count are asked first. A broker
    that another one has asked looks at its own alone.

    Args:
        call: as it came.
        session: its name.
        work: answers for a partition of this broker.
        kind: of the answer.
        body: of the call.
        lock: the number of the lock that is meant; 0: any.
        is_found: whether an answer shows that the lock is there; else the next one is asked.

    Raises:
        SessionLostError: no partition has the lock.
        PartqError: as of `ask_owner`; also where one partition has no lock, and one gave no answer.
    """
    sessions, owned = call.broker.sessions, call.broker.owned
    at = sessions.places.of_lock(call.group, session, lock) if lock else None
    places = sessions.places.all_of(session) if at is None else [at]
    if FORWARDED in call.request.headers:
        if not (mine := [each for each in places if each in owned]):
            raise not_owned(call.broker, places[-1])
        places = mine
    refusal: PartqError | None = None
    doubt: PartqError | None = None
    answers: list[T] = []
    for partition in places:
        try:
            answers.append(await ask_owner(call, partition, partial(work, partition), kind, body))
        except SessionLostError as error:
            refusal = error
        except (NotOwnerError, UnavailableError) as error:
            doubt = error
        else:
            if is_found(answers[-1]):
                return answers[-1]
    if (problem := doubt or refusal) is not None:
        raise problem
    return answers[-1]
