"""What a member still holds, and its leave, by name: for whatever ends a pod in any language."""

from typing import Any

from aiohttp import web

from partq.broker.broker import Broker
from partq.broker.calls import CONSUMERS, Calls
from partq.broker.middlewares import json_response
from partq.broker.pull import check_address
from partq.broker.routes.access import enter, group_of, peer
from partq.broker.routes.pull import PREFIX
from partq.core.model import MemberId
from partq.wire.answers import MemberAnswer

calls = Calls()


@calls.add("GET", PREFIX + "/members/{member}", roles=CONSUMERS, answers={200: MemberAnswer})
async def show(request: web.Request) -> web.Response:
    """Show what a member holds of the partitions of this broker."""
    broker, _ = enter(request)
    group = await group_of(request, broker)
    return json_response(_view(broker, group, MemberId(request.match_info["member"])))


@calls.add("POST", PREFIX + "/members/{member}/leave", roles=CONSUMERS, answers={200: MemberAnswer})
async def leave(request: web.Request) -> web.Response:
    """Note that a member leaves, if it is bound here, and show what it still holds.

    It goes on consuming until it is relieved. A repeat changes nothing.

    Raises:
        ForbiddenError: it is bound from another address than the call comes from.
    """
    broker, _ = enter(request)
    group = await group_of(request, broker)
    member = MemberId(request.match_info["member"])
    flow = broker.binder.find(group, member)
    if flow is not None:
        check_address(flow, peer(request))
        broker.binder.leave(flow)
    return json_response(_view(broker, group, member))


def _view(broker: Broker, group: str, member: MemberId) -> dict[str, Any]:
    flow = broker.binder.find(group, member)
    own = {p: owned.groups[group] for p, owned in broker.owned.items() if group in owned.groups}
    return {
        "owned": [str(partition) for partition in sorted(own)],
        "held": {
            str(partition): {"in_flight": each.book.in_flight, "state": each.state}
            for partition, each in sorted(own.items())
            if each.member == member
        },
        "is_bound": flow is not None,
        "is_leaving": flow is not None and flow.is_leaving,
    }
