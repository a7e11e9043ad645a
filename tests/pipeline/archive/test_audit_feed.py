"""The audit record is archived with the messages, and trimmed once it is durable."""

import json
import shutil

import pytest
from click.testing import CliRunner

from partq.cli.commands import cli
from partq.client.audit_reader import AuditReader
from partq.pipeline.archive_columns import AUDIT_COLUMNS
from partq.pipeline.archive_files import read_archive, read_audit, read_state
from partq.pipeline.archive_log import ArchiveLog
from partq.pipeline.storage.local_files import LocalFiles
from partq.wire import audit
from tests.spark.live_queue import live_queue

COUNT = 60


@pytest.fixture(scope="module")
def queue():
    with live_queue(partitions=2, groups=["archive"], spec={"audit": True}) as running:
        yield running


def run(queue, *arguments, token=None, **options):
    where = ["--url", queue.broker.url, "--queue", queue.name]
    secret = ["--token", token or queue.broker.tokens.admin]
    given = ["pipeline", "archive", *map(str, arguments), *where, *secret]
    return CliRunner().invoke(cli, given, **options)


def auditing(queue, call):
    async def ask():
        async with AuditReader(
            queue.broker.url, queue=queue.name, token=queue.broker.tokens.admin
        ) as reader:
            return await call(reader)

    return queue.run(ask())


async def _everything(reader):
    return {
        str(partition): [group async for group in reader.groups(partition, extent.first)]
        for partition, extent in (await reader.bounds()).items()
    }


def test_the_columns_are_those_of_the_record():
    assert tuple(AUDIT_COLUMNS) == audit.COLUMNS


def test_the_record_is_archived_and_trimmed(spark, queue, tmp_path):
    queue.publish(range(COUNT))
    before = auditing(queue, _everything)
    result = run(queue, tmp_path, "--group", "archive", "--json")

    assert result.exit_code == 0, result.stderr
    done = json.loads(result.stdout)
    assert (done["is_complete"], done["lag"], done["rows"]["messages"]) == (True, 0, COUNT)
    rows = sorted(
        read_audit(spark, str(tmp_path)).collect(),
        key=lambda row: (row.partition, row.sequence, row.place),
    )
    assert done["rows"]["audit"] == len(rows)
    archived = [row.asDict() for row in rows]
    for partition, groups in before.items():
        columns = audit.decode_columns(partition, groups)
        expected = list(zip(*columns.values(), strict=True))
        ours = [row for row in archived if row["partition"] == partition][: len(expected)]
        assert [tuple(row[name] for name in columns) for row in ours] == expected

    # Whatever a publish speaks of is in the archive of the messages, too.
    published = {
        (row["partition"], offset)
        for row in archived
        if row["kind"] == "publish"
        for offset in range(row["first"], row["stop"])
    }
    messages = {(row.partition, row.offset) for row in read_archive(spark, str(tmp_path)).collect()}
    assert len(published) == COUNT
    assert published <= messages

    positions = read_state(spark, str(tmp_path)).positions["audit"]
    extents = auditing(queue, lambda reader: reader.bounds())
    assert {str(each): extent.first for each, extent in extents.items()} == {
        partition: at.offset for partition, at in positions.items()
    }


def test_what_comes_later_is_added_once(spark, queue, tmp_path):
    """The archive's own steps are on record: cursors that move, messages that are freed."""
    for options in (["--take-over-audit"], []):
        queue.publish(range(5))
        assert run(queue, tmp_path, "--group", "archive", *options).exit_code == 0
    rows = read_audit(spark, str(tmp_path)).select("partition", "sequence", "place").collect()
    assert len(rows) == len(set(rows))
    for partition in ("1.0", "1.1"):
        sequences = sorted({row.sequence for row in rows if row.partition == partition})
        assert sequences == list(range(sequences[0], sequences[-1] + 1))


