"""Checks the files of an archive: each is there, as it was put in place, and can be read."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from partq.core.model import SLOT_COUNT
from partq.errors import PartqError
from partq.pipeline.archive_columns import PLACE, TIME
from partq.pipeline.audit.content.columns import LAST_MS, wrong_columns
from partq.pipeline.audit.judge.finding import FILES, AuditFinding, finding
from partq.pipeline.manifest import ArchiveGap, ArchiveState, DataFile, Stream
from partq.pipeline.storage.files import Files
from partq.pipeline.storage.local_files import LocalFiles
from partq.pipeline.watch import JobProgress, JobWatch
from partq.wire.batch import MAX_BATCH_BYTES
from partq.wire.batch import check as check_batch

FILES_AT_ONCE = 4
"""How many files are read at the same time."""
BATCH_ROWS = 65_536
MAX_NAMES = 10
"""Partitions that a finding names."""
MAX_VALUE = 2**62
"""Of an offset, sequence or epoch."""
UNREADABLE: Final = frozenset({"missing_file", "unreadable_file", "wrong_columns", "outside_root"})
"""Findings on files that cannot be judged."""
_TIME: Final = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class FileCheck:
    """What the check of files came to."""

    findings: Sequence[AuditFinding]
    unreadable: frozenset[str]
    """Paths of files that are not there, or cannot be judged: nothing else may read them."""

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
            findings += found
            if any(one.what in UNREADABLE for one in found):
                unreadable.add(each.path)
    for gap in state.gaps:
        watch.check()
        findings += _check_kept(files, gap)
    return FileCheck(findings, frozenset(unreadable))


def _check_kept(files: Files, gap: ArchiveGap) -> Iterator[AuditFinding]:
    """Check the batch that is kept of undecodable messages; its header has a checksum of it."""
    path = gap.undecodable_path
    if not path:
        return
    if isinstance(files, LocalFiles) and files.leads_out(path):
        what, problem = "outside_root", "leads out of ROOT by a symbolic link: it is not read"
    elif (data := files.read(path)) is None:
        what, problem = "missing_file", "is not there"
    else:
        try:
            check_batch(data, slots=(range(SLOT_COUNT),), max_message_bytes=MAX_BATCH_BYTES)
        except PartqError as error:
            what, problem = "changed_file", f"is not the batch that was stored: {error.message}"
        else:
            return
    detail = f"{path}, with the undecodable messages {gap.first} to {gap.stop - 1}, {problem}"
    yield finding(FILES, what, gap.partition, detail, first=gap.first, stop=gap.stop)


def _checked(
    threads: ThreadPoolExecutor, files: Files, wanted: Sequence[DataFile], watch: JobWatch
) -> Iterator[tuple[DataFile, list[AuditFinding]]]:
    """Yield each file with what is wrong with it; a stop leaves out the rest."""

    def check(each: DataFile) -> list[AuditFinding]:
        return [] if watch.is_stopped else list(_check(files, each))

    for each, found in zip(wanted, threads.map(check, wanted), strict=True):
        watch.check()
        yield each, found


def _check(files: Files, each: DataFile) -> Iterator[AuditFinding]:
    is_local = isinstance(files, LocalFiles)
    if isinstance(files, LocalFiles) and files.leads_out(each.path):
        yield _of_file("outside_root", each, "leads out of ROOT by a symbolic link: it is not read")
        return
    if not each.sha256 and not is_local:
        return
    digest = files.digest(each.path)
    if not digest:
        yield _of_file("missing_file", each, "is not there")
        return
    if digest != each.sha256:
        if problem := _read_problem(files, each):
            yield _of_file("unreadable_file", each, f"cannot be read: {problem}")
            return
        if each.sha256:
            yield _of_file(
                "changed_file",
                each,
                f"has SHA-256 {digest}; it was put in place with {each.sha256}",
            )
    if is_local:
        is_changed = bool(each.sha256) and digest != each.sha256
        yield from _check_rows(f"{files.root}/{each.path}", each, is_changed=is_changed)


def _check_rows(path: str, each: DataFile, *, is_changed: bool) -> Iterator[AuditFinding]:
    """Compare the rows of a file on this machine with what its entry says of them.

    Of one that was changed the columns alone are checked: whether it can be judged.
    """
    try:
        problem = wrong_columns(each.stream, parquet.read_schema(path))
        found = _RowSummary(each.stream)
        if not problem:
            with parquet.ParquetFile(
                path, read_dictionary=["partition"], coerce_int96_timestamp_unit="us"
            ) as opened:
                for rows in opened.iter_batches(BATCH_ROWS, columns=found.columns):
                    found.add(rows)
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        yield _of_file("unreadable_file", each, f"cannot be read: {reason}")
        return
    problem = problem or found.problem
    if problem:
        yield _of_file("wrong_columns", each, f"has other columns than an archive: {problem}")
        return
    expected = (each.rows, each.first, each.stop - 1, each.min_ms, each.max_ms, [each.partition])
    if not is_changed and found.summary != expected:
        yield _of_file(
            "other_rows",
            each,
            f"has {_rows_text(*found.summary)}; its entry says {_rows_text(*expected)}",
        )


class _RowSummary:
    """What the rows of a file are, all together."""

    def __init__(self, stream: Stream) -> None:
        self._places = PLACE[stream]
        self._time = TIME[stream]
        self._valued = {*self._places, self._time}
        if stream == "messages":
            self._valued.add("append_broker_epoch")
        self._rows = 0
        self._ends: dict[str, tuple[int, int]] = {}
        self._names: dict[str | None, None] = {}
        self.problem = ""
        """Why the rows cannot be judged; empty: they can."""

    @property
    def columns(self) -> list[str]:
        """The columns that are looked at."""
        return [*self._valued, "partition"]

    @property
    def summary(
        self,
    ) -> tuple[int, int | None, int | None, int | None, int | None, list[str | None]]:
        """How many rows there are, their first and last place and time, and their partitions."""
        none = (None, None)
        places = self._ends.get(self._places[0], none)
        times = self._ends.get(self._time, none)
        return self._rows, *places, *times, list(self._names)

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows."""
        if not rows.num_rows:
            return
        self._rows += rows.num_rows
        self._names |= dict.fromkeys(pc.unique(rows.column("partition")).to_pylist())
        for name in self._valued:
            column = rows.column(name)
            if column.null_count:
                self.problem = f"column {name} has no value in {column.null_count} rows"
                continue
            if pa.types.is_timestamp(column.type):
                column = pc.divide(column.cast(_TIME).cast(pa.int64()), 1000)
            ends = pc.min_max(column).as_py()
            low, high = self._ends.get(name, (ends["min"], ends["max"]))
            low, high = min(low, ends["min"]), max(high, ends["max"])
            self._ends[name] = low, high
            if name == self._time and not 0 <= low <= high <= LAST_MS:
                self.problem = f"column {name} has a time outside the years 1970 to 9999"
            elif high > MAX_VALUE:
                self.problem = f"column {name} has {high}; expected at most {MAX_VALUE}"


def _rows_text(
    count: int,
    first: int | None,
    last: int | None,
    from_ms: int | None,
    until_ms: int | None,
    partitions: Sequence[str | None],
) -> str:
    names = ", ".join(str(each) for each in partitions[:MAX_NAMES])
    return (
        f"{count} rows from {first} to {last}, stored from {from_ms} to {until_ms} (unix ms), of "
        f"partition {names}"
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
    except (pa.ArrowException, OSError, TypeError, ValueError) as error:
        return str(error).partition("\n")[0]
    return ""


def _of_file(what: str, each: DataFile, problem: str) -> AuditFinding:
    rows = "messages" if each.stream == "messages" else "groups of the record"
    detail = f"{each.path}, with the {rows} {each.first} to {each.stop - 1}, {problem}"
    places = {"first": each.first, "stop": each.stop} if each.stream == "messages" else {}
    if each.stream == "audit":
        places["sequence"] = each.first
    return finding(FILES, what, each.partition, detail, **places)
