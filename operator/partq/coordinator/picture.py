"""One group as a broker shows it, read back into what the core judges.

So the real planner can be asked from anywhere: why something waits, and what would happen if.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from partq.coordinator.broker_api import UNREADABLE, read_state
from partq.coordinator.group.observation import QueueObservation, look, lost_since
from partq.coordinator.rules import group_rules
from partq.core.age_tracker import AgeTracker
from partq.core.group.membership import GroupObservation
from partq.core.group.planner import GroupRules
from partq.core.model import BrokerId, MemberId, PartitionId
from partq.core.records import AssignmentEntry, HandoffRecord, PastMove, RefusedJoin, WaitingMove
from partq.errors import InternalError


@dataclass(frozen=True, slots=True)
class _Listed:
    address: str
    lost_at_ms: int | None


@dataclass(frozen=True, slots=True)
class _Members:
    members: Mapping[MemberId, _Listed]
    refused: Mapping[MemberId, RefusedJoin]
    heirs: Mapping[MemberId, MemberId]
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """One group at one time."""

    now_ms: int
    """Redis's time."""
    rules: GroupRules
    observation: GroupObservation
    handoffs: Mapping[PartitionId, HandoffRecord]
    past: Mapping[PartitionId, list[PastMove]]
    waiting: Mapping[PartitionId, WaitingMove]
    heeds_pods: bool
    """Whether the group's policy lets a coordinator heed what it knows of pods."""
    silent: Mapping[BrokerId, str]
    """The living brokers that did not answer, and why."""
    refused: Mapping[MemberId, RefusedJoin] = field(default_factory=dict)
    """Who asks to be let in and may not, and why."""
    details: Mapping[PartitionId, Mapping[str, Any]] = field(default_factory=dict)
    """What the broker of a partition says of it beside: state, cursor, lag, in_flight."""

    @property
    def under_way(self) -> dict[PartitionId, MemberId | None]:
        """The targets of the recorded handoffs that the brokers have not seen the end of."""
        seats = self.observation.seats
        return {
            partition: record.target
            for partition, record in self.handoffs.items()
            if partition in seats and seats[partition].closed_attempt < record.attempt
        }


def read_picture(group: str, body: Mapping[str, Any]) -> GroupSnapshot:
    """Read what a broker answers.

    Raises:
        InternalError: it is something else, such as the answer of another version.
        SettingsError: the group's spec is broken.
    """
    try:
        return _picture(group, body)
    except UNREADABLE as error:
        raise InternalError(
            f"group {group}: the broker's answer cannot be read: {error!r}"
        ) from error


def _picture(group: str, body: Mapping[str, Any]) -> GroupSnapshot:
    brokers = body["brokers"]
    states = {
        BrokerId(name): read_state(answer["state"])
        for name, answer in brokers.items()
        if "state" in answer
    }
    world = QueueObservation(
        partitions=tuple(map(PartitionId.parse, body["partitions"])),
        states=states,
        is_complete=len(states) == len(brokers),
    )
    members = _Members(
        {MemberId(name): _Listed(**each) for name, each in body["members"].items()},
        # A broker of an older version says nothing of them.
        {MemberId(name): RefusedJoin(**each) for name, each in body.get("refused", {}).items()},
        body["heirs"],
        int(body["now_ms"]),
    )
    assignment = _by_partition(body["assignment"], AssignmentEntry)
    now_ms = members.now_ms
    observation = look(
        world,
        group,
        members=members,
        lost_ms=AgeTracker[MemberId]().observe(lost_since(members), store_ms=now_ms, now_ms=now_ms),
        assignment=assignment,
        outcomes={},
        facts={},
    )
    return GroupSnapshot(
        now_ms=now_ms,
        rules=group_rules(body["queue_spec"], body["group_spec"]),
        observation=observation,
        handoffs=_by_partition(body["handoffs"], HandoffRecord),
        past={
            PartitionId.parse(name): [PastMove(**move) for move in moves]
            for name, moves in body["past"].items()
        },
        waiting=_by_partition(body["waiting"], WaitingMove),
        heeds_pods=body["group_spec"].get("rebalance", {}).get("policy") != "Timer",
        silent={BrokerId(b): str(a["error"]) for b, a in brokers.items() if "state" not in a},
        refused=members.refused,
        details=_details(group, brokers, observation),
    )


def _by_partition(records: Mapping[str, Any], kind: Any) -> dict[PartitionId, Any]:
    return {PartitionId.parse(name): kind(**record) for name, record in records.items()}


def _details(
    group: str, brokers: Mapping[str, Any], observation: GroupObservation
) -> dict[PartitionId, Mapping[str, Any]]:
    found: dict[PartitionId, Mapping[str, Any]] = {}
    for partition, seat in observation.seats.items():
        if seat.broker is not None:
            report = brokers[seat.broker]["state"]["partitions"][str(partition)]
            found[partition] = {"end": report["end"], **report["groups"][group]}
    return found
