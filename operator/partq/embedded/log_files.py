"""Log files of the processes of an embedded runtime: opened, and put aside when they are large."""

import os
from pathlib import Path
from typing import IO

MAX_LOG_BYTES = 16 * 1024 * 1024
"""A log above this is put aside (one older one is kept) when its process starts."""


def open_log(file: Path) -> IO[bytes]:
    """Open the log file of a process that starts, for its owner only, to be written at its end.

    Raises:
        OSError: it cannot be written, or is a symbolic link.
    """
    if file.exists() and file.stat().st_size > MAX_LOG_BYTES:
        file.replace(file.with_suffix(".old"))
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    return open(os.open(file, flags, 0o600), "ab")
