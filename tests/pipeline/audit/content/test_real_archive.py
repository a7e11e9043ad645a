"""Each change of a real archive's rows, files and entries is found, and named."""

import json
import shutil
from datetime import timedelta

import pyarrow.parquet as pq
import pytest

from partq.core.hashing import slot_of
from partq.errors import SettingsError
from partq.pipeline.audit.content.heads import EarlierAudit, read_earlier
from partq.pipeline.audit.job import MARKER, NAMES, NEW
from partq.pipeline.watch import JobWatch, StoppedError
from tests.pipeline.audit.content.real_archive import (
    Copy,
    audit,
    audit_again,
    faults,
    make_sparse_archive,
)

DAY = timedelta(days=1)
OTHER_SLOT = next(
    key
    for key in map(str, range(99))
    if slot_of(key) not in {slot_of(f"key-{n}") for n in range(17)}
)


def test_an_archive_of_every_kind_of_message_is_clean(archives, tmp_path):
    verdict, found = audit(archives / "orders", tmp_path / "report")
    assert (verdict.text, found) == ("clean", [])
    assert verdict.totals.compared == verdict.totals.archived > 300
    rows = [
        row
        for path in (archives / "orders" / "messages").rglob("*.parquet")
        for row in pq.ParquetFile(path).read(columns=["encoded"]).to_pylist()
    ]
    assert any(row["encoded"] for row in rows), "some times are later than a row can hold"


def test_a_report_replaces_reports_alone(archives, tmp_path):
    place = tmp_path / "report"
    (place / "findings").mkdir(parents=True)
    (place / "findings" / "mine.txt").write_text("mine")
    (place / "verdict.json").write_text("[]")
    with pytest.raises(SettingsError, match=r"has verdict\.json, and no report of partq"):
        audit_again(archives / "orders", place)
    assert (place / "findings" / "mine.txt").read_text() == "mine"

    # An audit that was killed has left some of it; and a report of a version without the marker.
    (place / MARKER).touch()
    assert audit_again(archives / "orders", place)[0].text == "clean"
    (place / MARKER).unlink()
    assert audit_again(archives / "orders", place)[0].text == "clean"


class StoppedWatch(JobWatch):
    """Is told to end while the job works."""

    def __init__(self, checks):
        super().__init__()
        self.checks = checks

    def check(self):
        self.checks -= 1
        if not self.checks:
            self.stop()
        super().check()


def test_a_run_that_is_stopped_leaves_the_earlier_report(archives, tmp_path):
    place = tmp_path / "report"
    audit(archives / "orders", place)
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    stops = 0
    for checks in range(1, 100):
        try:
            audit_again(archives / "orders", place, watch=StoppedWatch(checks))
            break
        except StoppedError:
            stops += 1
        assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
    assert stops > 3
    assert sorted(path.name for path in place.iterdir()) == sorted([*NAMES, MARKER])


def test_a_first_run_that_is_stopped_leaves_nothing(archives, tmp_path):
    with pytest.raises(StoppedError):
        audit_again(archives / "orders", tmp_path / "report", watch=StoppedWatch(3))
    assert not list((tmp_path / "report").iterdir())


def test_what_a_run_that_was_killed_has_begun_is_no_part_of_the_next(archives, tmp_path):
    place = tmp_path / "report"
    (place / NEW / "findings").mkdir(parents=True)
    (place / MARKER).touch()
    (place / NEW / "findings" / "part-00007.parquet").write_bytes(b"half")
    assert audit_again(archives / "orders", place)[0].text == "clean"
    assert not (place / NEW).exists()


def test_an_empty_partition_is_not_missing(tmp_path):
    make_sparse_archive(tmp_path / "sparse")
    verdict, found = audit(tmp_path / "sparse", tmp_path / "report")
    assert (verdict.text, found) == ("clean", [])
    assert verdict.totals.archived == 1


def test_times_as_spark_writes_them_are_the_same(copy, tmp_path):
    """In 96 bits; also the last one that a row can hold."""
    for file in copy.files("messages"):
        copy.change_rows(file, lambda rows: None, use_deprecated_int96_timestamps=True)
    verdict, found = audit(copy.root, tmp_path / "report")
    assert (verdict.text, found) == ("clean", [])


# ---- rows ---------------------------------------------------------------------------------------


def keyed(rows):
    return next(row for row in rows if row["key"] is not None and row["encoded"] is None)


def swap_values(rows):
    first = keyed(rows)
    other = next(row for row in rows if row["key"] == first["key"] and row is not first)
    first["value"], other["value"] = other["value"], first["value"]


