"""The status of a queue says how far a change of its partition count has come."""

from partq.core.rescale.layout_steps import prepare
from partq.store.records.layout.seals import Seals

STATUS = "/v1/queues/orders/status"


async def test_a_change_is_told_once_it_is_prepared(running, peers):
    broker = running.broker
    _, answer = await running.call("GET", STATUS)
    assert "rescale" not in answer
    layout = prepare((await broker.layouts.read()).layout, 6, 1_700_000_000_000)
    await broker.layouts.write(layout)
    seals = Seals(broker.store, broker.keys)
    for partition, predecessors in layout.next.lineage.items():
        await seals.create_successor(partition, predecessors, layout.slots(partition))

    async def is_told():
        _, found = await running.call("GET", STATUS)
        return found.get("rescale")

    told = await peers.eventually(is_told, "the broker knows of the change")
    assert (told["generation"], told["from_count"], told["to_count"]) == (2, 4, 6)
    assert (told["phase"], told["to_open"], told["opened"]) == ("Preparing", 2, 0)
    assert told["started_at_ms"] == 1_700_000_000_000
    assert "new partitions that do not have every group: 2.4, 2.5" in told["waits_for"]
    _, answer = await running.call("GET", STATUS)
    assert answer["totals"]["partitions"] == 4
