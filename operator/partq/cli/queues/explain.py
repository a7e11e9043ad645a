"""`partq explain`: where a partition is, why it moved, and what it waits for."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime

import click

from partq.cli.formatting import spell_ms
from partq.cli.queues import explain_parts
from partq.cli.queues.broker_session import ask_for_group, find_layout
from partq.cli.queues.connection import Connect, connection_options
from partq.cli.queues.explain_parts import parse_place, place_of
from partq.cli.queues.problems import letters_waiting, sessions_text
from partq.coordinator.group_snapshot import GroupSnapshot, read_snapshot
from partq.core.group.group_type import OPEN_TEXTS
from partq.core.group.move_reason import MoveReason
from partq.core.group.moves import Forced
from partq.core.group.partition_wait import PartitionWait, WaitsFor, standbys_of, wait_of
from partq.core.group.records import PastMove
from partq.core.hashing import slot_of
from partq.core.layout import Layout
from partq.core.model import MemberId, PartitionId
from partq.core.partition_problems import (
    blocked_text,
    held_keys_text,
    parked_keys_text,
    parked_text,
    stalled_text,
    withheld_text,
)
from partq.core.parts.part_id import PartId, partition_of
from partq.errors import SettingsError, UnknownPartitionError
from partq.excerpts import counted
from partq.wire.calls.answers import UNSET
from partq.wire.calls.replies import plain
from partq.wire.calls.state import GroupDetail, SessionCounts

_HELP = """Say where PARTITION is, why it moved, and what it waits for.

PARTITION is a number such as 3, or 1.3 with its generation; --key names the partition that the
messages of a key go to. In a group of the type KeyShared 1.3/5 is a part of a partition, and --key
names one. Any broker can answer, whether a coordinator (on Kubernetes: the operator) runs or not;
nothing is changed.

\b
  partq explain 3
  partq explain --key order-17
  partq explain 1.3 --group workers --json
