"""Dead letters of a queue whose partition count has changed go back in the order of each key."""

from partq.core.dead_letters import DeadLetterReason
from partq.core.model import Offset, PartitionId
from partq.wire import batch
from tests.broker.dead_letters import test_dead_letters
from tests.broker.dead_letters.test_dead_letters import TARGET
from tests.broker.dead_letters.test_replay_plan import asked, bury_one
from tests.broker.operations.test_replay import resources as resources
from tests.broker.rescale.change import ChangeByHand

start_target, target = test_dead_letters.start_target, test_dead_letters.target
SLOT = 30_000
"""Of the first of two partitions, and of the third of three."""
ORIGIN = PartitionId(1, 1)


class DeadLetterQueue:
    """The broker of the dead-letter queue, as a coordinator calls it."""

    def __init__(self, target):
        self.store, self.broker = target.store, target.broker
        self._target = target

    async def admin(self, path, body):
        status, answer = await self._target.call(
            "POST", f"/admin/v1/queues/{TARGET}{path}", json=body
        )
        assert status == 200, answer
        return answer["results"]


async def bury(running, *numbers):
    running.broker.dead_letters.target._known.clear()  # it would be told, and try again
    for number in numbers:
        await bury_one(running, number, SLOT, "k", DeadLetterReason.EXPIRED)


async def test_older_partitions_are_replayed_first(running, target, monkeypatch):
    monkeypatch.setattr("partq.cli.dead_letters.replay.PAGE", 1)
    await bury(running, 0, 1)
    layout = await ChangeByHand(DeadLetterQueue(target)).change(3)
    assert layout.partition_of(SLOT) == PartitionId(2, 2)
    await bury(running, 2, 3)
    _, answer = await target.call(
        "POST", f"/v1/queues/{TARGET}/dead-letters/replay", json={"max_messages": 1}
    )
    assert answer["partitions"]["1.0"]["next"] == 1
    assert "follows partition 1.0" in answer["partitions"]["2.2"]["error"]["message"]
    assert (await asked(target, "replay", "--yes"))["replayed"] == 3
    entries = await running.broker.log.read(ORIGIN, Offset(0), max_bytes=2**20, max_entries=100)
    values = [message.value for entry in entries for message in batch.decode(entry.data)]
    assert values == [b"dead %d" % number for number in range(4)]
