"""What a broker's metrics say of a change of the number of partitions."""

from partq.broker.operations.coordinator_calls import state
from partq.testing import eventually
from tests.broker.rescale.change import ChangeByHand


async def metric(running, name):
    async with running.session.get(f"{running.url}/metrics") as response:
        lines = (await response.text()).splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith(name)
    }


async def test_gates_and_the_pause_of_publishing_are_counted(running, peers):
    assert await metric(running, "partq_partition_gated") == {}
    assert await metric(running, "partq_rescale_publish_pause_seconds_count") == {}
    producer = await peers.open_producer(running)
    await producer.publish("v", partition=0)
    await peers.open_flow(running, "m")
    await ChangeByHand(running).change(5)
    where = '{namespace="default",queue="orders"}'
    name = "partq_rescale_publish_pause_seconds_count"

    async def is_counted():
        return await metric(running, name) == {name + where: 1.0}

    await eventually(is_counted, "the pause of the new partition is counted")
    gated = 'partq_partition_gated{group="workers",namespace="default",partition="2.4",'
    assert await metric(running, "partq_partition_gated") == {gated + 'queue="orders"}': 1.0}
    (told,) = (
        each.opened_after_s
        for each in state(running.broker).partitions.values()
        if each.opened_after_s
    )
    assert (
        told
        == (await metric(running, "partq_rescale_publish_pause_seconds_sum"))[
            "partq_rescale_publish_pause_seconds_sum" + where
        ]
    )