"""

_REASONS: Mapping[str, str] = {
    MoveReason.NO_MEMBER: "nobody had it",
    MoveReason.NEWCOMER: "for balance: {target} was new and had nothing",
    MoveReason.UNEVEN: "for balance: the members' shares were uneven",
    MoveReason.PRIORITY: "{target} had a higher priority than {source}",
    MoveReason.SAID_LEAVING: "{source} had said that it ends",
    MoveReason.POD_TERMINATING: "the pod of {source} was terminating",
    MoveReason.POD_REPLACED: "the pod of {source} was being replaced in a rollout",
    MoveReason.POD_GONE: "the pod of {source} was gone for good",
    MoveReason.DELAY_OVER: "{source} had lost its connection and was not back within the delay",
    MoveReason.STANDBY: "{source} had lost its connection, and another member stood by",
}
_FORCED: Mapping[str, str] = {
    Forced.UNASSIGNED: "",
    Forced.SOURCE_LOST: "forced, as {source} was not connected",
    Forced.SOURCE_UNBOUND: "forced, as {source} was not connected to the partition's broker",
    Forced.DRAIN_TIMEOUT: "forced, as {source} had not finished in time:"
    " what it was processing was redelivered",
}
_WAITS = {
    WaitsFor.NOTHING: "nothing: it is where it belongs",
    WaitsFor.BROKER: "a broker: no broker that answers serves it",
    WaitsFor.MEMBER: "{member}, which is not connected: the rebalance delay {left}",
    WaitsFor.DEAD_LETTERS: "its dead letters to be stored; until then it delivers nothing",
    WaitsFor.MESSAGES: "a reset of the group, as its log does not hold the message that comes next",
    WaitsFor.PREDECESSORS: "older messages in other partitions: {gated_by}",
    WaitsFor.PARKED_KEYS: "keys that wait: {stands_still}",
    WaitsFor.BLOCKED_KEYS: "the release of {blocked} (`partq keys list` shows which); the other"
    " keys continue",
    WaitsFor.APPLICATION: "{member}, whose application has paused it: nothing is delivered until it"
    " calls resume",
    WaitsFor.DRAIN: "{member} to finish {in_flight} messages that it has not acknowledged, the"
    " oldest at offset {cursor}, before it goes to {target}: the time for that {left}",
    WaitsFor.PAUSE: "its handoff to {target}, which is planned and not begun, or whose coordinator"
    " has gone; until then {member} continues",
    WaitsFor.COMMIT: "its broker to record {target} as its member",
    WaitsFor.BUDGET: "the disruption budget ({limit}): it is to go to {target}; {earliest}",
    WaitsFor.REBALANCE_PAUSED: "an annotation partq.dev/pause-rebalance to go: for balance it would"
    " move to {target}",
    WaitsFor.JOINS: "members that join now: they get their shares together",
    WaitsFor.REPLACEMENT: "the replacement of {member}, which ends and continues until then",
    WaitsFor.RANGE: "a member that declares its slots: no member has",
    WaitsFor.NO_MEMBER: "a member: no member that is connected to its broker can take it",
    WaitsFor.REGISTRATION: "a member that registers it: with spec.assignment Client the members"
    " choose, and nobody has chosen it",
    WaitsFor.COORDINATOR: "a coordinator: it is to go to {target} now. If this stays so, none runs,"
    " or partq.dev/pause is set",
}
_RETIRED = (
    "a change of the partition count has moved its keys to other partitions (--key names that of "
    "a key); what it still has is delivered first, and then it is removed"
)
_REMOVAL = (
    "its removal, ten minutes after the change at the earliest: the group has acknowledged all of "
    "it"
)
SHOWN_STANDBYS = 5
"""Members that stand by are shown up to this many; JSON has all."""
_OUTBOX = ("dead_letters", "blocked", "missing", "parked")
_RETURNS = ("is_withheld", "delayed", "next_redelivery_ms")
_WHERE_SET = (
    "gated_by",
    "parked_keys",
    "blocked_keys",
    "quarantined_keys",
    "lowest_parked",
    "stands_still",
    "order_waits",
    "sessions",
)
"""Left out where there is nothing to say."""
_DETAILS = ("lag", "in_flight", *_OUTBOX, *_RETURNS, "mended")


@click.command(help=_HELP)
@click.argument("partition", required=False)
@connection_options
@click.option("--key", help="Explain the partition of this partition key.")
@click.option("--group", help="Name of the consumer group; needed if the queue has several.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(
    *,
    partition: str | None,
    key: str | None,
    connect: Connect,
    group: str | None,
    as_json: bool,
) -> None:
    """Ask any broker for the group's snapshot, judge it, and tell."""
    if partition is not None and key is not None:
        raise SettingsError("--key: got it with PARTITION; give one of the two")
    if partition is None and key is None:
        raise SettingsError("PARTITION is not given; give its number, or --key KEY")
    wanted, part = (None, None) if partition is None else parse_place(partition)
    slot = None if key is None else slot_of(key)
    connection = connect("admin")
    layout = asyncio.run(find_layout(connection))
    if wanted is None:
        wanted = layout.partition_of(slot or 0)
    name, body = asyncio.run(ask_for_group(connection, group))
    snapshot = read_snapshot(name, body)
    found = place_of(_find(wanted, snapshot, layout), part, slot, snapshot, body)
    if found not in snapshot.observation.partitions:
        _show_parted(found, name, snapshot, connection.queue, as_json=as_json)
        return
    waiting = wait_of(
        found,
        observation=snapshot.observation,
        rules=snapshot.rules,
        handoffs={p: snapshot.handoffs[p] for p in snapshot.under_way},
        held=snapshot.waiting,
        now_ms=snapshot.now_ms,
        blocked=detail.blocked if (detail := _detail(found, snapshot)) is not None else "",
        missing=detail.missing if detail is not None else "",
        # A part's partition says that one of its members has called pause, and not which.
        is_withheld=detail is not None
        and detail.is_withheld
        and not (isinstance(found, PartId) or snapshot.rules.type.is_open),
        gated_by=(detail is not None and detail.gated_by) or "",
        stands_still=(detail is not None and detail.stands_still) or "",
        blocked_keys=(detail is not None and detail.blocked_keys) or 0,
    )
    if as_json:
        told = to_json(found, name, snapshot, waiting)
        where = {} if key is None else {"key": key, "slot": slot}
        click.echo(json.dumps({**where, **told}))
        return
    if key is not None:
        shown = json.dumps(key, ensure_ascii=False)
        click.echo(f"key {shown}, slot {slot}, goes to {_what(found)}")
    click.echo(f"{_what(found)} of queue {connection.queue}, group {name}")
    is_retired = partition_of(found) in layout.retired
    if is_retired:
        click.echo(_RETIRED)
    for line in lines(found, snapshot, waiting, is_retired=is_retired):
        click.echo(line)


