"""Partitions that members choose themselves, over HTTP: look, register, unregister, nodes."""

from functools import partial

from aiohttp import web

from partq.broker.api.endpoints import CONSUMERS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import ask_owner, is_of_broker, named
from partq.broker.api.routes.pull import PREFIX
from partq.broker.delivery.flow_registry import MAX_NAME_CHARS
from partq.broker.operations.assignment import nodes
from partq.broker.operations.assignment.configured_partitions import read_configured
from partq.broker.operations.assignment.registration import (
    check_client_assigned,
    register,
    unregister,
)
from partq.core.model import MemberId, PartitionId
from partq.errors import (
    BadRequestError,
    ConflictError,
    FencedError,
    MemberInUseError,
    MemberRefusedError,
    NodeInUseError,
    NotListedError,
    NotOwnerError,
    NotSubscribableError,
    PartitionInUseError,
    ServerAssignedError,
    SourceCountError,
    UnknownPartitionError,
)
from partq.excerpts import excerpt
from partq.store.records.members import Members
from partq.wire.calls.registration import (
    ConfiguredPartitions,
    Node,
    NodeBody,
    NodeCleared,
    NodeQuery,
    RegisterBody,
    Registered,
    Unregistered,
    UnregisterQuery,
)

calls = Calls("registration")
PARTITION = PREFIX + "/members/{member}/partitions/{partition}"
NODE = PREFIX + "/members/{member}/node"


@calls.add("GET", PREFIX + "/partitions", roles=CONSUMERS, answers={200: ConfiguredPartitions})
async def show(call: EnteredCall) -> web.Response:
    """Show all partitions of the queue, who holds them, and whether they may be registered."""
    return json_response(await read_configured(call.broker, call.group))


@calls.add(
    "PUT",
    PARTITION,
    roles=CONSUMERS,
    body=RegisterBody,
    answers={200: Registered},
    errors=(
        *(ServerAssignedError, PartitionInUseError, NotSubscribableError, FencedError),
        *(ConflictError, NotListedError, MemberRefusedError, NotOwnerError, UnknownPartitionError),
    ),
)
async def register_partition(call: EnteredCall, body: RegisterBody) -> web.Response:
    """Register a partition for a listed member of a client-assigned group."""
    member, partition = _member(call), _partition(call)
    await _admit(call, member)
    work = partial(register, call.broker, partition, call.group, member, body)
    return json_response(await ask_owner(call, partition, work, Registered, body))


@calls.add(
    "DELETE",
    PARTITION,
    roles=CONSUMERS,
    query=UnregisterQuery,
    answers={200: Unregistered},
    errors=(
        *(ServerAssignedError, FencedError, ConflictError, NotOwnerError, UnknownPartitionError),
    ),
)
async def unregister_partition(call: EnteredCall, query: UnregisterQuery) -> web.Response:
    """Give a partition back: nothing more is delivered, and it is free once nothing is in flight.

    It needs no listing: a member that is not listed any more may still give back what it has.
    """
    member, partition = _member(call), _partition(call)
    work = partial(unregister, call.broker, partition, call.group, member, query)
    return json_response(await ask_owner(call, partition, work, Unregistered))


@calls.add(
    "PUT",
    NODE,
    roles=CONSUMERS,
    body=NodeBody,
    answers={200: Node},
    errors=(
        *(ServerAssignedError, SourceCountError, NodeInUseError, MemberInUseError, FencedError),
        *(NotListedError, MemberRefusedError),
    ),
)
async def set_node(call: EnteredCall, body: NodeBody) -> web.Response:
    """Say which node of how many a member is; others that contradict it are refused."""
    member = _member(call)
    await _admit(call, member)
    return json_response(await nodes.set_node(call.broker, call.group, member, body))


@calls.add(
    "DELETE",
    NODE,
    roles=CONSUMERS,
    query=NodeQuery,
    answers={200: NodeCleared},
    errors=(ServerAssignedError, FencedError),
)
async def clear_node(call: EnteredCall, query: NodeQuery) -> web.Response:
    """Free the number of a node whose process ends."""
    member = _member(call)
    await nodes.clear_node(call.broker, call.group, member, query.incarnation)
    return json_response(NodeCleared(member))


def _member(call: EnteredCall) -> MemberId:
    name = call.request.match_info["member"]
    if len(name) > MAX_NAME_CHARS:
        raise BadRequestError(
            f"member {excerpt(name)!r}: got {len(name)} characters, expected at most "
            f"{MAX_NAME_CHARS}: the name of the member's binds"
        )
    return MemberId(name)


def _partition(call: EnteredCall) -> PartitionId:
    return named(call, [call.request.match_info["partition"]])[0]


async def _admit(call: EnteredCall, member: MemberId) -> None:
    """See that the member is listed where the call comes from.

    The broker that was asked has seen that of a call that it forwards: here it comes from there,
    with the brokers' token. A caller that claims to be one is no broker.

    Raises:
        ServerAssignedError, NotListedError, MemberRefusedError: nothing was changed.
    """
    check_client_assigned(call.broker, call.group)
    if not is_of_broker(call):
        await call.broker.flow_registry.admit(call.group, member, call.address)
        return
    if member not in (await Members(call.broker.store, call.broker.keys).read(call.group)).members:
        raise NotListedError(f"member {member} of {call.group}: not listed; bind it, or ask again")
