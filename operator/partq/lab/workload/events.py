"""The demo's input: NDJSON, one event per line, each with the key whose order counts."""

import gzip
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final, NamedTuple, cast

import partq
from partq.core.hashing import MAX_KEY_BYTES
from partq.errors import BadRequestError

MAX_LINE_BYTES: Final = 1024 * 1024
MAX_EVENTS: Final = 5_000_000
MAX_TEXT_BYTES: Final = 32 * 1024 * 1024
MAX_SEQ: Final = 2**53
"""Numbers above are not exact in every JSON reader."""

_GZIP_MAGIC: Final = b"\x1f\x8b"


class WorkloadEvent(NamedTuple):
    """One line of the input."""

    key: str
    number: int
    """`seq` of the line; without it, the running number of the key, from 1."""
    value: bytes
    """The line as it came, without its newline."""


def default_input() -> Path:
    """Return the path of the real events that come with the source tree.

    Raises:
        BadRequestError: partq was installed without them.
    """
    path = Path(partq.__file__).parents[2] / "examples" / "data" / "file-changes.ndjson.gz"
    if not path.is_file():
        raise BadRequestError(
            f"{path}: not there; expected the source tree's events. Name a --input"
        )
    return path


def load(path: Path) -> list[WorkloadEvent]:
    """Read all events of a file, gzipped or not, in its order.

    Raises:
        BadRequestError: the file cannot be read, has no event, or a line is not one.
    """
    try:
        with _open(path) as file:
            events = list(parse(_lines(file, path), str(path)))
    except (OSError, EOFError, zlib.error) as error:
        raise BadRequestError(f"{path}: cannot be read: {error}") from error
    if not events:
        raise BadRequestError(f"{path}: got no line, expected at least one event")
    return events


def text_of(path: Path) -> bytes:
    """Return the lines of a file one behind the other, as far as they have `MAX_TEXT_BYTES`.

    Raises: as `load`.
    """
    return b"\n".join(event.value for event in load(path))[:MAX_TEXT_BYTES]


def parse(lines: Iterable[bytes], name: str) -> Iterable[WorkloadEvent]:
    """Yield the event of each line; empty lines are skipped.

    Raises:
        BadRequestError: a line is not an event, or repeats the `seq` of an earlier one of its key.
    """
    seen: set[tuple[str, int]] = set()
    running: dict[str, int] = {}
    for count, line in enumerate(lines, start=1):
        value = line.rstrip(b"\r\n")
        if not value:
            continue
        try:
            key, number = _fields(value)
        except ValueError as error:
            raise BadRequestError(f"{name} line {count}: {error}") from None
        running[key] = running.get(key, 0) + 1 if number is None else number
        message = (key, running[key])
        if message in seen:
            raise BadRequestError(
                f"{name} line {count}: got seq {message[1]} of key {key!r} again, "
                "expected a different number for each event of a key"
            )
        seen.add(message)
        yield WorkloadEvent(*message, value)


def disordered(events: Iterable[WorkloadEvent]) -> int:
    """Return how many events do not follow their key's predecessor in the input itself."""
    highest: dict[str, int] = {}
    count = 0
    for event in events:
        count += event.number != highest.get(event.key, event.number - 1) + 1
        highest[event.key] = max(highest.get(event.key, event.number), event.number)
    return count


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        is_gzip = file.read(2) == _GZIP_MAGIC
    return cast(IO[bytes], gzip.open(path)) if is_gzip else path.open("rb")


def _lines(file: IO[bytes], path: Path) -> Iterable[bytes]:
    """Yield lines of bounded length, a bounded number of them."""
    count = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        count += 1
        if len(line) > MAX_LINE_BYTES:
            raise BadRequestError(
                f"{path} line {count}: got above {MAX_LINE_BYTES} bytes, expected less"
            )
        if count > MAX_EVENTS:
            raise BadRequestError(
                f"{path}: got more than {MAX_EVENTS} lines, expected at most that"
            )
        yield line


def _fields(value: bytes) -> tuple[str, int | None]:
    """Return a line's key and seq.

    Raises:
        ValueError: says what was got and expected.
    """
    try:
        event: object = json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError(f"got {_shown(value)}, expected a JSON object") from None
    if not isinstance(event, dict):
        raise ValueError(f"got {_shown(value)}, expected a JSON object with a key")
    return _key(event), _number(event)


def _key(event: dict[str, object]) -> str:
    if "key" not in event:
        raise ValueError(f"got no key among {sorted(event)[:10]}, expected a text under 'key'")
    key = event["key"]
    if not isinstance(key, str):
        raise ValueError(f"got key {key!r:.80}, expected a text")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise ValueError(f"got key {key!r:.80}, expected text that UTF-8 can write") from None
    if size > MAX_KEY_BYTES:
        raise ValueError(f"got a key of {size} bytes, expected at most {MAX_KEY_BYTES}")
    return key


def _number(event: dict[str, object]) -> int | None:
    number = event.get("seq")
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MAX_SEQ:
        raise ValueError(f"got seq {number!r:.80}, expected an integer from 0 to {MAX_SEQ}")
    return number


def _shown(value: bytes) -> str:
    return repr(value[:80].decode(errors="replace"))
