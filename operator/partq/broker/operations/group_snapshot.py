"""A snapshot of one group, to explain it or plan for it: records and states of brokers.

Any broker can be asked: it asks the others. So it also serves callers that reach one broker only,
and works while no coordinator runs.
"""

import asyncio
from collections.abc import Mapping
from copy import copy
from typing import TypeVar

from partq.broker.broker import Broker
from partq.broker.operations import coordinator_calls
from partq.broker.peers.peer_client import PeerClient, UnansweredError
from partq.core.group.planner import GroupType
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.errors import PartqError, UnknownGroupError
from partq.path_names import quoted
from partq.server.memory import Hold
from partq.store.records.assignments import Assignments
from partq.store.records.configs import Configs
from partq.store.records.handoffs import Handoffs
from partq.store.records.members import Members
from partq.store.records.rebalances import Rebalances
from partq.wire.calls.answers import UNSET
from partq.wire.calls.state import (
    BrokerAnswer,
    BrokerState,
    ListedMember,
    Picture,
    RefusedDetail,
    SuccessionDetail,
)
from partq.wire.layout_record import ranges_form

Record = TypeVar("Record")

PEER_TIMEOUT_S = 2.0
"""How long another broker may take to say what it has."""


async def read_group_snapshot(
    broker: Broker, group: str, brokers: Mapping[str, BrokerAnswer]
) -> Picture:
    """Read a group's records, beside what `ask_all` has got from the brokers.

    Raises:
        UnknownGroupError: the group was removed meanwhile.
        StoreUnavailableError: no answer from Redis.
    """
    store, keys = broker.store, broker.keys
    configs = Configs(store, keys)
    queue_spec, spec = await asyncio.gather(
        configs.read_queue(),
        configs.read_group(group),
    )
    assigned, members, under_way, recorded, rebalances = await asyncio.gather(
        Assignments(store, keys).read(group),
        Members(store, keys).read(group),
        Handoffs(store, keys).read(group),
        Rebalances(store, keys).read_moves(group),
        Rebalances(store, keys).read(group),
    )
    if spec is None or queue_spec is None:
        raise UnknownGroupError(
            f"group {group}: not stored, or removed; create a ConsumerGroup of this name"
        )
    layout = broker.config.layout
    return Picture(
        now_ms=members.now_ms,
        queue_spec=dict(queue_spec.spec),
        group_spec=dict(spec.spec),
        partitions=[str(partition) for partition in layout.partitions()],
        members={
            m: ListedMember(each.address, each.lost_at_ms) for m, each in members.members.items()
        },
        heirs={str(m): each for m, each in members.replacements.items()},
        refused={member: RefusedDetail(*each) for member, each in members.refused.items()},
        assignment=_by_name(assigned),
        handoffs=_by_name(under_way),
        past={str(p): list(moves) for p, moves in recorded.past.items()},
        waiting=_by_name(recorded.waiting),
        brokers=_of_group(brokers, group),
        rebalances=rebalances,
        born=spec.born,
        succession=succession_detail(layout) if layout.revision else UNSET,
        slots=(
            ranges_form({each: layout.first_slots(each) for each in layout.partitions()})
            if spec.spec.get("type") == GroupType.KEY_SHARED
            else UNSET
        ),
    )


def succession_detail(layout: Layout) -> SuccessionDetail:
    """Return which partitions follow which."""
    found = layout.succession()
    return SuccessionDetail(
        outgoing=[str(each) for each in sorted(found.outgoing)],
        origins={str(new): str(origin) for new, origin in found.origins.items()},
        heirs={str(each): str(heir) for each, heir in found.heirs.items()},
        retired=[str(each) for each in sorted(layout.retired)],
    )


def _by_name(records: Mapping[PartitionId, Record]) -> dict[str, Record]:
    return {str(partition): record for partition, record in records.items()}


async def ask_all(
    broker: Broker, peers: PeerClient, *, authorization: str, hold: Hold
) -> dict[str, BrokerAnswer]:
    """Return the state of every broker with a lease, or why it is not known.

    Args:
        broker: that is asked.
        peers: for calls to the others.
        authorization: the caller's header, which says what it may see.
        hold: of the call, for what the others answer.

    Raises:
        UnavailableError: the broker does not know which others live.
    """
    leases = broker.claims.living()
    others = sorted(leases.keys() - {broker.id})
    path = f"/admin/v1/queues/{quoted(broker.settings.queue, 'queue')}/state"
    states = await asyncio.gather(
        *(_ask(f"{leases[other].url}{path}", peers, authorization, hold) for other in others)
    )
    found: dict[str, BrokerAnswer] = dict(zip(others, states, strict=True))
    return found | {broker.id: BrokerAnswer(coordinator_calls.state(broker))}


def _of_group(brokers: Mapping[str, BrokerAnswer], group: str) -> dict[str, BrokerAnswer]:
    """Return the states without what is of other groups; those that are given stay as they are."""
    found: dict[str, BrokerAnswer] = {}
    for name, answer in brokers.items():
        found[name] = answer
        if answer.state is not UNSET:
            state = copy(answer.state)
            state.partitions = {p: copy(each) for p, each in state.partitions.items()}
            for partition in state.partitions.values():
                partition.groups = {g: s for g, s in partition.groups.items() if g == group}
            found[name] = BrokerAnswer(state)
    return found


async def _ask(url: str, peers: PeerClient, authorization: str, hold: Hold) -> BrokerAnswer:
    try:
        return BrokerAnswer(
            await peers.call(
                "GET",
                url,
                BrokerState,
                authorization=authorization,
                timeout_s=PEER_TIMEOUT_S,
                hold=hold,
            )
        )
    except (UnansweredError, PartqError) as error:
        return BrokerAnswer(error=str(error))
