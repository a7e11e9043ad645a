"""The points of a handoff at which the crash table lets somebody die: partition 1.1, from a to b.

*planned*: the plan is on record, its pause has not come to the broker. *draining*: paused, and a
has a message in hand. *drained*: a has nothing in hand, the commit has not come to the broker.
*committed*: the broker has carried it out, and the coordinator does not know.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.faults.proxy import Call, Gate
from tests.faults.traffic import MOVES


@dataclass
class Point:
    """Where a handoff has stopped."""

    attempt: int
    before: dict[str, Any]
    """What the broker said of the partition before the handoff."""
    call: Call | None = None
    """The one that is held; None: none is."""
    gates: list[Gate] = field(default_factory=list)

    def drop(self):
        """Lose what is held."""
        for gate in self.gates:
            gate.drop()

    def go_on(self):
        """Let everything pass that is held."""
        for gate in self.gates:
            gate.open()


def _attempt(call):
    (item,) = [item for item in call.items if item["partition"] == str(MOVES)]
    return item["attempt"]


async def planned(stage, *, in_hand=True):
    """Stop before the pause; a works on a message, unless told otherwise."""
    before = await stage.state()
    gate = stage.road.gate("before:pause")
    if in_hand:
        await stage.hold("a")
    stage.start_coordinator()
    await stage.reached(gate)
    attempt = _attempt(gate.calls[0])
    record = (await stage.handoffs.read("workers"))[MOVES]
    assert (record.attempt, record.source, record.target) == (attempt, "a", "b")
    return Point(attempt, before, gate.calls[0], [gate])


async def draining(stage):
    """Stop nothing; a has a message in hand for as long as the test wants."""
    before = await stage.state()
    await stage.hold("a")
    stage.start_coordinator()
    at = await stage.until_state(state="Paused", in_flight=1)
    return Point(at["pause_attempt"], before)


async def drained(stage):
    """Stop before the commit."""
    before = await stage.state()
    gate = stage.road.gate("before:commit")
    stage.start_coordinator()
    await stage.reached(gate)
    return Point(_attempt(gate.calls[0]), before, gate.calls[0], [gate])


async def committed(stage):
    """Stop after the commit: its answer is held, and so are the states that would tell of it."""
    point = await drained(stage)
    states = [proxy.gate("before:state") for proxy in stage.proxies.values()]
    answer = stage.road.gate("after:commit")
    point.go_on()
    await stage.reached(answer)
    at = await stage.until_state(member="b")
    assert at["attempt"] == point.attempt
    point.gates = [answer, *states]
    point.call = answer.calls[0]
    return point