def to_json(
    partition: PartitionId, group: str, snapshot: GroupSnapshot, waiting: PartitionWait
) -> dict[str, object]:
    """Return everything as `--json` prints it; names are stable, times are of Redis's clock."""
    ownership = snapshot.observation.partitions[partition]
    return {
        "partition": str(partition),
        "group": group,
        "now_ms": snapshot.now_ms,
        "broker": ownership.broker,
        "broker_epoch": ownership.broker_epoch,
        "member": ownership.member,
        "epoch": ownership.epoch,
        **_fields(partition, snapshot),
        "waits_for": asdict(waiting),
        "standbys": _standbys(partition, snapshot),
        "silent_brokers": dict(snapshot.silent),
        "refused": {member: each._asdict() for member, each in sorted(snapshot.refused.items())},
        "moves": [asdict(move) for move in reversed(snapshot.past.get(partition, []))],
    }


def _fields(partition: PartitionId, snapshot: GroupSnapshot) -> dict[str, object]:
    """Return what the broker of a partition says of it."""
    detail = _detail(partition, snapshot)
    return {
        "state": detail.state if detail is not None else None,
        "cursor": detail.cursor if detail is not None else None,
        "end": snapshot.ends.get(partition_of(partition)),
        **{name: getattr(detail, name, None) for name in _DETAILS},
        **{
            name: plain(found) if isinstance(found, SessionCounts) else found
            for name in _WHERE_SET
            if (found := getattr(detail, name, UNSET)) is not UNSET and found != ""
        },
    }


def _detail(partition: PartitionId, snapshot: GroupSnapshot) -> GroupDetail | None:
    """Return what its broker says of a partition, or of the partition of a part."""
    return snapshot.details.get(partition_of(partition))


def _what(place: PartitionId) -> str:
    return f"{'part' if isinstance(place, PartId) else 'partition'} {place}"


def _show_parted(
    partition: PartitionId, group: str, snapshot: GroupSnapshot, queue: str, *, as_json: bool
) -> None:
    """Print what is known of a partition that several members share."""
    detail = _detail(partition, snapshot)
    if as_json:
        told = {
            "partition": str(partition),
            "group": group,
            "now_ms": snapshot.now_ms,
            "epoch": detail.epoch if detail is not None else None,
            **_fields(partition, snapshot),
            "parts": explain_parts.to_json(partition, snapshot),
        }
        click.echo(json.dumps(told))
        return
    click.echo(f"partition {partition} of queue {queue}, group {group}")
    for line in [
        "",
        *_now(partition, snapshot, "its members"),
        *explain_parts.part_lines(partition, snapshot),
        *_troubles(snapshot),
    ]:
        click.echo(line)


def _standbys(partition: PartitionId, snapshot: GroupSnapshot) -> list[MemberId]:
    return standbys_of(partition, observation=snapshot.observation, rules=snapshot.rules)


