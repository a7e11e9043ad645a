"""What the options of a read say, and what is refused."""

import pytest

from partq.core.model import PartitionId
from partq.errors import BadRequestError
from partq.spark.read.offsets import ReadPosition
from partq.spark.read.options import ReadBound, read_options

T = 1_700_000_000_000
HOW = {"url": "http://a:1,https://b:2", "queue": "orders"}


def options(*, is_stream=False, **more):
    return read_options(HOW | more, is_stream=is_stream)


@pytest.mark.parametrize(
    ("is_stream", "more", "start"),
    [
        (False, {}, "earliest"),
        (True, {}, "latest"),
        (False, {"group": "lake"}, "group"),
        (True, {"group": "lake"}, "group"),
        (True, {"group": "lake", "startingOffsets": "Earliest"}, "earliest"),
    ],
)
def test_where_to_begin_when_nothing_is_said(is_stream, more, start):
    found = options(is_stream=is_stream, **more)
    assert found.start == ReadBound(everywhere=start)
    assert found.end == ReadBound(everywhere="latest")


def test_names_are_of_any_case_and_empty_is_not_given():
    found = options(STARTINGOFFSETS=" earliest ", mInPartitions="3", group="")
    assert (found.start.everywhere, found.min_partitions, found.group) == ("earliest", 3, None)


def test_json_names_offsets_places_and_positions():
    text = '{"1.0": 5, "1.1": -2, "2.0": {"offset": 7, "broker_epoch": 9}}'
    assert options(startingOffsets=text).start.offsets == {
        PartitionId(1, 0): ReadPosition(5),
        PartitionId(1, 1): ReadPosition(-2),
        PartitionId(2, 0): ReadPosition(7, 9),
    }


def test_times_are_milliseconds():
    assert options(startingTimestamp="0").start == ReadBound(at_ms=0)
    assert options(startingTimestamp=f"{T + 5}").start == ReadBound(at_ms=T + 5)
    ends = options(endingOffsetsByTimestamp=f'{{"1.0": {T}, "1.1": "{T + 6}"}}').end.times_ms
    assert ends == {PartitionId(1, 0): T, PartitionId(1, 1): T + 6}


def test_an_end_at_the_start_and_one_without_a_number_pass():
    options(startingOffsets='{"1.0": 5}', endingOffsets='{"1.0": 5, "1.1": -1}')
    options(startingOffsets='{"1.0": -1, "1.1": 7}', endingOffsets='{"1.0": 0, "1.1": -1}')
    options(startingTimestamp=f"{T}", endingTimestamp=f"{T}")
    options(
        startingOffsetsByTimestamp=f'{{"1.0": {T + 9}}}',
        endingOffsetsByTimestamp=f'{{"1.1": {T + 8}}}',
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15m", 900), ("90s", 90), ("250", 0.25), ("2 min", 120), ("1H", 3600), ("30d", 2_592_000)],
)
def test_a_delay_has_spark_s_units(text, seconds):
    found = options(is_stream=True, minOffsetsPerTrigger="9", maxTriggerDelay=text)
    assert (found.min_offsets_per_trigger, found.max_trigger_delay_s) == (9, seconds)
    assert options(is_stream=True, minOffsetsPerTrigger="9").max_trigger_delay_s == 900


