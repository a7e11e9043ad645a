"""What is written by Spark is in the queue exactly once, whatever fails in between."""

import json
import runpy
import threading
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import expr, udf
from pyspark.sql.types import StructType

from partq import Consumer
from partq.errors import ConflictError, NotStoredError, OutcomeUnknownError
from partq.spark.source import register
from partq.spark.write.numbering import TaskId
from partq.spark.write.sink import Sink, TaskCommit, _batches, batch_writer, stream_writer
from partq.spark.write.sink_columns import write_columns
from partq.spark.write.sink_options import write_options
from partq.wire import batch as wire
from tests.spark.live_queue import live_queue

SCHEMA = StructType().add("key", "string").add("value", "binary")
PARTITIONS = 3
VALUE_BYTES = 20_000
"""Some 25 messages make a batch."""
WAIT_S = 280.0
TRIES = 10
"""Of a repeat that is under way when the time ends nobody knows whether it is stored."""
COUNT = 150
KEY = "concat('{}', id % 7)"
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


@pytest.fixture(scope="module")
def queue():
    """A queue of two brokers; a test writes keys of its own."""
    with live_queue(partitions=PARTITIONS, broker_count=2) as running:
        yield running


@pytest.fixture(scope="module")
def writing(spark):
    register(spark)
    return spark


@pytest.fixture(name="options")
def options_(queue):
    return queue.options(queue.broker.tokens.produce)


def stored(queue, prefix=""):
    """Return the messages of the keys that begin with a prefix, in the logs' order."""

    async def read(reader):
        found = []
        for partition in await reader.partitions():
            async for entry in reader.entries(partition, 0, None):
                for message in wire.decode(entry.data):
                    if (message.key or "").startswith(prefix):
                        found.append((message, entry.ttl_ms))
        return found

    return queue.reading(read)


def by_key(queue, prefix):
    found = defaultdict(list)
    for message, _ in stored(queue, prefix):
        found[message.key].append(int(message.value.split(b":")[0]))
    return found


def rows_of(prefix, count, keys=7):
    """Return (key, value): the values of a key are numbers that grow."""
    return [(f"{prefix}{n % keys}", b"%d:" % n + bytes(VALUE_BYTES)) for n in range(count)]


def expected(prefix, count, keys=7):
    return {f"{prefix}{key}": list(range(key, count, keys)) for key in range(min(keys, count))}


def arrow(rows):
    keys, values = zip(*rows, strict=True)
    return pa.RecordBatch.from_pydict({"key": pa.array(keys), "value": pa.array(values)})


def cut(rows, size):
    return (arrow(rows[at : at + size]) for at in range(0, len(rows), size))


def sink_of(options, **more):
    return Sink(write_options({**options, **more}, is_stream=False), write_columns(SCHEMA))


def failing(batches, after):
    """Yield so many batches, then fail."""
    for number, batch in enumerate(batches):
        if number == after:
            raise RuntimeError("planted")
        yield batch


# ---- one task, at its attempts ----


@pytest.mark.parametrize(("first", "after", "second"), [(40, 3, 13), (13, 9, 200), (200, 1, 40)])
def test_an_attempt_stores_what_the_one_before_did_not(queue, options, first, after, second):
    prefix = f"attempt-{first}-"
    rows = rows_of(prefix, 240)
    task = TaskId(f"attempt-{first}", "task", True)
    sink = sink_of(options)
    with pytest.raises(RuntimeError, match="planted"):
        sink.write(failing(cut(rows, first), after), task)
    before = sum(map(len, by_key(queue, prefix).values()))
    written = sink.write(cut(rows, second), task)
    assert written.row_count == 240
    # What was on its way when the first attempt ended is stored by now; nothing twice.
    assert before <= written.skipped_count + 240 - 1
    assert by_key(queue, prefix) == expected(prefix, 240)
    again = sink.write(cut(rows, 7), task)
    assert (again.row_count, again.skipped_count) == (240, 240)
    assert by_key(queue, prefix) == expected(prefix, 240)


