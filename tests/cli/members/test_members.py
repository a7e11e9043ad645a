"""`partq members`: who is in a group, and what each of them holds."""

import asyncio
import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from partq import Consumer, Message, Producer
from partq.cli.commands import cli
from partq.cli.members.members import describe
from partq.core.group.records import AssignmentEntry
from partq.core.model import Epoch, MemberId
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from partq.wire.calls.state import (
    BrokerAnswer,
    BrokerState,
    FlowDetail,
    GroupDetail,
    ListedMember,
    PartitionDetail,
    Picture,
    RefusedDetail,
    SuccessionDetail,
)
from tests.even_shares import even_shares

AT = ["--url", "http://127.0.0.1:1", "--queue", "orders", "--token", "t"]
PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")


def group_of(member, *, epoch=5, in_flight=0, lag=0, state="Ready"):
    is_bound = state != "Unbound"
    fields = {"epoch": epoch, "attempt": 0, "is_bound": is_bound, "state": state}
    return {"workers": GroupDetail(member=member, in_flight=in_flight, lag=lag, **fields)}


def flow_of(member, incarnation, bound_s, *, group="workers"):
    return FlowDetail(group=group, member=member, incarnation=incarnation, bound_s=bound_s)


def picture(*states, partitions=(), members=(), refused=(), assignment=()):
    """`members`: since when each is lost."""
    return Picture(
        now_ms=100_000, queue_spec={}, group_spec={}, partitions=list(partitions),
        members={m: ListedMember("10.0.0.1", lost) for m, lost in dict(members).items()},
        heirs={}, refused={m: RefusedDetail("10.0.0.9", why) for m, why in dict(refused).items()},
        assignment={
            name: AssignmentEntry(MemberId(member), Epoch(4), "Ready")
            for name, member in dict(assignment).items()
        },
        handoffs={}, past={}, waiting={},
        brokers={state.broker: BrokerAnswer(state) for state in states},
    )  # fmt: skip


def broker(name, partitions, flows=(), *, broker_epoch=7):
    owned = {
        partition: PartitionDetail(broker_epoch=broker_epoch, held_s=1.0, groups=groups)
        for partition, groups in partitions.items()
    }
    return BrokerState(name, "i", owned, list(flows), [])


def test_partitions_without_slots_are_named_apart(monkeypatch):
    succession = SuccessionDetail(outgoing=["1.0"], origins={}, heirs={}, retired=["1.0"])
    body = picture(
        broker("b0", {name: group_of("a") for name in ("1.0", "2.0", "2.1")}),
        partitions=("1.0", "2.0", "2.1"), members={"a": None},
    )  # fmt: skip
    body.succession = succession

    async def answer(*_):
        return "workers", body

    monkeypatch.setattr("partq.cli.members.members.ask_for_group", answer)
    printed = CliRunner().invoke(cli, ["members", *AT], env={"COLUMNS": "200"})
    assert "2.0, 2.1; without slots: 1.0" in printed.output
    found = describe("workers", body).members[0].partitions
    assert [each.is_retired for each in found.values()] == [True, False, False]


def test_members_are_summed_up_over_the_brokers():
    found = describe(
        "workers",
        picture(
            broker("b0", {"1.0": group_of("a", in_flight=3, lag=9), "1.1": group_of("lost")},
                   [flow_of("a", "new", 2.0), flow_of("a", "old", 90.0),
                    flow_of("other", "x", 1.0, group="audit")]),
            broker("b1", {"1.2": group_of("a", in_flight=1, lag=1, state="Paused"),
                          "1.3": group_of("")},
                   [flow_of("a", "new", 5.0), flow_of("spare", "s", 1.0)]),
            partitions=("1.0", "1.1", "1.2", "1.3", "1.4"),
            members={"a": None, "lost": 40_000, "gone": 1, "spare": None},
            refused={"x": "another has its name"},
            assignment={"1.4": "a"},
        ),
    )  # fmt: skip
    rows = {each.member: each for each in found.members}
    assert {name: each.state for name, each in rows.items()} == {
        "a": "Active", "gone": "Left", "lost": "Lost", "spare": "Standby", "x": "Refused",
    }  # fmt: skip
    a = rows["a"]
    assert (a.incarnation, a.bound_s, a.flows) == ("new", 5.0, 3), "of its newest incarnation"
    assert (a.in_flight, a.lag) == (4, 10)
    assert [*a.partitions] == ["1.0", "1.2", "1.4"]
    assert a.partitions["1.2"].state == "Paused"
    assert a.partitions["1.4"].in_flight is None, "no broker says it"
    assert (rows["lost"].lost_s, rows["a"].lost_s) == (60.0, None)
    assert rows["x"].refused == "another has its name"
    assert (found.unassigned, found.unknown) == (["1.3"], ["1.4"])


