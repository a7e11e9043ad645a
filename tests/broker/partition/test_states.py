"""The four states of a partition, and who gets its messages in each of them."""

import random

import pytest

from partq.core.model import Cause
from partq.wire import frames

PULL = "/v1/queues/orders/groups/workers/pull"
UNASSIGNED, READY, PAUSED, UNBOUND = "Unassigned", "Ready", "Paused", "Unbound"


@pytest.fixture
def lease_ttl_s():
    """Nothing here is about leases: none shall be over on a busy machine."""
    return 30.0


async def quiet(flow):
    """Wait until the broker has handled all that came before; fail if anything was sent."""
    await flow.send(frames.Ping(7))
    await flow.expect(frames.Pong)


async def pull(running, peers, **changes):
    body = {"member": "n", "incarnation": "j", "wait_ms": 0, "last_answer": None, **changes}
    return await running.call("POST", PULL, token=peers.CONSUME, json=body)


async def is_unbound(running):
    return (await running.state())["state"] == UNBOUND


# ---- one consumer at a time ---------------------------------------------------------------------


@pytest.mark.req("SOL-07", "SOL-28")
async def test_a_member_without_a_partition_gets_nothing_by_a_flow(scene):
    standby = await scene.target()
    await scene.producer.publish("d")
    assert (await scene.source.deliver())[1] == ["d"]
    await quiet(standby)


@pytest.mark.req("SOL-07", "SOL-28", "AZR-57")
async def test_a_member_without_a_partition_gets_nothing_by_pulling(scene, peers):
    status, answer = await pull(scene.running, peers)
    assert (status, answer["held"], answer["messages"]) == (200, [], [])
    assert (await scene.running.state())["in_flight"] == 3


@pytest.mark.req("SOL-40")
async def test_what_a_member_remembers_gives_it_no_right(scene, peers):
    """An old set, or one that somebody made up: the record alone says who has a partition."""
    late = await peers.open_flow(scene.running, "n", "j", held=[(1, 0), (1, 3)])
    await quiet(late)
    await scene.producer.publish("d")
    assert (await scene.source.deliver())[1] == ["d"]
    await quiet(late)


@pytest.mark.req("SOL-20")
@pytest.mark.parametrize("field", ["partition", "partitions"])
async def test_to_ask_for_one_partition_is_an_error(scene, peers, field):
    status, answer = await pull(scene.running, peers, **{field: "1.0"})
    assert (status, answer["error"]["code"]) == (400, "bad_json")
    assert field in answer["error"]["message"]


@pytest.mark.req("SOL-08")
async def test_partitions_of_one_consumer_overtake_each_other(running, peers):
    """Published in turns; one of the two waits. Each of them comes in its own order."""
    await running.assign("m", [0, 1])
    flow = await peers.open_flow(running)
    for _ in range(2):  # a bind raises the epoch, which the handoff names
        await flow.expect(frames.Assigned)
    producer = await peers.open_producer(running)
    handoff = await peers.Handoff.begin(running)
    assert (await handoff.pause())["code"] == ""
    await flow.find(frames.Paused)
    for number in range(3):
        await producer.publish(f"a{number}", partition=0)
        await producer.publish(f"b{number}", partition=1)
    assert await flow.take(3) == ["b0", "b1", "b2"]
    assert (await handoff.cancel())["code"] == ""
    assert await flow.take(3) == ["a0", "a1", "a2"]


# ---- nobody there -------------------------------------------------------------------------------


@pytest.mark.req("SOL-45", "SOL-30", "PUL-02")
async def test_messages_wait_for_the_first_consumer(running, peers):
    """Also beyond the memory of the broker: they are in the store."""
    producer = await peers.open_producer(running)
    for number in range(5):
        assert await producer.publish(str(number)) == number
    state = await running.state()
    assert (state["state"], state["lag"], state["in_flight"]) == (UNASSIGNED, 5, 0)
    await running.assign("m", [0])
    flow = await peers.open_flow(running)
    deliver, _ = await flow.deliver()
    assert (deliver.start, deliver.cause) == (0, Cause.NONE)
    assert [deliver.stop, *await flow.take(5 - deliver.stop)] == [1, "1", "2", "3", "4"]


