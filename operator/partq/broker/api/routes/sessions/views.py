"""The calls that show sessions and their states, and leave a state, over HTTP."""

import asyncio
from math import ceil, inf

from aiohttp import web

from partq.broker.api.endpoints import ADMINS, CONSUMERS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import ask_owner, named
from partq.broker.api.routes.sessions.accepts import answer_once, check_type, share_of
from partq.broker.api.routes.sessions.session_owners import ask_holders
from partq.broker.api.state_finder import find_state
from partq.broker.delivery.frame_problems import session_problem
from partq.broker.sessions.session_shares import SessionShares
from partq.core.key_states import check_state
from partq.core.model import PartitionId
from partq.errors import (
    BadRequestError,
    ConflictError,
    PartqError,
    SessionLostError,
    StatesFullError,
    UnavailableError,
    UnknownPartitionError,
)
from partq.server.body import HOLD
from partq.wire import frames
from partq.wire.key_states import decode_state, encode_state
from partq.wire.sessions.session_calls import (
    SESSIONS_OF_A_PAGE,
    SessionLockBody,
    SessionRow,
    SessionsPage,
    SessionsQuery,
    SessionState,
    SessionStateBody,
    SessionStateQuery,
)

ROW_BYTES = 3000
"""Of memory, for a session of an answer: its name, and its JSON."""
STATE_BYTES = 128 * 1024
PREFIX = "/v1/queues/{queue}/groups/{group}"

calls = Calls("sessions")


@calls.add(
    "GET",
    PREFIX + "/sessions",
    roles=ADMINS,
    query=SessionsQuery,
    answers={200: SessionsPage},
    errors=(ConflictError, UnavailableError, UnknownPartitionError),
)
async def list_sessions(call: EnteredCall, query: SessionsQuery) -> web.Response:
    """Show sessions of a partition that have open messages or a lock, and how to ask for more."""
    check_type(call)
    call.request[HOLD].take(ROW_BYTES * SESSIONS_OF_A_PAGE)
    (partition,) = named(call, [query.partition])

    async def work() -> SessionsPage:
        consumed = call.broker.find(partition).find(call.group)
        shares = call.broker.sessions.shares_of(consumed)
        if shares is None:
            return SessionsPage([])
        return await _page(call, partition, shares, query)

    return json_response(await ask_owner(call, partition, work, SessionsPage))


async def _page(
    call: EnteredCall, partition: PartitionId, shares: SessionShares, query: SessionsQuery
) -> SessionsPage:
    now = call.broker.clock()
    rows = {each.session: SessionRow(each.session) for each in shares.locks}
    for each in shares.book.open_sessions():
        if query.is_locked and each.session not in rows:
            continue
        row = rows.setdefault(each.session, SessionRow(each.session))
        row.open_messages, row.offset = each.messages, each.offset
        row.parked_ms = max(0, ceil((each.until - now) * 1000)) if each.until < inf else 0
    for lock in shares.locks:
        row = rows[lock.session]
        row.holder, row.lock = lock.member, lock.number
        row.locked_ms = max(0, ceil((lock.until - now) * 1000))
        row.is_connected = shares.of_session(lock.session) is not None
    # The empty name is a session, too, and comes first.
    names = sorted(name for name in rows if name > query.after or not query.after)
    page = [rows[name] for name in names[:SESSIONS_OF_A_PAGE]]
    sizes = await call.broker.ack_handler.states.store.read_sizes(
        partition, call.group, [row.session for row in page]
    )
    for row, size in zip(page, sizes, strict=True):
        row.state_bytes = -1 if size is None else size
    if len(names) > len(page):
        return SessionsPage(page, page[-1].session)
    return SessionsPage(page)


@calls.add(
    "GET",
    PREFIX + "/session-state",
    roles=CONSUMERS,
    query=SessionStateQuery,
    answers={200: SessionState},
    errors=(ConflictError, UnavailableError),
)
async def read_state(call: EnteredCall, query: SessionStateQuery) -> web.Response:
    """Show the state of a session, as the acks that were answered have left it."""
    check_type(call)
    call.request[HOLD].take(STATE_BYTES)
    history = call.broker.sessions.places.all_of(query.session)

    async def work() -> SessionState:
        found = await find_state(call.broker, history, call.group, query.session)
        return SessionState(None if found is None else encode_state(found))

    return json_response(await ask_owner(call, history[-1], work, SessionState))


@calls.add(
    "PUT",
    PREFIX + "/session-state",
    roles=CONSUMERS,
    body=SessionStateBody,
    answers={200: SessionState},
    errors=(SessionLostError, StatesFullError, UnavailableError),
)
async def write_state(call: EnteredCall, body: SessionStateBody) -> web.Response:
    """Leave a state of a session, under its lock."""
    call.request[HOLD].take(STATE_BYTES)
    state = None if body.state is None else decode_state(body.state)
    check_state("state", body.session, state)

    async def work(partition: PartitionId) -> SessionState:
        lock = SessionLockBody(body.member, body.incarnation, body.session, body.lock)
        share = share_of(call, partition, lock)
        frame = frames.Ack(0, *partition, 0, 0, 0, -1, [], body.session, state)
        rules = call.broker.flow_registry.rules_of(call.group)
        problem: BadRequestError | None = session_problem(frame, share, rules)
        if problem is not None:
            raise problem
        stored: asyncio.Future[PartqError | None] = asyncio.get_running_loop().create_future()
        call.broker.ack_handler.leave_state(share, frame, answer_once(stored), share.has_more)
        error = await stored
        if error is not None:
            raise error
        return SessionState(body.state)

    left = ask_holders(call, body.session, work, SessionState, body, lock=body.lock)
    return json_response(await left)
