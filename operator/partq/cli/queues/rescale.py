"""`partq rescale`: change the number of partitions of a queue, or show what that would do."""

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Literal

import click

from partq.cli.formatting import spell_age, spell_ms
from partq.cli.quantity import Quantity
from partq.cli.queues.broker_session import open_session
from partq.cli.queues.connection import Connect, QueueAddress, connection_options
from partq.client.transport.session import Session
from partq.core.slot_table import MAX_PARTITIONS
from partq.core.views.rescale_status import EarlierRescale, RescalePhase, RescaleStatus
from partq.errors import ConflictError, PartqError, SettingsError, UnavailableError
from partq.excerpts import counted
from partq.settings import RETIRE_AFTER_S
from partq.wire.calls.answers import UNSET
from partq.wire.calls.bodies import RescaleBody
from partq.wire.calls.replies import plain
from partq.wire.calls.status import RescaledGroup, RescalePlan, StatusAnswer

LOOK_EVERY_S = 0.2
SHOW_EVERY_S = 30.0
"""How often a phase that lasts is shown again, with what it waits for by then."""
DEFAULT_TIMEOUT_S: Mapping["Until", float] = {"opened": 300.0, "settled": RETIRE_AFTER_S + 300}
"""How long `--wait` waits; partitions without slots stay for a time, before a change settles."""
MAX_SHOWN_GROUPS = 20
MAX_SHOWN_WAITS = 2
MAX_SHOWN_SLOTS = 3
Until = Literal["opened", "settled"]

_HELP = """Change how many partitions a queue has, while producers and consumers work.

The keys that move keep their order: a consumer group gets a message of a new partition when it has
acknowledged everything that was published to the key's partition before. So publishing continues,
and deliveries of new partitions wait for the backlog that there is. The command returns when the
change is recorded: the coordinator carries it out, and goes on with it after a failure. If you run
the command again with the same number, it changes nothing; with `--wait` it waits for the change
that is under way.

A partition without slots stays for ten minutes at least, so `--wait settled` takes longer than that
where the change leaves some, and by default it waits for 15 minutes.

On Kubernetes the number is `spec.partitions` of the PartitionedQueue: the command shows the plan
and the line for kubectl, and changes nothing.

\b
  partq rescale --partitions 24 --plan             show it, and change nothing
  partq rescale --partitions 24 --wait             until all partitions take messages
  partq rescale --partitions 12 --wait settled --timeout 3600
"""


@click.command(help=_HELP)
@connection_options
@click.option(
    "--partitions",
    "count",
    type=click.IntRange(1, MAX_PARTITIONS),
    required=True,
    help="How many it is to have.",
)
@click.option("--plan", "is_plan", is_flag=True, help="Show what it would do, and change nothing.")
@click.option(
    "--wait",
    "until",
    is_flag=False,
    flag_value="opened",
    type=click.Choice(["opened", "settled"]),
    help="Wait until all partitions take messages (opened, the default), or until no group has "
    "older messages left and partitions without slots are gone (settled).",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Quantity(0, 604_800),
    help="With --wait: seconds to wait. The change continues all the same. Default: 300; with "
    "--wait settled 900.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON; with --wait once it ends, also where the time was too short.",
)
def rescale(
    *,
    connect: Connect,
    count: int,
    is_plan: bool,
    until: Until | None,
    timeout_s: float | None,
    as_json: bool,
) -> None:
    """Show the plan, record what is wanted, and wait."""
    if is_plan and until is not None:
        raise SettingsError("--plan: got it with --wait; expected one of them")
    if timeout_s is not None and until is None:
        raise SettingsError("--timeout: got it without --wait; expected both, or neither")
    connection = connect("admin")
    answer = asyncio.run(_ask(connection, count, is_dry_run=True))
    if not as_json:
        for line in lines(answer):
            click.echo(line)
    if is_plan:
        if as_json:
            click.echo(json.dumps(plain(answer)))
        return
    if not answer.is_wanted:
        # On Kubernetes it is refused, with the line for kubectl.
        answer = asyncio.run(_ask(connection, count, is_dry_run=False))
        if not as_json:
            click.echo(f"queue {connection.queue} is to have {counted(count, 'partition')}")
        if connection.is_local:
            click.echo(
                f"if `partq dev up` is started with a FILE that has queue {connection.queue}, set "
                f"its spec.partitions to {count}; if with --partitions, give {count} or leave it "
                "out: the next start would change the number back",
                err=True,
            )
    if until is not None:
        if timeout_s is None:
            timeout_s = DEFAULT_TIMEOUT_S[until]
        elif until == "settled" and timeout_s <= RETIRE_AFTER_S and _retires(answer):
            click.echo(
                f"--timeout: {timeout_s:g} s is too short for settled: partitions without slots "
                f"stay for {RETIRE_AFTER_S:g} s, unless PARTQ_RETIRE_AFTER_S of the coordinator "
                f"is lower; expected {DEFAULT_TIMEOUT_S['settled']:g} s or more",
                err=True,
            )
        try:
            last = asyncio.run(_wait(connection, answer, until, timeout_s, is_quiet=as_json))
        except PartqError:
            if as_json:  # how far it has come, if a broker says
                with suppress(PartqError):
                    answer = asyncio.run(_ask(connection, count, is_dry_run=True))
                click.echo(json.dumps(plain(answer)))
            raise
        if not as_json:
            click.echo(result(answer, last))
        answer = asyncio.run(_ask(connection, count, is_dry_run=True))
    if as_json:
        click.echo(json.dumps(plain(answer)))


