"""The calls that show states of keys, over HTTP."""

from functools import partial

from aiohttp import web

from partq.broker.api.endpoints import ADMINS, CONSUMERS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import ask_owner, named
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
    partition = call.broker.config.layout.partition_for(query.key)
    work = partial(find_state, call.broker, partition, call.group, query.key)
    return json_response(await ask_owner(call, partition, work, KeyState))


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


async def find_state(broker: Broker, partition: PartitionId, group: str, key: str) -> KeyState:
    """Return the state of a key; `partition` takes its messages, and is owned here.

    Until the group has those of the partition, the state is in one before it.
    """
    consumed, states = broker.find(partition).find(group), broker.ack_handler.states
    if not consumed.is_gated:
        return _answer(await states.find(consumed, key))
    layout, slot = broker.config.layout, slot_of(key)
    at, is_gated = partition, True
    while is_gated:
        giver = next(
            (p for p, ranges in layout.predecessors(at).items() if _has(ranges, slot)), None
        )
        if giver is None:
            break
        at = giver
        found = await broker.layout_follower.read_progress(at, group)
        is_gated = found is not None and not found.is_gate_open
    return _answer(await states.store.read(at, group, key))


async def _read_page(
    broker: Broker, partition: PartitionId, group: str, after: str
) -> KeyStatesPage:
    broker.find(partition).find(group)
    page = await broker.ack_handler.states.store.read_page(partition, group, after.encode())
    states = [StoredKeyState(key, encode_state(state)) for key, state in page.states.items()]
    return KeyStatesPage(states, page.next.decode()) if page.next else KeyStatesPage(states)


def _answer(state: bytes | None) -> KeyState:
    return KeyState(None if state is None else encode_state(state))


def _has(ranges: tuple[range, ...], slot: int) -> bool:
    return any(slot in each for each in ranges)