def test_attempts_at_the_same_time_store_everything_once(queue, options):
    rows = rows_of("race-", 240)
    task = TaskId("race", "task", True)
    done = []
    threads = [
        threading.Thread(
            target=lambda size=size: done.append(sink_of(options).write(cut(rows, size), task))
        )
        for size in (11, 30)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert [written.row_count for written in done] == [240, 240]
    assert by_key(queue, "race-") == expected("race-", 240)


def test_fewer_rows_than_are_stored_are_no_attempt_of_the_same_task(queue, options):
    rows = rows_of("fewer-", 20, keys=1)
    task = TaskId("fewer", "task 5 of it", True)
    sink_of(options).write(cut(rows, 20), task)
    with pytest.raises(ConflictError, match=r"task 5 of it: 20 rows .* this attempt has 19"):
        sink_of(options).write(cut(rows[:19], 20), task)


def test_rows_in_another_order_are_no_attempt_of_the_same_task(queue, options):
    rows = [("order-1", b"%d:" % n + bytes(n)) for n in range(20)]
    task = TaskId("order", "task 5 of it", True)
    sink_of(options).write(cut(rows, 20), task)
    rows[3], rows[4] = rows[4], rows[3]
    more = [*rows, ("order-1", b"20:")]
    with pytest.raises(ConflictError, match=r"rows 0 to 19 of partition 1\.\d .* are others"):
        sink_of(options).write(cut(more, 6), task)
    assert by_key(queue, "order-") == {"order-1": list(range(20))}


def test_a_broker_that_is_killed_meanwhile_loses_and_repeats_nothing(queue, options):
    rows = rows_of("kill-", 240)
    victim = queue.broker.runtime.brokers[0]

    def batches():
        for number, batch in enumerate(cut(rows, 30)):
            yield batch
            if number == 3:
                queue.run(victim.kill())

    try:
        sink_of(options).write(batches(), TaskId("kill", "task", True))
        assert by_key(queue, "kill-") == expected("kill-", 240)
    finally:
        queue.run(victim.start())


def test_without_room_it_waits_then_fails_and_the_next_attempt_goes_on():
    spec = {"limits": {"maxSpoolBytes": 1024 * 1024}}
    with live_queue(partitions=1, spec=spec) as small:
        options = small.options(small.broker.tokens.produce, compression="none")
        rows = rows_of("room-", 70, keys=2)
        task = TaskId("room", "task", True)
        for _ in range(TRIES):
            with pytest.raises((NotStoredError, OutcomeUnknownError)) as raised:
                sink_of(options, timeoutSeconds="1").write(cut(rows, 30), task)
            if raised.type is NotStoredError:
                break
        assert "limits.maxSpoolBytes" in str(raised.value)
        seen = defaultdict(list)

        async def consume():
            async with Consumer(
                small.broker.url, queue="orders", group="workers", token=small.broker.tokens.consume
            ) as consumer:
                async for delivery in consumer:
                    seen[delivery.key].append(int(delivery.value.split(b":")[0]))
                    await consumer.ack(delivery)
                    if sum(map(len, seen.values())) == 70:
                        return

        reading = threading.Thread(target=lambda: small.run(consume()))
        reading.start()
        written = sink_of(options).write(cut(rows, 17), task)
        reading.join(WAIT_S)
        assert written.skipped_count > 0
        assert seen == expected("room-", 70, keys=2)


# ---- through Spark ----


def test_a_dataframe_is_written_with_all_its_columns(writing, queue, options):
    at = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)
    schema = (
        "ttl_ms int, headers map<string,string>, value string, key string, event_time timestamp"
    )
    rows = [
        (50, {"a": "1"}, "x", "columns-1", at),
        (None, {}, "y", "columns-1", None),
        (0, None, "", "columns-2", at),
    ]
    frame = writing.createDataFrame(rows, schema).coalesce(1)
    frame.write.format("partq").options(**options, ttlMs="70").mode("append").save()
    at_ms = int(at.timestamp() * 1000)
    assert sorted(
        (m.key, m.value, m.headers, m.event_time_ms, ttl) for m, ttl in stored(queue, "columns-")
    ) == [
        ("columns-1", b"x", {"a": "1"}, at_ms, 50),
        ("columns-1", b"y", {}, 0, 70),
        ("columns-2", b"", None, at_ms, 0),
    ]


FAIL_AT = 120
"""Behind the hundred rows that Spark hands a function at once."""


