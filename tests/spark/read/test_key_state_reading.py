"""`spark.read.format("partq")` with the option `states`, on a real queue."""

import asyncio

import pytest

from partq import Consumer
from partq.errors import BadRequestError
from partq.spark.read.key_state_reader import COLUMNS, check_state_schema, state_options
from partq.spark.read.options import wants_states
from tests.spark.live_queue import live_queue

COUNT = 200


@pytest.fixture(scope="module")
def queue():
    with live_queue(partitions=3, groups=["workers", "idle"]) as running:
        running.publish(range(COUNT))
        running.run(sum_up(running.broker))
        yield running


async def sum_up(broker):
    """Leave the sum of each key as its state."""
    done = 0
    async with (
        asyncio.timeout(60),
        Consumer(
            broker.url, queue="orders", group="workers", token=broker.tokens.consume,
            handle_signals=False,
        ) as consumer,
    ):  # fmt: skip
        async for message in consumer:
            total = int(await message.state() or 0) + int(message.value)
            await consumer.ack(message, state=str(total).encode())
            done += 1
            if done == COUNT:
                break
        await consumer.flush()


def read(spark, queue, **more):
    options = queue.options(token=queue.broker.tokens.admin, states="true", group="workers")
    return spark.read.format("partq").options(**options | more)


def test_each_key_has_a_row(spark, queue):
    rows = read(spark, queue).load().collect()
    sums = {f"key-{n}": sum(range(n, COUNT, 10)) for n in range(10)}
    assert {row.key: int(row.state) for row in rows} == sums
    assert len(rows) == 10
    assert {(row.queue, row.group) for row in rows} == {("orders", "workers")}
    assert {row.partition for row in rows} <= {"1.0", "1.1", "1.2"}
    frame = read(spark, queue).schema("key string").load()
    assert (frame.columns, frame.count()) == (["key"], 10)
    assert read(spark, queue, group="idle").load().count() == 0


def test_a_group_that_there_is_not_is_named(spark, queue):
    with pytest.raises(Exception, match="UnknownGroupError: group nobody: queue orders has"):
        read(spark, queue, group="nobody").load().collect()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "option group is missing; states of keys are those of a group"),
        ({"group": "workers", "startingOffsets": "earliest"}, "not an option of reads of states"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, says):
    given = {"url": "http://127.0.0.1:1", "queue": "orders", "states": "true"}
    with pytest.raises(BadRequestError, match=says):
        state_options(given | options)


def test_what_the_option_and_a_schema_may_say():
    assert [wants_states(given) for given in ({}, {"STATES": "true"}, {"states": "false"})] == [
        False, True, False,
    ]  # fmt: skip
    with pytest.raises(BadRequestError, match="expected true or false"):
        wants_states({"states": "yes"})
    check_state_schema(COLUMNS)
    with pytest.raises(BadRequestError, match="got column 'key' as binary; of states there are"):
        check_state_schema(
            type(COLUMNS)([COLUMNS["state"].__class__("key", COLUMNS["state"].dataType)])
        )