def change_encoded(rows):
    row = next(row for row in rows if row["encoded"])
    row["encoded"] = row["encoded"].replace(b"value", b"VALUE")


def drop_encoded(rows):
    next(row for row in rows if row["encoded"])["encoded"] = None


def name_another_queue(rows):
    for row in rows[3:33]:
        row["queue"] = "others"


ROWS = {
    "value altered": (lambda rows: rows[5].update(value=b"other"), {"content_differs"}),
    "key altered": (
        lambda rows: keyed(rows).update(key=OTHER_SLOT),
        {"content_differs", "wrong_slot"},
    ),
    "key removed": (lambda rows: keyed(rows).update(key=None), {"content_differs"}),
    "header altered": (
        lambda rows: next(row for row in rows if row["headers"]).update(headers=[("number", "x")]),
        {"content_differs"},
    ),
    "headers removed": (
        lambda rows: next(row for row in rows if row["headers"]).update(headers=None),
        {"content_differs"},
    ),
    "values of one key exchanged": (swap_values, {"content_differs"}),
    "event time altered": (
        lambda rows: keyed(rows).update(event_time=keyed(rows)["event_time"] + DAY),
        {"content_differs"},
    ),
    "publish time altered": (
        lambda rows: rows[5].update(publish_time=rows[5]["publish_time"] + DAY),
        {"wrong_publish_time"},
    ),
    "another queue": (name_another_queue, {"other_queue"}),
    "another generation": (lambda rows: rows[5].update(generation=2), {"other_queue"}),
    "stored bytes altered": (change_encoded, {"content_differs"}),
    "stored bytes removed": (drop_encoded, {"content_differs"}),
    "rows gone": (lambda rows: rows.__delitem__(slice(5, 9)), {"not_archived"}),
    "a row twice": (lambda rows: rows.insert(5, rows[5]), {"archived_twice"}),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_that_is_not_what_was_stored_is_found(copy, tmp_path, name):
    change, expected = ROWS[name]
    copy.change_rows(copy.files("messages")[1], change)
    verdict, found = audit(copy.root, tmp_path / "report")
    assert verdict.text == "faults found"
    assert faults(found) == expected
    assert {each["partition"] for each in found} == {"1.0"}


OTHER_ROWS = {
    "a message behind the end": {"offset": 10**6},
    "a message before the first": {"offset": -1},
    "a message of another partition": {"partition": "9.9"},
    "a message of no partition": {"partition": None},
}


@pytest.mark.parametrize("name", OTHER_ROWS)
def test_a_row_that_the_entry_of_its_file_does_not_name_is_found(copy, tmp_path, name):
    file = copy.files("messages")[1]
    copy.change_rows(file, lambda rows: rows.append(rows[-1] | OTHER_ROWS[name]))
    _, found = audit(copy.root, tmp_path / "report")
    assert faults(found) >= {"other_rows"}
    assert any(file.path in each["detail"] for each in found)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"stop": 10**6}, id="beyond the end"),
        pytest.param({"partition": "9.9"}, id="of a partition that there is not"),
    ],
)
def test_a_file_whose_entry_reaches_beyond_the_archive_is_found(copy, tmp_path, changed):
    copy.note(copy.files("messages")[1], **changed)
    _, found = audit(copy.root, tmp_path / "report")
    assert ("extent", "other_rows") in {(each["check"], each["what"]) for each in found}


def test_times_that_are_moved_from_the_first_message_on_are_found(copy, tmp_path):
    """No batch stands before it whose time could count on."""

    def move(rows):
        for row in rows:
            row["publish_time"] = row["publish_time"].replace(year=2100)

    for file in copy.files("messages"):
        copy.change_rows(file, move)
    _, found = audit(copy.root, tmp_path / "report")
    assert faults(found) == {"wrong_publish_time"}


def test_times_of_the_first_archived_batch_that_are_moved_are_found(copy, tmp_path):
    """The archive begins behind offset 0; the record has the times of the batches before it."""
    first, second, *_ = copy.files("messages")
    copy.forget(lambda each: each.path == first.path)
    copy.change_entries(
        lambda body: body["beginnings"].get("messages", {}).update({"1.0": second.first})
    )

    def move(rows):
        at = rows[0]["publish_time"]
        for row in rows:
            if row["publish_time"] == at:
                row["publish_time"] += timedelta(milliseconds=1)

    copy.change_rows(second, lambda rows: None)
    assert faults(audit(copy.root, tmp_path / "report")[1]) == set()
    copy.change_rows(second, move)
    _, found = audit(copy.root, tmp_path / "report")
    wrong = [each for each in found if each["what"] == "wrong_publish_time"]
    assert [each["first"] for each in wrong] == [second.first]


