"""The calls by which members accept sessions, renew their locks and close them, over HTTP."""

import asyncio
from functools import partial

from aiohttp import web

from partq.broker.api.app_keys import PEERS, PULLS
from partq.broker.api.endpoints import ADMINS, CONSUMERS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import (
    caller_address,
    forward_headers,
)
from partq.broker.api.routes.sessions.session_owners import ask_holders, ask_places
from partq.broker.delivery.flow import Flow
from partq.broker.partition.outbox import Answer
from partq.broker.peers.peer_client import FORWARDED, UnansweredError
from partq.broker.sessions.session_share import SessionShare
from partq.core.group.group_type import GroupType
from partq.core.model import MemberId, PartitionId
from partq.errors import (
    ConflictError,
    FencedError,
    MemberInUseError,
    MemberRefusedError,
    NoSessionError,
    NotListedError,
    OverloadedError,
    PartqError,
    SessionLockedError,
    SessionLostError,
    UnavailableError,
    UnknownPartitionError,
)
from partq.server.body import HOLD
from partq.wire.calls.replies import plain
from partq.wire.sessions.session_calls import (
    AcceptedSession,
    AcceptSessionBody,
    ClosedSession,
    ReleaseSessionBody,
    RenewedSession,
    SessionLockBody,
)

FORWARDED_WAIT_S = 2.0
"""The longest that an accept waits at another broker than the one that was asked."""
PREFIX = "/v1/queues/{queue}/groups/{group}/sessions"

calls = Calls("sessions")
_ERRORS = (
    ConflictError,
    FencedError,
    MemberInUseError,
    MemberRefusedError,
    NotListedError,
    OverloadedError,
    SessionLockedError,
    SessionLostError,
    UnavailableError,
    UnknownPartitionError,
)


@calls.add(
    "POST",
    PREFIX + "/accept",
    roles=CONSUMERS,
    body=AcceptSessionBody,
    answers={200: AcceptedSession},
    errors=_ERRORS,
)
async def accept(call: EnteredCall, body: AcceptSessionBody) -> web.Response:
    """Lock a session for a member that pulls: that one, or the next one that is free.

    Its messages come with the member's pulls, from the broker that has answered.
    """
    work = partial(_accept_here, call, body)
    if body.session is not None:
        asked = ask_places(call, body.session, work, AcceptedSession, body, is_found=_is_given)
        return json_response(await asked)
    found = await work(wait_s=0.0) if body.wait_ms and not _is_forwarded(call) else await work()
    if found.session is None and not _is_forwarded(call):
        found = await _accept_elsewhere(call, body)
        if found.session is None and body.wait_ms:
            found = await work()
    return json_response(found)


def _is_given(answer: AcceptedSession) -> bool:
    return answer.session is not None


def _is_forwarded(call: EnteredCall) -> bool:
    return FORWARDED in call.request.headers


async def _accept_here(
    call: EnteredCall, body: AcceptSessionBody, *, wait_s: float | None = None
) -> AcceptedSession:
    flow = await call.request.app[PULLS].open_flow(
        call.group, body.member, body.incarnation, caller_address(call)
    )
    wait_s = body.wait_ms / 1000 if wait_s is None else wait_s
    clock = call.broker.clock
    asked_at = begun_at = clock()

    def begin() -> None:
        nonlocal begun_at
        begun_at = clock()

    try:
        share = await call.broker.sessions.accept(
            flow,
            body.session,
            wait_s=min(wait_s, FORWARDED_WAIT_S) if _is_forwarded(call) else wait_s,
            number=body.lock,
            announce=lambda _: None,
            on_begin=begin,
        )
    except NoSessionError:
        return AcceptedSession(None)
    finally:
        flow.last_seen = clock()
    # Callers count from when they have called, and that may have waited for long.
    waited_ms = int((begun_at - asked_at) * 1000)
    return AcceptedSession(
        share.lock_of.session,
        str(share.partition),
        share.lock_of.number,
        call.broker.sessions.locked_ms(call.group) + waited_ms,
    )


async def _accept_elsewhere(call: EnteredCall, body: AcceptSessionBody) -> AcceptedSession:
    """Ask the other brokers, one after another, for a session that is free at once."""
    broker, request = call.broker, call.request
    for name, lease in broker.claims.living().items():
        if name == broker.id:
            continue
        try:
            found = await request.app[PEERS].call(
                request.method,
                lease.url + request.path_qs,
                AcceptedSession,
                authorization=request.headers["Authorization"],
                headers=forward_headers(call),
                json={**plain(body), "wait_ms": 0},
                timeout_s=2 * FORWARDED_WAIT_S,
                hold=request[HOLD],
            )
        except (UnansweredError, PartqError):
            continue  # what it may have locked ends by itself; the others have theirs
        if found.session is not None:
            return found
    return AcceptedSession(None)