def failing_value(queue, prefix, *, attempts=1):
    """Return a function of (id, value) that fails, at first, when some of its rows are stored."""
    url, name, token = queue.broker.url, queue.name, queue.broker.tokens.consume

    def run(number, value):
        import asyncio

        from pyspark import TaskContext

        from partq.client.log_reader import LogReader
        from partq.testing import eventually

        async def wait_for_some():
            async with LogReader(url, queue=name, token=token) as reader:

                async def are_there():
                    for partition in await reader.partitions():
                        async for entry in reader.entries(partition, 0, None):
                            if prefix.encode() in entry.data:
                                return True
                    return False

                await eventually(are_there, f"messages of {prefix}", interval_s=0.05)

        attempt = TaskContext.get().attemptNumber()
        if number == FAIL_AT and attempt == 0:
            asyncio.run(wait_for_some())
        if number == (0 if attempt else FAIL_AT) and attempt < attempts:
            raise RuntimeError("planted")
        return value

    return udf(run, "string", useArrow=False)


@pytest.fixture
def small_batches(writing):
    """Spark hands rows over few at a time, so that some are stored before a task fails."""
    writing.conf.set(ARROW_ROWS, "10")
    yield
    writing.conf.unset(ARROW_ROWS)


def rows_from(numbers, key, failing=None):
    """Return a row per number, in their order."""
    value = expr(f"concat(id, ':', repeat('x', {VALUE_BYTES}))")
    if failing is not None:
        value = failing(numbers["id"], value)
    return numbers.select(expr(key).alias("key"), value.alias("value"))


def test_a_task_that_fails_after_some_batches_is_repeated_without_duplicates(
    writing, queue, options, small_batches
):
    numbers = writing.range(0, COUNT, 1, 1)
    frame = rows_from(numbers, KEY.format("retried-"), failing_value(queue, "retried-"))
    frame.write.format("partq").options(**options).mode("append").save()
    assert by_key(queue, "retried-") == expected("retried-", COUNT)


def test_a_write_that_is_repeated_under_its_id_adds_nothing(writing, queue, options):
    frame = rows_from(writing.range(0, 50, 1, 1), KEY.format("named-"))
    for _ in range(2):
        named = frame.write.format("partq").options(**options, writeId="night-7")
        named.mode("append").save()
    assert by_key(queue, "named-") == expected("named-", 50)
    frame.write.format("partq").options(**options).mode("append").save()
    assert {key: len(found) for key, found in by_key(queue, "named-").items()} == {
        key: 2 * len(found) for key, found in expected("named-", 50).items()
    }


def test_rows_without_a_key_are_written_once_too(writing, queue, options, small_batches):
    before = Counter(m.value[:3] for m, _ in stored(queue) if m.key is None)
    frame = rows_from(
        writing.range(0, COUNT, 1, 1), "CAST(NULL AS string)", failing_value(queue, ":xxx")
    )
    frame.write.format("partq").options(**options).mode("append").save()
    assert not before
    values = Counter(int(m.value.split(b":")[0]) for m, _ in stored(queue) if m.key is None)
    assert values == Counter(range(COUNT))


