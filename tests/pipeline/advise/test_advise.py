"""Advice: the numbers that are tried, on keys whose load is known."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from partq.cli.commands import cli
from partq.core.hashing import partition_index, slot_of
from partq.core.model import SLOT_COUNT
from partq.core.slot_table import SlotTable
from partq.errors import BadRequestError
from partq.pipeline.advise.advice import (
    CANDIDATES,
    Needs,
    advise,
    consumers_needed,
    member_rates,
    partition_rates,
    simulate_lag,
)
from partq.pipeline.advise.job import run_advise
from partq.pipeline.advise.lag import lag_history
from partq.pipeline.advise.loads import HotKey, KeySpread, Loads, load_of
from partq.pipeline.archive_columns import COLUMNS
from partq.pipeline.archive_files import write_rows
from partq.pipeline.archive_log import ArchivedQueue, ArchiveLog
from partq.pipeline.manifest import ManifestEntry
from partq.pipeline.staging import Staging
from partq.pipeline.storage.files import open_files
from partq.pipeline.watch import JobWatch

BEGIN_MS = 1_800_000_000_000
EVEN = [f"customer-{number}" for number in range(2000)]


def loads(messages_by_key, *, windows=4, window_s=10, keyless=0):
    """Each key has its messages in each window."""
    by_slot = np.zeros((windows, SLOT_COUNT), dtype=np.int64)
    for key, count in messages_by_key.items():
        by_slot[:, slot_of(key)] += count
    total = sum(messages_by_key.values()) or 1
    hot = sorted(messages_by_key.items(), key=lambda item: (-item[1], item[0]))[:3]
    keys = KeySpread(
        len(messages_by_key), 1, 1,
        tuple(HotKey(key, count * windows, count / total, count / window_s) for key, count in hot),
    )  # fmt: skip
    return Loads(BEGIN_MS, window_s, by_slot, np.full(windows, keyless), keys)


def test_a_partition_gets_the_messages_of_its_keys_and_its_part_of_those_without():
    load = loads({"a": 30, "b": 50}, keyless=120)
    rates = partition_rates(load, SlotTable.first(12))

    expected = np.full((4, 12), 1.0)
    expected[:, partition_index(slot_of("a"), 12)] += 3
    expected[:, partition_index(slot_of("b"), 12)] += 5
    assert np.allclose(rates, expected)


@pytest.mark.parametrize("count", CANDIDATES)
def test_no_message_is_lost_whatever_the_number(count):
    load = loads(dict.fromkeys(EVEN, 3), keyless=7)
    rates = partition_rates(load, SlotTable.first(count))
    assert rates.sum() * load.window_s == pytest.approx(load.messages)


def test_members_get_whole_partitions_and_all_of_them():
    rates = partition_rates(loads(dict.fromkeys(EVEN, 3)), SlotTable.first(16))
    shares = member_rates(rates, 5)

    assert shares.shape == (4, 5)
    assert shares.sum() == pytest.approx(rates.sum())
    assert (shares.max(axis=1) >= rates.sum(axis=1) / 5).all()


def test_the_fewest_consumers_are_found():
    rates = partition_rates(loads(dict.fromkeys(EVEN, 3)), SlotTable.first(64))
    found = consumers_needed(rates, 100.0)

    assert found is not None
    assert member_rates(rates, found).max() <= 100.0
    assert member_rates(rates, found - 1).max() > 100.0


def test_a_partition_above_the_room_needs_no_number_to_be_tried():
    assert consumers_needed(np.array([[5.0, 11.0]]), 10.0) is None


def test_even_keys_get_as_many_partitions_as_their_consumers_need():
    # 600/s; a consumer may get 100 x 0.7 / 1.5 = 46.7/s.
    load = loads(dict.fromkeys(EVEN, 3))
    advice = advise(load, Needs(100.0), current=SlotTable.first(4))

    assert advice.consumers is not None
    assert 13 <= advice.consumers <= advice.partitions
    smaller = [each for each in advice.candidates if each.partitions < advice.partitions]
    assert all(each.consumers is None for each in smaller)
    assert any("it needs more" in reason for reason in advice.reasons)
    assert advice.simulated_lag == 0
    assert advice.warnings == ()


def test_a_key_that_is_faster_than_a_consumer_is_named():
    load = loads({**dict.fromkeys(EVEN, 1), "whale": 1500})
    advice = advise(load, Needs(100.0))

    assert advice.consumers is None
    assert "'whale' alone has 150.0/s" in advice.warnings[0]
    assert "'whale' has 43% of the messages" in advice.warnings[1]


def test_without_a_consumer_s_rate_parallelism_decides():
    advice = advise(loads({**dict.fromkeys(EVEN, 1), "whale": 1000}), Needs(None))

    assert advice.consumers is None
    assert advice.simulated_lag is None
    best = max(each.parallelism for each in advice.candidates)
    assert best < 3
    assert advice.partitions <= 64
    assert "the rate of a consumer is unknown" in advice.warnings[0]


def test_messages_without_a_key_spread_anyhow():
    assert "no message has a key" in advise(loads({}, keyless=100), Needs(None)).warnings[-1]


def test_lag_grows_with_what_a_member_cannot_do_and_goes_when_it_can():
    rates = np.array([[10.0], [30.0], [10.0], [0.0]])
    assert simulate_lag(rates, 20.0, window_s=10) == 100
    assert simulate_lag(rates, 30.0, window_s=10) == 0


@pytest.mark.parametrize(
    ("needs", "word"),
    [
        (Needs(0.0), "rate of 0"),
        (Needs(float("nan")), "rate of nan"),
        (Needs(1.0, utilization=1.5), "utilization 1.5"),
        (Needs(1.0, growth=0.5), "growth 0.5"),
    ],
)
def test_needs_that_make_no_sense_are_refused(needs, word):
    with pytest.raises(BadRequestError, match=word):
        needs.check()


def messages(spark, rows):
    """Return (key, second) as messages of an archive, in 4 partitions."""
    full = []
    for number, (key, second) in enumerate(rows):
        index = 3 if key is None else partition_index(slot_of(key), 4)
        at_ms = BEGIN_MS + second * 1000
        place = f"1.{index}", 1, index, number
        full.append(("orders", *place, key, b"v", None, at_ms, at_ms, 7, None))
    kinds = COLUMNS["messages"] | {"publish_time": "bigint", "event_time": "bigint"}
    frame = spark.createDataFrame(full, ", ".join(f"{name} {kind}" for name, kind in kinds.items()))
    times = {name: f"timestamp_millis({name})" for name in ("publish_time", "event_time")}
    return frame.selectExpr(*[f"{times.get(name, name)} as {name}" for name in kinds])


def audit(spark, rows):
    """Return (kind, second, group, member, first, stop) as audit records."""
    columns = "kind string, at_ms bigint, group string, member string, first bigint, stop bigint"
    full = [
        (kind, BEGIN_MS + second * 1000, group, member, first, stop)
        for kind, second, group, member, first, stop in rows
    ]
    return spark.createDataFrame(full, columns)


ROWS = [
    *[("whale", second) for second in range(20) for _ in range(5)],
    *[(f"k{second}", second) for second in range(20)],
    *[(None, 19)] * 3,
]
SLOW = [
    *[("publish", second, "", "", second * 10, second * 10 + 10) for second in range(10)],
    *[("deliver", second, "slow", "a", 0, 1) for second in range(20)],
    *[("deliver", second, "slow", "b", 0, 1) for second in range(20)],
    *[("ack", second, "slow", "a", second * 5, second * 5 + 5) for second in range(20)],
    ("ack", 9, "quick", "q", 0, 100),
]


def test_an_archive_is_summed_up(spark):
    load = load_of(messages(spark, ROWS), JobWatch(), window_s=10)

    assert (load.begin_ms, load.window_s, load.messages) == (BEGIN_MS, 10, 123)
    assert load.keyless.tolist() == [0, 3]
    assert load.by_slot[:, slot_of("whale")].tolist() == [50, 50]
    assert load.by_slot.sum(axis=1).tolist() == [60, 60]
    assert load.keys.count == 21
    assert load.keys.hot[0] == HotKey("whale", 100, 100 / 120, 5.0)
    assert (load.keys.median_messages, load.keys.most_messages) == (1, 100)


def test_windows_fit_by_themselves_and_too_many_are_refused(spark):
    frame = messages(spark, [("a", 0), ("a", 7200)])

    assert load_of(frame, JobWatch()).window_s == 60
    with pytest.raises(BadRequestError, match=r"a window of 1 s: .* at least 8 s"):
        load_of(frame, JobWatch(), window_s=1)


def test_an_empty_archive_says_so(spark):
    with pytest.raises(BadRequestError, match="no message to judge by"):
        load_of(messages(spark, [("a", 0)]).where("key = 'b'"), JobWatch())


def test_the_record_tells_lag_and_how_fast_consumers_were(spark):
    quick, slow = lag_history(audit(spark, SLOW), 1, JobWatch())

    assert (slow.group, slow.most_messages, slow.last_messages) == ("slow", 50, 0)
    assert slow.most_at_ms == BEGIN_MS + 10_000
    assert slow.behind_s == 19
    assert slow.consumer_per_s == 2.5
    assert (quick.group, quick.consumer_per_s) == ("quick", None)


def test_the_rate_of_the_record_is_taken(spark):
    found = run_advise(
        messages(spark, ROWS), audit(spark, SLOW), Needs(None), JobWatch(), window_s=1
    ).to_json()

    assert found["needs"]["consumer_per_s"] == 2.5
    assert found["partitions"] == 4
    assert "'whale' alone has 5.0/s" in found["suggested"]["warnings"][0]
    assert sum(each["share"] for each in found["busiest"]) == pytest.approx(1)


def test_a_group_that_the_record_does_not_know_is_refused(spark):
    with pytest.raises(BadRequestError, match=r"group 'other': .* knows quick, slow"):
        run_advise(
            messages(spark, ROWS), audit(spark, SLOW), Needs(None), JobWatch(), group="other"
        )


def test_the_command_reads_an_archive(spark, tmp_path):
    archive = ArchiveLog.open_for(
        open_files(spark, str(tmp_path)), ArchivedQueue("default", "orders", "0123abcd")
    )
    with Staging(archive.files) as staging:
        rows = messages(spark, ROWS)
        added = staging.place(write_rows(spark, staging, "messages", rows))
        archive.commit(
            archive.load(),
            lambda _: ManifestEntry(
                number=0, attempt=staging.attempt, kind="archive", at_ms=BEGIN_MS, added=added
            ),
        )
    command = ["pipeline", "advise", str(tmp_path), "--consumer-rate", "20"]

    told = CliRunner().invoke(cli, [*command, "--json"])
    assert told.exit_code == 0, told.stderr
    found = json.loads(told.stdout)
    assert (found["messages"], found["partitions"]) == (123, 4)
    assert found["suggested"]["consumers"] == 1

    shown = CliRunner().invoke(cli, command)
    assert shown.exit_code == 0, shown.stderr
    assert "suggested: 1 partition, 1 consumer" in shown.stdout
    assert "whale" in shown.stdout

    wrong = CliRunner().invoke(cli, [*command, "--growth", "0"])
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert "growth 0; expected from 1 to 1000" in wrong.stderr
