"""`partq plan --from-live`: what a scale or a rollout would move, from the group as it is."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from partq.cli.formatting import spell_ms
from partq.cli.queues.broker_session import ask_for_group
from partq.cli.queues.connection import QueueAddress
from partq.coordinator.group_snapshot import GroupSnapshot, read_snapshot
from partq.core.group.forecast import (
    MemberChange,
    Step,
    duration_ms,
    forecast,
    paused_at_once,
    rollout,
)
from partq.core.group.membership import GroupAssessment, MemberState, assess
from partq.core.group.planner import may_be_balanced
from partq.core.model import MemberId
from partq.errors import SettingsError, UnavailableError
from partq.excerpts import counted, excerpt, some_of

MAX_SHOWN = 200
"""How many moves are shown one by one; with --json all are."""


Report = dict[str, Any]
"""What `--json` prints; docs/cli.md has its fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The change that is asked about: exactly one of count, names and rollout."""

    member_count: int | None = None
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    is_rollout: bool = False

    def check(self) -> None:
        """Raise SettingsError if it is not one change."""
        given = (self.member_count is not None, bool(self.added or self.removed), self.is_rollout)
        if sum(given) != 1:
            raise SettingsError(
                "--from-live: expected one of --members N, --add and --remove NAME, --rollout"
            )


def plan_from_live(connection: QueueAddress, group: str | None, wish: Wish) -> Report:
    """Return what `--json` prints.

    Raises:
        SettingsError: the change does not fit the group.
        UnavailableError: no broker answers, or one of them does not: the plan would be a guess.
    """
    wish.check()
    name, body = asyncio.run(ask_for_group(connection, group))
    snapshot = read_snapshot(name, body)
    if snapshot.silent:
        reasons = "; ".join(f"{broker}: {why}" for broker, why in sorted(snapshot.silent.items()))
        raise UnavailableError(
            f"not every broker answers, and a plan would be a guess: {reasons}; try again when "
            "all do"
        )
    members = _bound(snapshot)
    changes = _changes(wish, members, snapshot)
    steps = forecast(snapshot.observation, snapshot.rules, snapshot.under_way, changes)
    return _result(name, snapshot, members, steps)


def show(result: Report) -> None:
    """Print a result for people."""
    moves = result["moves"]
    click.echo(
        f"group {result['group']}: {counted(result['moved'], 'partition')} would move, "
        f"{result['assigned']} would get their first member; "
        f"at most {result['paused_at_once']} handed over at once"
    )
    for move in moves[:MAX_SHOWN]:
        waits = "  (for balance)" if move["may_wait"] else ""
        click.echo(f"  {move['partition']}  {move['from'] or 'nobody'} -> {move['to']}{waits}")
    if len(moves) > MAX_SHOWN:
        click.echo(f"  and {len(moves) - MAX_SHOWN} more: --json lists all")
    for member, counts in result["members"].items():
        click.echo(f"  {member}: {counts['before']} -> {counted(counts['after'], 'partition')}")
    if result["estimate_ms"] is None:
        click.echo("how long it takes is not known: no earlier move is recorded")
    else:
        click.echo(
            f"takes about {spell_ms(result['estimate_ms'])}, by the pauses of "
            f"{counted(result['estimated_from'], 'earlier move')}"
        )
    if result["is_paused"]:
        click.echo("rebalancing is paused: nothing moves for balance, and none of that is shown")
    if not result["is_settled"]:
        click.echo(
            "the group is in motion: a lost member is waited for, or members join; until that is "
            "over nothing moves for balance, and none of that is shown"
        )


def _bound(snapshot: GroupSnapshot) -> list[MemberId]:
    members = _assessment(snapshot).members
    return sorted(m for m, state in members.items() if state is MemberState.BOUND)


def _assessment(snapshot: GroupSnapshot) -> GroupAssessment:
    return assess(snapshot.observation, snapshot.rules.membership)


def _changes(
    wish: Wish, members: Sequence[MemberId], snapshot: GroupSnapshot
) -> list[MemberChange]:
    if wish.is_rollout:
        return rollout(members, heeds_pods=snapshot.heeds_pods)
    if wish.member_count is not None:
        return [_scaled(wish.member_count, members, snapshot)]
    known = some_of(members)
    if unknown := sorted(set(wish.removed) - set(members)):
        raise SettingsError(
            f"--remove: got {excerpt(unknown[0])!r}, expected a connected member: {known}"
        )
    if there := sorted(set(wish.added) & set(members)):
        raise SettingsError(f"--add: got {excerpt(there[0])!r}, which is a member already: {known}")
    return [
        MemberChange(
            joins=[MemberId(name) for name in sorted(set(wish.added))],
            leaves=[MemberId(name) for name in sorted(set(wish.removed))],
        )
    ]


def _scaled(count: int, members: Sequence[MemberId], snapshot: GroupSnapshot) -> MemberChange:
    """Return the change to a number of members; the member that has the least leaves first."""
    missing = count - len(members)
    if missing >= 0:
        return MemberChange(joins=[MemberId(f"new-{number}") for number in range(1, missing + 1)])
    held = Counter(ownership.member for ownership in snapshot.observation.partitions.values())
    by_size = sorted(members, key=lambda member: (held[member], member))
    return MemberChange(leaves=by_size[:-missing])


def _result(
    group: str, snapshot: GroupSnapshot, members: Sequence[MemberId], steps: Sequence[Step]
) -> Report:
    rules = snapshot.rules
    moves = [move for step in steps for move in step]
    before = Counter(ownership.member for ownership in snapshot.observation.partitions.values())
    owners = {
        p: ownership.member for p, ownership in snapshot.observation.partitions.items()
    } | snapshot.under_way
    owners |= {move.partition: move.target for move in moves}
    after = Counter(owners.values())
    named = sorted(member for member in {*members, *before, *after} if member is not None)
    pauses_ms = [
        move.pause_ms
        for past in snapshot.past.values()
        for move in past
        if move.pause_ms is not None and move.source is not None and move.forced is None
    ]
    return {
        "group": group,
        "moved": sum(move.ownership.member is not None for move in moves),
        "assigned": sum(move.ownership.member is None for move in moves),
        "paused_at_once": paused_at_once(steps, rules.budget),
        "moves": [
            {
                "partition": str(move.partition),
                "from": move.ownership.member,
                "to": move.target,
                "may_wait": move.may_wait,
            }
            for move in moves
        ],
        "members": {m: {"before": before[m], "after": after[m]} for m in named},
        "is_paused": rules.is_paused,
        "is_settled": rules.is_paused
        or may_be_balanced(snapshot.observation, _assessment(snapshot), rules),
        "estimate_ms": duration_ms(steps, rules.budget, pauses_ms),
        "estimated_from": len(pauses_ms),
    }
