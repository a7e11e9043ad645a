"""Checks the files of an archive: each is there, as it was put in place, and can be read."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from partq.pipeline.archive_columns import PLACE
from partq.pipeline.audit.judge.finding import FILES, AuditFinding, finding
from partq.pipeline.manifest import ArchiveState, DataFile, Stream
from partq.pipeline.storage.files import Files
from partq.pipeline.storage.local_files import LocalFiles
from partq.pipeline.watch import JobProgress, JobWatch

FILES_AT_ONCE = 4
"""How many files are read at the same time."""


@dataclass(frozen=True, slots=True)
class FileCheck:
    """What the check of files came to."""

    findings: Sequence[AuditFinding]
    unreadable: frozenset[str]
    """Paths of files that are not there, or cannot be read: nothing else may try."""

    def readable(self, files: Sequence[DataFile]) -> list[DataFile]:
        """Return the files that can be read."""
        return [each for each in files if each.path not in self.unreadable]


def check_files(
    files: Files, state: ArchiveState, streams: Sequence[Stream], watch: JobWatch
) -> FileCheck:
    """Check the files of an archive by their digests; those without one by reading all of them.

    A file that has its digest is as it was when it was put in place. One without a digest, from an
    earlier version, is read as a whole where it is on this machine. There the rows are compared
    with what the entry says of them, too.

    Args:
        files: of the archive.
        state: which files belong to it.
        streams: of which rows.
        watch: is told how far it is; a stop is noticed between two files.
    """
    wanted = [each for each in state.files.values() if each.stream in streams]
    findings: list[AuditFinding] = []
    unreadable: set[str] = set()
    total = sum(each.bytes for each in wanted)
    done = 0
    with ThreadPoolExecutor(FILES_AT_ONCE, "partq-audit-files") as threads:
        for each, found in _checked(threads, files, wanted, watch):
            done += each.bytes
            detail = "checking the archive's files"
            watch.show(JobProgress(done, total, detail, unit="bytes"))
            if found is not None:
                findings.append(found)
                if found.what in ("missing_file", "unreadable_file"):
                    unreadable.add(each.path)
    return FileCheck(findings, frozenset(unreadable))


def _checked(
    threads: ThreadPoolExecutor, files: Files, wanted: Sequence[DataFile], watch: JobWatch
) -> Iterator[tuple[DataFile, AuditFinding | None]]:
    """Yield each file with what is wrong with it; a stop leaves out the rest."""

    def check(each: DataFile) -> AuditFinding | None:
        return None if watch.is_stopped else _check(files, each)

    for each, found in zip(wanted, threads.map(check, wanted), strict=True):
        watch.check()
        yield each, found


def _check(files: Files, each: DataFile) -> AuditFinding | None:
    if not each.sha256 and not isinstance(files, LocalFiles):
        return None
    digest = files.digest(each.path)
    if not digest:
        return _of_file("missing_file", each, "is not there")
    if digest == each.sha256:
        return _check_rows(files, each)
    if problem := _read_problem(files, each):
        return _of_file("unreadable_file", each, f"cannot be read: {problem}")
    if not each.sha256:
        return _check_rows(files, each)
    return _of_file(
        "changed_file",
        each,
        f"has SHA-256 {digest}; it was put in place with {each.sha256}",
    )


def _check_rows(files: Files, each: DataFile) -> AuditFinding | None:
    """Compare the rows of a file on this machine with what its entry says of them."""
    if not isinstance(files, LocalFiles):
        return None
    place = PLACE[each.stream][0]
    try:
        with parquet.ParquetFile(
            f"{files.root}/{each.path}", read_dictionary=["partition"]
        ) as opened:
            rows = opened.read(columns=[place, "partition"])
            ends = pc.min_max(rows.column(place)).as_py()
            names = pc.unique(rows.column("partition")).to_pylist()
    except (pa.ArrowException, OSError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        return _of_file("unreadable_file", each, f"cannot be read: {reason}")
    found = (rows.num_rows, ends["min"], ends["max"], names)
    expected = (each.rows, each.first, each.stop - 1, [each.partition])
    if found == expected:
        return None
    return _of_file(
        "other_rows",
        each,
        f"has {found[0]} rows, from {found[1]} to {found[2]}, of the partitions {names}; its entry "
        f"says {each.rows} rows of partition {each.partition}",
    )


def _read_problem(files: Files, each: DataFile) -> str:
    """Read every column of a file, and return why that fails; empty: it does not."""
    data = files.read(each.path)
    if data is None:
        return "it is not there"
    try:
        with parquet.ParquetFile(BytesIO(data)) as opened:
            for _ in opened.iter_batches():
                pass
    except (pa.ArrowException, OSError, ValueError) as error:
        return str(error).partition("\n")[0]
    return ""


def _of_file(what: str, each: DataFile, problem: str) -> AuditFinding:
    rows = "messages" if each.stream == "messages" else "groups of the record"
    detail = f"{each.path}, with the {rows} {each.first} to {each.stop - 1}, {problem}"
    places = {"first": each.first, "stop": each.stop} if each.stream == "messages" else {}
    if each.stream == "audit":
        places["sequence"] = each.first
    return finding(FILES, what, each.partition, detail, **places)
