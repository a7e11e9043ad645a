"""Finding queues by files: a directory with one file for each queue, as a mounted Secret is."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from partq.client.transport.options import ConnectionOptions
from partq.errors import SettingsError
from partq.excerpts import excerpt, some_of
from partq.wire.calls import replies

MAX_FILE_BYTES = 64 * 1024
MAX_FILES = 1000
SUFFIX = ".json"
FIELDS = ("url", "token", "namespace", "ca_file")


def queues_in_directory(path: str | Path) -> Callable[[], Awaitable[list[ConnectionOptions]]]:
    """Return a `find` for `QueuesConsumer`: the queues of the files `QUEUE.json` in a directory.

    Each is a JSON object with `url`, and `token`, `namespace` and `ca_file` (a path from the
    directory on) where they are needed.
    Files appear and vanish with their queues; other files, and those that begin with a dot, do not
    count.

    What it returns raises SettingsError, with the file's name: the directory or a file cannot be
    read, a file is above 64 KiB or not such an object, or there are more than 1,000.
    """
    if not isinstance(path, str | Path):
        raise SettingsError(f"path: got {type(path).__name__}, expected a path")
    directory = Path(path)

    async def find() -> list[ConnectionOptions]:
        return await asyncio.to_thread(_read, directory)

    return find


def _read(directory: Path) -> list[ConnectionOptions]:
    try:
        files = sorted(
            each
            for each in directory.iterdir()
            if each.suffix == SUFFIX and not each.name.startswith(".")
        )
    except OSError as error:
        raise SettingsError(f"{directory}: {error.strerror}; expected a directory") from error
    if len(files) > MAX_FILES:
        raise SettingsError(
            f"{directory}: got {len(files)} files of queues, expected {MAX_FILES} at most"
        )
    return [_options(directory, file) for file in files]


def _options(directory: Path, file: Path) -> ConnectionOptions:
    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_FILE_BYTES + 1)
        if len(text) > MAX_FILE_BYTES:
            raise SettingsError(f"got more than {MAX_FILE_BYTES} bytes, expected at most that many")
        found = _fields(text)
        ca_file = found.get("ca_file")
        return ConnectionOptions(
            found.get("url", ""),
            file.stem,
            token=found.get("token"),
            namespace=found.get("namespace"),
            ca_file=directory / ca_file if ca_file is not None else None,
        )
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}; expected a file of a queue") from error
    except SettingsError as error:
        raise SettingsError(f"{file}: {error.message}") from None


def _fields(text: bytes) -> dict[str, str]:
    try:
        given = replies.parse_object(text)
    except ValueError as error:
        raise SettingsError(f"{error}; expected a JSON object with url and token") from None
    if unknown := sorted(given.keys() - set(FIELDS)):
        raise SettingsError(f"got {excerpt(unknown[0])!r}, expected no field but {some_of(FIELDS)}")
    for name, value in given.items():
        if not isinstance(value, str):
            raise SettingsError(f"{name}: got {type(value).__name__}, expected text")
    return {name: str(value) for name, value in given.items()}
