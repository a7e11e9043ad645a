"""Puts a recorded run into an archive, with no Spark."""

import pyarrow as pa
from pyarrow import parquet

from partq.pipeline.archive_columns import arrow_schema
from partq.pipeline.archive_log import ArchivedQueue, ArchiveLog
from partq.pipeline.manifest import ArchivePosition, DataFile, ManifestEntry
from partq.pipeline.storage.local_files import LocalFiles
from partq.wire.audit import COLUMNS
from partq.wire.batch import encode

_TEXTS = {
    *("partition", "previous", "chain", "kind", "broker", "group", "member", "incarnation"),
    *("cause", "producer", "target", "flags"),
}
_KINDS = {"slots": pa.binary(), "place": pa.int32(), "delivery": pa.int32()}
RECORD = pa.schema(
    [(name, pa.string() if name in _TEXTS else _KINDS.get(name, pa.int64())) for name in COLUMNS]
)


def write_archive(root, runs, stops=None, gaps=(), begins=None):
    """Write the archive of runs; each is a run and its record as it is read.

    Args:
        root: must not exist.
        runs: what is archived.
        stops: how far the archive says it has a partition's messages; else to the end of its run.
        gaps: what it says was gone before.
        begins: where it says that a partition's messages begin; else at 0.
    """
    root.mkdir()
    files = LocalFiles(str(root))
    added = []
    for at, (run, rows) in enumerate(runs):
        ordered = sorted(rows, key=lambda row: (row.sequence, row.place))
        messages = [each.row() for each in sorted(run.messages, key=lambda each: each.offset)]
        records = [asdict_of(row) for row in ordered]
        for stream, table, place in (
            ("audit", pa.Table.from_pylist(records, RECORD), "sequence"),
            ("messages", pa.Table.from_pylist(messages, arrow_schema("messages")), "offset"),
        ):
            if table.num_rows:
                path = f"{stream}-{at}.parquet"
                parquet.write_table(table, root / path)
                places = table.column(place).to_pylist()
                times = [row["at_ms"] for row in records] if stream == "audit" else [
                    each.at_ms for each in run.messages
                ]  # fmt: skip
                added.append(
                    DataFile(
                        path, stream, run.name, places[0], places[-1] + 1, table.num_rows,
                        (root / path).stat().st_size, min(times), max(times), files.digest(path),
                    )
                )  # fmt: skip
    positions = {
        "messages": {
            run.name: ArchivePosition((stops or {}).get(run.name, run.end)) for run, _ in runs
        },
        "audit": {run.name: ArchivePosition(len(run.record)) for run, rows in runs if rows},
    }
    beginnings = {
        "messages": {run.name: (begins or {}).get(run.name, 0) for run, _ in runs},
        "audit": {run.name: 0 for run, rows in runs if rows},
    }
    archive = ArchiveLog.open_for(files, ArchivedQueue("default", "orders", "0123abcd"))
    entry = ManifestEntry(
        number=0, attempt="made", kind="archive", at_ms=0, added=tuple(added),
        positions=positions, gaps=tuple(gaps), beginnings=beginnings,
    )  # fmt: skip
    for gap in gaps:
        if gap.undecodable_path:
            files.create(gap.undecodable_path, encode([b"\xc1"] * 3, [0] * 3))
    archive.commit(archive.load(), lambda _: entry)
    return str(root)


def asdict_of(row):
    return {name: getattr(row, name) for name in COLUMNS}
