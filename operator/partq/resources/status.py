"""What the operator writes into the resources' status; kept small, whatever runs.

The whole map partition → member is in Redis and in `partq status`; here are ranges per pod.
"""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.config import JsonDict

from partq.resources.base import Model, ObjectName

MAX_PODS = 1000
"""How many pods of a group are listed; of more, their number."""
MAX_REBALANCES = 5
MAX_SHOWN_REFUSED = 20
"""How many refused members of a group are listed."""
MAX_HELD = 20
"""How many groups are listed that hold up a change of the number of partitions."""
MAX_POD_CHARS = 317
"""Length of the name of a pod and of its container."""
MAX_MESSAGE_CHARS = 1024

_Text = Annotated[str, Field(max_length=MAX_MESSAGE_CHARS)]
_Instant = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


def _list_map(*keys: str) -> JsonDict:
    """Return what makes a list of objects one that is merged by keys."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [*keys]}


class Condition(Model):
    """One thing that is so or not, since when, and why."""

    type: Annotated[str, Field(max_length=316)]
    """What it is about."""
    status: Literal["True", "False", "Unknown"]
    """Whether it is so."""
    reason: Annotated[str, Field(max_length=256, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*)?$")]
    """Why, in one word of a fixed list."""
    message: _Text
    """Why, for people."""
    observed_generation: Annotated[int, Field(ge=0)]
    """The generation of the resource that this was found for."""
    last_transition_time: _Instant
    """When `status` changed last."""


class QueuePartitionsStatus(Model):
    """How many partitions there are, and how many are served."""

    configured: Annotated[int, Field(ge=0)]
    """How many take messages."""
    ready: Annotated[int, Field(ge=0)]
    """Those of them that a living broker owns."""
    target: Annotated[int, Field(ge=0)] | None = None
    """How many there are to be: another number than `configured` until a change is in force."""
    retiring: Annotated[int, Field(ge=0)] | None = None
    """Partitions that take no messages any more, until groups have read what they hold."""
    summary: _Text | None = None
    """The number for people, such as `16`, and `16->24` until a change is over."""


class HeldGroupStatus(Model):
    """A group that does not get the messages of new partitions yet."""

    group: ObjectName
    """Its name."""
    partitions: Annotated[int, Field(ge=0)]
    """How many new partitions wait for it."""
    messages: Annotated[int, Field(ge=0)]
    """How many older messages it has to acknowledge first, at most."""


class QueueRescaleStatus(Model):
    """The latest change of the number of partitions."""

    generation: Annotated[int, Field(ge=1)]
    """The number of the change."""
    from_: Annotated[int, Field(ge=1, alias="from")]
    """How many partitions there were."""
    to: Annotated[int, Field(ge=1)]
    """How many there are to be."""
    phase: Literal["Preparing", "Opening", "Draining", "Settled", "Aborted"]
    """Preparing: it can be taken back. Opening: new partitions begin to take messages. Draining:
    all take messages, and groups finish what is older."""
    moved_percent: Annotated[float, Field(ge=0, le=100)]
    """How much of the slots, and so about how much of the keys, gets another index."""
    sealed: Annotated[int, Field(ge=0)]
    """Partitions that have lost keys, so far."""
    opened: Annotated[int, Field(ge=0)]
    """New partitions that take messages, so far."""
    held: Annotated[list[HeldGroupStatus], Field(max_length=MAX_HELD)] = Field(
        default=[], json_schema_extra=_list_map("group")
    )
    """The groups that do not get messages of some new partitions yet; of more than 20, the first
    by name."""
    started_at: _Instant | None = None
    """When it was begun."""


class QueueAdviceStatus(Model):
    """The number of partitions that the operator suggests, by members and lag of the groups."""

    partitions: Annotated[int, Field(ge=1)]
    """How many there should be; as many as there are, if nothing asks for more."""
    reason: Literal["Enough", "MembersStandBy", "LagGrows", "FewMembers", "Skewed"]
    """MembersStandBy: members without a partition. LagGrows: members with one each fall behind.
    FewMembers: add members, not partitions. Skewed: the lag is in one partition."""
    message: _Text
    """The reason for people, with the figures of the time when it was found."""
    since: _Instant
    """Since when this number is suggested."""


class QueueBrokersStatus(Model):
    """How many brokers there are."""

    desired: Annotated[int, Field(ge=0)]
    """What the spec asks for."""
    ready: Annotated[int, Field(ge=0)]
    """Those that answer and hold a lease."""


class PartitionedQueueStatus(Model):
    """What a queue is."""

    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The generation of the resource that this status is about."""
    conditions: Annotated[list[Condition], Field(max_length=32)] = Field(
        default=[], json_schema_extra=_list_map("type")
    )
    """Ready, Reconciling, Stalled, and what they rest on."""
    partitions: QueuePartitionsStatus | None = None
    """How many partitions there are."""
    rescale: QueueRescaleStatus | None = None
    """The latest change of their number; left out: there was none."""
    advice: QueueAdviceStatus | None = None
    """The number that the operator suggests; left out: it has not watched for ten minutes yet."""
    brokers: QueueBrokersStatus | None = None
    """How many brokers there are."""
    groups: Annotated[int, Field(ge=0)] | None = None
    """How many consumer groups the queue has."""
    url: _Text | None = None
    """Where clients in the cluster reach the brokers."""
    tokens_secret: ObjectName | None = None
    """The Secret with the tokens of producers and consumers."""
    store_uid: Annotated[str, Field(pattern="^[0-9a-f]{8}$")] | None = None
    """What the queue's keys in Redis are named by."""
    store: _Text | None = None
    """Hosts and ports of the Redis that has the queue's messages."""


