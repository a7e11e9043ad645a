"""Messages that a group's record speaks of and the log does not hold stop nobody else."""

import pytest

from partq.broker.gauges import render_metrics
from tests.broker.conftest import eventually, partition_id

P = partition_id(0)


@pytest.fixture
def spoil(running, store):
    """Change the group's record by hand, as a backup that was put back does."""

    async def spoil(**fields):
        flat = [each for field in fields.items() for each in field]
        key = running.broker.keys.cursor(P, "workers")
        await store.run("write_fields", [key], [len(fields), *flat])

    return spoil


@pytest.fixture
async def trimmed(running, scene):
    """Nine messages were stored and acknowledged, each in a batch, and are gone but for some."""
    assert await scene.source.ack(scene.held, 3) == ""
    for number in range(6):
        await scene.producer.publish(f"{number}")
    frame, _ = await scene.source.deliver()
    while frame.stop < 9:
        frame, _ = await scene.source.deliver()
    assert await scene.source.ack(frame, 9) == ""

    async def is_trimmed():
        return (await running.broker.partitions.read(P)).trimmed == 9

    await eventually(is_trimmed, "it is trimmed")
    return scene


async def claim_again(running):
    """Lose the partition, as by a restart of the broker, and have it claimed again."""
    owned = running.broker.owned[P]
    running.broker.ownership.drop_all()
    await running.claim_all()
    assert running.broker.owned[P] is not owned
    return running.broker.owned[P]


async def test_a_cursor_below_the_log_interrupts_nobody(running, trimmed, spoil, caplog):
    await spoil(cursor=3, acked="5-6")
    owned = await claim_again(running)
    assert owned.groups["workers"].book.cursor == 9
    await eventually(lambda: owned.groups["workers"].flow is not None, "bound again")
    for value in "xy":
        await trimmed.producer.publish(value)
        while (await trimmed.source.deliver())[1] != [value]:
            pass
    assert running.broker.owned[P] is owned, "claimed once"
    assert "moved from 3 to 9" in caplog.text
    metrics = render_metrics(running.broker).decode()
    (line,) = [x for x in metrics.splitlines() if x.startswith("partq_messages_skipped_total{")]
    assert line.endswith(" 6.0")


async def test_a_dead_letter_below_the_log_interrupts_nobody(running, trimmed, spoil, caplog):
    await spoil(outbox="11:2:1:3", outbox_lowest=2)
    owned = await claim_again(running)
    subscription = owned.groups["workers"]
    assert subscription.outbox.letters == []
    await eventually(lambda: subscription.flow is not None, "bound again")
    await trimmed.producer.publish("x")
    while (await trimmed.source.deliver())[1] != ["x"]:
        pass
    assert running.broker.owned[P] is owned, "claimed once"
    assert "1 dead letters are dropped" in caplog.text
