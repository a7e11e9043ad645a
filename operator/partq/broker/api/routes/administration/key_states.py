"""The calls that show states of keys, over HTTP."""

from functools import partial

from aiohttp import web

from partq.broker.api.endpoints import ADMINS, CONSUMERS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import ask_owner, named
from partq.broker.api.state_finder import find_state
from partq.broker.broker import Broker
from partq.core.hashing import slot_of
from partq.core.model import PartitionId
from partq.errors import UnavailableError, UnknownPartitionError
from partq.server.body import HOLD
from partq.store.key_states import SCAN_COUNT
from partq.wire.key_states import (
    KeyState,
    KeyStateQuery,
    KeyStatesPage,
    KeyStatesQuery,
    StoredKeyState,
    encode_state,
)

STATE_BYTES = 128 * 1024
"""Of an answer with one state, as base64 and JSON have it."""

calls = Calls("key_states")


@calls.add(
    "GET",
    "/v1/queues/{queue}/groups/{group}/state",
    roles=CONSUMERS,
    query=KeyStateQuery,
    answers={200: KeyState},
    errors=(UnavailableError,),
)
async def read_state(call: EnteredCall, query: KeyStateQuery) -> web.Response:
    """Show the state of a key, as the acks that were answered have left it."""
    call.request[HOLD].take(STATE_BYTES)
    history = call.broker.config.layout.history_of(slot_of(query.key))

    async def work() -> KeyState:
        found = await find_state(call.broker, history, call.group, query.key)
        return KeyState(None if found is None else encode_state(found))

    return json_response(await ask_owner(call, history[-1], work, KeyState))


@calls.add(
    "GET",
    "/v1/queues/{queue}/groups/{group}/states",
    roles=ADMINS,
    query=KeyStatesQuery,
    answers={200: KeyStatesPage},
    errors=(UnavailableError, UnknownPartitionError),
)
async def list_states(call: EnteredCall, query: KeyStatesQuery) -> web.Response:
    """Show some of the states that are stored of a partition, and how to ask for more."""
    call.request[HOLD].take(STATE_BYTES * SCAN_COUNT)
    (partition,) = named(call, [query.partition])
    work = partial(_read_page, call.broker, partition, call.group, query.after)
    return json_response(await ask_owner(call, partition, work, KeyStatesPage))


async def _read_page(
    broker: Broker, partition: PartitionId, group: str, after: str
) -> KeyStatesPage:
    broker.find(partition).find(group)
    page = await broker.ack_handler.states.store.read_page(partition, group, after.encode())
    states = [StoredKeyState(key, encode_state(state)) for key, state in page.states.items()]
    return KeyStatesPage(states, page.next.decode()) if page.next else KeyStatesPage(states)
