"""The demo: its input, its conclusions, and a small run of the whole."""

import gzip
import json

import pytest
from click.testing import CliRunner

from partq.cli.commands import cli
from partq.core.model import PartitionId
from partq.core.slot_table import SlotTable
from partq.errors import BadRequestError
from partq.lab.demo.outcome import conclude
from partq.lab.demo.scenario import RESCALE_STEPS, STEPS
from partq.lab.verdict.journal_rows import DeliveredRow, PublishedRow
from partq.lab.verdict.progress import RunProgress
from partq.lab.verdict.timeline import RunChange
from partq.lab.workload.events import MAX_LINE_BYTES, default_input, disordered, load, parse
from partq.lab.workload.synthetic import generate


def test_the_real_events_are_there_and_in_order():
    events = load(default_input())
    assert len(events) == 99_515
    assert len({event.key for event in events}) == 10_101
    assert disordered(events) == 0


def test_events_without_a_number_are_numbered_per_key(tmp_path):
    path = tmp_path / "events.ndjson"
    path.write_bytes(b'{"key":"a"}\r\n\n{"key":"b","x":1}\n{"key":"a"}')
    assert [(event.key, event.number) for event in load(path)] == [("a", 1), ("b", 1), ("a", 2)]
    assert load(path)[1].value == b'{"key":"b","x":1}'


def test_gzip_is_known_by_its_bytes(tmp_path):
    path = tmp_path / "events"
    path.write_bytes(gzip.compress(b'{"key":"a","seq":7}\n'))
    assert [(event.key, event.number) for event in load(path)] == [("a", 7)]


def test_disorder_of_the_input_is_counted():
    lines = [b'{"key":"a","seq":%d}' % number for number in (1, 3, 2, 4)]
    assert disordered(parse(lines, "it")) == 2


@pytest.mark.parametrize(("line", "got"), [
    pytest.param(b"{", "got '{', expected a JSON object", id="no JSON"),
    pytest.param(b"\xff", "expected a JSON object", id="no UTF-8"),
    pytest.param(b"[" * 100_000, "expected a JSON object", id="too deep"),
    pytest.param(b"[1]", "expected a JSON object with a key", id="no object"),
    pytest.param(b'{"seq":1}', "got no key among ['seq']", id="no key"),
    pytest.param(b'{"key":5}', "got key 5, expected a text", id="the key is not a text"),
    pytest.param(b'{"key":"\\ud800"}', "expected text that UTF-8 can write", id="half a character"),
    pytest.param(b'{"key":"%s"}' % (b"x" * 1025), "got a key of 1025 bytes", id="long key"),
    pytest.param(b'{"key":"a","seq":"1"}', "got seq '1', expected an integer", id="seq is text"),
    pytest.param(b'{"key":"a","seq":true}', "got seq True, expected", id="seq is a truth"),
    pytest.param(b'{"key":"a","seq":-1}', "got seq -1, expected", id="seq below 0"),
    pytest.param(b'{"key":"a","seq":1}', "got seq 1 of key 'a' again", id="seq twice"),
])  # fmt: skip
def test_a_bad_line_is_named(tmp_path, line, got):
    path = tmp_path / "events.ndjson"
    path.write_bytes(b'{"key":"a","seq":1}\n' + line + b"\n")
    with pytest.raises(BadRequestError) as raised:
        load(path)
    assert raised.value.message.startswith(f"{path} line 2: ")
    assert got in raised.value.message


@pytest.mark.parametrize(("data", "got"), [
    pytest.param(b"", "got no line", id="empty"),
    pytest.param(b"\n\n", "got no line", id="only empty lines"),
    pytest.param(b"\x1f\x8bxx", "cannot be read", id="broken gzip"),
    pytest.param(b"x" * (MAX_LINE_BYTES + 1), "line 1: got above", id="a line without an end"),
])  # fmt: skip
def test_a_bad_file_is_named(tmp_path, data, got):
    path = tmp_path / "events.ndjson"
    path.write_bytes(data)
    with pytest.raises(BadRequestError, match=got):
        load(path)


def test_wrong_input_ends_with_status_2(tmp_path):
    path = tmp_path / "events.ndjson"
    path.write_bytes(b'{"key":1}\n')
    result = CliRunner().invoke(cli, ["demo", "--input", str(path)])
    assert result.exit_code == 2
    assert f"{path} line 1: got key 1, expected a text" in result.output


def test_generated_events_repeat_and_count_per_key():
    events = list(generate(["p/0", "p/1"], messages=5, size_bytes=40))
    assert events == list(generate(["p/0", "p/1"], messages=5, size_bytes=40))
    assert [event.number for event in events] == [1, 1, 2, 2, 3]
    assert {len(event.value) for event in events} == {40}
    assert disordered(events) == 0


