"""`partq publish`: messages from arguments, lines or NDJSON."""

import asyncio
import base64
import binascii
import json
import math
import os
import re
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeGuard

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from partq.cli.formatting import milliseconds
from partq.cli.input_lines import Line, open_lines
from partq.cli.messages.scheduled import print_waiting
from partq.cli.quantity import Delay, Quantity
from partq.cli.queues.connection import (
    Connect,
    QueueAddress,
    connection_options,
    wait_option,
)
from partq.cli.standard_input import check_open
from partq.client.produce.batching import CODECS
from partq.client.produce.results import Position
from partq.client.producer import Producer
from partq.core.numbering.scheduled_ids import AT_ONCE, MAX_AHEAD_DAYS, DueTime, at_time
from partq.errors import BadRequestError, PartqError
from partq.excerpts import excerpt
from partq.logs import left_out

MAX_WAITING = 10_000
"""Messages whose answers are kept back, so that results come in the order of the input."""

_HELP = """Publish VALUES, or the lines of standard input, or an NDJSON file.

Each value and each line is one message. With --input each line is a JSON object with `value` (a
text; anything else is stored as JSON) or `value_base64`, and if wanted `key`, `headers`,
`event_time_ms` and `message_id`; other fields are left out. What `partq consume --json` prints can
be published.

\b
  partq publish --key order-17 paid shipped
  tail -f events.log | partq publish
  partq publish --input events.ndjson
  partq publish --atomic --key order-17 paid shipped   all, or none
  partq publish --key order-17 --after 15m remind
  partq publish --json hello               prints {"partition": "1.3", "offset": 17}

Exit status 1 when a message was not stored, or its outcome is unknown.
"""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message, and where it stands in the input."""

    value: bytes
    key: str | None
    where: str
    read_bytes: int
    """How far the input had been read."""
    headers: dict[str, str] | None = None
    event_time_ms: int = 0
    message_id: str | None = None


@dataclass(slots=True)
class PublishTally:
    """What has become of the messages so far."""

    published_count: int = 0
    failed_count: int = 0
    duplicate_count: int = 0
    """Not stored, as their ids were known."""
    waiting_count: int = 0
    due: DueTime = AT_ONCE


@click.command(help=_HELP)
@click.argument("values", nargs=-1)
@connection_options
@wait_option
@click.option("--key", help="Partition key of all messages. Without one any partition will do.")
@click.option(
    "--id",
    "message_id",
    help="Id of the one message: a queue with duplicateDetection does not store it if it knows it.",
)
@click.option(
    "--at",
    help="When all messages are to be delivered, such as 2026-12-01T08:00:00Z.",
)
@click.option(
    "--after",
    "after_s",
    type=Delay(MAX_AHEAD_DAYS),
    help="How long all messages wait before they are delivered, such as 15m; seconds without a "
    "unit.",
)
@click.option(
    "--input",
    "input_file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="NDJSON file, - for standard input.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON line for each message.")
@click.option(
    "--timeout",
    "timeout_s",
    type=Quantity(0.1, 3600),
    default=30.0,
    show_default=True,
    help="Seconds to keep trying before a message counts as failed.",
)
@click.option(
    "--compression",
    type=click.Choice(sorted(CODECS)),
    default="auto",
    show_default=True,
    help="Compression of batches, on their way and in Redis; auto: LZ4 where it pays.",
)
@click.option(
    "--atomic",
    "is_atomic",
    is_flag=True,
    help="Store all messages, which have one key, or none: at most 65,536 and 16 MiB together.",
)
def publish(
    *,
    values: tuple[str, ...],
    connect: Connect,
    wait_s: float,
    key: str | None,
    message_id: str | None,
    at: str | None,
    after_s: float | None,
    input_file: Path | None,
    as_json: bool,
    timeout_s: float,
    compression: str,
    is_atomic: bool,
) -> None:
    """Publish everything and report."""
    if input_file is not None and (values or key is not None):
        raise click.UsageError(
            "--input cannot be combined with VALUES or --key: each line has its own"
        )
    if message_id is not None and is_atomic:
        raise click.UsageError("--id cannot be combined with --atomic")
    if message_id is not None and len(values) != 1:
        raise click.UsageError("--id is of one message: give one VALUE, or ids by --input")
    if is_atomic and (at is not None or after_s is not None):
        raise click.UsageError("--atomic cannot be combined with --at or --after")
    if at is not None and after_s is not None:
        raise click.UsageError("give either --at, or --after")
    due = DueTime(after_ms=round((after_s or 0) * 1000))
    if at is not None:
        due = at_time(milliseconds(at, "--at"))
    connection = connect("produce")
    messages: AsyncIterator[Outgoing]
    size_bytes: int | None = None
    if values:
        messages = _arguments(values, key, message_id)
    else:
        is_stdin = input_file is None or str(input_file) == "-"
        path = None if is_stdin else input_file
        if path is None:
            check_open("give the messages as VALUES, by a pipe, or in a file with --input")
        size_bytes = path.stat().st_size if path else None
        messages = _records(path) if input_file is not None else _lines(key)
    outcome = PublishTally(due=due)
    work = _publish(
        connection,
        messages,
        outcome,
        as_json,
        wait_s=wait_s,
        timeout_s=timeout_s,
        compression=compression,
        size_bytes=size_bytes,
        is_atomic=is_atomic,
        due=due,
    )
    try:
        with left_out("partq.client.failures", lambda _: True):
            asyncio.run(work)
    finally:
        if not as_json:
            failed = f", {outcome.failed_count} failed" if outcome.failed_count else ""
            known = f", {outcome.duplicate_count} known" if outcome.duplicate_count else ""
            click.echo(f"published {outcome.published_count}{known}{failed}")
    if outcome.failed_count:
        raise click.exceptions.Exit(1)


async def _publish(
    connection: QueueAddress,
    messages: AsyncIterator[Outgoing],
    outcome: PublishTally,
    as_json: bool,
    *,
    wait_s: float,
    timeout_s: float,
    compression: str,
    size_bytes: int | None,
    is_atomic: bool,
    due: DueTime,
) -> None:
    waiting: deque[asyncio.Future[Position]] = deque()
    progress = _progress(size_bytes)
    async with Producer(
        **connection.options().arguments(),
        compression=compression,
        delivery_timeout_s=timeout_s,
        connect_timeout_s=wait_s,
    ) as producer:
        if is_atomic:
            await _publish_whole(producer, messages, outcome, as_json)
            return
        with progress or nullcontext():
            task = progress.add_task("publishing", total=size_bytes) if progress else None
            try:
                async for message in messages:
                    waiting.append(await _send(producer, message, due))
                    while waiting and (waiting[0].done() or len(waiting) > MAX_WAITING):
                        await _await_answer(waiting.popleft(), outcome, as_json)
                    if progress and task is not None:
                        progress.update(task, completed=message.read_bytes)
            finally:
                # A bad line ends the input; what stands before it is published and counted.
                while waiting:
                    await _await_answer(waiting.popleft(), outcome, as_json)


async def _publish_whole(
    producer: Producer, messages: AsyncIterator[Outgoing], outcome: PublishTally, as_json: bool
) -> None:
    """Publish all messages, or none; a bad line means none."""
    count = 0
    transaction = producer.transaction()
    try:
        async with transaction:
            async for message in messages:
                count += 1
                with _named(message):
                    if message.message_id is not None:
                        raise BadRequestError(
                            "message_id: messages of a transaction have none; leave it out"
                        )
                    transaction.send(
                        message.value,
                        key=message.key,
                        headers=message.headers,
                        event_time_ms=message.event_time_ms,
                    )
    except BadRequestError:
        raise
    except PartqError as error:
        outcome.failed_count = count
        _print_error(error, as_json)
        return
    for position in transaction.positions:
        outcome.published_count += 1
        if as_json:
            click.echo(_placed(position))


@contextmanager
def _named(message: Outgoing) -> Iterator[None]:
    """Say in an error where the message stands."""
    try:
        yield
    except BadRequestError as error:
        raise type(error)(f"{message.where}: {error.message}") from error


async def _send(producer: Producer, message: Outgoing, due: DueTime) -> asyncio.Future[Position]:
    with _named(message):
        return await producer.send(
            message.value,
            key=message.key,
            headers=message.headers,
            event_time_ms=message.event_time_ms,
            message_id=message.message_id,
            deliver_at=datetime.fromtimestamp(due.due_ms / 1000, UTC) if due.due_ms else None,
            deliver_after_s=due.after_ms / 1000 if due.after_ms else None,
        )


async def _await_answer(
    answer: asyncio.Future[Position], outcome: PublishTally, as_json: bool
) -> None:
    """Wait for the answer to one message, count it and print it."""
    try:
        position = await answer
    except PartqError as error:
        outcome.failed_count += 1
        if as_json or outcome.failed_count == 1:
            _print_error(error, as_json)
    else:
        if position.is_duplicate:
            outcome.duplicate_count += 1
        else:
            outcome.published_count += 1
        if as_json:
            click.echo(_placed(position))
        elif position.scheduled is not None and not position.is_duplicate:
            outcome.waiting_count += 1
            print_waiting(position.scheduled, outcome.due, outcome.waiting_count)


def _print_error(error: PartqError, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"error": {"code": error.code, "message": error.message}}))
    else:
        click.echo(f"partq: {error.message}", err=True)


def _placed(position: Position) -> str:
    found: dict[str, object] = {"partition": str(position.partition), "offset": position.offset}
    if position.scheduled is not None:
        found |= {"offset": None, "scheduled": position.scheduled}
    if position.is_duplicate:
        found |= {"offset": None, "is_duplicate": True}
    return json.dumps(found)


def _progress(size_bytes: int | None) -> Progress | None:
    """Return a bar for a file, where somebody looks at it."""
    if size_bytes is None or not sys.stderr.isatty():
        return None
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


async def _arguments(
    values: tuple[str, ...], key: str | None, message_id: str | None
) -> AsyncIterator[Outgoing]:
    for number, value in enumerate(values, start=1):
        yield Outgoing(os.fsencode(value), key, f"value {number}", 0, message_id=message_id)


async def _lines(key: str | None) -> AsyncIterator[Outgoing]:
    async for line in open_lines(None):
        yield Outgoing(line.text, key, f"line {line.number}", line.read_bytes)


async def _records(path: Path | None) -> AsyncIterator[Outgoing]:
    name = "standard input" if path is None else str(path)
    async for line in open_lines(path):
        if line.text.strip():
            yield parse_record(line, f"{name}, line {line.number}")


def parse_record(line: Line, where: str) -> Outgoing:
    """Read one line of NDJSON.

    Raises:
        BadRequestError: says where and what is wrong.
    """
    try:
        record = json.loads(
            line.text,
            object_pairs_hook=_object,
            parse_int=_WrittenNumber,
            parse_float=_WrittenNumber,
            parse_constant=_WrittenNumber,
        )
    except _TwiceError as error:
        raise BadRequestError(
            f"{where}: got the field {excerpt(error)!r} twice, expected it once"
        ) from error
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"{where}: got no JSON ({error}), expected an object") from error
    if not isinstance(record, dict):
        raise BadRequestError(f"{where}: got JSON that is not an object, expected one with `value`")
    key, headers = record.get("key"), record.get("headers")
    event_time = record.get("event_time_ms", _WrittenNumber("0"))
    if key is not None and not isinstance(key, str):
        raise BadRequestError(f"{where}: key: got {excerpt(repr(key))}, expected a text or null")
    if headers is not None and not _is_headers(headers):
        raise BadRequestError(
            f"{where}: headers: got {excerpt(repr(headers))}, expected texts by name"
        )
    if not isinstance(event_time, _WrittenNumber) or not event_time.is_whole:
        raise BadRequestError(
            f"{where}: event_time_ms: got {excerpt(repr(event_time))}, expected a whole number"
        )
    message_id = record.get("message_id")
    if message_id is not None and not isinstance(message_id, str):
        raise BadRequestError(
            f"{where}: message_id: got {excerpt(repr(message_id))}, expected a text or null"
        )
    value = _value(record, where)
    return Outgoing(
        *(value, key, where, line.read_bytes, headers or None, int(event_time.text), message_id)
    )


@dataclass(frozen=True, slots=True)
class _WrittenNumber:
    """A number as it is written: as a float it would lose digits."""

    text: str

    def __repr__(self) -> str:
        return self.text

    @property
    def is_whole(self) -> bool:
        """Whether it has neither a fraction nor an exponent, and at most 30 digits."""
        return re.fullmatch(r"-?[0-9]{1,30}", self.text) is not None

    @property
    def is_json(self) -> bool:
        """Whether JSON has it, and readers can hold it: no NaN, and no exponent beyond them."""
        return self.text.lstrip("-").isdigit() or math.isfinite(float(self.text))


class _TwiceError(Exception):
    """A field that stands twice in an object: one of its values would be lost."""


def _object(fields: list[tuple[str, object]]) -> dict[str, object]:
    record: dict[str, object] = {}
    for name, value in fields:
        if name in record:
            raise _TwiceError(name)
        record[name] = value
    return record


def _is_headers(headers: object) -> TypeGuard[dict[str, str]]:
    return isinstance(headers, dict) and all(isinstance(text, str) for text in headers.values())


def _value(record: Mapping[str, object], where: str) -> bytes:
    if ("value" in record) == ("value_base64" in record):
        raise BadRequestError(f"{where}: expected one of `value` and `value_base64`")
    if "value" in record:
        value = record["value"]
        try:
            if isinstance(value, str):
                return value.encode()
            return _as_json(value).encode()
        except RecursionError as error:
            raise BadRequestError(
                f"{where}: value: got JSON nested too deep; store it as a text"
            ) from error
        except UnicodeEncodeError as error:
            raise BadRequestError(f"{where}: value: got half a character: {error}") from error
        except ValueError as error:
            raise BadRequestError(
                f"{where}: value: got a number that JSON does not have (NaN, or too large), "
                "expected another one, or a text"
            ) from error
    text = record["value_base64"]
    if not isinstance(text, str):
        raise BadRequestError(
            f"{where}: value_base64: got {excerpt(repr(text))}, expected a text in base64"
        )
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequestError(
            f"{where}: value_base64: got {excerpt(repr(text))}, expected base64 with its padding"
        ) from error


def _as_json(value: object) -> str:
    """Return a value as JSON, its numbers as they were written.

    Raises:
        ValueError: it has a number that JSON does not have.
    """
    if isinstance(value, dict):
        fields = [f"{_as_json(name)}: {_as_json(each)}" for name, each in value.items()]
        return f"{{{', '.join(fields)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_as_json, value))}]"
    if isinstance(value, _WrittenNumber):
        if not value.is_json:
            raise ValueError(value.text)
        return value.text
    return json.dumps(value, ensure_ascii=False)