@pytest.mark.parametrize(
    ("is_stream", "more", "sentence"),
    [
        (False, {"path": "orders"}, "'path' is not an option of reads; there are url, queue,"),
        (False, {"url": "http://user:pw@a:1"}, "option url: got a user or a password"),
        (False, {"token": ""}, "option token is empty"),
        (False, {"tokenFile": " "}, "option tokenFile is empty"),
        (False, {"url": "a:1"}, "option url: 'a:1'; expected http://HOST:PORT"),
        (False, {"queue": " "}, "option queue is missing; expected the name of a queue"),
        (False, {"token": "a", "tokenFile": "b"}, "token and tokenFile contradict each other"),
        (False, {"caFile": "/nowhere"}, "option caFile: there is no file /nowhere"),
        (False, {"timeoutSeconds": "-1"}, "option timeoutSeconds: '-1'; expected seconds"),
        (False, {"timeoutSeconds": "nan"}, "option timeoutSeconds: 'nan'; expected seconds"),
        (False, {"startingOffsets": "soon"}, "option startingOffsets: expected JSON such as"),
        (False, {"startingOffsets": "[1]"}, "option startingOffsets: expected JSON such as"),
        (False, {"startingOffsets": "{}"}, "option startingOffsets: expected JSON such as"),
        (False, {"startingOffsets": '{"0": 1}'}, "expected GENERATION.INDEX, such as 1.3"),
        (False, {"startingOffsets": '{"1.0": -3}'}, "of 1.0: -3; expected an integer from -2"),
        (False, {"startingOffsets": '{"1.0": true}'}, "of 1.0: True; expected an integer"),
        (False, {"startingOffsets": '{"1.0": {"offset": 1}}'}, "startingOffsets of 1.0: "),
        (False, {"startingOffsets": "latest"}, "a batch from latest is empty"),
        (False, {"startingOffsets": "group"}, "no group is named; set the option group"),
        (False, {"endingOffsets": "earliest"}, "endingOffsets: earliest; expected latest or JSON"),
        (False, {"startingOffsets": "earliest", "startingTimestamp": "5"},
            "options startingOffsets and startingTimestamp contradict each other; set one"),
        (False, {"maxOffsetsPerTrigger": "5"}, "a batch has no trigger"),
        (False, {"startingOffsets": '{"1.1": 9}', "endingOffsets": '{"1.0": 5, "1.1": 8}'},
            "endingOffsets of 1.1: 8, below its startingOffsets: 9"),
        (False, {"startingTimestamp": f"{T + 9}", "endingTimestamp": f"{T}"},
            f"ends at the time {T}, before"),
        (False,
            {"startingTimestamp": f"{T + 9}", "endingOffsetsByTimestamp": f'{{"1.0": {T}}}'},
            f"the read of 1.0 ends at the time {T}, before it begins, at {T + 9}"),
        (None, {"startingTimestamp": "1600000000"},
            "option startingTimestamp: 1600000000; expected unix milliseconds"),
        (None, {"endingOffsetsByTimestamp": '{"1.0": 1600000000}'},
            "option endingOffsetsByTimestamp of 1.0: 1600000000; expected unix milliseconds"),
        (None, {"endingOffsets": "latest", "maxOffsetsPerTrigger": "5"},
            "options endingOffsets and maxOffsetsPerTrigger contradict each other"),
        (False, {"timeoutSeconds": "0"}, "'0'; expected seconds, above 0 and at most 3600"),
        (True, {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "minOffsetsPerTrigger: 9, above maxOffsetsPerTrigger: 8"),
        (True, {"maxTriggerDelay": "5m"}, "it is for minOffsetsPerTrigger, which is not set"),
        (True, {"minOffsetsPerTrigger": "9", "maxTriggerDelay": "5 weeks"},
            "option maxTriggerDelay: '5 weeks'; expected a time of at most 30 days"),
        (True, {"minOffsetsPerTrigger": "9", "maxTriggerDelay": "31d"}, "option maxTriggerDelay"),
        (False, {"minOffsetsPerTrigger": "9"}, "a batch has no trigger"),
        (False, {"startingTimestamp": "2020-01-01"}, "expected an integer from 0 on"),
        (False, {"minPartitions": "0"}, "option minPartitions: '0'; expected an integer from 1"),
        (False, {"minPartitions": "9" * 19}, "option minPartitions: "),
        (False, {"maxTasks": "0"}, "option maxTasks: '0'; expected an integer from 1"),
        (False, {"maxTasks": "4", "maxRecordsPerPartition": "5"},
            "maxTasks and maxRecordsPerPartition contradict each other"),
        (True, {"maxTasks": "4", "minPartitions": "5"}, "got 5 tasks at least and 4 at most"),
        (False, {"failOnDataLoss": "no"}, "'no'; expected true or false"),
        (False, {"includeHeaders": "true", "columns": "key"}, "columns does not name headers"),
        (True, {"endingOffsets": "latest"}, "option endingOffsets: a stream has no end"),
        (True, {"endingTimestamp": "5"}, "option endingTimestamp: a stream has no end"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_sentence(is_stream, more, sentence):
    with pytest.raises(BadRequestError) as caught:
        options(is_stream=is_stream, **more)
    assert sentence in caught.value.message
    assert "\n" not in caught.value.message


def test_a_token_file_is_read_each_time(tmp_path):
    file = tmp_path / "token"
    file.write_text("one\n")
    connection = options(tokenFile=str(file)).connection
    assert connection.token() == "one"
    file.write_text("two\n")
    assert connection.token() == "two"
    file.write_text(" ")
    with pytest.raises(BadRequestError, match=r"tokenFile: .* is empty"):
        connection.token()
