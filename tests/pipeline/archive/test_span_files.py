"""The files of a span: one per day, rows in their order, and what is read back from them."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partq.errors import InternalError
from partq.pipeline.archive import span_files
from partq.pipeline.archive.span_files import MAX_OPEN_FILES, SpanFiles
from partq.pipeline.archive_columns import arrow_schema
from partq.pipeline.storage.local_files import LocalFiles

DAY_MS = 86_400_000
NOON_MS = DAY_MS // 2


@pytest.fixture
def files(tmp_path):
    return SpanFiles(LocalFiles(str(tmp_path)), "staging/messages", "messages", "1.0")


def rows(first, times_ms, partition="1.0"):
    """Return messages from an offset on, stored at these times."""
    schema = arrow_schema("messages")
    count = len(times_ms)
    given = {
        "partition": pa.repeat(partition, count),
        "offset": pa.array(range(first, first + count), pa.int64()),
        "publish_time": pa.array([at * 1000 for at in times_ms], pa.timestamp("us", tz="UTC")),
    }
    return pa.RecordBatch.from_arrays(
        [given.get(field.name, pa.nulls(count, field.type)) for field in schema], schema=schema
    )


def offsets(tmp_path, written):
    return pq.read_table(tmp_path / written.path, columns=["offset"])["offset"].to_pylist()


def test_each_day_has_a_file_that_says_what_it_holds(files, tmp_path):
    files.add([rows(5, [NOON_MS, DAY_MS - 1, DAY_MS]), rows(8, [DAY_MS + 7, 3 * DAY_MS])])
    files.close()

    found = files.measure()
    assert [
        (each.first, each.stop, each.rows, each.min_ms, each.max_ms, each.folder.split("/")[-2:])
        for each in found
    ] == [
        (5, 7, 2, NOON_MS, DAY_MS - 1, ["date=1970-01-01", "queue_partition=1.0"]),
        (7, 9, 2, DAY_MS, DAY_MS + 7, ["date=1970-01-02", "queue_partition=1.0"]),
        (9, 10, 1, 3 * DAY_MS, 3 * DAY_MS, ["date=1970-01-04", "queue_partition=1.0"]),
    ]
    assert [offsets(tmp_path, each) for each in found] == [[5, 6], [7, 8], [9]]
    assert all(each.bytes == (tmp_path / each.path).stat().st_size for each in found)


def test_a_clock_that_goes_back_at_midnight_needs_no_more_files(files, tmp_path):
    files.add([rows(0, [DAY_MS - 1, DAY_MS, DAY_MS - 1, DAY_MS])])
    files.close()
    assert [offsets(tmp_path, each) for each in files.measure()] == [[0, 2], [1, 3]]


def test_of_many_days_few_files_are_open(files, tmp_path):
    days = MAX_OPEN_FILES + 3
    files.add(rows(day, [day * DAY_MS]) for day in range(days))
    assert len(files._open) == MAX_OPEN_FILES
    files.add([rows(days, [0])])
    files.close()
    found = files.measure()
    assert [each.first for each in found] == list(range(days + 1))
    assert found[-1].folder == found[0].folder, "the day that returned has a second file"


@pytest.mark.parametrize("limit", ["ROW_GROUP_ROWS", "ROW_GROUP_BYTES"])
def test_rows_are_kept_until_they_make_a_row_group(files, tmp_path, monkeypatch, limit):
    part = rows(0, [NOON_MS] * 10)
    monkeypatch.setattr(span_files, limit, 25 if limit == "ROW_GROUP_ROWS" else 2.5 * part.nbytes)
    files.add(rows(first, [NOON_MS] * 10) for first in range(0, 70, 10))
    files.close()
    (written,) = files.measure()
    found = pq.ParquetFile(tmp_path / written.path).metadata
    assert [found.row_group(n).num_rows for n in range(found.num_row_groups)] == [30, 30, 10]


def test_rows_of_another_partition_are_noticed(files):
    files.add([rows(0, [NOON_MS]), rows(1, [NOON_MS], partition="1.1")])
    files.close()
    with pytest.raises(InternalError, match=r"got rows of others than partition 1\.0"):
        files.measure()


def test_a_file_that_the_disk_did_not_keep_is_noticed(files, tmp_path):
    files.add([rows(0, [NOON_MS])])
    files.close()
    (path,) = tmp_path.rglob("*.parquet")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InternalError, match="was written, and cannot be read"):
        files.measure()