def _retires(plan: RescalePlan) -> bool:
    """Whether partitions without slots have to go before the change is settled."""
    if plan.retired or plan.rescale is UNSET:
        return bool(plan.retired)
    # Partitions of earlier changes do not hold up this one.
    is_running = plan.from_count == plan.to_count and plan.rescale.generation == plan.generation
    return is_running and plan.rescale.retiring > 0


async def _ask(connection: QueueAddress, count: int, *, is_dry_run: bool) -> RescalePlan:
    async with open_session(connection) as session:
        body = RescaleBody(count, is_dry_run=is_dry_run)
        return await session.ask("POST", "/partitions", RescalePlan, body, prefix="/admin")


def lines(plan: RescalePlan) -> Iterator[str]:
    """Yield what a change does, for people."""
    if plan.from_count == plan.to_count:
        has = counted(plan.to_count, "partition")
        if plan.is_wanted:
            yield f"queue {plan.queue} has {has}: nothing changes"
        else:  # a change that is not in force is taken back
            yield f"queue {plan.queue} keeps its {has}"
        if plan.rescale is not UNSET and plan.rescale.phase is not RescalePhase.SETTLED:
            is_earlier = plan.rescale.generation < plan.generation
            told = progress(plan.rescale)
            yield f"an earlier change is not settled: {told}" if is_earlier else told
        for remark in plan.remarks:
            yield f"note: {remark}"
        return
    yield (
        f"{plan.from_count} -> {counted(plan.to_count, 'partition')}, generation "
        f"{plan.generation}; {plan.moved_percent:g} % of the keys move (the least that is "
        f"possible), {len(plan.created)} new, {len(plan.retired)} without slots afterwards"
    )
    yield (
        "publishing: keys that move wait for some round trips, until their new partition is open; "
        "nothing is refused"
    )
    for name, group in sorted(plan.groups.items())[:MAX_SHOWN_GROUPS]:
        yield f"group {name}: {_held(group)}; {_members(group)}"
    if len(plan.groups) > MAX_SHOWN_GROUPS:
        yield f"and {len(plan.groups) - MAX_SHOWN_GROUPS} more groups: --json lists all"
    yield f"memory of Redis: about {plan.store_bytes:,} bytes for the empty partitions"
    for remark in plan.remarks:
        yield f"note: {remark}"
    for each in plan.waits_for:
        yield f"waits for: {each}"
    if plan.command is not UNSET:
        yield f"to change it: {plan.command}"


def _held(group: RescaledGroup) -> str:
    if not group.lag:
        return "nothing to finish first"
    told = (
        f"new partitions wait until it has acknowledged "
        f"{counted(group.lag, 'message', spec=',')}, {group.in_flight:,} of them in flight"
    )
    if group.blocked:
        return f"{told}; until then somebody has to release {_blocked(group.blocked)}"
    if group.hold_ms is None:
        return f"{told}; how long is not known: nothing was acknowledged in the last ten minutes"
    spell = spell_ms if group.hold_ms < 10_000 else spell_age
    return f"{told}: about {spell(group.hold_ms)}"


def _blocked(blocked: Mapping[str, list[int]]) -> str:
    """Return which keys are blocked, where."""
    slots = [(name, slot) for name, found in sorted(blocked.items()) for slot in found]
    shown = ", ".join(f"slot {slot} of partition {name}" for name, slot in slots[:MAX_SHOWN_SLOTS])
    more = f" and {len(slots) - MAX_SHOWN_SLOTS} more" if len(slots) > MAX_SHOWN_SLOTS else ""
    return f"{counted(len(slots), 'blocked key')} (`partq keys release`): {shown}{more}"


def _members(group: RescaledGroup) -> str:
    if not group.members:
        return "no member"
    before = sorted(each.before for each in group.members.values())
    after = sorted(each.after for each in group.members.values())
    return (
        f"{counted(len(group.members), 'member')}: {_spread(before)} now, {_spread(after)} then; "
        f"{group.moved} move, {group.assigned} are added"
    )


def _spread(counts: list[int]) -> str:
    first, last = counts[0], counts[-1]
    if first == last:
        return f"{counted(first, 'partition')} each"
    return f"{first} to {counted(last, 'partition')}"