class GroupMembersStatus(Model):
    """The members of a group."""

    active: Annotated[int, Field(ge=0)]
    """Members that hold partitions and are connected; of the types Shared and Session, all that
    are connected."""
    standby: Annotated[int, Field(ge=0)]
    """Members that are connected and hold none."""
    lost: Annotated[int, Field(ge=0)]
    """Members that hold partitions and are not connected."""
    refused: Annotated[int, Field(ge=0)]
    """Members that ask to be let in and may not; of more than 100, those that asked last."""


class GroupPartitionsStatus(Model):
    """The partitions of a group, by state; together they are all that take messages."""

    ready: Annotated[int, Field(ge=0)]
    """A connected member has them; of the types Shared and Session, every connected member."""
    paused: Annotated[int, Field(ge=0)]
    """They are being handed over."""
    unbound: Annotated[int, Field(ge=0)]
    """Their member is not connected."""
    unassigned: Annotated[int, Field(ge=0)]
    """Nobody has them."""


class GroupSessionsStatus(Model):
    """The sessions of a group of the type Session."""

    with_messages: Annotated[int, Field(ge=0)]
    """Sessions that have messages which are not acknowledged."""
    locked: Annotated[int, Field(ge=0)]
    """Sessions that a member has locked."""
    waiting: Annotated[int, Field(ge=0)]
    """Requests that wait for a session; as consumers ask every broker, those at the broker where
    most wait."""


class PodAssignment(Model):
    """What one pod holds."""

    pod: Annotated[str, Field(max_length=MAX_POD_CHARS)]
    """Name of the pod, with `/CONTAINER` where the member names one; of a pod that is gone, the
    member."""
    partitions: _Text
    """Partitions, such as `0-3,7`."""


class RefusedMember(Model):
    """A member that asks to be let in and may not."""

    pod: Annotated[str, Field(max_length=MAX_POD_CHARS)]
    """Name of the pod, with `/CONTAINER` where the member names one; of what is not a pod, the
    member."""
    reason: _Text
    """Why, with the pod's labels and the group's selector where these do not match."""


class RebalanceStatus(Model):
    """One rebalance that is over."""

    id: Annotated[int, Field(ge=0)]
    """When it started, in milliseconds since 1970, by Redis's clock."""
    trigger: Annotated[str, Field(max_length=64)]
    """What it was due to."""
    started_at: _Instant
    """When it started."""
    moved: Annotated[int, Field(ge=0)]
    """Partitions that left a member."""
    assigned: Annotated[int, Field(ge=0)]
    """Partitions that nobody had before."""
    timed_out: Annotated[int, Field(ge=0)]
    """Partitions whose member had not finished in time; it may have begun what another repeats."""
    duration_milliseconds: Annotated[int, Field(ge=0)]
    """From the plan to the last handover."""
    longest_pause_milliseconds: Annotated[int, Field(ge=0)]
    """The longest time that a partition had no consumer."""


class ConsumerGroupStatus(Model):
    """What a group is."""

    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The generation of the resource that this status is about."""
    conditions: Annotated[list[Condition], Field(max_length=32)] = Field(
        default=[], json_schema_extra=_list_map("type")
    )
    """Ready, Reconciling, Stalled, and what they rest on."""
    queue: ObjectName | None = None
    """The queue that the group belongs to, whatever its spec says later."""
    phase: Literal["Empty", "Stable", "Waiting", "Rebalancing", "Paused", "Degraded"] | None = None
    """Empty: no member. Waiting: for a lost member, until its delay is over. Degraded: the brokers
    or the store do not answer."""
    members: GroupMembersStatus | None = None
    """The members, by what they are."""
    partitions: GroupPartitionsStatus | None = None
    """The partitions, by state."""
    waiting_moves: Annotated[int, Field(ge=0)] | None = None
    """Partitions that are to move for balance and wait for the budget of `spec.rebalance`."""
    lag: Annotated[int, Field(ge=0)] | None = None
    """Messages that are not acknowledged yet; looked at every 30 seconds."""
    sessions: GroupSessionsStatus | None = None
    """Its sessions, of the type Session; looked at every 30 seconds. Left out for other types."""
    assignments: Annotated[list[PodAssignment], Field(max_length=MAX_PODS)] = Field(
        default=[], json_schema_extra=_list_map("pod")
    )
    """What each pod holds; of more than 1,000 pods, the first by name."""
    refused_members: Annotated[list[RefusedMember], Field(max_length=MAX_SHOWN_REFUSED)] = Field(
        default=[], json_schema_extra=_list_map("pod")
    )
    """Members that are refused; of more than 20, the first by name."""
    rebalances: Annotated[list[RebalanceStatus], Field(max_length=MAX_REBALANCES)] = Field(
        default=[], json_schema_extra=_list_map("id", "trigger")
    )
    """The last rebalances, the newest last."""
    rebalance_now: _Text | None = None
    """The value of the annotation `partq.dev/rebalance-now` that was carried out last."""
