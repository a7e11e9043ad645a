"""Journal files: written line by line so that kill -9 loses nothing, read while they grow."""

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final, Self, TypeVar

from partq.lab.verdict.journal_rows import (
    DeliveredRow,
    HeldRow,
    PublishedRow,
    Row,
    line_of,
    parse_lines,
)

_SUFFIX: Final = ".journal"

AnyRow = TypeVar("AnyRow", PublishedRow, DeliveredRow, HeldRow, Row)


class JournalWriter:
    """Appends rows to a separate file; what `write` has taken survives the writer's death.

    The rows are handed to the kernel before `write` returns. They do not survive the death of the
    machine, which no test here plays.
    """

    def __init__(self, directory: Path, name: str) -> None:
        """Open `directory/name.PID.journal`.

        Raises:
            OSError: the file cannot be made.
        """
        path = directory / f"{name}.{os.getpid()}{_SUFFIX}"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, *rows: Row) -> None:
        """Append rows in one call of the kernel, as far as it takes them at once.

        Raises:
            OSError: the disk is full or failing; a part of the rows may have been written.
        """
        data = memoryview(b"".join(map(line_of, rows)))
        while data:
            data = data[os.write(self._fd, data) :]

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class JournalReader:
    """Reads all journals of a directory; each call returns what was appended since the last one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read_bytes: dict[Path, int] = {}
        self._last_ns: dict[Path, int] = {}
        """The instant of the newest row that was read of each journal."""

    def read_new(self) -> list[Row]:
        """Return the new rows of all journals, those of one file in their order.

        Raises:
            OSError: a file cannot be read.
            ValueError: a line is not a row.
        """
        rows: list[Row] = []
        for path in sorted(self._directory.glob(f"*{_SUFFIX}")):
            start = self._read_bytes.get(path, 0)
            with path.open("rb") as file:
                file.seek(start)
                new, size = parse_lines(file.read())
            self._read_bytes[path] = start + size
            if new:
                self._last_ns[path] = new[-1].at_ns
            rows.extend(new)
        return rows

    def remove_ended(self, running: Collection[int], before_ns: int) -> None:
        """Remove journals that were read and end before an instant.

        Those of the processes `running` stay. Every process that is not among them must have ended
        before the last `read_new`.

        Raises:
            OSError: a file cannot be removed.
        """
        for path in list(self._read_bytes):
            pid = int(path.name.removesuffix(_SUFFIX).rpartition(".")[2])
            if pid not in running and self._last_ns.get(path, 0) < before_ns:
                path.unlink()
                del self._read_bytes[path]
                self._last_ns.pop(path, None)


def in_order(rows: Iterable[AnyRow]) -> list[AnyRow]:
    """Return rows by their instants; rows of one instant keep their order."""
    return sorted(rows, key=lambda row: row.at_ns)