@pytest.mark.parametrize("kind", ["Shared", "Session"])
def test_in_a_group_whose_partitions_have_no_member_nothing_is_missed(kind):
    state = broker("b0", {"1.0": group_of("")}, [flow_of("a", "i", 1.0)])
    shown = picture(state, partitions=("1.0",), members={"a": None, "gone": 1})
    shown.group_spec = {"type": kind}
    found = describe("workers", shown)
    assert {each.member: each.state for each in found.members} == {"a": "Active", "gone": "Left"}
    assert found.unassigned == []


def test_of_two_brokers_that_name_a_partition_theirs_the_later_one_counts():
    earlier = broker("b0", {"1.0": group_of("a")}, broker_epoch=8)
    later = broker("b1", {"1.0": group_of("b")}, broker_epoch=9)
    for states in ((earlier, later), (later, earlier)):
        found = describe("workers", picture(*states, partitions=("1.0",)))
        assert [each.member for each in found.members] == ["b"]


def test_the_page_has_every_field_of_the_json():
    told = PAGE.split("\n## `partq members`\n")[1].split("\n## ")[0]
    words = set(re.findall(r"`(\w+)`", told))
    state = broker("b0", {"1.0": group_of("a")}, [flow_of("a", "i", 1.0)])
    found = asdict(describe("workers", picture(state, partitions=("1.0",))))
    member = found["members"][0]
    assert {*found, *member, *member["partitions"]["1.0"]} - words == set()


async def test_a_running_group_is_shown():
    async with LocalBroker(groups=["workers"], broker_count=2) as broker:
        await even_shares(broker.queue)
        env = {"PARTQ_DATA_DIR": str(broker.runtime.data_dir), "COLUMNS": "200"}

        async def partq(*arguments):
            run = CliRunner().invoke
            result = await asyncio.to_thread(run, cli, ["members", *arguments], env=env)
            assert result.exit_code == 0, result.output
            return result.stdout

        token = broker.tokens.produce
        async with Producer(broker.url, queue="orders", token=token) as producer:
            await (await producer.send_many([Message(f"k{n}", b"") for n in range(40)]))
        assert json.loads(await partq("--json"))["members"] == []
        async with Consumer(
            broker.url, queue="orders", group="workers", token=broker.tokens.consume, member="one"
        ) as consumer:

            async def has_all():
                return len(consumer.partitions) == 4

            await eventually(has_all, "the member holds all partitions")
            taken = await anext(consumer.batches())

            async def shown():
                found = json.loads(await partq("--group", "workers", "--json"))
                (row,) = found["members"]
                return found if row["in_flight"] == 40 else None

            found = await eventually(shown, "everything is in flight")
            (row,) = found["members"]
            assert (row["member"], row["state"], row["flows"]) == ("one", "Active", 2)
            assert row["bound_s"] >= 0
            assert row["lag"] == 40
            assert sorted(row["partitions"]) == ["1.0", "1.1", "1.2", "1.3"]
            assert (found["unassigned"], found["unknown"]) == ([], [])
            assert "1.0, 1.1, 1.2, 1.3" in await partq()
            await consumer.ack(taken, confirmed=True)
            after = json.loads(await partq("--json"))
            assert after["members"][0]["lag"] == 40 - len(taken)