@pytest.mark.req("SOL-33", "SOL-43", "SOL-44", "PUL-02")
@pytest.mark.parametrize("way", ["it closes", "it is cut off"])
async def test_the_messages_of_a_member_that_is_away_wait_for_it(scene, peers, clock, way):
    """A crash closes the connection, a broken network does not: the same comes of both."""
    other = await scene.target()
    if way == "it closes":
        await scene.source.close()
    else:
        scene.source.fall_silent()
        await quiet(other)  # it has just pinged, and is not taken for silent, too
        clock.ahead_s += 3.1
        await scene.source.ended()
        other = await peers.open_flow(scene.running, "n", "j")
    await peers.eventually(lambda: is_unbound(scene.running), "unbound")
    await scene.producer.publish("d")
    await quiet(other)
    state = await scene.running.state()
    assert (state["state"], state["member"], state["lag"]) == (UNBOUND, "m", 4)

    back = await peers.open_flow(scene.running, "m", held=[(1, 0)])
    assigned, _ = await back.expect(frames.Assigned)
    assert (assigned.cursor, assigned.epoch > scene.held.epoch) == (0, True)
    deliver, values = await back.deliver()
    assert (values, deliver.cause) == (["a", "b", "c"], Cause.FLOW_LOST)
    assert (await back.deliver())[1] == ["d"]
    await quiet(other)


# ---- every way from one to another --------------------------------------------------------------

EDGES = {
    "come": {(UNBOUND, READY), (UNBOUND, PAUSED)},
    "go": {(READY, UNBOUND), (PAUSED, UNBOUND)},
    "pause": {(READY, PAUSED)},
    "cancel": {(PAUSED, READY)},
    "commit": {
        (UNASSIGNED, READY), (UNASSIGNED, UNBOUND),
        (UNBOUND, READY), (UNBOUND, UNASSIGNED),
        (PAUSED, READY), (PAUSED, UNBOUND), (PAUSED, UNASSIGNED),
    },
}  # fmt: skip
"""What each event may change, and nothing else. A partition may be given to a member that is not
bound, or to nobody; a pause outlives its member's flow, and is in force again when that is back."""


class Walk:
    """Two members that come and go, and handoffs that begin, end and are given up."""

    def __init__(self, running, peers):
        self.running, self.peers = running, peers
        self.flows = {}
        self.handoff = None
        self.lives = 0

    async def come(self, member):
        """Bind; a member that is bound is cut off first."""
        await self.go(member)
        self.lives += 1
        self.flows[member] = await self.peers.open_flow(self.running, member, f"{self.lives}")

        async def is_bound():
            state = await self.running.state()
            return state["member"] != member or state["is_bound"]

        await self.peers.eventually(is_bound, "its partition is bound, too")

    async def go(self, member):
        """Close the flow; return when the broker has seen it."""
        flow = self.flows.pop(member, None)
        if flow is not None:
            await flow.close()
            find = self.running.broker.flow_registry.find
            await self.peers.eventually(lambda: find("workers", member) is None, "it is gone")

    async def pause(self, member):
        """Begin a handoff; to whom is said by its commit."""
        self.handoff = await self.peers.Handoff.begin(self.running)
        await self.handoff.pause(drain_ms=0)

    async def commit(self, member):
        """End the handoff; without one, take the partition from whoever is not bound."""
        state = await self.running.state()
        handoff = self.handoff or await self.peers.Handoff.begin(self.running)
        target = "" if state["member"] == member else member
        cause = "drain_timeout" if state["is_bound"] else "source_lost"
        cause = cause if state["member"] else "unassigned"
        await handoff.commit(source=state["member"], target=target, cause=cause)
        self.handoff = None

    async def cancel(self, member):
        """Give the handoff up."""
        if self.handoff is not None:
            await self.handoff.cancel()
            self.handoff = None


@pytest.mark.req("SOL-30", "SOL-31", "SOL-32", "SOL-33", "SOL-34")
async def test_whatever_happens_a_state_is_followed_by_one_that_may(running, peers):
    """A walk by chance, the same each time, and long enough to take most of the edges."""
    chance = random.Random(2)
    walk = Walk(running, peers)
    events = [walk.come, walk.go, walk.pause, walk.commit, walk.cancel]
    state, seen = (await running.state())["state"], set()
    for _ in range(120):
        event = chance.choices(events, [3, 2, 3, 4, 1])[0]
        await event(chance.choice("mn"))
        after = await running.state()
        if after["state"] != state:
            seen.add((state, after["state"]))
            assert (state, after["state"]) in EDGES[event.__name__], event.__name__
        state = after["state"]
        if not after["member"]:
            assert state == UNASSIGNED
        elif not after["is_bound"]:
            assert state == UNBOUND
        else:
            assert state == (PAUSED if after["pause_attempt"] else READY)
    assert len(seen) >= 7
