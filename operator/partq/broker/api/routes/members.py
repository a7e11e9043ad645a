"""What a member still holds, and its leave, by name: for whatever ends a pod in any language."""

from aiohttp import web

from partq.broker.api.endpoints import CONSUMERS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.routes.pull import PREFIX
from partq.broker.broker import Broker
from partq.core.model import MemberId
from partq.errors import FencedError, StoreUnavailableError
from partq.excerpts import excerpt
from partq.store.records.members import Members
from partq.wire.calls.answers import Alive, HeldPartition, MemberAnswer
from partq.wire.calls.bodies import AliveBody

calls = Calls("members")


@calls.add("GET", PREFIX + "/members/{member}", roles=CONSUMERS, answers={200: MemberAnswer})
async def show(call: EnteredCall) -> web.Response:
    """Show what a member holds of the partitions of this broker."""
    return json_response(
        await _view(call.broker, call.group, MemberId(call.request.match_info["member"]))
    )


@calls.add("POST", PREFIX + "/members/{member}/leave", roles=CONSUMERS, answers={200: MemberAnswer})
async def leave(call: EnteredCall) -> web.Response:
    """Note that a member leaves, if it is bound here, and show what it still holds.

    It continues consuming until it is relieved. A repeat changes nothing.

    Raises:
        ForbiddenError: it is bound from another address than the call comes from.
    """
    member = MemberId(call.request.match_info["member"])
    flow = call.broker.flow_registry.find(call.group, member)
    if flow is not None:
        flow.check_address(call.address)
        call.broker.flow_registry.leave(flow)
    return json_response(await _view(call.broker, call.group, member))


@calls.add(
    "POST",
    PREFIX + "/members/{member}/alive",
    roles=CONSUMERS,
    body=AliveBody,
    answers={200: Alive},
    errors=(FencedError,),
)
async def keep(call: EnteredCall, body: AliveBody) -> web.Response:
    """Take a sign of life for a member's flow whose own connection is silent.

    It counts as a frame of the flow: a process that works on for long, and does not come to
    pinging, keeps its partitions. Like a ping it is answered after a renewal of the broker's lease.

    Raises:
        FencedError: the member has no such flow here.
    """
    member = MemberId(call.request.match_info["member"])
    flow = call.broker.flow_registry.find(call.group, member)
    if flow is None or (flow.kind, flow.number, flow.incarnation) != (
        "flow",
        body.flow,
        body.incarnation,
    ):
        raise FencedError(
            f"member {excerpt(member)} of {call.group}: flow {body.flow} has ended; bind again"
        )
    flow.check_address(call.address)
    flow.last_seen = call.broker.clock()
    lease_s = call.broker.settings.lease_ttl_s
    await call.broker.lease.renewed(lease_s)
    return json_response(Alive(int(lease_s * 1000)))


async def _view(broker: Broker, group: str, member: MemberId) -> MemberAnswer:
    flow = broker.flow_registry.find(group, member)
    own = {p: owned.groups[group] for p, owned in broker.owned.items() if group in owned.groups}
    held = {
        str(partition): HeldPartition(each.book.in_flight, each.state)
        for partition, each in sorted(own.items())
        if each.member == member
    }
    is_here = flow is not None or bool(held)
    return MemberAnswer(
        owned=[str(partition) for partition in sorted(own)],
        held=held,
        is_bound=flow is not None,
        is_leaving=flow is not None and flow.is_leaving,
        is_known=is_here or await _is_on_list(broker, group, member),
    )


async def _is_on_list(broker: Broker, group: str, member: MemberId) -> bool:
    try:
        read = await Members(broker.store, broker.keys).read(group)
    except StoreUnavailableError:
        return True  # nobody can say; what it holds here is known all the same
    return member in read.members or member in read.refused