def progress(status: RescaleStatus) -> str:
    """Return how far a change has come, in one line."""
    told = (
        f"{status.from_count} -> {counted(status.to_count, 'partition')}, generation "
        f"{status.generation}: {status.phase}"
    )
    match status.phase:
        case RescalePhase.OPENING:
            told += (
                f"; {status.sealed} of {status.to_seal} sealed, "
                f"{status.opened} of {status.to_open} opened"
            )
        case RescalePhase.DRAINING if status.retiring:
            told += f"; {counted(status.retiring, 'partition')} without slots"
        case RescalePhase.SETTLED:
            kept = counted(status.retiring, "partition")
            return f"{told}; {kept} without slots kept" if status.retiring else told
    if not status.waits_for:
        return told
    more = len(status.waits_for) - MAX_SHOWN_WAITS
    shown = "; ".join(status.waits_for[:MAX_SHOWN_WAITS])
    return f"{told}; waits for {shown}" + (f"; and {more} more" if more > 0 else "")


def result(plan: RescalePlan, last: RescaleStatus | EarlierRescale | None) -> str:
    """Return what a change that was waited for has come to, in one line."""
    taking = counted(plan.to_count, "partition takes messages", "partitions take messages")
    told = f"queue {plan.queue}: {taking}"
    if last is None:  # it never had another number
        return told
    if last.phase is RescalePhase.ABORTED:
        return f"{told}; the change to {last.to_count} is taken back"
    told = f"{told}; generation {last.generation}"
    if last.phase is RescalePhase.SETTLED:
        return f"{told} is settled"
    return told


async def _wait(
    connection: QueueAddress, plan: RescalePlan, until: Until, timeout_s: float, *, is_quiet: bool
) -> RescaleStatus | EarlierRescale | None:
    """Wait until the change has come so far, and show each step; return the latest change.

    Raises:
        UnavailableError: it has not in time, or no broker says.
        ConflictError: it was taken back, or another number is wanted by now.
    """
    clock = asyncio.get_running_loop().time
    end, shown, shown_at = clock() + timeout_s, ("", ""), clock() - SHOW_EVERY_S
    async with open_session(connection) as session:
        while True:
            try:
                status = await _status(session)
                last = _latest(status)
                if _is_done(last, plan, until):
                    return last
                if last is None or last.generation < plan.generation:
                    await _check_wanted(session, plan)
                told = (
                    progress(status) if status is not None else "the coordinator has not begun it"
                )
                step = str(status.phase) if status is not None else ""
            except UnavailableError as error:
                told = step = error.message
            is_later = step != shown[0] or clock() >= shown_at + SHOW_EVERY_S
            if (step, told) != shown and is_later and not is_quiet:
                click.echo(told)
                sys.stdout.flush()
                shown, shown_at = (step, told), clock()
            if clock() >= end:
                raise UnavailableError(
                    f"queue {connection.queue}: not {until} after {timeout_s:g} s, and the change "
                    f"continues: {told}; run the command again to wait longer"
                )
            await asyncio.sleep(LOOK_EVERY_S)


async def _status(session: Session) -> RescaleStatus | None:
    answer = await session.ask("GET", "/status", StatusAnswer)
    return None if answer.rescale is UNSET else answer.rescale


async def _check_wanted(session: Session, plan: RescalePlan) -> None:
    """Check that the number of a change that no broker reports is still recorded.

    Raises:
        ConflictError: another number replaced it before the coordinator began the change.
    """
    body = RescaleBody(plan.to_count, is_dry_run=True)
    now = await session.ask("POST", "/partitions", RescalePlan, body, prefix="/admin")
    if not now.is_wanted:
        raise ConflictError(
            f"queue {plan.queue}: another number of partitions than {plan.to_count} is wanted by "
            f"now, and the change to {plan.to_count} was never begun; `partq status` shows the "
            "latest change"
        )


def _latest(status: RescaleStatus | None) -> RescaleStatus | EarlierRescale | None:
    """Return the latest change; the status is of the latest that is not over."""
    if status is None:
        return None
    changes: list[RescaleStatus | EarlierRescale] = [status, *status.earlier]
    return max(changes, key=lambda change: change.generation)


def _is_done(last: RescaleStatus | EarlierRescale | None, plan: RescalePlan, until: Until) -> bool:
    """Whether the change of a plan has come so far, by the latest change.

    Raises:
        ConflictError: another number of partitions is wanted by now.
    """
    if last is None or last.generation < plan.generation:
        return plan.from_count == plan.to_count  # else the broker has not heard of it yet
    undoes = last.to_count != plan.to_count and last.from_count == plan.to_count
    if undoes and last.phase in (RescalePhase.PREPARING, RescalePhase.ABORTED):
        # The number is the one in force: what was being prepared is taken back.
        return last.phase is RescalePhase.ABORTED
    if last.to_count != plan.to_count or last.phase is RescalePhase.ABORTED:
        raise ConflictError(
            f"queue {plan.queue}: another number of partitions than {plan.to_count} is wanted by "
            f"now: the latest change is {last.from_count} -> {last.to_count}: {last.phase}"
        )
    done = [RescalePhase.SETTLED, *([RescalePhase.DRAINING] if until == "opened" else [])]
    return last.phase in done