@calls.add(
    "POST",
    PREFIX + "/renew",
    roles=CONSUMERS,
    body=SessionLockBody,
    answers={200: RenewedSession},
    errors=_ERRORS,
)
async def renew(call: EnteredCall, body: SessionLockBody) -> web.Response:
    """Have the lock of a session last as long as a new one, from now on."""

    async def work(partition: PartitionId) -> RenewedSession:
        share = share_of(call, partition, body)
        return RenewedSession(await call.broker.sessions.renew(share))

    renewed = ask_holders(call, body.session, work, RenewedSession, body, lock=body.lock)
    return json_response(await renewed)


@calls.add(
    "POST",
    PREFIX + "/close",
    roles=CONSUMERS,
    body=SessionLockBody,
    answers={200: ClosedSession},
    errors=_ERRORS,
)
async def close(call: EnteredCall, body: SessionLockBody) -> web.Response:
    """Give a session back: what was not acknowledged is redelivered, without a count.

    A member whose connection to the session's broker was lost ends its lock so, too. Then what it
    was sent may have begun: it is redelivered with the cause of a lost flow, and the lowest counts.
    """

    async def work(partition: PartitionId) -> ClosedSession:
        closed: asyncio.Future[PartqError | None] = asyncio.get_running_loop().create_future()
        try:
            share = share_of(call, partition, body)
        except SessionLostError:
            if not _end_unbound(call, partition, body, answer_once(closed)):
                return ClosedSession(was_locked=False)
        else:
            # A flow of frames closes by a frame, unless its connection is lost.
            flow: object = share.flow
            is_pull = isinstance(flow, Flow) and flow.kind == "pull"
            call.broker.sessions.close(share, [] if is_pull else None, answer_once(closed))
        error = await closed
        if error is not None:
            raise error
        return ClosedSession(was_locked=True)

    ended = ask_holders(
        call, body.session, work, ClosedSession, body, lock=body.lock, is_found=_was_locked
    )
    return json_response(await ended)


def _was_locked(answer: ClosedSession) -> bool:
    return answer.was_locked


def _end_unbound(
    call: EnteredCall, partition: PartitionId, body: SessionLockBody, answer: Answer
) -> bool:
    """End a lock whose process has it, and no flow any more; say if there was one."""
    shares = call.broker.sessions.shares_of(call.broker.find(partition).find(call.group))
    if shares is None or shares.of_session(body.session) is not None:
        return False
    lock = shares.locks.find(body.session)
    is_own = lock is not None and lock.is_of(MemberId(body.member), body.incarnation)
    if lock is None or not is_own or lock.number != body.lock:
        return False
    shares.end(lock, [answer])
    return True


@calls.add(
    "POST",
    PREFIX + "/release",
    roles=ADMINS,
    body=ReleaseSessionBody,
    answers={200: ClosedSession},
    errors=_ERRORS,
)
async def release(call: EnteredCall, body: ReleaseSessionBody) -> web.Response:
    """Take a session from the member that has it; what that had of it is redelivered."""
    check_type(call)
    broker = call.broker

    async def work(partition: PartitionId) -> ClosedSession:
        shares = broker.sessions.shares_of(broker.find(partition).find(call.group))
        was_locked = shares is not None and shares.release(body.session)
        return ClosedSession(was_locked=was_locked)

    ended = ask_holders(call, body.session, work, ClosedSession, body, is_found=_was_locked)
    return json_response(await ended)


def check_type(call: EnteredCall) -> None:
    """Refuse a group that has no sessions.

    Raises:
        ConflictError: it has another type.
    """
    found = call.broker.config.types.get(call.group)
    if found != GroupType.SESSION:
        raise ConflictError(
            f"group {call.group}: got the type {found}, expected Session: others have no sessions; "
            "`partq groups` shows the types"
        )


def share_of(call: EnteredCall, partition: PartitionId, body: SessionLockBody) -> SessionShare:
    """Return what a member has of a session by a lock.

    Raises:
        SessionLostError: the lock has ended.
        ForbiddenError: it is bound from another address than the call comes from.
    """
    broker = call.broker
    flow = broker.flow_registry.find(call.group, MemberId(body.member))
    shares = broker.sessions.shares_of(broker.find(partition).find(call.group))
    share = shares.of_session(body.session) if shares is not None else None
    gone = SessionLostError(
        "the lock of the session has ended; stop working on its messages, they are redelivered, "
        "and accept it again"
    )
    if flow is None or share is None:
        raise gone
    bound: object = share.flow
    is_own = bound is flow and flow.incarnation == body.incarnation
    if not is_own or share.lock_of.number != body.lock:
        raise gone
    flow.check_address(caller_address(call))
    flow.last_seen = broker.clock()
    return share


def answer_once(waiting: "asyncio.Future[PartqError | None]") -> Answer:
    """Return what takes an answer for a caller that may have gone."""

    def answer(error: PartqError | None) -> None:
        if not waiting.done():
            waiting.set_result(error)

    return answer
