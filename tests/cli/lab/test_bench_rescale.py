"""The bench of changed partition counts: its figures on rows made up, and a tiny run."""

import json

from click.testing import CliRunner

from partq.cli.commands import cli
from partq.core.hashing import slot_of
from partq.core.slot_table import SlotTable
from partq.lab.bench.rescale.drive import CountChange, RescaleLoad
from partq.lab.bench.rescale.figures import figures_of, pauses_ms, render, send_times
from partq.lab.verdict.journal_rows import PublishedRow
from partq.lab.verdict.judge import judge

MS = 1_000_000
BEFORE = SlotTable.first(1)
AFTER = BEFORE.resized(2, 2).table
KEYS = [f"key-{number}" for number in range(40)]
MOVED = [key for key in KEYS if str(AFTER.partition_of(slot_of(key))) == "2.1"]
(KEPT,) = [key for key in KEYS if key not in MOVED][:1]
CHANGE = CountChange(
    at_ns=100 * MS, opened_ns=200 * MS, settled_ns=500 * MS, before=BEFORE, after=AFTER
)


def row(sent_ms, took_ms, partition, key, offset=0):
    return PublishedRow((sent_ms + took_ms) * MS, partition, offset, key, 1, took_ms * 1000)


ROWS = [
    row(10, 5, "1.0", KEPT),
    row(110, 9, "1.0", KEPT, 1),
    row(120, 60, "2.1", MOVED[0]),
    row(150, 30, "2.1", MOVED[1], 1),
    row(190, 4, "2.1", MOVED[0], 2),
    row(210, 70, "1.0", KEPT, 2),
    row(400, 90, "2.1", MOVED[2], 3),
    row(500, 6, "2.1", MOVED[0], 4),
]


def test_publishes_count_by_when_they_were_sent_and_whether_their_key_moves():
    times = send_times(ROWS, [CHANGE])
    assert times.calm == [5, 6]
    assert times.changing == [9, 60, 30, 4, 70, 90]
    assert times.staying == [9]
    assert times.moving == [60, 30, 4], "what is sent between opening and settling is neither"


def test_a_pause_is_of_a_key_that_was_sent_before_its_partition_took_messages():
    assert pauses_ms(ROWS, [CHANGE]) == [60, 30]


def test_the_report_tells_keys_that_move_from_those_that_stay():
    load = RescaleLoad(partitions=1, other=2, per_s=100)
    found = figures_of(load, [CHANGE], ROWS, judge(ROWS, []))
    told = found.to_json()
    assert told["pause_of_moving_keys_ms"] == {"count": 2, "p50": 30, "p99": 60, "max": 60}
    assert (told["p99_ratio"], told["p99_ratio_of_staying_keys"]) == (15, 1.5)
    assert told["opening_ms"]["max"] == 100
    assert told["is_good"] is False, "nothing was delivered"
    assert "1 -> 2 partitions and back" in render(found)


def test_the_other_number_is_another_one():
    result = CliRunner().invoke(cli, ["bench", "rescale", "--partitions", "5", "--other", "5"])
    assert result.exit_code == 2
    assert "--other: got 5, expected another number than --partitions has" in result.output


def test_a_tiny_run_changes_the_number_and_back_and_loses_nothing(tmp_path):
    file = tmp_path / "rescale.json"
    load = ["--partitions", "2", "--other", "3", "--per-s", "400", "--rounds", "1", "--json"]
    result = CliRunner().invoke(cli, ["bench", "rescale", *load, str(file)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    told = json.loads(file.read_text())
    assert told["publish_ms"]["calm"]["count"] > 0
    assert told["opening_ms"]["count"] == 2
    assert (told["lost"], told["out_of_order"]) == (0, 0)