def test_two_archives_do_not_take_the_record_from_each_other(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    one = [first, "--group", "archive", "--engine", "arrow"]
    two = [second, "--group", "lake", "--engine", "arrow"]
    groups = ["archive", "lake"]
    with live_queue(partitions=2, groups=groups, spec={"audit": True}) as both:

        def firsts():
            return {
                each: extent.first
                for each, extent in auditing(both, lambda reader: reader.bounds()).items()
            }

        def refused(sentence, *options):
            before, cursors = firsts(), both.cursors("lake")
            result = run(both, *options)
            assert result.exit_code == 1
            assert sentence in result.stderr.splitlines()[-1]
            assert (firsts(), both.cursors("lake")) == (before, cursors)

        both.publish(range(COUNT))
        assert run(both, *one).exit_code == 0
        both.publish(range(COUNT))
        refused("another archive has the audit record up to group", *two)
        refused("another archive has the audit record up to group", *two, "--skip-lost")
        assert run(both, *two, "--no-audit").exit_code == 0
        refused("another archive has the audit record up to group", *two)
        assert run(both, *one).exit_code == 0  # it has lost nothing

        assert run(both, *two, "--take-over-audit").exit_code == 0
        assert run(both, *two).exit_code == 0  # from now on the record is its own
        refused("with --take-over-audit it notes the gap", *one, "--skip-lost")
    gaps = ArchiveLog.open(LocalFiles(str(first))).load().gaps
    assert gaps == []


def test_groups_that_no_archive_has_stay_after_a_rollback(tmp_path):
    """The store has lost audit groups alone, and has others under their numbers by now."""
    copy, root = tmp_path / "redis", tmp_path / "root"
    options = ["--group", "archive", "--engine", "arrow"]
    with live_queue(partitions=1, groups=["archive"], spec={"audit": True}) as rolled:
        rolled.publish(range(COUNT))
        shutil.copytree(rolled.broker.runtime.data_dir / "redis", copy)
        assert run(rolled, root, *options).exit_code == 0  # its cursor and trim are on record
        assert run(rolled, root, *options).exit_code == 0
        rolled.roll_back(copy)

        def refused(*sentences):
            result = run(rolled, root, *options)
            assert result.exit_code == 1
            assert any(each in result.stderr.splitlines()[-1] for each in sentences)
            (extent,) = auditing(rolled, lambda reader: reader.bounds()).values()
            assert extent.first == 0

        refused("the audit record ends at", "the chain of the audit record before group")
        (position,) = ArchiveLog.open(LocalFiles(str(root))).load().positions["audit"].values()
        while auditing(rolled, _everything)["1.0"][-1].sequence <= position.offset:
            rolled.publish(range(1))
        refused("the chain of the audit record before group")


def test_a_record_that_continues_from_another_chain_is_refused(queue, tmp_path):
    options = [tmp_path, "--group", "archive", "--engine", "arrow"]
    queue.publish(range(5))
    assert run(queue, *options, "--take-over-audit").exit_code == 0
    positions = ArchiveLog.open(LocalFiles(str(tmp_path))).load().positions["audit"]
    for entry in (tmp_path / "_partq/log").iterdir():
        text = entry.read_text(encoding="utf-8")
        for position in positions.values():
            text = text.replace(position.chain, "0" * 40)
        entry.write_text(text, encoding="utf-8")
    queue.publish(range(5))
    result = run(queue, *options)

    assert result.exit_code == 1
    assert "of the audit record follows another chain" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "changed", "sentence"),
    [
        ([], {}, "--group is not given (PARTQ_GROUP)"),
        (["--group", "nobody"], {}, "nobody"),
        (["--group", "archive"], {"token": "consume"}, "or leave the audit record out with --no-a"),
        (["--group", "archive"], {"token": "wrong"}, "token"),
        (["--group", "archive", "--max-rows", "0"], {}, "0 is not in the range"),
    ],
)
def test_wrong_input_is_a_sentence(spark, queue, tmp_path, arguments, changed, sentence):
    if changed.get("token") == "consume":
        changed = {"token": queue.broker.tokens.consume}
    result = run(queue, tmp_path / "root", *arguments, **changed)

    assert result.exit_code in (1, 2)
    assert result.stdout == ""
    assert sentence in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_a_root_that_cannot_be_written_is_a_sentence(spark, queue, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    result = run(queue, tmp_path / "file", "--group", "archive")

    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()[-1:]
    assert f"ROOT {tmp_path / 'file'}: cannot be used: " in line
    assert "Not a directory; expected a folder that this user may read and write" in line


def test_with_a_url_the_data_directory_is_not_looked_at(queue, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".partq").write_bytes(b"")  # what no runtime can use
    result = run(queue, tmp_path / "root", "--group", "archive", "--no-audit")

    assert result.exit_code == 0, result.stderr