@pytest.mark.parametrize("steps", [STEPS, RESCALE_STEPS])
def test_a_scenario_goes_from_its_begin_to_its_end(steps):
    assert [step.at for step in steps] == sorted(step.at for step in steps)
    assert all(0 < step.at < 1 for step in steps)


S = 1_000_000_000


def progress_of(count, *, lost=()):
    progress = RunProgress()
    progress.add(PublishedRow(n * S, "1.0", n, "k", n) for n in range(count))
    progress.add(
        DeliveredRow(n * S + 1, "a", "1.0", n, 1, 1, 0, "k", n)
        for n in range(count)
        if n not in lost
    )
    return progress


def test_a_run_is_good_when_all_is_there_and_every_change_had_traffic():
    outcome = conclude(progress_of(30), [RunChange(trigger="t", at_ns=9 * S, until_ns=20 * S)], 30)
    assert outcome.is_good
    assert outcome.duplicates == (0,)


def test_a_change_without_traffic_fails_the_run():
    outcome = conclude(progress_of(30), [RunChange(trigger="t", at_ns=50 * S, until_ns=60 * S)], 30)
    assert outcome.verdict.is_good
    assert outcome.failures == ("'t' did not hit live traffic",)
    assert not outcome.is_good


def test_events_that_were_not_published_fail_the_run():
    assert conclude(progress_of(30), [], 31).failures == ("30 of 31 events were published",)


def test_a_change_of_the_partition_count_that_moves_too_much_fails_the_run():
    halves = (range(32_768),), (range(32_768, 65_536),)
    swapped = SlotTable({PartitionId(2, 1): halves[0], PartitionId(2, 0): halves[1]})
    change = RunChange(trigger="t", at_ns=9 * S, until_ns=20 * S)
    tables = {"t": (SlotTable.first(2), swapped)}
    outcome = conclude(progress_of(30), [change], 30, tables=tables)
    assert outcome.failures == ("2 -> 2 partitions: 65536 slots have moved, 0 had to",)


def test_a_lost_event_fails_the_run():
    assert not conclude(progress_of(30, lost={29}), [], 30).is_good


def test_a_small_run_of_the_whole(tmp_path):
    source, report = tmp_path / "events.ndjson", tmp_path / "verdict.json"
    source.write_text("".join(json.dumps({"key": f"k{n % 200}"}) + "\n" for n in range(4500)))
    arguments = ["demo", "--input", str(source), "--duration", "30", "--json", str(report)]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    verdict = json.loads(report.read_text())
    assert (verdict["published"], verdict["delivered"]) == (4500, 4500)
    assert (verdict["lost"], verdict["out_of_order"], verdict["failures"]) == (0, 0, [])
    assert [each["trigger"] for each in verdict["rebalances"]] == [step.trigger for step in STEPS]
    moved = [each["moved"] for each in verdict["rebalances"]]
    # 16 partitions: 2 -> 4 and 4 -> 6 fill the newcomers, at the price of one more move each when
    # these do not join at once; 24 partitions, a restart and a broker move nothing.
    assert moved[0] in (8, 9)
    assert moved[1] in (4, 5)
    assert moved[2:5] == [0, 0, 0]
    (rescale,) = verdict["rescales"]
    assert (rescale["from_count"], rescale["to_count"], rescale["new_partitions"]) == (16, 24, 8)
    assert rescale["moved_slots"] == rescale["least_slots"]
    assert 0 < rescale["moved_keys"] < rescale["key_count"] == 200


@pytest.mark.chaos
def test_a_small_run_in_which_the_partition_count_changes(tmp_path):
    source, report = tmp_path / "events.ndjson", tmp_path / "verdict.json"
    source.write_text("".join(json.dumps({"key": f"k{n % 200}"}) + "\n" for n in range(4500)))
    arguments = ["demo", "--rescale", "--input", str(source), "--duration", "30"]
    result = CliRunner().invoke(cli, [*arguments, "--json", str(report)])
    assert result.exit_code == 0, result.output
    verdict = json.loads(report.read_text())
    assert (verdict["published"], verdict["delivered"]) == (4500, 4500)
    assert (verdict["lost"], verdict["out_of_order"], verdict["failures"]) == (0, 0, [])
    counts = [(each["from_count"], each["to_count"]) for each in verdict["rescales"]]
    assert counts == [(16, 24), (24, 10), (10, 16)]
    assert all(each["moved_keys"] < each["key_count"] == 200 for each in verdict["rescales"])
