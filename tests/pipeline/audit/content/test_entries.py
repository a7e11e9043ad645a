"""The log of an archive with missing, damaged or forged files: each has a verdict."""

import json
import shutil

import pytest
from click.testing import CliRunner

from partq.cli.commands import cli
from partq.errors import InternalError
from partq.pipeline.archive_log import SNAPSHOT_EVERY, ArchiveLog
from partq.pipeline.manifest import ManifestEntry
from partq.pipeline.storage.local_files import LocalFiles
from tests.pipeline.audit.content.real_archive import audit, faults


def of_log(found):
    return [(each["what"], each["detail"]) for each in found if each["check"] == "extent"]


def test_an_entry_that_is_missing_is_found_by_its_name(copy, tmp_path):
    entry = sorted((copy.root / "_partq" / "log").iterdir())[2]
    gone = {each["path"] for each in json.loads(entry.read_bytes())["added"]}
    entry.unlink()
    verdict, found = audit(copy.root, tmp_path / "report")
    assert verdict.text == "faults found"
    assert gone
    ((what, detail),) = of_log(found)
    assert what == "missing_entry"
    assert f"{entry.name} is missing" in detail
    assert faults(found) > {"missing_entry"}, "what it named is missed, too"
    with pytest.raises(InternalError, match="entry 4 follows entry 2; expected 3"):
        _ = copy.state  # other jobs refuse it


@pytest.mark.parametrize("name", ["archive.json", "log/000000000003.json"])
def test_the_command_gives_a_verdict_without_a_file_of_the_log(copy, tmp_path, name):
    (copy.root / "_partq" / name).unlink()
    given = ["pipeline", "audit", str(copy.root), "--report", str(tmp_path / "report")]
    told = CliRunner().invoke(cli, given)

    assert told.exit_code == 1
    assert told.stdout.startswith("faults found\n")
    assert "missing_entry" in told.stdout


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(lambda data: data[:-20], id="cut"),
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: b"[" * 100_000, id="deep"),
        pytest.param(lambda data: data.replace(b'"first": ', b'"first": null, "x": '), id="null"),
        pytest.param(lambda data: data.replace(b'"number": 3', b'"number": "3"'), id="text"),
        pytest.param(lambda data: data.replace(b'"number": 3', b'"number": 7'), id="other"),
    ],
)
def test_an_entry_that_is_damaged_is_found_by_its_name(copy, tmp_path, body):
    entry = sorted((copy.root / "_partq" / "log").iterdir())[2]
    entry.write_bytes(body(entry.read_bytes()))
    verdict, found = audit(copy.root, tmp_path / "report")
    assert verdict.text == "faults found"
    ((what, detail), *_) = of_log(found)
    assert what == "damaged_entry"
    assert entry.name in detail


@pytest.mark.parametrize("body", [None, b"", b"{}", b"null", b'{"format": 1, "uid": 7}'])
def test_a_header_that_is_missing_or_damaged_is_found(copy, tmp_path, body):
    """The rest is judged."""
    header = copy.root / "_partq" / "archive.json"
    header.unlink()
    if body is not None:
        header.write_bytes(body)
    verdict, found = audit(copy.root, tmp_path / "report")
    assert faults(found) == {"missing_entry" if body is None else "damaged_entry"}
    assert "archive.json" in found[0]["detail"]
    assert verdict.totals.compared == verdict.totals.archived > 300


@pytest.mark.parametrize("path", ["../others", "/etc/passwd", "messages/../../x", "", "a//b", "."])
def test_a_path_that_leads_out_of_the_archive_is_refused(copy, tmp_path, path):
    """Its entry is damaged: no job reads or deletes what it names."""
    copy.note(copy.files("messages")[1], path=path)
    _, found = audit(copy.root, tmp_path / "report")
    assert of_log(found)[0][0] == "damaged_entry"
    assert repr(path) in of_log(found)[0][1]
    with pytest.raises(InternalError, match="expected one below ROOT"):
        _ = copy.state


@pytest.mark.parametrize("is_folder", [True, False], ids=["folder", "file"])
def test_a_symbolic_link_out_of_the_archive_is_not_read(copy, archives, tmp_path, is_folder):
    """Although the file there is the right one."""
    file = copy.files("messages")[1]
    path = copy.root / file.path
    path = path.parent if is_folder else path
    outside = archives / "orders" / path.relative_to(copy.root)
    shutil.rmtree(path) if is_folder else path.unlink()
    path.symlink_to(outside)
    _, found = audit(copy.root, tmp_path / "report")
    assert {each["what"] for each in found if each["check"] == "files"} == {"outside_root"}
    assert "not_archived" in faults(found)


class Snapshots:
    """Gives an archive more entries, and the snapshots that they bring."""

    def __init__(self, copy):
        self.log = copy.root / "_partq" / "log"
        self.place = copy.root / "_partq" / "snapshots"
        archive = ArchiveLog.open(LocalFiles(str(copy.root)))
        state = archive.load()
        while state.number < 2 * SNAPSHOT_EVERY + 3:
            entry = ManifestEntry(number=0, attempt=str(state.number), kind="sweep", at_ms=1)
            state = archive.commit(state, lambda _, entry=entry: entry)
        archive.forget_old_entries()

    def path(self, number):
        return self.place / f"{number:012d}.json"

    def entry(self, number):
        return self.log / f"{number:012d}.json"


def change_snapshot(path):
    body = json.loads(path.read_bytes())
    path.write_text(json.dumps(body | {"gaps": [["messages", "1.0", 0, 1]]}))


def forge_snapshot(path):
    body = json.loads(path.read_bytes())
    body["positions"]["messages"]["1.0"]["offset"] += 1
    path.write_text(json.dumps(body))


def test_snapshots_are_compared_with_the_entries(copy, tmp_path):
    made = Snapshots(copy)
    first, last = made.path(SNAPSHOT_EVERY), made.path(2 * SNAPSHOT_EVERY)
    kept = {path: path.read_bytes() for path in (first, last, made.entry(SNAPSHOT_EVERY + 5))}
    assert not made.entry(SNAPSHOT_EVERY).exists()

    def told():
        _, found = audit(copy.root, tmp_path / "report")
        for path, data in kept.items():
            path.write_bytes(data)
        return of_log(found)

    assert told() == []
    for change in (change_snapshot, forge_snapshot):
        change(last)
        ((what, detail),) = told()
        assert (what, last.name in detail) == ("damaged_entry", True)
    made.entry(SNAPSHOT_EVERY + 5).unlink()
    ((what, detail),) = told()
    assert (what, f"{SNAPSHOT_EVERY + 5:012d}.json is missing" in detail) == ("missing_entry", True)
    first.write_bytes(b"")
    last.unlink()
    assert {what for what, _ in told()} == {"damaged_entry", "missing_entry"}