def _find(wanted: PartitionId | int, snapshot: GroupSnapshot, layout: Layout) -> PartitionId:
    """Return the partition that is meant; of several with a number alone it is the newest.

    Raises:
        UnknownPartitionError: the queue does not have it.
    """
    known = sorted({partition_of(each) for each in snapshot.observation.partitions})
    if isinstance(wanted, int):
        numbered = [each for each in known if each.index == wanted]
        found = numbered[-1] if numbered else PartitionId(known[-1].generation, wanted)
    else:
        found = wanted
    if found not in known:
        if wanted == found and layout.is_past(found):
            raise UnknownPartitionError(
                f"partition {found}: not in the queue any more, if it ever was: a change of the "
                "partition count has moved its keys to other partitions and removed it; `partq "
                "explain --key KEY` names the partition of a key, `partq partitions` lists all"
            )
        expected = f"{known[0]} to {known[-1]}"
        if known[0].generation != known[-1].generation:
            highest = max(each.index for each in known)
            expected = f"a number from 0 to {highest}, or one that `partq partitions` lists"
        raise UnknownPartitionError(f"partition {found}: not in the queue, expected {expected}")
    return found


def lines(
    partition: PartitionId,
    snapshot: GroupSnapshot,
    waiting: PartitionWait,
    *,
    is_retired: bool = False,
) -> Iterator[str]:
    """Return everything in words, a line each. `is_retired`: the partition has no slots."""
    yield ""
    told = OPEN_TEXTS.get(snapshot.rules.type)
    member = _name(snapshot.observation.partitions[partition].member)
    if told:
        member = "all members" if snapshot.observation.flows else "no member"
    yield from _now(partition, snapshot, member)
    detail = _detail(partition, snapshot)
    if is_retired and detail is not None and not detail.lag:
        yield f"waits for: {_REMOVAL}"
    elif told and waiting.what is WaitsFor.NOTHING:
        yield f"waits for: nothing: {told}"
    else:
        yield f"waits for: {_sentence(partition, snapshot, waiting)}"
    standbys = _standbys(partition, snapshot)
    if standbys:
        more = f" and {len(standbys) - SHOWN_STANDBYS} more" * (len(standbys) > SHOWN_STANDBYS)
        yield f"stand by, the next first: {', '.join(standbys[:SHOWN_STANDBYS])}{more}"
    yield from _troubles(snapshot)
    if told:
        yield f"moves: none, as the type {snapshot.rules.type} assigns nothing"
        return
    moves = snapshot.past.get(partition, [])
    yield "moves, the last first:" if moves else "moves: none recorded"
    yield from (f"  {_move(move)}" for move in reversed(moves))


def _troubles(snapshot: GroupSnapshot) -> Iterator[str]:
    for broker, reason in sorted(snapshot.silent.items()):
        yield f"           broker {broker} does not answer: {reason}"
    if snapshot.refused:
        yield "members that are refused:"
    for member, refused in sorted(snapshot.refused.items()):
        yield f"  {member} from {refused.address}: {refused.reason}"


