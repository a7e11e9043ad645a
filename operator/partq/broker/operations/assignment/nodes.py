"""Which node of how many each member of a client-assigned group says that it is."""

from partq.broker.broker import Broker
from partq.broker.operations.assignment.registration import (
    check_client_assigned,
    check_incarnation,
)
from partq.core.group.records import NodeRecord
from partq.core.model import MemberId
from partq.errors import BadRequestError
from partq.store.records.members import Members
from partq.wire.calls.registration import Node, NodeBody


async def set_node(broker: Broker, group: str, member: MemberId, body: NodeBody) -> Node:
    """Note which node a listed member is; a repeat changes nothing.

    Raises:
        BadRequestError: there is no node of this number; nothing is noted, as with all
            below.
        ServerAssignedError: the coordinator assigns the group's partitions.
        SourceCountError, NodeInUseError: it contradicts what a listed member has said.
        MemberInUseError: another process of the member is bound here, or about to be.
        FencedError: the process has been replaced by another one, or has said that it ends.
        NotListedError, UnknownGroupError: there is no such member, or group.
        StoreUnavailableError: no answer; a repeat finds out.
    """
    check_client_assigned(broker, group)
    check_incarnation(body.incarnation)
    broker.flow_registry.check_process(group, member, body.incarnation, retry_after_s=1.0)
    count, node_id = body.source_count, body.node_id
    if count >= 0 and not 0 <= node_id < count:
        raise BadRequestError(
            f"member {member} of {group}: got node_id {node_id} with source_count {count}, "
            f"expected a node_id of 0 to {count - 1}; number the nodes from 0"
            if count
            else f"member {member} of {group}: got source_count 0 with node_id {node_id}, expected "
            "at least 1, or -1 for no checks"
        )
    members = Members(broker.store, broker.keys)
    await members.set_node(group, member, body.incarnation, NodeRecord(count, node_id))
    return Node(source_count=count, node_id=node_id)


async def clear_node(broker: Broker, group: str, member: MemberId, incarnation: str) -> None:
    """Free the number of a member whose process ends; a repeat changes nothing.

    Raises:
        FencedError: another process of the member has said which node it is; its number stays.
        BadRequestError: the incarnation is not printable; nothing is changed, as with all below.
        ServerAssignedError: the coordinator assigns the group's partitions.
        UnknownGroupError: there is no such group.
        StoreUnavailableError: no answer; a repeat is harmless.
    """
    check_client_assigned(broker, group)
    check_incarnation(incarnation)
    await Members(broker.store, broker.keys).clear_node(group, member, incarnation)
