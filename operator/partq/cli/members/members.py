"""`partq members`: the members of a group, and what each of them holds."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import click
from rich.table import Table

from partq.cli.formatting import spell_age
from partq.cli.queues.broker_session import ask_for_group
from partq.cli.queues.connection import Connect, connection_options
from partq.cli.queues.problems import named
from partq.cli.tables import add_columns, show
from partq.core.group.group_type import OPEN_TYPES, GroupType
from partq.core.parts.part_id import number_ranges
from partq.wire.calls.answers import UNSET
from partq.wire.calls.group.parts import NOBODY, PartsDetail
from partq.wire.calls.state import BrokerState, FlowDetail, GroupDetail, Picture

_HELP = """Show the members of a group: state, age, partitions, messages in flight, lag.

Any broker can answer, whether a coordinator (on Kubernetes: the operator) runs or not; nothing is
changed.

\b
  partq members
  partq members --group workers --json | jq '.members[] | select(.state == "Lost") | .member'
"""


@click.command(help=_HELP)
@connection_options
@click.option("--group", help="Name of the consumer group; needed if the queue has several.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def members(*, connect: Connect, group: str | None, as_json: bool) -> None:
    """Ask any broker, and show what it says of each member."""
    name, snapshot = asyncio.run(ask_for_group(connect("admin"), group))
    found = describe(name, snapshot)
    if as_json:
        click.echo(json.dumps(asdict(found)))
        return
    is_open = found.type in OPEN_TYPES
    numbers = _OPEN_NUMBERS.get(found.type, ("lag",))
    table = Table()
    add_columns(table, ("member", "is", "incarnation", "bound for", "partitions"))
    add_columns(table, ("in flight", *numbers), is_number=True)
    for each in found.members:
        table.add_row(
            *(each.member, each.state, each.incarnation),
            spell_age(round(each.bound_s * 1000)) if each.bound_s is not None else "",
            _OPEN.get(found.type, "") if is_open else _named(each),
            *(("", "") if each.has_parts else _numbers(each, ("in_flight", *numbers))),
        )
    show(table)
    if found.type == GroupType.SESSION:
        click.echo("`partq sessions list --locked` shows which member has which session")
    if found.unassigned:
        click.echo(f"held by nobody: partition {named(shortened(found.unassigned), MAX_NAMED)}")
    for each in found.members:
        if each.refused:
            click.echo(f"{each.member} may not bind: {each.refused}")
    for broker, why in found.troubles.items():
        click.echo(f"broker {broker} does not say which members are bound to it: {why}")
    if found.unknown:
        click.echo(
            f"not counted: partition {named(found.unknown, MAX_NAMED)}: no broker that answers "
            "serves it; the members are those of the coordinator's record"
        )


def _named(row: "MemberRow") -> str:
    """Return which partitions a member holds; those without slots apart."""
    retired = [name for name, each in row.partitions.items() if each.is_retired]
    current = [name for name, each in row.partitions.items() if not each.is_retired]
    told = [named(shortened(current), MAX_NAMED)] if current else []
    return "; ".join(
        [*told, *([f"without slots: {named(shortened(retired), MAX_NAMED)}"] if retired else [])]
    )


def _numbers(row: "MemberRow", names: Iterable[str]) -> list[str]:
    counts = [getattr(row, name) for name in names]
    return ["" if count is None else f"{count:,}" for count in counts]


_OPEN: Mapping[str, str] = {
    GroupType.SHARED: "all, in turns",
    GroupType.SESSION: "its sessions of all",
}
"""What members have whose group assigns no partition, by its type."""
_OPEN_NUMBERS: Mapping[str, Sequence[str]] = {
    GroupType.SHARED: ("priority", "credit", "turns"),
    GroupType.SESSION: ("sessions",),
}
"""The figures of such members, in the place of the lag."""
MAX_NAMED = 16
"""Partitions that are named in a line; `--json` has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPartition:
    """A partition that a member holds."""

    state: str
    """`Ready`, `Paused` or `Unbound`."""
    epoch: int
    in_flight: int | None
    """Messages delivered and not acknowledged; None, as the lag: its broker does not say, or it is
    a part of a partition."""
    lag: int | None
    is_retired: bool
    """It has no slots any more, and is there until the group has read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRow:
    """A member of a group, in the names and the order of `--json`."""

    member: str
    state: str
    """`Active`, `Standby`, `Lost`, `Left` or `Refused`."""
    address: str
    """Where it binds from; empty: it is not listed."""
    incarnation: str
    """Of the flow that was bound last; empty: no flow is bound."""
    bound_s: float | None
    """How long the oldest flow of this incarnation has been bound, in seconds."""
    flows: int
    """How many brokers it is bound to."""
    is_leaving: bool
    lost_s: float | None
    """Since when it is lost, in seconds; None: it is not."""
    refused: str
    """Why it may not bind; empty: it may."""
    in_flight: int
    """Of the types Shared and Session: over all its flows."""
    lag: int
    partitions: Mapping[str, MemberPartition]
    priority: int | None = None
    """In a group of the type Shared, 0 is the highest. None, as what follows: other types, or no
    broker that answers has a flow of it."""
    credit: int | None = None
    """In a group of the type Shared: how many more messages brokers may send to it now."""
    turns: int | None = None
    """In a group of the type Shared: in how many partitions it has room and waits for its turn."""
    sessions: int | None = None
    """In a group of the type Session: how many it has locked."""

    @property
    def has_parts(self) -> bool:
        """Whether it shares its partitions: their messages are those of several members."""
        return any("/" in name for name in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMembers:
    """All members of a group, and the partitions that none of them holds."""

    group: str
    type: str
    members: Sequence[MemberRow]
    unassigned: Sequence[str]
    unknown: Sequence[str]
    """Partitions that no broker that answers serves: they are in no number."""
    troubles: Mapping[str, str]
    """Why brokers have not answered, by their names: flows at these are not counted."""


def describe(group: str, snapshot: Picture) -> GroupMembers:
    """Sum up who is in a group, from its records and the states of its brokers.

    A partition without an answer of its broker counts for the member of the coordinator's record.
    """
    states = [each.state for each in snapshot.brokers.values() if each.state is not UNSET]
    owned = _owned(group, states)
    type_ = str(snapshot.group_spec.get("type", GroupType.PARTITIONED))
    is_open = type_ in OPEN_TYPES
    retired = set(snapshot.succession.retired if snapshot.succession is not UNSET else ())
    held: defaultdict[str, dict[str, MemberPartition]] = defaultdict(dict)
    for name in () if is_open else snapshot.partitions:
        detail, entry = owned.get(name), snapshot.assignment.get(name)
        if detail is not None and detail.parts is not UNSET:
            for part, member, state in _parts_of(detail.parts):
                held[member][f"{name}/{part}"] = MemberPartition(
                    state=state,
                    epoch=detail.epoch,
                    in_flight=None,
                    lag=None,
                    is_retired=name in retired,
                )
        elif detail is not None:
            held[detail.member][name] = MemberPartition(
                state=detail.state,
                epoch=detail.epoch,
                in_flight=detail.in_flight,
                lag=detail.lag,
                is_retired=name in retired,
            )
        elif entry is not None:
            held[entry.member or ""][name] = MemberPartition(
                state=entry.state,
                epoch=entry.epoch,
                in_flight=None,
                lag=None,
                is_retired=name in retired,
            )
    for name, assigned in snapshot.assignment.items():
        partition, slash, _ = name.partition("/")
        if slash and partition not in owned:
            held[assigned.member or ""][name] = MemberPartition(
                state=assigned.state,
                epoch=assigned.epoch,
                in_flight=None,
                lag=None,
                is_retired=partition in retired,
            )
    unassigned = held.pop("", {})
    flows: defaultdict[str, list[FlowDetail]] = defaultdict(list)
    for each in states:
        for flow in each.flows:
            if flow.group == group:
                flows[flow.member].append(flow)
    names = {*snapshot.members, *snapshot.refused, *held, *flows}
    return GroupMembers(
        group=group,
        type=type_,
        members=[
            _row(snapshot, member, flows.get(member, ()), held.get(member, {}), type_)
            for member in sorted(names)
        ],
        unassigned=[*unassigned],
        unknown=[name for name in snapshot.partitions if name not in owned],
        troubles={
            name: each.error for name, each in snapshot.brokers.items() if each.error is not UNSET
        },
    )


def _parts_of(parts: PartsDetail) -> Iterator[tuple[int, str, str]]:
    """Yield the number of each part, its member and its state; an empty name: nobody."""
    for part, place in enumerate(parts.of):
        if place == NOBODY:
            yield part, "", "Unassigned"
        else:
            yield part, parts.members[place], "Ready" if parts.bound[place] else "Unbound"


def shortened(names: Iterable[str]) -> list[str]:
    """Return names of partitions as they are, and those of parts joined, such as `1.3/0-7`."""
    parts: dict[str, list[int]] = {}
    for name in names:
        partition, slash, part = name.partition("/")
        parts.setdefault(partition, []).extend([int(part)] if slash else [])
    return [
        f"{partition}/{number_ranges(numbers)}" if numbers else partition
        for partition, numbers in parts.items()
    ]


def _owned(group: str, states: Iterable[BrokerState]) -> dict[str, GroupDetail]:
    """Return what the owner of each partition says; of two owners the later one counts."""
    found: dict[str, tuple[int, GroupDetail]] = {}
    for state in states:
        for name, partition in state.partitions.items():
            detail = partition.groups.get(group)
            if detail is not None and partition.broker_epoch >= found.get(name, (-1,))[0]:
                found[name] = (partition.broker_epoch, detail)
    return {name: detail for name, (_, detail) in found.items()}


def _row(
    snapshot: Picture,
    member: str,
    flows: Sequence[FlowDetail],
    partitions: Mapping[str, MemberPartition],
    type_: str,
) -> MemberRow:
    is_open = type_ in OPEN_TYPES
    is_shared = type_ == GroupType.SHARED and bool(flows)
    is_session = type_ == GroupType.SESSION and bool(flows)
    listed, refused = snapshot.members.get(member), snapshot.refused.get(member)
    newest = min(flows, key=lambda flow: flow.bound_s, default=None)
    incarnation = newest.incarnation if newest is not None else ""
    ages = [flow.bound_s for flow in flows if flow.incarnation == incarnation]
    lost_at_ms = listed.lost_at_ms if listed is not None else None
    if lost_at_ms is not None or (listed is None and not flows):
        # A member that holds nothing gave it back, or lost it: nobody waits for its return.
        state = "Lost" if partitions else "Left"
    else:
        state = "Active" if partitions or is_open else "Standby"
    if refused is not None and not partitions:
        state = "Refused"
    return MemberRow(
        member=member,
        state=state,
        address=listed.address if listed is not None else "",
        incarnation=incarnation,
        bound_s=max(ages, default=None),
        flows=len(flows),
        is_leaving=any(flow.is_leaving for flow in flows),
        lost_s=None if lost_at_ms is None else max(0, snapshot.now_ms - lost_at_ms) / 1000,
        refused=refused.reason if refused is not None else "",
        in_flight=sum(flow.unacked for flow in flows)
        if is_open
        else sum(each.in_flight or 0 for each in partitions.values()),
        lag=sum(each.lag or 0 for each in partitions.values()),
        partitions=partitions,
        priority=max(flow.priority for flow in flows) if is_shared else None,
        credit=sum(flow.credit or 0 for flow in flows) if is_shared else None,
        turns=sum(flow.turns or 0 for flow in flows) if is_shared else None,
        sessions=sum(flow.sessions or 0 for flow in flows) if is_session else None,
    )