def _now(partition: PartitionId, snapshot: GroupSnapshot, member: str) -> Iterator[str]:
    """Yield where a partition is, and what its broker says of it."""
    detail = _detail(partition, snapshot)
    if detail is None:
        yield f"now: last known at {member}; its broker is not heard"
    else:
        at = partition if partition in snapshot.observation.partitions else PartId.of(partition, 0)
        ownership = snapshot.observation.partitions[at]
        state = detail.state if detail.parts is UNSET else _state(partition, snapshot)
        if snapshot.rules.type.is_open and not snapshot.observation.flows:
            state = "Unassigned"
        yield (
            f"now: {state}, at {member}, served by {ownership.broker}; "
            f"{counted(detail.lag, 'message')} not acknowledged, {detail.in_flight} of them "
            f"delivered, from offset {detail.cursor} to {snapshot.ends[partition_of(partition)]}"
        )
        yield f"     epoch {ownership.epoch}, broker epoch {ownership.broker_epoch}"
        letters = detail.dead_letters
        if detail.parked:
            yield f"     {parked_text(letters, detail.parked)}"
        elif letters:
            # The broker names a reason only once it has tried for five seconds.
            soon = "" if detail.blocked else "; a reason that lasts is shown after 5 s"
            yield f"     {letters_waiting(letters)} in the dead-letter queue{soon}"
        if detail.blocked:
            yield f"     {blocked_text(detail.blocked)}"
        if detail.is_withheld:
            has_one = not (isinstance(partition, PartId) or snapshot.rules.type.is_open)
            yield f"     {withheld_text(member if has_one else '')}"
        if detail.delayed:
            yield (
                f"     {counted(detail.delayed, 'message waits', 'messages wait')} for redelivery, "
                f"the first for {spell_ms(detail.next_redelivery_ms)}"
            )
        if detail.parked_keys and not detail.stands_still:  # else the others do not continue
            lowest = detail.lowest_parked if isinstance(detail.lowest_parked, int) else -1
            yield f"     {parked_keys_text(detail.parked_keys, lowest)}"
        if held := held_keys_text(detail.blocked_keys or 0, detail.quarantined_keys or 0):
            yield f"     {held}"
        if detail.stands_still:
            yield f"     {stalled_text(detail.stands_still)}"
        if detail.order_waits:
            yield f"     {detail.order_waits}"
        if isinstance(detail.sessions, SessionCounts):
            yield f"     {sessions_text(detail.sessions)}"
        if detail.mended:
            yield f"     when its broker claimed it, {detail.mended}"


def _state(partition: PartitionId, snapshot: GroupSnapshot) -> str:
    """Return the state of a part, or the worst one of a partition's parts."""
    found = [
        each
        for seat, each in snapshot.observation.partitions.items()
        if partition in (seat, partition_of(seat))
    ]
    if any(each.member is None for each in found):
        return "Unassigned"
    return "Ready" if all(each.is_bound for each in found) else "Unbound"


def _sentence(partition: PartitionId, snapshot: GroupSnapshot, waiting: PartitionWait) -> str:
    detail = _detail(partition, snapshot)
    return _WAITS[waiting.what].format(
        member=_name(snapshot.observation.partitions[partition].member),
        target=_name(waiting.target),
        limit=waiting.limit,
        left=_left(waiting.left_ms),
        earliest="when another move is over"
        if waiting.left_ms is None
        else f"in {spell_ms(waiting.left_ms)} at the earliest",
        in_flight=detail.in_flight if detail is not None else None,
        cursor=detail.cursor if detail is not None else None,
        gated_by=detail.gated_by if detail is not None else None,
        stands_still=detail.stands_still if detail is not None else None,
        blocked=counted((detail is not None and detail.blocked_keys) or 0, "blocked key"),
    )


def _left(left_ms: int | None) -> str:
    if left_ms is None or left_ms <= 0:
        return f"was over {spell_ms(-(left_ms or 0))} ago; a coordinator is to act, if one runs"
    return f"is over in {spell_ms(left_ms)}"


def _move(move: PastMove) -> str:
    at = datetime.fromtimestamp(move.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    names = {"source": _name(move.source), "target": _name(move.target)}
    why = _REASONS.get(move.evidence, "for a reason that is not recorded").format(**names)
    forced = _FORCED.get(move.forced or "", "").format(**names)
    paused = (
        "the time without a consumer was not measured"
        if move.pause_ms is None
        else f"{spell_ms(move.pause_ms)} without a consumer"
    )
    told = "; ".join(part for part in (why, forced, paused, f"attempt {move.attempt}") if part)
    return f"{at} UTC  {names['source']} -> {names['target']}: {told}"


def _name(member: MemberId | None) -> str:
    return member or "nobody"
