"""`partq plan --from-live`: what a scale or a rollout would move, from the group as it is."""

import asyncio
from dataclasses import dataclass
from typing import Any

import click

from partq.cli.formatting import spell_ms
from partq.cli.queues.broker_session import ask_for_group
from partq.cli.queues.connection import QueueAddress
from partq.coordinator.group_snapshot import GroupSnapshot
from partq.coordinator.plan_forecast import (
    bound_members,
    plan_forecast,
    read_complete_snapshot,
    scaled,
)
from partq.core.group.forecast import MemberChange, rollout
from partq.core.group.group_type import OPEN_RULES, GroupType
from partq.core.model import MemberId
from partq.errors import SettingsError
from partq.excerpts import counted, excerpt, some_of
from partq.wire.calls.replies import plain

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
    snapshot = read_complete_snapshot(name, body)
    report: Report = plain(plan_forecast(name, snapshot, _changes(wish, snapshot)))
    if snapshot.rules.type.is_open:
        report["type"] = str(snapshot.rules.type)
    return report


def show(result: Report) -> None:
    """Print a result for people."""
    if (group_type := result.get("type")) is not None:
        click.echo(
            f"group {result['group']}: nothing would move: it has the type {group_type}, where "
            f"{OPEN_RULES[GroupType(group_type)]}"
        )
        return
    moves = result["moves"]
    unit = "part" if "parts" in result else "partition"
    click.echo(
        f"group {result['group']}: {counted(result['moved'], unit)} would move, "
        f"{result['assigned']} would get their first member; "
        f"at most {result['paused_at_once']} handed over at once"
    )
    for move in moves[:MAX_SHOWN]:
        remarks = "  (for balance)" if move["may_wait"] else ""
        remarks += "  (without slots)" if move.get("is_retired") else ""
        click.echo(f"  {move['partition']}  {move['from'] or 'nobody'} -> {move['to']}{remarks}")
    if len(moves) > MAX_SHOWN:
        click.echo(f"  and {len(moves) - MAX_SHOWN} more: --json lists all")
    for member, counts in result["members"].items():
        click.echo(f"  {member}: {counts['before']} -> {counted(counts['after'], unit)}")
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


def _changes(wish: Wish, snapshot: GroupSnapshot) -> list[MemberChange]:
    members = bound_members(snapshot)
    if wish.is_rollout:
        return rollout(members, heeds_pods=snapshot.heeds_pods)
    if wish.member_count is not None:
        return [scaled(wish.member_count, snapshot)]
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
