"""`partq plan`: an assignment as a pure function of the JSON on stdin, or of a live group."""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import click

from partq.cli.queues.connection import Connect, connection_options
from partq.cli.queues.plan_live import Wish, plan_from_live, show
from partq.cli.standard_input import check_open
from partq.core.group.assignors import ASSIGNORS, moved
from partq.core.model import MemberId, PartitionId

MAX_PARTITIONS = 100_000
MAX_MEMBERS = 10_000
MAX_MEMBER_LENGTH = 253
MAX_INPUT_BYTES = 64 * 2**20
_FIELDS = ("partitions", "members", "previous", "strategy")


class PlanInputError(click.ClickException):
    """The input is not a plan's; nothing is printed on stdout."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInput:
    """What `partq plan` reads."""

    partitions: list[PartitionId]
    members: list[MemberId]
    previous: dict[PartitionId, MemberId]
    strategy: str


_HELP = """Compute who gets what, from JSON on stdin or from a group that runs.

\b
  echo '{"partitions": 16, "members": ["a", "b"]}' | partq plan
  partq plan --from-live --members 6
  partq plan --from-live --add orders-7 --remove orders-2
  partq plan --from-live --rollout --json

Input on stdin: {"partitions": 16, "members": ["a", "b"], "previous": {"0": "a"}, "strategy":
"sticky"}; the last two may be left out. Output: {"assignment": {"0": "a", ...}, "moves": n}, where
a move is a partition that had a previous owner and has another one, or none, now.

