"""Files of an archive with other columns or times than they must have: each has a verdict."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partq.pipeline.audit.content.files import check_files
from partq.pipeline.manifest import ArchiveGap, ArchiveState
from partq.pipeline.storage.local_files import LocalFiles
from partq.pipeline.watch import JobWatch
from partq.wire.batch import encode
from tests.pipeline.audit.content.real_archive import audit, faults

KEPT = encode([b"\xc1"] * 2, [7, 65_535])


@pytest.mark.parametrize(
    ("data", "found"),
    [
        pytest.param(KEPT, [], id="as it was stored"),
        pytest.param(None, ["missing_file"], id="deleted"),
        pytest.param(KEPT[:-1] + b"\xc2", ["changed_file"], id="another byte"),
        pytest.param(b"", ["changed_file"], id="empty"),
    ],
)
def test_the_kept_batch_of_undecodable_messages_is_checked(tmp_path, data, found):
    files = LocalFiles(str(tmp_path))
    if data is not None:
        files.create("a.batch", data)
    gaps = [ArchiveGap("messages", "1.0", 3, 5, "a.batch"), ArchiveGap("messages", "1.0", 7, 8)]
    checked = check_files(files, ArchiveState(gaps=gaps), ("messages",), JobWatch())
    assert [(each.what, each.first, each.stop) for each in checked.findings] == [
        (what, 3, 5) for what in found
    ]


@pytest.mark.parametrize("bound", ["min_ms", "max_ms"])
@pytest.mark.parametrize("stream", ["messages", "audit"])
def test_a_time_of_an_entry_that_is_not_that_of_its_rows_is_found(copy, tmp_path, stream, bound):
    file = copy.files(stream)[1]
    copy.note(file, **{bound: getattr(file, bound) + 1})
    _, found = audit(copy.root, tmp_path / "report")
    assert [each["what"] for each in found] == ["other_rows"]
    assert file.path in found[0]["detail"]


def without(name):
    return lambda rows: rows.drop_columns([name])


def as_type(name, kind):
    return lambda rows: rows.set_column(
        rows.schema.get_field_index(name), name, rows.column(name).cast(kind)
    )


def with_values(name, value, count=1):
    """Put a value into the first rows of a column."""

    def change(rows):
        at = rows.schema.get_field_index(name)
        kept = rows.column(name).to_pylist()[count:]
        values = pa.array([value] * count + kept, rows.schema.field(name).type)
        return rows.set_column(at, name, values)

    return change


FORGED = {
    "no offset": ("messages", without("offset")),
    "no partition": ("messages", without("partition")),
    "no value": ("messages", without("value")),
    "no sequence": ("audit", without("sequence")),
    "no chain": ("audit", without("chain")),
    "offsets are text": ("messages", as_type("offset", pa.string())),
    "times are numbers": ("messages", as_type("publish_time", pa.int64())),
    "keys are bytes": ("messages", as_type("key", pa.binary())),
    "sequences are text": ("audit", as_type("sequence", pa.string())),
    "a null offset": ("messages", with_values("offset", None)),
    "null offsets": ("messages", with_values("offset", None, 10)),
    "a null epoch": ("messages", with_values("append_broker_epoch", None)),
    "a null time": ("messages", with_values("publish_time", None)),
    "a null place": ("audit", with_values("place", None)),
    "an endless offset": ("messages", with_values("offset", 2**63 - 1)),
    "an endless time": ("audit", with_values("at_ms", 2**63 - 1)),
    "a column twice": ("messages", lambda rows: rows.append_column("key", rows.column("key"))),
}


@pytest.mark.parametrize("is_noted", [True, False], ids=["forged", "changed"])
@pytest.mark.parametrize("name", FORGED)
def test_columns_that_are_not_those_of_an_archive_are_found(copy, tmp_path, name, is_noted):
    """Also where the digest in the entry is that of the forged file. There is a verdict."""
    stream, change = FORGED[name]
    file = copy.files(stream)[1]
    path = copy.root / file.path
    pq.write_table(change(pq.ParquetFile(path).read()), path)
    if is_noted:
        copy.note_digest(file)
    verdict, found = audit(copy.root, tmp_path / "report")
    assert verdict.text == "faults found"
    of_file = [each["what"] for each in found if each["check"] == "files"]
    assert of_file == ([] if is_noted else ["changed_file"]) + ["wrong_columns"]
    assert (tmp_path / "report" / "report.html").is_file()


def test_an_event_time_that_no_date_has_is_found(copy, tmp_path):
    file = copy.files("messages")[1]
    path = copy.root / file.path
    rows = pq.ParquetFile(path).read()
    at = rows.schema.get_field_index("event_time")
    late = pa.array([2**62] * len(rows), pa.int64()).cast(rows.schema.field(at).type)
    pq.write_table(rows.set_column(at, "event_time", late), path)
    copy.note_digest(file)
    _, found = audit(copy.root, tmp_path / "report")
    assert faults(found) == {"content_differs"}


@pytest.mark.parametrize("stream", ["messages", "audit"])
def test_a_file_that_is_no_parquet_is_found(copy, tmp_path, stream):
    file = copy.files(stream)[1]
    (copy.root / file.path).write_bytes(b"PAR1 and no more of it PAR1")
    copy.note_digest(file)
    _, found = audit(copy.root, tmp_path / "report")
    assert [each["what"] for each in found if each["check"] == "files"] == ["unreadable_file"]


RECORDS = {
    "acks without a group": ("kind", "ack"),
    "dead letters without a group": ("kind", "dead_letter"),
    "no kind": ("kind", ""),
    "no first offsets": ("first", None),
    "impossible first offsets": ("first", -(2**63)),
    "half a slot": ("slots", b"x"),
    "slots of others": ("slots", b"x" * 5_001),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_that_no_broker_writes_has_a_verdict(copy, tmp_path, name):
    file = copy.files("audit")[0]
    path = copy.root / file.path
    rows = pq.ParquetFile(path).read()
    column, value = RECORDS[name]
    pq.write_table(with_values(column, value, len(rows))(rows), path)
    copy.note_digest(file)
    _, found = audit(copy.root, tmp_path / "report")
    assert "changed_group" in faults(found)
    assert not [each for each in found if each["check"] == "files"]
