"""The bench: its order check, its figures, and a tiny run of the whole."""

import json
from itertools import pairwise

import pytest
from click.testing import CliRunner

from partq.cli.commands import cli
from partq.core.model import PartitionId
from partq.embedded.runtime import EmbeddedRuntime
from partq.lab.bench.rate import pace
from partq.lab.bench.workload import (
    MIN_VALUE_BYTES,
    ArrivalCheck,
    OrderCheck,
    ReaderTally,
    Workload,
    due_ns_of,
)
from partq.lab.workload.events import default_input, text_of
from partq.wire.batch import Message

KEYS = {
    "publish_msgs_per_s",
    "end_to_end_msgs_per_s",
    "limit_msgs_per_s",
    "ratio",
    "latency_ms",
    "limit_latency_ms",
    "lost",
    "out_of_order",
    "cpu_s_per_million",
    "limit_cpu_s_per_million",
    "appendfsync",
}


def test_a_workload_repeats_and_numbers_each_key_from_0():
    first, second = Workload(3, 20), Workload(3, 20)
    messages = [message for _ in range(10) for message in first.block(7)]
    assert [(m.key, m.value) for m in messages] == [(m.key, m.value) for m in second.block(70)]
    assert {len(message.value) for message in messages} == {20}
    assert len({message.key for message in messages}) == 3
    check = OrderCheck()
    check.check(messages)
    assert check.seen == ReaderTally(messages=70)


def test_values_are_pieces_of_a_text(tmp_path):
    file = tmp_path / "events.ndjson"
    file.write_text('{"key": "a", "n": 1}\n{"key": "b", "n": 22}\n')
    text = text_of(file)
    values = [message.value for message in Workload(1, MIN_VALUE_BYTES + 24, text).block(4)]
    pieces = [b'{"key": "a", "n": 1}\n{"k', b'ey": "b", "n": 22}'.ljust(24, b"\0")]
    assert [value[MIN_VALUE_BYTES:] for value in values] == pieces * 2


def test_a_message_tells_when_it_was_due():
    (message,) = Workload(1, MIN_VALUE_BYTES).block(1, due_ns=17)
    assert due_ns_of(message.value) == 17


@pytest.mark.parametrize(("numbers", "seen"), [
    pytest.param([0, 1, 2], ReaderTally(3, 0, 0), id="one after another"),
    pytest.param([0, 0, 1], ReaderTally(2, 1, 0), id="a repeat is a duplicate"),
    pytest.param([0, 1, 0, 1, 2], ReaderTally(3, 2, 0), id="a step back repeats"),
    pytest.param([0, 2], ReaderTally(2, 0, 1), id="a gap is out of order"),
    pytest.param([1, 0], ReaderTally(2, 0, 2), id="swapped: both are out of order"),
    pytest.param([1, 0, 0], ReaderTally(2, 1, 2), id="late, then repeated"),
])  # fmt: skip
def test_order_check(numbers, seen):
    (template,) = Workload(1, MIN_VALUE_BYTES).block(1)
    check = OrderCheck()
    for number in numbers:
        value = number.to_bytes(8, "little") + template.value[8:]
        check.check([Message(template.key, value)])
    assert check.seen == seen


def test_messages_without_an_order_are_counted_once():
    check = ArrivalCheck()
    check.check(PartitionId(1, 0), [5000, 7])
    check.check(PartitionId(1, 1), [7])
    check.check(PartitionId(1, 0), [8, 7])
    assert check.seen == ReaderTally(4, 1, 0)


def test_codecs_are_measured_on_events(tmp_path):
    """What is stored is counted, not guessed: the smallest is the best at text that repeats."""
    file = tmp_path / "events.ndjson"
    lines = (json.dumps({"key": f"k{n % 7}", "text": "the same again " * 9}) for n in range(100))
    file.write_text("\n".join(lines))
    args = ["bench", "codecs", "--json", "--batch-messages", "30", "--input", str(file)]
    result = CliRunner().invoke(cli, args, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found.keys() == {"none", "lz4", "zstd", "zlib", "snappy"}
    assert found["none"]["share"] == 1
    assert found["none"]["stored_bytes_per_message"] > 150
    assert all(found[name]["share"] < 0.3 for name in found if name != "none")


def test_the_loops_that_people_write_are_measured_one_by_one(tmp_path, monkeypatch):
    """Against one broker: of two, one that is late gets its share in the middle of a loop."""
    counts = []

    class Watched(EmbeddedRuntime):
        async def start(self):
            await super().start()
            counts.extend(len(queue.brokers) for queue in self.queues)

    monkeypatch.setattr("partq.cli.lab.bench_loops.EmbeddedRuntime", Watched)
    file = tmp_path / "loops.json"
    args = ["--messages", "300", "--slow-messages", "10", "--rounds", "1", "--json", str(file)]
    result = CliRunner().invoke(cli, ["bench", "loops", *args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    rows = json.loads(file.read_text())
    assert [row["name"] for row in rows] == [
        "ack", "ack-confirmed", "auto-ack", "ack-nowait", "run", "run-16", "batches",
        "send-and-wait", "at-once", "gather", "send-many",
    ]  # fmt: skip
    assert all(row["msgs_per_s"] > 0 for row in rows)
    assert all(row["code"] in result.output for row in rows)
    assert counts == [1, 1], "brokers of the queue that is read, and of the one that is written"


def test_the_pace_is_that_of_the_instants_not_of_the_calls():
    due = []
    pace(5, 1000, due.append)
    assert [after - before for before, after in pairwise(due)] == [1_000_000] * 4


def test_more_consumers_than_partitions_are_refused():
    result = CliRunner().invoke(cli, ["bench", "--partitions", "4", "--consumers", "5"])
    assert result.exit_code == 2
    assert "--consumers" in result.output


def test_a_small_run_loses_nothing_and_says_everything(tmp_path):
    file = tmp_path / "bench.json"
    load = {"--partitions": 4, "--keys": 50, "--messages": 2000, "--size": 40, "--json": file}
    load |= {"--compression": "auto", "--input": str(default_input())}
    args = [str(part) for option in load.items() for part in option]
    result = CliRunner().invoke(cli, ["bench", *args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    report = json.loads(file.read_text())
    assert report.keys() >= KEYS
    # Warm-up, three runs, and three times 200 single messages.
    assert (report["published"], report["lost"], report["out_of_order"]) == (7000, 0, 0)
    assert (report["appendfsync"], report["compression"]) == ("always", "auto")
    assert report["latency_ms"].keys() == {"p50", "p99"}
    assert report["cpu_s_per_million"].keys() == {
        "producer", "consumers", "brokers", "coordinator", "redis",
    }  # fmt: skip
    assert "lost 0" in result.output
