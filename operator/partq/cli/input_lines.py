"""Lines of a file or of standard input, one by one, while other tasks continue."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from partq.errors import MessageTooLargeError, SettingsError

CHUNK_BYTES = 64 * 1024
MAX_LINE_BYTES = 32 * 1024 * 1024
"""The longest line: a message of the largest size as JSON fits in."""
_STDIN = 0


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end."""

    number: int
    text: bytes
    read_bytes: int
    """How far the input had been read."""


async def open_lines(path: Path | None) -> AsyncIterator[Line]:
    """Yield the lines of a file; None: of standard input, each as soon as it is there.

    Raises:
        SettingsError: the file, or standard input, cannot be read.
        MessageTooLargeError: a line is above 32 MiB.
    """
    try:
        descriptor = _STDIN if path is None else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    number = read_bytes = 0
    rest: list[bytes] = []
    rest_bytes = 0
    try:
        while chunk := await _read(descriptor, "standard input" if path is None else str(path)):
            read_bytes += len(chunk)
            *ends, last = chunk.split(b"\n")
            for end in ends:
                number += 1
                yield Line(number, b"".join((*rest, end)).removesuffix(b"\r"), read_bytes)
                rest, rest_bytes = [], 0
            rest.append(last)
            rest_bytes += len(last)
            if rest_bytes > MAX_LINE_BYTES:
                raise MessageTooLargeError(
                    f"line {number + 1}: got more than {MAX_LINE_BYTES} bytes, expected at most "
                    "that"
                )
        if rest_bytes:
            yield Line(number + 1, b"".join(rest), read_bytes)
    finally:
        if path is not None:
            os.close(descriptor)


async def _read(descriptor: int, name: str) -> bytes:
    """Return what is there, waiting for something; empty: the end.

    Raises:
        SettingsError: it cannot be read, as what was opened to be written.
    """
    try:
        return await _read_descriptor(descriptor)
    except OSError as error:
        raise SettingsError(f"{name}: {error.strerror}; it cannot be read") from error


async def _read_descriptor(descriptor: int) -> bytes:
    """Return what is there.

    Waits on the event loop, not in a thread: a thread that waits for the terminal would keep the
    process from ending.
    """
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    try:
        loop.add_reader(descriptor, _resolve, readable)
    except PermissionError:
        return os.read(descriptor, CHUNK_BYTES)  # a regular file: it does not make us wait
    try:
        await readable
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, CHUNK_BYTES)


def _resolve(readable: "asyncio.Future[None]") -> None:
    if not readable.done():
        readable.set_result(None)
