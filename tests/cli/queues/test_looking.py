"""Commands that look at a queue, or move a group's cursors, beside a real one."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from partq import Consumer, Message, Producer
from partq.cli.commands import cli
from partq.cli.formatting import spell_age
from partq.cli.messages.browse import _print_gaps
from partq.cli.queues.groups import row
from partq.cli.queues.reset import CursorMove, place, remark
from partq.cli.queues.status import Rates, render
from partq.core.model import PartitionId
from partq.errors import SettingsError
from partq.testing.local_broker import LocalBroker
from partq.wire.calls.replies import convert, plain
from partq.wire.calls.status import StatusAnswer
from tests.even_shares import even_shares

NO_MORE: Mapping[str, str] = {}
KEYS = [f"key-{number}" for number in range(20)]


class Queue:
    """A queue of four partitions with two groups and twenty messages, and commands beside it."""

    def __init__(self, broker: LocalBroker) -> None:
        self.broker = broker

    async def partq(
        self, *arguments: str, status: int = 0, text: str = "", env: Mapping[str, str] = NO_MORE
    ) -> str:
        """Run a command; return what it prints, or what it complains of."""
        env = {"PARTQ_DATA_DIR": str(self.broker.runtime.data_dir), "COLUMNS": "200", **env}
        run = CliRunner().invoke
        result = await asyncio.to_thread(run, cli, arguments, env=env, input=text)
        assert result.exit_code == status, result.output
        return str(result.stderr if status else result.stdout)

    async def asked(self, *arguments: str) -> Any:
        """Return what a command prints as JSON."""
        return json.loads(await self.partq(*arguments, "--json"))


@pytest.fixture
async def queue() -> AsyncIterator[Queue]:
    async with LocalBroker(groups=["workers", "audit"], broker_count=2, lease_ttl_s=10.0) as broker:
        await even_shares(broker.queue)
        token = broker.tokens.produce
        async with Producer(broker.url, queue="orders", token=token) as producer:
            await (await producer.send_many([Message(key, key.encode()) for key in KEYS]))
        yield Queue(broker)


def cursors(answer):
    return {name: row["cursor"] for name, row in answer["partitions"].items()}


async def test_a_queue_is_looked_at_and_a_group_is_reset(queue):
    await status_sums_up(queue)
    await variables_of_another_queue_are_named(queue)
    await groups_are_listed(queue)
    await messages_are_browsed(queue)
    await a_key_is_explained(queue)
    await reset_moves_what_it_has_shown(queue)
    await messages_are_followed(queue)
    await the_newest_are_browsed(queue)


async def variables_of_another_queue_are_named(queue):
    """Where the environment has a URL or a token, and `--queue` names another queue than it."""
    place = {"PARTQ_URL": queue.broker.url, "PARTQ_TOKEN": queue.broker.tokens.admin}
    said = await queue.partq("status", "--queue", "letters", env=place, status=1)
    assert "serves default/orders only" in said
    assert "PARTQ_URL and PARTQ_TOKEN are those of the environment" in said
    assert "than --queue letters" in said
    wrong = {"PARTQ_TOKEN": "a-token-of-another-queue"}
    said = await queue.partq("status", "--queue", "orders", env=wrong, status=1)
    assert "unknown token" in said
    assert "PARTQ_TOKEN is that of the environment" in said
    given = ("--url", queue.broker.url, "--token", queue.broker.tokens.admin)
    said = await queue.partq("status", "--queue", "letters", *given, status=1)
    assert "of the environment" not in said


async def messages_are_browsed(queue):
    """As often as it is wanted: they stay where they are."""
    for _ in "twice":
        lines = (await queue.partq("browse", "--json", "--pin", "me")).splitlines()
        shown = [json.loads(line) for line in lines]
        assert sorted(each["key"] for each in shown) == sorted(KEYS)
        assert all(each["value"] == each["key"] for each in shown)
        times = [each["publish_time_ms"] for each in shown]
        assert times == sorted(times)
    partition = shown[-1]["partition"].removeprefix("1.")
    last = shown[-1]["offset"]
    from_there = ("--partition", partition, "--offset", str(last))
    text = await queue.partq("browse", *from_there)
    assert f"1.{partition}:{last}  " in text
    assert f'"{shown[-1]["key"]}"  {shown[-1]["key"]}' in text
    assert len((await queue.partq("browse", "--count", "7")).splitlines()) == 7
    (one,) = (await queue.partq("browse", "--key", "key-7", "--since", "1h")).splitlines()
    assert one.endswith('"key-7"  key-7')
    found = await queue.partq("browse", "--grep", "-1[0-3]$", "--count", "3", "--json")
    assert {json.loads(line)["key"] for line in found.splitlines()} < {
        "key-10",
        "key-11",
        "key-12",
        "key-13",
    }
    assert await queue.partq("browse", "--key", "key-1", "--grep", "2") == ""
    for wrong in ("5 m", "0s", "m", "yesterday"):
        assert "--since" in await queue.partq("browse", "--since", wrong, status=2)
    assert "regular expression" in await queue.partq("browse", "--grep", "(", status=2)
    assert "needs exactly one --partition" in await queue.partq("browse", "--offset", "3", status=2)
    assert "expected a number" in await queue.partq("browse", "--partition", "x", status=2)


async def the_newest_are_browsed(queue):
    def places(text):
        return [(row["partition"], row["offset"]) for row in map(json.loads, text.splitlines())]

    every = places(await queue.partq("browse", "--count", "100", "--json"))
    for last in (1, 3):
        assert places(await queue.partq("browse", "--last", str(last), "--json")) == every[-last:]
    of_key = places(await queue.partq("browse", "--key", "key-3", "--json"))
    assert len(of_key) == 3
    newest = places(await queue.partq("browse", "--last", "2", "--key", "key-3", "--json"))
    assert newest == of_key[-2:]
    assert sorted(places(await queue.partq("browse", "--last", "99", "--json"))) == sorted(every)
    both = await queue.partq("browse", "--last", "2", "--count", "3", status=2)
    assert "--last: got it with --count" in both
    assert "--last" in await queue.partq("browse", "--last", "1001", status=2)
    lacking = await queue.partq("browse", "--last", "2", "--partition", "7", status=1)
    assert "partition 7: not in the queue, expected a number from 0 to 3" in lacking


async def a_key_is_explained(queue):
    """By the partition that its messages are in."""
    (row,) = (await queue.partq("browse", "--key", "key-7", "--json")).splitlines()
    partition = json.loads(row)["partition"]
    group = ("--group", "workers")
    told = await queue.asked("explain", "--key", "key-7", *group)
    assert (told["key"], told["partition"]) == ("key-7", partition)
    assert told["waits_for"]["what"] == "no_member"
    text = await queue.partq("explain", "--key", "key-7", *group)
    first = f'key "key-7", slot {told["slot"]}, goes to partition {partition}'
    assert text.splitlines()[0] == first
    assert f"partition {partition} of queue orders, group workers" in text
    assert "messages not acknowledged" in text
    both = await queue.partq("explain", "3", "--key", "k", *group, status=2)
    assert "--key: got it with PARTITION" in both
    assert "PARTITION is not given" in await queue.partq("explain", *group, status=2)
    assert "got 1025 bytes of UTF-8" in await queue.partq("explain", "--key", "k" * 1025, status=2)


def test_gaps_are_told_once(capsys):
    gaps = SimpleNamespace(trimmed={PartitionId(1, 2): 7}, missing={PartitionId(1, 3): [(4, 6)]})
    _print_gaps(gaps)
    _print_gaps(gaps)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "partq: 1.2: stored from offset 7 on only"
    assert "1.3: missing in the log: 4 to 5" in second


async def messages_are_followed(queue):
    """What was stored before is shown first; the command ends with its count."""
    following = asyncio.create_task(
        queue.partq("browse", "--follow", "--key", "key-3", "--count", "3", "--json")
    )
    token = queue.broker.tokens.produce
    async with Producer(queue.broker.url, queue="orders", token=token) as producer:
        for value in (b"second", b"third"):
            await producer.send_and_wait(value, key="key-3")
    shown = [json.loads(line)["value"] for line in (await following).splitlines()]
    assert shown == ["key-3", "second", "third"]


async def status_sums_up(queue):
    shown = await queue.partq("status")
    assert "default/orders: Available; 4 partitions, 20 messages" in shown
    assert "group workers: lag 20 messages" in shown
    assert "; 4 Unassigned\n0 handoffs" in shown


async def groups_are_listed(queue):
    rows = {row["group"]: row for row in await queue.asked("groups")}
    assert set(rows) == {"workers", "audit"}
    workers = rows["workers"]
    assert (workers["type"], workers["state"], workers["lag"]) == ("Partitioned", "Empty", 20)
    assert (workers["partitions"], workers["ready"], workers["active"]) == (4, 0, 0)
    assert "Partitioned" in await queue.partq("groups")


async def reset_moves_what_it_has_shown(queue):
    args = ("reset", "--group", "workers", "--to", "latest")
    shown = await queue.asked(*args, "--dry-run")
    assert not shown["is_done"]
    ends = {name: row["end"] for name, row in shown["partitions"].items()}
    assert sum(ends.values()) == len(KEYS)
    assert {row["cursor"] for row in shown["partitions"].values()} == {0}
    assert "cannot ask: no terminal; give --yes" in await queue.partq(*args, status=2)
    wrong = await queue.partq(*args, "--partition", "99", status=1)
    assert "partition 99: not in the queue, expected a number from 0 to 3" in wrong, (
        "what is wrong comes before the question"
    )
    later = ("reset", "--group", "workers", "--to-time", "2999-01-01T00:00:00+00:00", "--dry-run")
    future = await queue.partq(*later)
    assert future.count("no message was stored at this time or later: to the end") == len(ends)

    done = await queue.partq(*args, "--yes")
    assert "messages are redelivered, up to 20 are skipped" in done
    assert "group workers: 4 cursors are in place" in done
    status = await queue.asked("status")
    assert cursors(status["groups"]["workers"]) == ends
    assert set(cursors(status["groups"]["audit"]).values()) == {0}, "the other group's stay"

    await a_dry_run_shows_the_plan_beside_a_member(queue, args)
    back = ("reset", "--group", "workers", "--to-offset", "1", "--partition", "0", "--yes")
    assert (await queue.asked(*back))["partitions"]["1.0"]["to"] == 1
    with_time = ("--to-time", "2001-01-01T00:00:00+00:00", "--yes")
    again = await queue.asked("reset", "--group", "workers", *with_time)
    assert {row["to"] for row in again["partitions"].values()} == {0}


async def a_dry_run_shows_the_plan_beside_a_member(queue, args):
    """What it needs besides is said, and is no failure: nothing was to be moved."""
    at = {"queue": "orders", "group": "workers", "token": queue.broker.tokens.consume}
    assigned = asyncio.Queue()
    async with Consumer(
        queue.broker.url, **at, member="m", on_assigned=assigned.put_nowait
    ) as member:
        taking = asyncio.create_task(anext(member))
        async with asyncio.timeout(60):
            for _ in range(4):
                await assigned.get()
        shown = await queue.asked(*args, "--dry-run")
        assert not shown["is_done"]
        assert {row["member"] for row in shown["partitions"].values()} == {"m"}
        assert "m is connected" in await queue.partq(*args, "--dry-run")
        refused = await queue.partq(*args, "--yes", status=1)
        assert "member m is connected: nothing was moved; stop it, or give --force" in refused
        taking.cancel()


@pytest.mark.parametrize(
    ("given", "found"),
    [
        pytest.param(("latest", None, None), {"to": "latest"}, id="an end"),
        pytest.param((None, None, 0), {"offset": 0}, id="an offset"),
        pytest.param(
            (None, "2026-12-01T13:00:01+01:00", None),
            {"at_ms": 1_796_126_401_000},
            id="a time of a zone",
        ),
        pytest.param((None, "1970-01-01T01:00:01Z", None), {"at_ms": 0}, id="before every message"),
    ],
)
def test_a_place_is_said_once(given, found):
    assert plain(place(*given)) == found


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        pytest.param((None, None, None), "expected one of --to", id="none"),
        pytest.param(("latest", None, 3), "expected one of --to", id="two"),
        pytest.param(
            (None, "yesterday", None),
            "^--to-time: got 'yesterday', expected a time with a time zone, such as 2026-11-20T08",
            id="no time",
        ),
        pytest.param((None, "2026-11-20T08:00:00", None), "without a time zone", id="no zone"),
        pytest.param(("latest", "x", None), "expected one of --to", id="two, one is no time"),
        pytest.param((None, "", None), "got '', expected a time", id="an empty time"),
        pytest.param((None, "2020-01-01", None), r"2020-01-01T00:00:00\+00:00$", id="a date"),
    ],
)
def test_a_place_that_is_none_is_refused(given, complaint):
    with pytest.raises(SettingsError, match=complaint):
        place(*given)


def seen(*, end=100, lag=40, **group):
    """An answer of a broker about a queue of two partitions."""
    row = {"member": "m", "state": "Ready", "cursor": 0, "lag": lag, "lag_ms": 61_000, "epoch": 1}
    rest = {**row, "member": "", "state": "Unassigned", "lag": 0, "lag_ms": 0}
    record = {"broker": "b-0", "broker_epoch": 1, "first": 0, "end": end, "bytes": 10}
    answer = {
        "namespace": "default",
        "queue": "orders",
        "store": {},
        "availability": "Limited",
        "unavailable": ["1.1"],
        "totals": {"partitions": 2, "messages": end, "bytes": 20},
        "partitions": {"1.0": record, "1.1": {**record, "broker": "", "end": 0}},
        "groups": {
            "workers": {
                "type": "Partitioned",
                "lag": lag,
                "lag_ms": 61_000,
                "members": [{"member": "m", "state": "Active", "partitions": 1}],
                "partitions": {"1.0": row, "1.1": rest},
                "handoffs": [],
                "waiting_moves": [],
                **group,
            }
        },
    }
    return convert(answer, StatusAnswer)


def held(state):
    """One partition of a group."""
    row = {"member": "m", "epoch": 1, "state": state, "cursor": 0, "lag": 0, "lag_ms": 0}
    return {"partitions": {"1.0": row}}


HANDOFF = {"partition": "1.0", "source": "m", "target": "n", "attempt": 1, "phase": "Draining"}


def shown(answer, rates=None):
    console = Console(width=160, file=StringIO())
    console.print(render(answer, rates))
    return console.file.getvalue()


def test_a_status_tells_who_holds_what_and_how_fast_it_goes():
    rates = Rates()
    rates.add(10.0, seen(end=100, lag=40))
    rates.add(12.0, seen(end=300, lag=140))
    text = shown(seen(end=300, lag=140), rates)
    assert "orders: Limited (no broker serves 1.1); 2 partitions, 300 messages" in text
    assert "100 messages/s published" in text
    assert "group workers: lag 140 messages, 61 s; 1 Ready, 1 Unassigned" in text
    assert "0 handoffs; 50 messages/s acknowledged" in text
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines()]
    assert ["A", "m", "Active", "1/1", "140"] in rows
    assert ["-", "", "nobody", "0/1", "0"] in rows
    assert ["1.0", "Ready", "140", "61 s", "m", "b-0"] in rows
    assert "messages/s" not in shown(seen())


def test_a_partition_that_its_application_has_paused_is_named():
    answer = seen()
    answer.groups["workers"].partitions["1.0"].is_withheld = True
    assert "partition 1.0 is paused by its application: m has called pause; lag 40" in shown(answer)
    assert "= paused by its application" in shown(answer), "on the map, too"
    assert "paused by its application" not in shown(seen())


@pytest.mark.req("SOL-46")
def test_a_skew_is_named():
    text = shown(seen(end=12_345))
    assert "partition 1.0 has got 100% of all messages: the keys are few" in text
    assert "has got" not in shown(seen(end=999))


def test_a_partition_that_is_ahead_of_the_clock_is_named():
    answer = seen()
    answer.partitions["1.1"].clock_ahead_ms = 2 * 3_600_000
    text = shown(answer)
    assert "partition 1.1: Redis's clock was 2 h ahead when its last message was stored" in text
    assert "partition 1.0" not in text


@pytest.mark.parametrize(
    ("group", "state"),
    [
        pytest.param({"members": []}, "Empty", id="nobody"),
        pytest.param({}, "Waiting", id="a partition is at nobody"),
        pytest.param({"handoffs": [HANDOFF]}, "Rebalancing", id="a handoff"),
        pytest.param(held("Ready"), "Stable", id="all at somebody"),
        pytest.param(held("Paused"), "Rebalancing", id="a pause"),
    ],
)
def test_the_state_of_a_group(group, state):
    assert row("workers", seen(**group).groups["workers"]).state == state


@pytest.mark.parametrize(
    ("age_ms", "text"), [(0, "0.0 s"), (9_900, "9.9 s"), (61_000, "61 s"), (6 * 60_000, "6 min"),
                         (3 * 3_600_000, "3 h")]
)  # fmt: skip
def test_an_age_in_words(age_ms, text):
    assert spell_age(age_ms) == text


MOVE = CursorMove(["m"], is_bound=False, cursor=9, to=5, wanted=5, first=5, end=9)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"wanted": 7, "to": 7}, "", id="nothing to remark"),
        pytest.param({"wanted": 0}, "what was before 5 is no longer stored", id="trimmed"),
        pytest.param({"wanted": 12, "to": 9}, "the log ends at 9", id="beyond the end"),
        pytest.param({"wanted": 6, "to": 6, "is_bound": True}, "m is connected", id="bound"),
        pytest.param(
            {"wanted": 6, "to": 6, "is_bound": True, "members": ["m", "n"]},
            "2 members are connected, such as m",
            id="shared",
        ),
    ],
)
def test_what_a_person_should_know_is_remarked(changes, said):
    assert remark(MOVE._replace(**changes)) == said