def test_a_record_whose_checksum_is_changed_is_found_by_its_chain_too(copy, tmp_path):
    def change(rows):
        row = next(row for row in rows if row["kind"] == "publish")
        row["content_crc"] += 1

    copy.change_rows(copy.files("audit")[1], change)
    _, found = audit(copy.root, tmp_path / "report")
    assert faults(found) == {"changed_group", "content_differs"}


# ---- files --------------------------------------------------------------------------------------


def flip(data):
    at = len(data) // 3
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


@pytest.mark.parametrize("stream", ["messages", "audit"])
@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        pytest.param(None, {"missing_file"}, id="deleted"),
        pytest.param(lambda data: data[:-200], {"unreadable_file"}, id="cut"),
        pytest.param(lambda data: b"", {"unreadable_file"}, id="empty"),
        pytest.param(flip, {"unreadable_file", "changed_file"}, id="a byte flipped"),
    ],
)
def test_a_file_that_is_not_as_it_was_put_in_place_is_found(copy, tmp_path, stream, change, kinds):
    """It has a verdict and a report, and says which file: never an error of a library."""
    file = copy.files(stream)[1]
    path = copy.root / file.path
    data = path.read_bytes()
    path.unlink()
    if change is not None:
        path.write_bytes(change(data))
    verdict, found = audit(copy.root, tmp_path / "report")

    assert verdict.text == "faults found"
    of_files = [each for each in found if each["check"] == "files"]
    assert len(of_files) == 1
    assert of_files[0]["what"] in kinds
    assert file.path in of_files[0]["detail"]
    assert (tmp_path / "report" / "report.html").is_file()


def test_a_file_of_another_queue_in_its_place_is_found(copy, archives, tmp_path):
    file = copy.files("messages")[1]
    other = Copy(archives / "others").files("messages")[1]
    shutil.copy(archives / "others" / other.path, copy.root / file.path)
    _, found = audit(copy.root, tmp_path / "report")
    assert {"changed_file", "other_queue"} <= faults(found)


def test_the_record_of_another_queue_is_found(copy, archives, tmp_path):
    other = Copy(archives / "others")
    for mine, theirs in zip(copy.files("audit"), other.files("audit"), strict=True):
        shutil.copy(other.root / theirs.path, copy.root / mine.path)
    _, found = audit(copy.root, tmp_path / "report")
    assert "changed_file" in faults(found)
    assert {"other_archived", "content_differs"} & faults(found)


def test_files_of_an_earlier_version_are_read_as_a_whole(copy, tmp_path):
    """They have no digest. What cannot be known then is told, and is no fault."""

    def forget(body):
        del body["beginnings"], body["uid"]
        for each in body["added"]:
            del each["sha256"]

    copy.change_entries(forget)
    verdict, found = audit(copy.root, tmp_path / "report")
    assert [each["what"] for each in found] == ["extent_not_recorded"]
    assert verdict.is_clean
    path = copy.root / copy.files("messages")[1].path
    path.write_bytes(path.read_bytes()[:-200])
    _, found = audit(copy.root, tmp_path / "report")
    assert "unreadable_file" in faults(found)


# ---- extent -------------------------------------------------------------------------------------


def test_a_first_file_that_is_forgotten_is_found(copy, tmp_path):
    first = copy.files("messages")[0]
    copy.forget(lambda each: each.path == first.path)
    _, found = audit(copy.root, tmp_path / "report")
    assert faults(found) == {"not_archived"}
    assert (found[0]["first"], found[0]["stop"]) == (first.first, first.stop)


def test_all_files_of_a_partition_that_are_forgotten_are_found(copy, tmp_path):
    copy.forget(lambda each: (each.stream, each.partition) == ("messages", "1.1"))
    _, found = audit(copy.root, tmp_path / "report")
    assert faults(found) == {"not_archived"}


def test_a_partition_that_is_forgotten_altogether_is_found(copy, tmp_path):
    copy.forget(lambda each: each.partition == "1.1")

    def forget(body):
        for positions in body["positions"].values():
            positions.pop("1.1", None)

    copy.change_entries(forget)
    _, found = audit(copy.root, tmp_path / "report")
    assert "missing_partition" in faults(found)
    assert {each["partition"] for each in found} == {"1.1"}


