"""`partq explain` and `partq plan --from-live` beside real processes that they tell about."""

import asyncio
import json
import os
from contextlib import AsyncExitStack

import pytest
from aiohttp import ClientSession
from click.testing import CliRunner

from partq.cli.commands import cli
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.cli.members.test_drained import PullingMember, publish
from tests.cli.processes import PARTQ
from tests.even_shares import even_shares

WAIT_S = 60.0
WRONG_QUESTIONS = {
    "explain x": "partition 'x': expected a number such as 3, or 1.3",
    "plan --from-live": "expected one of --members N, --add and --remove NAME, --rollout",
    "plan --from-live --members 2 --rollout": "expected one of --members N",
    "plan --from-live --remove x": "--remove: got 'x', expected a connected member: ",
    "plan --from-live --add a": "--add: got 'a', which is a member already",
    "plan --members 2": "go with --from-live only",
}
NOT_FOUND = {
    "explain 4": "partition 1.4: not in the queue, expected 1.0 to 1.3",
    "explain 0 --group others": "--group: got 'others', expected one of: workers",
}


class Runtime:
    """A queue that runs, its members by name, and commands beside it.

    The members pull by plain HTTP: their flows outlive half a minute of a machine that is busy.
    """

    def __init__(self, broker, session, tasks):
        self.broker = broker
        self.members = {}
        self._session = session
        self._tasks = tasks

    def join(self, name):
        member = self.members[name] = PullingMember(self.broker, self._session, name)
        member.may_ack.set()
        self._tasks.append(asyncio.create_task(member.work(self.broker.url.split(","))))
        return member

    async def leave(self, name):
        """Let a member say that it ends, and wait for a second whether it is drained."""
        await self.invoke("drained", "--group", "workers", "--member", name, "--wait", "1")

    def owners(self):
        return {str(p): name for name, each in self.members.items() for p in each.partitions}

    async def until(self, condition, what):
        """Wait until a condition holds; `condition` may be a coroutine function."""
        try:
            return await eventually(condition, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; owners: {self.owners()}") from None

    async def sizes(self, *sizes):
        def are_so():
            return sorted(len(each.partitions) for each in self.members.values()) == list(sizes)

        await self.until(are_so, f"shares of {sizes}")

    async def partq(self, *arguments, status=0):
        """Run a command, and return what it prints."""
        env = {key: value for key, value in os.environ.items() if not key.startswith("PARTQ_")}
        process = await asyncio.create_subprocess_exec(
            *PARTQ,
            *arguments,
            env={**env, "PARTQ_DATA_DIR": str(self.broker.runtime.data_dir)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(WAIT_S):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode == status, err.decode()
        return (err if status else out).decode()

    async def invoke(self, *arguments):
        """Run a command without a process of its own."""
        env = {"PARTQ_DATA_DIR": str(self.broker.runtime.data_dir)}
        return await asyncio.to_thread(CliRunner().invoke, cli, arguments, env=env)

    async def asked(self, *arguments):
        """Return what a command prints as JSON."""
        result = await self.invoke(*arguments, "--json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    async def explained(self, partition):
        return await self.asked("explain", partition)


@pytest.fixture
async def started():
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(ClientSession())
        tasks = []

        async def start(**settings):
            local = await stack.enter_async_context(LocalBroker(lease_ttl_s=10.0, **settings))
            await even_shares(local.queue)
            return Runtime(local, session, tasks)

        yield start
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def after(plan):
    return {member: counts["after"] for member, counts in plan["members"].items()}


async def test_what_is_planned_is_what_happens(started):
    """Scaled up and down for real, with two brokers; then nobody coordinates, and it is told."""
    patient = {"rebalance": {"delaySeconds": 60}}
    runtime = await started(partitions=6, broker_count=2, spec=patient)
    runtime.join("a")
    runtime.join("b")
    await runtime.sizes(3, 3)
    await runtime.until(lambda: waits_for(runtime, "0", "nothing"), "calm")
    first = await runtime.explained("0")
    assert first["member"] == runtime.owners()["1.0"]
    assert first["broker"] in {"orders-broker-0", "orders-broker-1"}
    assert (first["moves"][-1]["evidence"], first["moves"][-1]["source"]) == ("no_member", None)

    before = runtime.owners()
    plan = await runtime.until(lambda: settled_plan(runtime, "--add", "c"), "a plan")
    assert (plan["moved"], plan["assigned"], plan["paused_at_once"]) == (2, 0, 2)
    known = plan["estimated_from"]
    assert runtime.owners() == before, "it was only a plan"
    runtime.join("c")
    await runtime.sizes(2, 2, 2)
    assert runtime.owners() == before | {m["partition"]: m["to"] for m in plan["moves"]}
    assert {m["from"] for m in plan["moves"]} == {"a", "b"}

    before = runtime.owners()
    plan = await runtime.until(lambda: plan_knowing(runtime, known + 2), "the record of two moves")
    assert after(plan) == {"a": 0, "b": 3, "c": 3}
    assert plan["estimate_ms"] is not None
    told = await runtime.partq("plan", "--from-live", "--members", "5")
    assert told.startswith("group workers: ")
    assert "earlier moves" in told
    scaled = await runtime.until(lambda: settled_plan(runtime, "--members", "5"), "a plan")
    assert (scaled["moved"], scaled["members"]["new-2"]) == (2, {"before": 0, "after": 1})
    rolled = await runtime.until(lambda: settled_plan(runtime, "--rollout"), "a plan")
    assert (rolled["moved"], rolled["paused_at_once"]) == (6, 2)
    await runtime.leave("a")
    await runtime.sizes(0, 3, 3)
    assert runtime.owners() == before | {m["partition"]: m["to"] for m in plan["moves"]}

    (moved, *_) = [m["partition"] for m in plan["moves"]]
    await runtime.until(lambda: said_leaving(runtime, moved), "the record of the move")
    told = await runtime.partq("explain", moved)
    assert f"a -> {runtime.owners()[moved]}: a had said that it ends; " in told
    assert "waits for: " in told

    for child in runtime.broker.runtime.coordinators:
        await child.stop()
    await runtime.leave("b")
    (stuck, *_) = [p for p, name in runtime.owners().items() if name == "b"]
    waits = await runtime.until(
        lambda: waits_for(runtime, stuck, "coordinator"), "a plan that nobody carries out"
    )
    assert waits["target"] == "c"
    for child in runtime.broker.runtime.coordinators:
        await child.start()
    await runtime.sizes(0, 0, 6)


async def settled_plan(runtime, *change):
    """On a busy machine a flow may be lost and come back: then nothing moves for balance."""
    plan = await runtime.asked("plan", "--from-live", *change)
    return plan if plan["is_settled"] else None


async def plan_knowing(runtime, count):
    plan = await settled_plan(runtime, "--remove", "a")
    return plan if plan is not None and plan["estimated_from"] >= count else None


async def said_leaving(runtime, partition):
    moves = (await runtime.explained(partition))["moves"]
    return bool(moves) and moves[0]["evidence"] == "said_leaving"


async def says(runtime, sentence, *arguments):
    """Run a command as people do; a busy machine may lose a pause or a flow for a moment."""
    return sentence in await runtime.partq(*arguments)


async def waits_for(runtime, partition, what):
    waits = (await runtime.explained(partition))["waits_for"]
    return waits if waits["what"] == what else None


async def test_what_a_partition_waits_for(started):
    """A has a message of each partition in hand when B joins, and one move a minute is allowed."""
    rebalance = {"maxHandoffSeconds": 300, "maxMovesPerMinute": 1}
    runtime = await started(partitions=4, spec={"rebalance": rebalance})
    a = runtime.join("a")
    a.may_ack.clear()
    await runtime.sizes(4)
    await publish(runtime.broker)
    await runtime.until(lambda: len(a.unacked) == 64, "all messages are in its hands")
    runtime.join("b")
    draining = await runtime.until(lambda: waits_for(runtime, "2", "drain"), "a drain")
    assert draining["target"] == "b"
    assert 0 < draining["left_ms"] <= 302_000
    count = sum(message["partition"] == "1.2" for _, _, message in a.unacked)
    seen = await runtime.explained("1.2")
    assert (seen["member"], seen["cursor"], seen["in_flight"]) == ("a", 0, count)
    sentence = f"a to finish {count} messages that it has not acknowledged, the oldest at offset 0"
    await runtime.until(lambda: says(runtime, sentence, "explain", "2"), sentence)

    waits = await runtime.until(lambda: waits_for(runtime, "3", "budget"), "the budget")
    assert (waits["target"], waits["limit"]) == ("b", "maxMovesPerMinute")
    sentence = "the disruption budget (maxMovesPerMinute): it is to go to b"
    await runtime.until(
        lambda: says(runtime, sentence, "explain", "3", "--group", "workers"), sentence
    )
    sentence = "1 move waits for the budget"
    await runtime.until(lambda: says(runtime, sentence, "status"), sentence)

    a.may_ack.set()
    await runtime.until(lambda: runtime.owners().get("1.2") == "b", "the handover")
    assert "1.3" not in {p for p, name in runtime.owners().items() if name == "b"}
    for status, questions in ((2, WRONG_QUESTIONS), (1, NOT_FOUND)):
        for arguments, sentence in questions.items():
            result = await runtime.invoke(*arguments.split())
            assert (result.exit_code, sentence in result.stderr) == (status, True), result.stderr
