"""Standard output that says in one sentence why it cannot be written."""

import errno
import io
import os
import sys
from typing import Any

_STDOUT = 1
CLOSED_PIPE = 128 + 13
"""Exit status when the reader has gone, as that of a program which SIGPIPE has ended."""


class OutputError(Exception):
    """Standard output was not written: the command cannot tell its results.

    Args:
        error: what the system says.
    """

    def __init__(self, error: OSError) -> None:
        self.message = f"standard output was not written: {error.strerror}; results are missing"
        self.is_closed_pipe = error.errno == errno.EPIPE
        super().__init__(self.message)


class Output(io.RawIOBase):
    """Standard output; what it cannot write raises `OutputError`, wherever it is printed.

    Args:
        is_open: False when the process was started without one.
    """

    def __init__(self, *, is_open: bool) -> None:
        super().__init__()
        self._is_open = is_open
        self._is_discarded = False

    def writable(self) -> bool:
        """Say that it is there to be written."""
        return True

    def fileno(self) -> int:
        """Return the descriptor."""
        return _STDOUT

    def isatty(self) -> bool:
        """Say whether it is a terminal."""
        return self._is_open and os.isatty(_STDOUT)

    def discard(self) -> None:
        """Forget what comes from now on: Python writes what is left when it ends."""
        self._is_discarded = True

    def write(self, data: Any, /) -> int:
        """Write some bytes and return how many; a closed pipe is an error like others."""
        if self._is_discarded:
            return len(data)
        try:
            if not self._is_open:
                # The descriptor may be a connection of ours by now.
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            return os.write(_STDOUT, data)
        except OSError as error:
            raise OutputError(error) from error


def open_output() -> Output:
    """Let everything that prints to `sys.stdout` raise `OutputError`; return what it writes to."""
    before = sys.stdout
    raw = Output(is_open=before is not None)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(before, "encoding", None) or "utf-8",
        errors=getattr(before, "errors", None),
        line_buffering=raw.isatty(),
    )
    return raw
