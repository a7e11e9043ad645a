"""Members that choose their partitions, with real processes: losses and ends of brokers."""

import os
import signal

import pytest

from partq.testing import eventually


@pytest.mark.req("TUB-13", "TUB-28", "TUB-29", "TUB-30")
async def test_partitions_of_a_lost_member_go_to_nobody_and_come_back_with_it(started):
    """Killed by SIGKILL: the other member's partitions and epochs stay as they are."""
    async with started(brokers=1, partitions=4, delay_s=1) as (_, group), group.process_of("a"):
        async with group.process_of("b") as process:
            assert set((await group.holders()).values()) == {""}, "nobody is given any"
            await group.register("a", "1.0", "1.1")
            await group.register("b", "1.2", "1.3")
            held = {"1.0": "a", "1.1": "a", "1.2": "b", "1.3": "b"}
            before = await group.settled(held)
            os.kill(process.pid, signal.SIGKILL)
            rest = {**held, "1.2": "", "1.3": ""}
            free = await group.settled(rest)
        assert [free[name]["state"] for name in ("1.2", "1.3")] == ["Unassigned"] * 2
        assert all(free[name]["is_subscribable"] for name in free)
        async with group.process_of("b"):
            await group.register("b", "1.2", "1.3")
            after = await group.settled(held)
        for name in ("1.0", "1.1"):
            epochs = {rows[name]["epoch"] for rows in (before, free, after)}
            assert len(epochs) == 1, f"{name} changed its owner"
        status = await group.call("GET", "/v1/queues/orders/status")
        assert status["groups"]["workers"]["assignment"] == "Client"


@pytest.mark.req("TUB-21")
async def test_a_broker_that_is_killed_changes_no_owner(started):
    async with started(brokers=2, partitions=6, delay_s=10) as (runtime, group):
        served = await eventually(
            lambda: _served_by_two(group), "both brokers have partitions", interval_s=0.1
        )
        async with group.process_of("a"), group.process_of("b"):
            held = {f"1.{index}": "ab"[index % 2] for index in range(6)}
            for member in "ab":
                mine = [name for name, holder in held.items() if holder == member]
                await group.register(member, *mine)
            before = await group.settled(held)
            configured = set(before)
            await runtime.brokers[0].kill()
            killed = group.queue.brokers[0].name
            seen = await group.look()
            assert set(seen) == configured, "the set does not change while a broker is away"
            await eventually(
                lambda: _moved_on(group, before, killed), "what it had is served again"
            )
            after = await group.settled(held)
        others = {name for name, broker in served.items() if broker != killed}
        assert {n: after[n]["epoch"] for n in others} == {n: before[n]["epoch"] for n in others}


async def _served_by_two(group):
    rows = await group.look()
    brokers = {name: row["broker"] for name, row in rows.items()}
    return brokers if len(set(brokers.values()) - {""}) == 2 else None


async def _moved_on(group, before, killed):
    rows = await group.look()
    had = [name for name, row in before.items() if row["broker"] == killed]
    return all(rows[name]["epoch"] > before[name]["epoch"] for name in had)
