"""`partq consume --idle` ends when nothing is left, not while it has nothing yet."""

import asyncio
import os
import subprocess

import pytest

from partq import Consumer, Producer
from partq.cli.messages.idle import RemainingWork, rest
from partq.core.model import PartitionId
from partq.testing.local_broker import LocalBroker
from partq.wire.calls.status import (
    GroupPartition,
    GroupStatus,
    MemberStatus,
    PartitionStatus,
    QueueTotals,
    StatusAnswer,
)
from tests.cli.processes import PARTQ, started

TIMEOUT_S = 90.0


async def consume(broker, *arguments):
    """Run it to its end."""
    return await asyncio.to_thread(
        subprocess.run,
        [*PARTQ, "consume", *arguments, "--data-dir", str(broker.runtime.data_dir)],
        env={**os.environ}, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


async def publish(broker):
    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        await (await producer.send(b"here", key="k"))


async def test_the_idle_time_begins_with_a_partition():
    async with LocalBroker(partitions=1, lease_ttl_s=10.0) as broker:
        await publish(broker)
        first = await consume(broker, "--idle", "0.1", "--no-ack")
        assert (first.returncode, first.stdout) == (0, "here\n"), first.stderr
        await what_another_member_holds_is_told(broker)


async def what_another_member_holds_is_told(broker):
    """It is that one's, and so is its name."""
    at = {"queue": "orders", "group": "workers", "token": broker.tokens.consume}
    async with Consumer(broker.url, **at, member="other") as other:
        await anext(other)
        done = await consume(broker, "--idle", "0.1", "--wait", "2", "--member", "mine")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.splitlines()[-1] == (
            "partq: member mine of group workers got no partition within 2 s; 1 message is left "
            "in partition 1.0, held by other; `partq status` shows the group"
        )
        taken = await consume(broker, "--idle", "0.1", "--wait", "2", "--member", "other")
        assert (taken.returncode, taken.stdout) == (1, "")


async def test_what_waits_for_a_lost_member_is_waited_for():
    groups = {"workers": {"rebalance": {"delaySeconds": 2}}}
    async with LocalBroker(partitions=1, groups=groups, lease_ttl_s=10.0) as broker:
        await publish(broker)
        arguments = ("consume", "--no-ack", "--data-dir", str(broker.runtime.data_dir))
        with started(arguments, env={**os.environ}, timeout_s=TIMEOUT_S) as lost:
            assert await asyncio.to_thread(lost.stdout.readline) == "here\n"
            lost.kill()
            lost.wait()
            done = await consume(broker, "--idle", "0.1")
    assert (done.returncode, done.stdout) == (0, "here\n"), done.stderr


MINE = PartitionId(1, 0)


def seen(
    *, lag=3, member="other", row_state="Ready", state="Active", has_group=True, unavailable=()
):
    """A queue of two partitions, of which the first is empty for the group."""
    rows = {
        "1.0": GroupPartition("", epoch=1, state="Unassigned", cursor=3, lag=0, lag_ms=0),
        "1.1": GroupPartition(member, epoch=1, state=row_state, cursor=0, lag=lag, lag_ms=5),
    }
    members = [MemberStatus(member, partitions=1, state=state)]
    group = GroupStatus("Partitioned", lag, 5, members, rows, handoffs=[], waiting_moves=[])
    return StatusAnswer(
        *("orders", "default", {}, "Limited" if unavailable else "Available", [*unavailable]),
        totals=QueueTotals(partitions=2, messages=6, bytes=9),
        partitions={name: PartitionStatus("b", 1, first=0, end=3, bytes=9) for name in rows},
        groups={"workers": group} if has_group else {},
    )


@pytest.mark.parametrize(
    ("answer", "mine", "left"),
    [
        pytest.param(seen(lag=0), (), None, id="nothing is left"),
        pytest.param(seen(), (), RemainingWork(3, ("1.1",), ("other",)), id="another holds it all"),
        pytest.param(seen(), (MINE,), None, id="another holds the rest"),
        pytest.param(
            seen(state="Lost"), (MINE,), RemainingWork(3, ("1.1",)), id="a lost one holds it"
        ),
        pytest.param(
            seen(row_state="Unbound"), (MINE,), RemainingWork(3, ("1.1",)), id="nobody does"
        ),
        pytest.param(
            seen(member="me"), (MINE,), RemainingWork(3, ("1.1",), ("me",)), id="its own name"
        ),
        pytest.param(
            seen(has_group=False),
            (MINE,),
            RemainingWork(3, ("1.1",)),
            id="the group is not there yet",
        ),
        pytest.param(
            seen(lag=0, unavailable=["1.2"]),
            (MINE,),
            RemainingWork(0, unread=("1.2",)),
            id="a partition cannot be read",
        ),
        pytest.param(
            seen(unavailable=["1.2"]),
            (),
            RemainingWork(3, ("1.1",), ("other",), unread=("1.2",)),
            id="another one cannot be read",
        ),
        pytest.param(
            seen(lag=0, unavailable=["1.2"]),
            (MINE, PartitionId(1, 2)),
            RemainingWork(0, unread=("1.2",)),
            id="one that it holds cannot be read",
        ),
        pytest.param(
            seen(lag=0, unavailable=["1.1"]), (MINE,), None, id="nothing is left at no broker"
        ),
        pytest.param(
            seen(member="me", unavailable=["1.1"]),
            (MINE, PartitionId(1, 1)),
            RemainingWork(3, ("1.1",), ("me",)),
            id="the broker of one that it holds has died",
        ),
    ],
)
def test_what_is_left(answer, mine, left):
    assert rest(answer, "workers", member="me", mine=frozenset(mine)) == left