def test_an_entry_that_names_a_partition_no_more_does_not_make_it_unknown(copy, tmp_path):
    """Each entry names all of them."""
    copy.forget(lambda each: each.partition == "1.1")
    last = max((copy.root / "_partq" / "log").iterdir())

    def forget(body):
        for positions in body["positions"].values():
            positions.pop("1.1", None)
        if body["number"] == int(last.name.partition(".")[0]):
            body["beginnings"]["messages"].pop("1.1")

    copy.change_entries(forget)
    _, found = audit(copy.root, tmp_path / "report")
    assert "missing_partition" in faults(found)


def test_another_uid_in_the_header_is_found(copy, tmp_path):
    header = copy.root / "_partq" / "archive.json"
    header.write_text(json.dumps(json.loads(header.read_bytes()) | {"uid": "0123abcd"}))
    _, found = audit(copy.root, tmp_path / "report")
    assert faults(found) == {"other_queue"}


def test_a_line_of_a_file_twice_in_its_entry_changes_nothing(copy, tmp_path):
    copy.change_entries(lambda body: body.update(added=body["added"] * 2))
    verdict, _ = audit(copy.root, tmp_path / "report")
    assert verdict.text == "clean"


# ---- heads --------------------------------------------------------------------------------------


def test_a_tail_that_is_cut_off_with_its_entries_is_found_by_an_earlier_verdict(copy, tmp_path):
    verdict, _ = audit(copy.root, tmp_path / "report")
    kept = tmp_path / "verdict.json"
    shutil.copy(tmp_path / "report" / "verdict.json", kept)
    earlier = read_earlier(kept)
    assert earlier == (verdict.heads, verdict.archived)
    assert sum(earlier.archived.values()) == verdict.totals.archived
    assert audit(copy.root, tmp_path / "report", expected=earlier)[0].text == "clean"

    entries = sorted((copy.root / "_partq" / "log").iterdir())
    for path in entries[-2:]:  # of the record and of the messages
        path.unlink()
    assert audit(copy.root, tmp_path / "report")[0].text == "clean"
    cut, found = audit(copy.root, tmp_path / "report", expected=earlier)
    assert cut.text == "faults found"
    assert faults(found) == {"head_not_found", "messages_cut_off"}
    assert {each["partition"] for each in found} == {"1.0", "1.1"}


def test_messages_that_are_gone_with_their_entry_are_found_by_an_earlier_verdict(copy, tmp_path):
    audit(copy.root, tmp_path / "report")
    earlier = read_earlier(tmp_path / "report" / "verdict.json")
    for path in sorted((copy.root / "_partq" / "log").iterdir(), reverse=True):
        streams = json.loads(path.read_bytes())["positions"]
        path.unlink()
        if "messages" in streams:
            break
    assert audit(copy.root, tmp_path / "report")[0].text == "clean", "it is only behind"
    # Heads alone do not tell.
    only = EarlierAudit({}, earlier.archived)
    verdict, found = audit(copy.root, tmp_path / "report", expected=only)
    assert (verdict.text, faults(found)) == ("faults found", {"messages_cut_off"})
    told = next(each["detail"] for each in found if each["what"] == "messages_cut_off")
    assert "an earlier audit saw the messages up to offset" in told


def test_another_record_is_found_by_an_earlier_verdict(copy, archives, tmp_path):
    other, _ = audit(archives / "others", tmp_path / "report")
    _, found = audit(copy.root, tmp_path / "report", expected=EarlierAudit(other.heads))
    assert faults(found) == {"head_not_found"}
    texts = ("there is one with chain", "it ends before")  # by how many groups each has
    assert all(any(text in each["detail"] for text in texts) for each in found)


def test_heads_of_some_partitions_say_which_ones_are_not_covered(copy, tmp_path):
    verdict, _ = audit(copy.root, tmp_path / "report")
    assert verdict.not_expected is None
    earlier = EarlierAudit({"1.0": verdict.heads["1.0"]})
    verdict, found = audit(copy.root, tmp_path / "report", expected=earlier)
    assert (verdict.text, found, verdict.not_expected) == ("clean", [], ["1.1"])
    assert verdict.to_json()["not_expected"] == ["1.1"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "{}",
        '{"heads": {}}',
        '{"heads": {"1.0": {}}}',
        '{"heads": {"x": {"sequence": 1}}}',
        '{"heads": {"1.0": {"sequence": 1, "chain": "3f"}}, "archived": {"1.0": "many"}}',
        '{"heads": {"1.0": {"sequence": 1, "chain": "3f"}}, "archived": [1]}',
        "7",
    ],
)
def test_a_file_without_heads_is_a_sentence(tmp_path, text):
    path = tmp_path / "verdict.json"
    with pytest.raises(SettingsError, match="No such file"):
        read_earlier(path)
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"expected the verdict\.json of an earlier audit"):
        read_earlier(path)