With --from-live nothing is read from stdin and nothing is changed: the coordinator's own planner
is asked what it would move if the members changed.
"""


@click.command(help=_HELP)
@click.option("--bench", is_flag=True, help="Time 100,000 partitions over 10,000 members.")
@click.option("--json", "as_json", is_flag=True, help="With --bench or --from-live: print JSON.")
@click.option("--from-live", is_flag=True, help="Plan for a group as it is now.")
@click.option(
    "--members",
    "member_count",
    type=click.IntRange(0, MAX_MEMBERS),
    help="Plan for this many members; if that is fewer than now, the members with the fewest "
    "partitions leave.",
)
@click.option("--add", "added", multiple=True, help="A member that joins; may be repeated.")
@click.option("--remove", "removed", multiple=True, help="A member that leaves; may be repeated.")
@click.option("--rollout", "is_rollout", is_flag=True, help="All are replaced, one by one.")
@click.option("--group", help="Name of the consumer group; needed if the queue has several.")
@connection_options
def plan(
    *,
    bench: bool,
    as_json: bool,
    from_live: bool,
    member_count: int | None,
    added: tuple[str, ...],
    removed: tuple[str, ...],
    is_rollout: bool,
    group: str | None,
    connect: Connect,
) -> None:
    """Print a plan, whatever it is made from."""
    wish = Wish(member_count=member_count, added=added, removed=removed, is_rollout=is_rollout)
    if from_live:
        connection = connect("admin")
        result = plan_from_live(connection, group, wish)
        if as_json:
            click.echo(json.dumps(result, ensure_ascii=False))
        else:
            show(result)
        return
    if wish != Wish():
        raise PlanInputError("--members, --add, --remove and --rollout go with --from-live only")
    if bench:
        _print_bench(measure(), as_json=as_json)
        return
    check_open("give JSON there, or --from-live to look at a group that runs")
    data = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
    click.echo(json.dumps(render(parse(data)), ensure_ascii=False))


def render(wanted: PlanInput) -> dict[str, object]:
    """Return what `partq plan` prints for its input."""
    target = ASSIGNORS[wanted.strategy](wanted.partitions, wanted.members, wanted.previous)
    return {
        "assignment": {str(partition.index): target[partition] for partition in sorted(target)},
        "moves": len(moved(wanted.previous, target)),
    }


def parse(data: bytes) -> PlanInput:
    """Read and check the whole input.

    Raises:
        PlanInputError: names the first wrong field, what was got and what was expected.
    """
    if len(data) > MAX_INPUT_BYTES:
        _refuse("input", f"more than {MAX_INPUT_BYTES} bytes", "less")
    try:
        fields = json.loads(data, object_pairs_hook=_without_repeats)
    except UnicodeDecodeError as error:
        _refuse("input", f"bytes that are not UTF-8 at {error.start}", "JSON")
    except RecursionError:
        _refuse("input", "JSON nested too deeply", "one flat object")
    except ValueError as error:
        _refuse("input", f"no JSON: {error}", 'an object such as {"partitions": 16, ...}')
    if not isinstance(fields, dict):
        _refuse("input", _show(fields), 'an object such as {"partitions": 16, ...}')
    if unknown := [name for name in fields if name not in _FIELDS]:
        _refuse(_show(unknown[0]), "an unknown field", f"only {', '.join(_FIELDS)}")
    count = _partition_count(fields.get("partitions"))
    return PlanInput(
        partitions=[PartitionId(1, index) for index in range(count)],
        members=_members(fields.get("members")),
        previous=_previous(fields.get("previous", {}), count),
        strategy=_strategy(fields.get("strategy", "sticky")),
    )


def measure() -> dict[str, float]:
    """Return the seconds that each strategy takes after 500 of 10,000 members were replaced."""
    partitions = [PartitionId(1, index) for index in range(MAX_PARTITIONS)]
    members = [MemberId(f"member-{number:05}") for number in range(MAX_MEMBERS + 500)]
    previous = ASSIGNORS["sticky"](partitions, members[:MAX_MEMBERS], {})
    seconds = {}
    for name, assign in ASSIGNORS.items():
        began = time.perf_counter()
        assign(partitions, members[-MAX_MEMBERS:], previous)
        seconds[name] = round(time.perf_counter() - began, 4)
    return seconds


def _print_bench(seconds: Mapping[str, float], *, as_json: bool) -> None:
    if as_json:
        result = {"partitions": MAX_PARTITIONS, "members": MAX_MEMBERS, "seconds": seconds}
        click.echo(json.dumps(result))
        return
    click.echo(f"{MAX_PARTITIONS:,} partitions over {MAX_MEMBERS:,} members, 500 of them new:")
    for name, value in seconds.items():
        click.echo(f"  {name:<10}{value:.3f} s")


def _partition_count(value: object) -> int:
    expected = f"a whole number from 1 to {MAX_PARTITIONS}"
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse("partitions", _show(value), expected)
    if not 1 <= value <= MAX_PARTITIONS:
        _refuse("partitions", _show(value), expected)
    return value


def _members(value: object) -> list[MemberId]:
    if not isinstance(value, list):
        _refuse("members", _show(value), "a list of names")
    if len(value) > MAX_MEMBERS:
        _refuse("members", f"{len(value)} names", f"at most {MAX_MEMBERS}")
    seen: dict[MemberId, None] = {}
    for place, name in enumerate(value):
        member = _member(f"members[{place}]", name)
        if member in seen:
            _refuse(f"members[{place}]", f"{_show(name)} a second time", "every member once")
        seen[member] = None
    return list(seen)


def _member(field: str, value: object) -> MemberId:
    expected = f"a name of 1 to {MAX_MEMBER_LENGTH} characters"
    if not isinstance(value, str):
        _refuse(field, _show(value), expected)
    if not 1 <= len(value) <= MAX_MEMBER_LENGTH:
        _refuse(field, f"{len(value)} characters", expected)
    if not value.isprintable():  # control characters, lone surrogates
        _refuse(field, _show(value), "printable characters only")
    return MemberId(value)


def _previous(value: object, partition_count: int) -> dict[PartitionId, MemberId]:
    if not isinstance(value, dict):
        _refuse("previous", _show(value), 'an object such as {"0": "a"}')
    expected = f"a partition from 0 to {partition_count - 1}, in decimal"
    names = {str(index): index for index in range(partition_count)} if value else {}
    previous: dict[PartitionId, MemberId] = {}
    for name, owner in value.items():
        if name not in names:
            _refuse("previous", f"partition {_show(name)}", expected)
        previous[PartitionId(1, names[name])] = _member(f"previous[{_show(name)}]", owner)
    return previous


def _strategy(value: object) -> str:
    if not isinstance(value, str) or value not in ASSIGNORS:
        _refuse("strategy", _show(value), f"one of {', '.join(ASSIGNORS)}")
    return value


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields: dict[str, object] = {}
    for name, value in pairs:
        if name in fields:
            _refuse(_show(name), "the name twice in one object", "every name once")
        fields[name] = value
    return fields


def _show(value: object) -> str:
    if value is None:
        return "nothing"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refuse(field: str, got: str, expected: str) -> NoReturn:
    raise PlanInputError(f"{field}: got {got}, expected {expected}")