def run_stream(spark, options, path, prefix, failing=None, **more):
    numbers = spark.readStream.schema("id long").parquet(str(path / "in"))
    query = (
        rows_from(numbers, KEY.format(prefix), failing)
        .writeStream.format("partq")
        .options(**options, **more)
        .option("checkpointLocation", str(path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_S)


def test_a_stream_that_died_in_a_micro_batch_goes_on_without_duplicates(
    writing, queue, options, small_batches, tmp_path
):
    writing.range(0, COUNT, 1, 1).write.parquet(str(tmp_path / "in"))
    with pytest.raises(StreamingQueryException, match="planted"):
        run_stream(writing, options, tmp_path, "died-", failing_value(queue, "died-", attempts=4))
    assert 0 < sum(map(len, by_key(queue, "died-").values())) < COUNT
    writing.conf.set(ARROW_ROWS, "37")
    run_stream(writing, options, tmp_path, "died-")
    assert by_key(queue, "died-") == expected("died-", COUNT)


def test_a_micro_batch_that_is_replayed_adds_nothing_unless_told_so(
    writing, queue, options, tmp_path
):
    writing.range(0, 70, 1, 1).write.parquet(str(tmp_path / "in"))
    run_stream(writing, options, tmp_path, "replayed-")
    for more, times in (({}, 1), ({"exactlyOnce": "false"}, 2)):
        # As if the driver had died before it wrote down that the micro-batch was done.
        for name in ("0", ".0.crc"):
            Path(tmp_path, "checkpoint", "commits", name).unlink()
        run_stream(writing, options, tmp_path, "replayed-", **more)
        assert by_key(queue, "replayed-") == {
            key: found * times for key, found in expected("replayed-", 70).items()
        }


def test_the_example_writes_every_order_once(writing, queue, options, tmp_path):
    path = Path(__file__).parents[3] / "examples" / "spark_write.py"
    example = runpy.run_path(str(path))
    before = len(stored(queue, "customer-"))
    for _ in range(2):
        example["write_once"](writing, options, "example")
    example["stream_once"](writing, options, str(tmp_path))
    found = defaultdict(list)
    for message, _ in stored(queue, "customer-"):
        found[message.key].append(json.loads(message.value)["number"])
    assert not before
    assert found == {f"customer-{n}": list(range(n, 2000, 10)) for n in range(10)}


def test_spark_shows_one_sentence(writing, options):
    frame = writing.range(3).selectExpr("CAST(id AS string) AS value", "id AS offset")
    with pytest.raises(Exception, match="column 'offset' cannot be written") as caught:
        frame.write.format("partq").options(**options).mode("append").save()
    assert "Traceback" not in str(caught.value)


# ---- what is refused before anything is written ----


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("key string", "there is no column 'value'"),
        ("value int", "column 'value' is int; expected binary or string"),
        ("value binary, key binary", "column 'key' is binary; expected string"),
        ("value binary, headers map<string,int>", "expected map<string,string>"),
        ("value binary, event_time timestamp_ntz", "expected timestamp, or bigint"),
        ("value binary, partition string", "column 'partition' cannot be written"),
    ],
)
def test_columns_that_make_no_message_are_refused(spark, columns, says, options):
    for make in (batch_writer, stream_writer):
        with pytest.raises(Exception, match=says.replace("(", r"\(")):
            make(options, StructType.fromDDL(columns), overwrite=False)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"topic": "x"}, "option 'topic' is not an option of writes"),
        ({"url": "orders:1"}, "option url"),
        ({"token": "wrong"}, "token"),
        ({"queue": "others", "timeoutSeconds": "0.1"}, "others"),
        ({"compression": "rar"}, "option compression: 'rar'; expected one of auto, none, lz4"),
        ({"ttlMs": "-1"}, "option ttlMs: '-1'"),
        ({"exactlyOnce": "yes"}, "option exactlyOnce: 'yes'; expected true or false"),
        ({"writeId": "x" * 81}, "option writeId"),
        ({"writeId": " "}, "option writeId is empty"),
    ],
)
def test_options_that_are_unusable_are_refused(more, says, options):
    with pytest.raises(Exception, match=says):
        batch_writer({**options, **more}, SCHEMA, overwrite=False)


def test_a_failed_write_says_what_stays_and_how_to_go_on(options, caplog):
    writer = batch_writer({**options, "writeId": "night"}, SCHEMA, overwrite=False)
    writer.abort([TaskCommit(7, 3), None])
    assert caplog.messages == [
        "write 'night' has failed: 1 of 2 tasks have stored all of their rows: 7 rows, of which "
        "earlier attempts had stored 3. Rows that are stored stay in the queue, also those of the "
        "failed tasks; repeat the write with this writeId to add the missing rows"
    ]


def test_nothing_is_overwritten(options):
    with pytest.raises(Exception, match="only appended to; use mode"):
        batch_writer(options, SCHEMA, overwrite=True)
    with pytest.raises(Exception, match="output mode complete"):
        stream_writer(options, SCHEMA, overwrite=True)


def test_a_token_that_may_only_consume_is_refused(queue):
    with pytest.raises(Exception, match="produce"):
        batch_writer(queue.options(), SCHEMA, overwrite=False)


def test_a_stream_has_no_write_id(options):
    with pytest.raises(Exception, match="its query and micro-batch name what is written"):
        stream_writer({**options, "writeId": "x"}, SCHEMA, overwrite=False)


def test_rows_of_spark_4_0_become_arrow(writing):
    schema = StructType.fromDDL(
        "value binary, key string, event_time timestamp, headers map<string,string>"
    )
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    rows = [(b"a", "k", at, {"h": "1"}), (b"b", None, None, None)]
    collected = writing.createDataFrame(rows, schema).collect()
    [batch] = _batches(iter(collected), schema)
    assert batch.column(2).type == pa.timestamp("us", "UTC")
    assert batch.to_pylist() == [
        {"value": b"a", "key": "k", "event_time": at, "headers": [("h", "1")]},
        {"value": b"b", "key": None, "event_time": None, "headers": None},
    ]
